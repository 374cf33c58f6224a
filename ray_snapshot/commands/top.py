"""`ray-snapshot top`: a running system on one screen, anew each second."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ray_snapshot.errors import SystemNotRunningError
from ray_snapshot.views.live import STATUSES, lines, screen
from ray_snapshot.views.tables import is_terminal, print_json
from ray_snapshot.wrapping import print_text

if TYPE_CHECKING:
    from ray_snapshot.glances import Glance
    from ray_snapshot.web.live import Clusters
    from ray_snapshot.web.served import Running

MOST_SNAPSHOTS = 20
_OURS: dict[str, Any] = {"redirect_stdout": False, "redirect_stderr": False}
"""Our own streams stay: what is written to them is made plain, and rich's colours go behind them."""
FIRST_S = 60.0
"""How long the first answer may take."""
GONE_S = 10.0
"""A system that has not answered for so long is gone: with its cluster, most often."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(top)


def top(
    name: Annotated[
        str | None, typer.Argument(help="The system; without: the one that runs.", show_default=False)
    ] = None,
    address: Annotated[
        str | None, typer.Option(help="The cluster's address, HOST:PORT; default: those on this machine.")
    ] = None,
    every: Annotated[float, typer.Option(min=0.2, help="Seconds between two looks.")] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Look once, and end; so it does where no terminal is.")] = False,
    json: Annotated[bool, typer.Option("--json", help="One JSON object a look, each in a line.")] = False,
) -> None:
    """Watch a running system in the terminal, until Ctrl-C.

    Its actors by class, what its detectors say, its last snapshots.

    Looking costs the system one question a second; it is told counts and words, and never a state.
    """
    from ray_snapshot.web.live import Clusters
    from ray_snapshot.web.served import Served

    clusters = Clusters(Served(), address)
    try:
        clusters.look()
        first = _found(clusters, name)
        if json or once or not is_terminal():
            _print(clusters, first, every, is_once=once or not json, json=json)
        else:
            _show(clusters, first, every)
    except KeyboardInterrupt:  # how it is ended
        return
    finally:
        clusters.close()


def _found(clusters: Clusters, name: str | None) -> Running:
    """The system that is meant, as soon as it has answered."""
    until = time.monotonic() + FIRST_S
    while True:
        running = {one.name: one for one in clusters.systems()}
        if name is None and len(running) > 1:
            raise SystemNotRunningError(
                f"several systems are running: name one of {', '.join(sorted(running))}", system=""
            )
        one = running.get(name) if name is not None else next(iter(running.values()), None)
        if one is not None and (one.about or one.trouble):
            return one
        has_looked = not any("being looked for" in line for line in clusters.not_asked())
        if (one is None and has_looked) or time.monotonic() > until:
            known = ", ".join(sorted(running)) or "none"
            wanted = "no system is" if name is None else f"no system {name!r} is"
            raise SystemNotRunningError(f"{wanted} running; running: {known}", system=name or "")
        time.sleep(0.1)


def _looks(clusters: Clusters, first: Running, every: float) -> Iterator[Running]:
    """What the system says, each time, until it is gone."""
    one: Running | None = first
    answered = time.monotonic()
    while one is not None:
        yield one
        time.sleep(every)
        one = next((other for other in clusters.systems() if other.name == first.name), None)
        if one is not None and not one.trouble:
            answered = time.monotonic()
        elif time.monotonic() - answered > GONE_S:
            return


def _print(clusters: Clusters, first: Running, every: float, *, is_once: bool, json: bool) -> None:
    for one in _looks(clusters, first, every):
        if json:
            print_json(said(one))
        else:
            print_text("\n".join(lines(said(one))))
        sys.stdout.flush()
        if is_once:
            return


def _show(clusters: Clusters, first: Running, every: float) -> None:
    from rich.live import Live

    from ray_snapshot.views.tables import console

    last = first
    with Live(screen(said(first)), console=console(), screen=True, auto_refresh=False, **_OURS) as live:
        for one in _looks(clusters, first, every):
            last = one if not one.trouble else last
            live.update(screen(said(one)), refresh=True)
    console().print(screen(said(last)))
    print_text(f"ray-snapshot: {first.name} does not run any more; this was the last that was seen of it")


def said(one: Running) -> dict[str, Any]:
    """What is shown of a system; `--json` prints it."""
    from ray_snapshot.glances import Totals
    from ray_snapshot.names import noun_of
    from ray_snapshot.verdicts import word_of

    about, glances = one.about, list(one.glances)
    last: Glance | None = about.get("last")
    counted, backlogs = ({}, {}) if last is None else (last.classes, last.backlogs)
    classes = [
        {
            "class": name,
            "machines": sum(counts.values()),
            **{status: counts.get(status, 0) for status in STATUSES},
            "backlog": backlogs.get(name, 0),
        }
        for name, counts in counted.items()
    ]
    return {
        "system": one.name,
        "run_id": about.get("run_id", ""),
        "noun": "" if last is None else noun_of(last.row["protocol"]),
        "machines": sum(row["machines"] for row in classes) or about.get("machines", 0),
        **asdict(about.get("totals", Totals())),
        "open": about.get("open", []),
        **{name: about.get(name) for name in ("every", "interval_s", "cpu_share")},
        "age_s": None if last is None else max(0.0, time.time() - last.row["completed_at"].timestamp()),
        "trouble": one.trouble or about.get("failed") or "",
        "not_covered": [] if last is None else list(last.gaps),
        "verdicts": [
            {**asdict(word), "word": f"ALARM: {word_of(word.holds)}" if word.alarm else word_of(word.holds)}
            for word in (last.words if last else ())
        ],
        "classes": classes,
        "snapshots": [
            {
                name: glance.row[name]
                for name in ("snapshot_id", "sequence", "status", "started_at", "duration_ms", "bytes")
            }
            | {"record_delay_ms": glance.record_delay_ms, "in_flight": glance.row["in_flight_count"]}
            for glance in glances[-MOST_SNAPSHOTS:]
        ],
    }
