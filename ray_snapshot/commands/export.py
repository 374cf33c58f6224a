"""`ray-snapshot export`: a history for another tool."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ray_snapshot.commands.files import write_parts
from ray_snapshot.commands.history import Run, System
from ray_snapshot.commands.options import HistoryPath
from ray_snapshot.errors import SettingError
from ray_snapshot.views.wrapping import print_text

if TYPE_CHECKING:
    from ray_snapshot.reports.perfetto import Event


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(export)


def export(
    history: HistoryPath,
    perfetto: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.json", help="A trace of snapshots, verdicts, waits and actions, for ui.perfetto.dev."
        ),
    ] = None,
    system: System = None,
    run: Run = None,
) -> None:
    """Write a history as a file that another tool opens."""
    if perfetto is None:
        raise SettingError("export: say what to write: --perfetto FILE.json")
    from ray_snapshot.history import History
    from ray_snapshot.reports.perfetto import Left, trace

    opened = History(history)
    for what, wanted in (("system", system), ("run", run)):
        if wanted is not None:
            opened.check_known(what, wanted)
    left, count = Left(), [0]
    write_parts(perfetto, _json(trace(opened, system, run, left), count))
    print(f"{count[0]:,} events: {perfetto}; open it at ui.perfetto.dev, or in chrome://tracing")
    for said in left.said:
        print_text(f"ray-snapshot: left out: {said}; --system and --run choose", is_error=True)
    sys.stdout.flush()


def _json(events: Iterator[Event], count: list[int]) -> Iterator[str]:
    """The trace in parts; `count`: of the events."""
    yield '{"displayTimeUnit":"ms","traceEvents":[\n'
    for number, event in enumerate(events):
        count[0] += 1
        yield (",\n" if number else "") + json.dumps(event, allow_nan=False, separators=(",", ":"), default=str)
    yield "\n]}\n"
