"""`ray-snapshot explore`: every order in which a system of the user's own machines may run, without Ray.

The search (`ray_snapshot.testing`) is imported once the command is really run.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ray_snapshot.commands.beginnings import Beginning, Classes, predicate, this_folder_first
from ray_snapshot.commands.options import Crashes
from ray_snapshot.errors import SettingError

if TYPE_CHECKING:
    from ray_snapshot.testing import Counterexample, Exploration

BROKEN, NOT_COMPLETE = 1, 4


def register(app: typer.Typer) -> None:
    """Add the command `explore` to the command line."""
    app.command("explore")(explore)


def explore(
    function: Annotated[
        str | None,
        typer.Argument(
            metavar="MODULE:FUNCTION",
            help="The function that builds the system; looked for in this folder first. With --from: what is done then.",
            show_default=False,
        ),
    ] = None,
    start: Annotated[
        tuple[str, str] | None,
        typer.Option(
            "--from",
            metavar="HISTORY SNAPSHOT",
            help="Begin with this snapshot, which has a checkpoint.",
        ),
    ] = None,
    always: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DETECTOR",
            help="What holds in every state: MODULE:NAME of a detector or a function; may be repeated.",
        ),
    ] = None,
    never: Annotated[
        list[str] | None, typer.Option(metavar="DETECTOR", help="What holds in no state: deadlock, or MODULE:NAME.")
    ] = None,
    eventually: Annotated[
        list[str] | None,
        typer.Option(metavar="DETECTOR", help="What comes to hold on every fair run: termination, or MODULE:NAME."),
    ] = None,
    protocol: Annotated[
        str | None, typer.Option(help="Try the steps of this protocol, too, and judge the snapshot that it takes.")
    ] = None,
    within: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DETECTOR",
            help="Go on only from states in which this holds, as TLC's CONSTRAINT: MODULE:NAME; may be repeated.",
        ),
    ] = None,
    crashes: Crashes = 0,
    classes: Classes = None,
    most_states: Annotated[int, typer.Option(min=1, help="Stop at so many states.")] = 1_000_000,
    workers: Annotated[int, typer.Option(min=1, help="1: one process searches.")] = 1,
    by_hand: Annotated[
        bool, typer.Option("--by-hand", help="Choose each step, see what it changes, and go back.")
    ] = False,
    diagram: Annotated[str | None, typer.Option(help="Draw the counterexample there (SVG).")] = None,
    schedule: Annotated[
        str | None,
        typer.Option(help="Write its schedule there, for testing.replay. With --by-hand: go along this one first."),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Run your machines in every order, without Ray.

    And look at every state that they can reach.
    """
    from ray_snapshot import testing
    from ray_snapshot.views.tables import status

    begin = Beginning(start, function, classes or ())
    if by_hand:
        if always or never or eventually or within or protocol or diagram or as_json:
            raise SettingError(
                "--by-hand asks you for each step: leave out what a search looks for, --diagram and --json"
            )
        from ray_snapshot.commands.by_hand import walk

        with this_folder_first():
            walk(begin, crashes, schedule)
        return
    with this_folder_first(), status("exploring") as show:
        build = begin.build()
        found = testing.explore(
            build, always=_predicates(always), never=_predicates(never), eventually=_predicates(eventually),
            within=_predicates(within), protocol=protocol, crashes=crashes,
            most_states=most_states, workers=workers, progress=show and (lambda report: show(str(report))),
        )  # fmt: skip
    _write(found.counterexample, diagram, schedule)
    print(_as_json(found) if as_json else found)
    if not found.ok:
        raise typer.Exit(BROKEN)
    if not found.complete:
        raise typer.Exit(NOT_COMPLETE)


def _predicates(references: list[str] | None) -> list[Any]:
    return [predicate(item) for item in references or ()]


def _write(found: Counterexample | None, diagram: str | None, schedule: str | None) -> None:
    if found is None:
        return
    from ray_snapshot.commands.files import write_file

    if diagram is not None:
        write_file(diagram, found.svg())
    if schedule is not None:
        write_file(schedule, f"{found.schedule}\n")


def _as_json(found: Exploration) -> str:
    steps = [] if found.counterexample is None else found.counterexample.steps
    told = {"ok": found.ok, "complete": found.complete, "states": found.states, "broken": found.broken, "steps": steps}
    if found.within is not None:
        told |= {"within": found.within, "outside": found.outside}
    return json.dumps(told)
