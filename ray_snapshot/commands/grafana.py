"""`ray-snapshot grafana`: the dashboard, and the alert rules, that come with the package."""

from __future__ import annotations

import json
import os
import re
from functools import partial
from importlib import resources
from pathlib import Path
from typing import Annotated, Any

import typer

from ray_snapshot.commands.files import write_file
from ray_snapshot.errors import SettingError

RAYS_OWN = Path("/tmp/ray/session_latest/metrics/grafana/dashboards")
"""Where a Grafana that was set up as Ray's pages say looks for dashboards of the cluster on this machine."""
FILE = "ray_snapshot_dashboard.json"
TOKEN = "GRAFANA_TOKEN"
ANSWER_S = 20.0


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(grafana)


def grafana(
    install: Annotated[bool, typer.Option("--install", help="Put the dashboard where Grafana finds it.")] = False,
    to: Annotated[
        str | None,
        typer.Option(
            help="With --install: a folder of dashboards, or the address of a Grafana; default: Ray's own folder.",
            show_default=False,
        ),
    ] = None,
    alerts: Annotated[bool, typer.Option("--alerts", help="Print the alert rules, for Prometheus.")] = False,
) -> None:
    """Print the Grafana dashboard of ray-snapshot's metrics as JSON, or install it.

    A Grafana at an address is asked with the token in GRAFANA_TOKEN, or with USER:PASSWORD@ in the address.
    """
    if to is not None and not install:
        raise SettingError(f"--to {to}: it belongs to --install")
    if alerts and install:
        raise SettingError(
            "--alerts prints the rules: name the file under rule_files in prometheus.yml, and leave --install out"
        )
    if not install:
        print(packed("alerts.yml" if alerts else "dashboard.json"), end="")
    elif to is not None and re.match("https?://", to, re.IGNORECASE):
        print(f"ray-snapshot: the dashboard is at {_sent(to.rstrip('/'))}")
    else:
        print(f"ray-snapshot: the dashboard is in {_written(to)}")


def packed(name: str) -> str:
    """A file of the package, as text."""
    return resources.files("ray_snapshot").joinpath("grafana", name).read_text(encoding="utf-8")


def _written(to: str | None) -> Path:
    folder = RAYS_OWN if to is None else Path(to)
    if not folder.is_dir():
        hint = "start Ray with its dashboard (pip install 'ray[default]'), or say --to DIR or --to http://GRAFANA"
        raise SettingError(
            f"there is no folder {folder} to install the dashboard in: {hint if to is None else 'make it first'}"
        )
    path = folder / FILE
    if path.is_symlink():  # Ray's folder lies where every user may write
        raise SettingError(f"{path} is a link: remove it first")
    write_file(path, packed("dashboard.json"))
    return path


def _with_token(token: str, request: Any) -> Any:
    """Before a password in the address, or in a file of the user's, which would be taken else."""
    request.headers["Authorization"] = f"Bearer {token}"
    return request


def _sent(address: str) -> str:
    """Where the dashboard is now in that Grafana."""
    import requests

    token = os.environ.get(TOKEN, "")
    if not token.isascii():
        raise SettingError(f"{TOKEN}: a token has plain characters only")
    shown = address.rpartition("@")[2] if "@" in address else address.partition("://")[2]
    dashboard: dict[str, Any] = {**json.loads(packed("dashboard.json")), "id": None}
    try:
        answer = requests.post(
            f"{address}/api/dashboards/db",
            json={"dashboard": dashboard, "overwrite": True},
            auth=partial(_with_token, token) if token else None,
            timeout=ANSWER_S,
            allow_redirects=False,
        )
        told = answer.json() if answer.content else {}
    except requests.exceptions.JSONDecodeError:
        told = {}
    except requests.RequestException as error:
        raise SettingError(f"no Grafana can be asked at {shown}: {type(error).__name__}") from None
    message = told.get("message", "") if isinstance(told, dict) else ""
    if not answer.ok or answer.is_redirect:
        hint = f"; set {TOKEN} to a token that may edit dashboards" if answer.status_code in (401, 403) else ""
        raise SettingError(f"the Grafana at {shown} answered {answer.status_code} {str(message)[:200]}{hint}")
    path = told.get("url", "") if isinstance(told, dict) else ""
    return f"{address.partition('://')[0]}://{shown}{path}"
