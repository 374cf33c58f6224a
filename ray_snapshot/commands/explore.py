"""`ray-snapshot explore`: every order in which a system of the user's own machines may run, without Ray.

The search (`ray_snapshot.testing`) is imported once the command is really run.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ray_snapshot.errors import RaySnapshotError, SettingError

if TYPE_CHECKING:
    from ray_snapshot.testing import Exploration, Report

BROKEN, NOT_COMPLETE = 1, 4


def register(app: typer.Typer) -> None:
    """Add the command `explore` to the command line."""
    app.command("explore")(explore)


def explore(
    function: Annotated[
        str,
        typer.Argument(
            metavar="MODULE:FUNCTION", help="The function that builds the system; looked for in this folder first."
        ),
    ],
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
    crashes: Annotated[int, typer.Option(min=0, help="So many machines may be lost at any moment.")] = 0,
    rollback: Annotated[
        bool, typer.Option("--rollback", help="A crash takes all machines back to a snapshot, taken at any moment.")
    ] = False,
    duplicates: Annotated[int, typer.Option(min=0, help="So many messages may come once more.")] = 0,
    overtakes: Annotated[int, typer.Option(min=0, help="So many messages may overtake others of their channel.")] = 0,
    mailbox_bound: Annotated[
        int | None, typer.Option(min=1, help="Messages in a channel past which its sender is held; default: no bound.")
    ] = None,
    most_states: Annotated[int, typer.Option(min=1, help="Stop at so many states.")] = 1_000_000,
    workers: Annotated[int, typer.Option(min=1, help="1: one process searches.")] = 1,
    diagram: Annotated[str | None, typer.Option(help="Draw the counterexample (SVG) there.")] = None,
    schedule: Annotated[
        str | None, typer.Option(help="Write the counterexample's schedule there, for testing.replay.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """Run machines of your own in every order, without Ray, and look at every state that they can reach."""
    from ray_snapshot import testing

    with _this_folder_first(), _told() as tell:
        build = _loaded(function)
        if not callable(build):
            raise SettingError(f"{function} is no function: name one that takes a system and builds it")
        found = testing.explore(
            build, always=_predicates(always), never=_predicates(never), eventually=_predicates(eventually),
            protocol=protocol, crashes=crashes, rollback=rollback, duplicates=duplicates, overtakes=overtakes,
            mailbox_bound=mailbox_bound, most_states=most_states, workers=workers, progress=tell,
        )  # fmt: skip
    _write(found, diagram, schedule)
    print(_as_json(found) if as_json else found)
    if not found.ok:
        raise typer.Exit(BROKEN)
    if not found.complete:
        raise typer.Exit(NOT_COMPLETE)


@contextmanager
def _this_folder_first() -> Iterator[None]:
    """Modules are looked for in the current folder first."""
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def _loaded(reference: str) -> Any:
    module, colon, name = reference.partition(":")
    if not colon or not module or not name:
        raise SettingError(f"{reference!r} names nothing: write MODULE:NAME, such as bank:build")
    try:
        return getattr(import_module(module), name)
    except RaySnapshotError:
        raise
    except Exception as error:  # whatever the user's module does when it is imported
        from ray_snapshot.verdicts import place_of  # pydantic comes with it: not for a --help

        place = place_of(error)
        told = f"{type(error).__name__}: {error}" + (f" (at {place})" if place else "")
        raise SettingError(f"{reference} cannot be loaded: {told}") from error


def _predicates(references: list[str] | None) -> list[Any]:
    return [_predicate(item) for item in references or ()]


def _predicate(reference: str) -> Any:
    """A ready-made detector by its name, or what stands under MODULE:NAME."""
    if ":" not in reference:
        from ray_snapshot import detectors

        return detectors.by_name(reference)
    found = _loaded(reference)
    return found() if isinstance(found, type) and hasattr(found, "evaluate") else found


def _write(found: Exploration, diagram: str | None, schedule: str | None) -> None:
    if found.counterexample is None:
        return
    from ray_snapshot.commands.files import write_file

    if diagram is not None:
        write_file(diagram, found.counterexample.svg())
    if schedule is not None:
        write_file(schedule, f"{found.counterexample.schedule}\n")


def _as_json(found: Exploration) -> str:
    steps = [] if found.counterexample is None else found.counterexample.steps
    told = {"ok": found.ok, "complete": found.complete, "states": found.states, "broken": found.broken, "steps": steps}
    return json.dumps(told)


@contextmanager
def _told() -> Iterator[Callable[[Report], None] | None]:
    """On a terminal, standard error shows how far the search has come; elsewhere nothing does."""
    from ray_snapshot.views.tables import console

    out = console(stderr=True)
    if not out.is_terminal:
        yield None
        return
    with out.status("exploring") as status:
        yield lambda report: status.update(str(report))
