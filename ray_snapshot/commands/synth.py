"""`ray-snapshot history synth`: a made-up history of any size, with known anomalies planted."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ray_snapshot.errors import HistoryNotFoundError, SettingError
from ray_snapshot.wrapping import print_text

if TYPE_CHECKING:
    from datetime import datetime

    from ray_snapshot.history import History


def synth(
    machines: Annotated[int, typer.Option(help="How many machines each snapshot has, beside the driver.")],
    snapshots: Annotated[int, typer.Option(help="How many snapshots.")],
    out: Annotated[str, typer.Option(help="The folder of the history; a run is added to one that is there.")],
    anomalies: Annotated[
        str | None, typer.Option(help="What to plant, separated by commas, such as deadlock,leak; or 'all'.")
    ] = None,
    seed: Annotated[int, typer.Option(help="Chooses what is sent and where anomalies are.")] = 0,
    system: Annotated[str, typer.Option(help="The name of the system.")] = "synth",
    every: Annotated[float, typer.Option(help="Seconds from one snapshot to the next.")] = 1.0,
    verdicts: Annotated[
        bool, typer.Option(help="Whether the detectors judge each snapshot, as they would live.")
    ] = True,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a planted anomaly and line.")] = False,
) -> None:
    """Make up a history, to try and measure the Spark jobs.

    With or without anomalies. What was planted is printed, and noted in planted.json beside the tables.
    """
    from ray_snapshot.synth import Settings, synthesise
    from ray_snapshot.views import tables

    begin = _begin(out)
    given: dict[str, Any] = {} if begin is None else {"started_at": begin}
    settings = Settings(machines, snapshots, _anomalies(anomalies), seed, system, every, **given)
    found = synthesise(out, settings, verdicts=verdicts)
    if json:
        for row in found:
            tables.print_json(row)
        return
    print_text(f"{snapshots:,} snapshots of {machines:,} machines written to {out}")
    columns = [
        tables.Column("anomaly", "anomaly"),
        tables.Column("from snapshot", "snapshot_id"),
        tables.Column("told by", lambda row: ", ".join(row["jobs"])),
        tables.Column("where", lambda row: _where(row["details"]), wraps=True),
    ]
    if found:
        tables.print_table(found, columns, title="Planted")
    else:
        print("Nothing was planted: no job finds anything in it")


def _anomalies(given: str | None) -> tuple[str, ...]:
    from ray_snapshot.synth import ANOMALIES

    if given == "all":
        return tuple(ANOMALIES)
    return tuple(name.strip() for name in (given or "").split(",") if name.strip())


def _begin(out: str) -> datetime | None:
    """A run that is added to a history begins a minute after its latest snapshot; None: there is none yet."""
    from ray_snapshot.addresses import is_address
    from ray_snapshot.history import History

    if is_address(out):
        try:
            return _after(History(out))
        except HistoryNotFoundError:  # or it cannot be reached: its writer says so
            return None
    folder = Path(out)
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return None
    if not folder.is_dir():
        raise SettingError(f"--out {out} is a file: name a folder")
    return _after(History(out))


def _after(history: History) -> datetime | None:
    import pyarrow.compute as pc

    latest: datetime | None = pc.max(history.table("snapshots")["started_at"]).as_py()
    return None if latest is None else latest.replace(microsecond=0) + timedelta(minutes=1)


def _where(details: dict[str, Any]) -> str:
    def text(value: Any) -> str:
        return " ".join(map(str, value)) if isinstance(value, list) else str(value)

    return ", ".join(f"{name.replace('_', ' ')} {text(value)}" for name, value in details.items())
