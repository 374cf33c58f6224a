"""What `explore` begins with: a function that builds a system, a snapshot of a history, or both.

The machines' modules are looked for in the current folder first. A checkpoint is read under the rules of `restore`: the key
that it was written with must be here, and what it holds is the program's own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any

import typer

from ray_snapshot.errors import RaySnapshotError, SettingError

Build = Callable[[Any], object]

Classes = Annotated[
    list[str] | None,
    typer.Option(
        "--class",
        metavar="[NAME=]MODULE:NAME",
        help="A machine class to take in place of the recorded one of that name, such as a mended one; may be repeated.",
    ),
]


Until = Annotated[
    str | None,
    typer.Option(
        metavar="MACHINE:NUMBER",
        help="Of a traced run, which needs no checkpoint: do it again up to this action, and begin behind it.",
    ),
]
Modules = Annotated[
    list[str] | None,
    typer.Option(
        "--module",
        help="With --until: a module, or Python file, that defines machines of the run: its code is run. May be repeated.",
    ),
]


@dataclass(frozen=True, slots=True)
class Beginning:
    """What was said of the beginning."""

    start: tuple[str, str] | None
    """(history, snapshot)."""
    function: str | None = None
    classes: Sequence[str] = ()
    until: str | None = None
    modules: Sequence[str] = ()
    is_trusted: bool = False

    def build(self) -> Build:
        """It, loaded; raises `SettingError` for what does not go together."""
        if self.start is None:
            if self.function is None:
                raise SettingError("name the function that builds the system, or a snapshot: --from HISTORY SNAPSHOT")
            if self.classes or self.until is not None:
                raise SettingError(
                    "--class and --until say what a snapshot is taken as: they go with --from HISTORY SNAPSHOT"
                )
        if self.until is None and (self.modules or self.is_trusted):
            raise SettingError("--module and --trust allow code that a trace names: they go with --until")
        if self.until is not None and self.classes:
            raise SettingError("--until does what the recorded classes did: leave --class out")
        then = None if self.function is None else function(self.function)
        if self.start is None:
            assert then is not None
            return then
        first = self._first(*self.start)
        return first if then is None else both(first, then)

    def _first(self, history: str, snapshot: str) -> Build:
        if self.until is None:
            return of_snapshot(history, snapshot, self.classes)
        return of_trace(history, snapshot, self.until, self.modules, self.is_trusted)


@contextmanager
def this_folder_first() -> Iterator[None]:
    """Modules are looked for in the current folder first."""
    folder = os.getcwd()
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)


def loaded(reference: str) -> Any:
    """What stands under MODULE:NAME; raises `SettingError`."""
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


def predicate(reference: str) -> Any:
    """A ready-made detector by its name, or what stands under MODULE:NAME."""
    if ":" not in reference:
        from ray_snapshot import detectors

        return detectors.by_name(reference)
    found = loaded(reference)
    return found() if isinstance(found, type) and hasattr(found, "evaluate") else found


def function(reference: str) -> Build:
    """A function that takes a system and builds it; raises `SettingError`."""
    found = loaded(reference)
    if not callable(found):
        raise SettingError(f"{reference} is no function: name one that takes a system and builds it")
    build: Build = found
    return build


def of_snapshot(history: str, snapshot: str, classes: Sequence[str]) -> Build:
    """A snapshot with a checkpoint, as a beginning."""
    from ray_snapshot import testing

    taken = {}
    for text in classes:
        recorded, equals, reference = text.rpartition("=")
        kind = loaded(reference)
        taken[recorded if equals else getattr(kind, "__name__", reference)] = kind
    return testing.from_snapshot(history, snapshot, classes=taken)


def of_trace(history: str, snapshot: str, until: str, modules: Sequence[str], trust: bool) -> Build:
    """A traced run up to an action, as a beginning; asks before it imports what only the history names, as `witness` does."""
    from ray_snapshot.commands import witness
    from ray_snapshot.history import History
    from ray_snapshot.testing.traced import action_id, moment_behind
    from ray_snapshot.witness.log import DiffersError
    from ray_snapshot.witness.traces import run_of, trace_of

    opened, behind = History(history), action_id(until)
    run_id = run_of(opened, snapshot)
    try:
        log = trace_of(opened, run_id)
    except DiffersError as error:
        raise SettingError(f"the trace of run {run_id} cannot be done again: {error}") from None
    named = [witness.module_name(name) for name in modules]
    allowed = [*named, *witness.consented(log, None, named, trust, history)]
    with witness.importable(modules, allowed):
        return moment_behind(run_id, log, behind, allowed)


def both(first: Build, then: Build) -> Build:
    """A snapshot, and what the program does behind it."""

    def build(system: Any) -> None:
        first(system)
        then(system)

    build.__name__ = f"{getattr(first, '__name__', 'a snapshot')}, and then {getattr(then, '__name__', 'the program')}"
    return build
