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


@dataclass(frozen=True, slots=True)
class Beginning:
    """What was said of the beginning."""

    start: tuple[str, str] | None
    """(history, snapshot)."""
    function: str | None = None
    classes: Sequence[str] = ()

    def build(self) -> Build:
        """It, loaded; raises `SettingError` for what does not go together."""
        if self.start is None:
            if self.function is None:
                raise SettingError("name the function that builds the system, or a snapshot: --from HISTORY SNAPSHOT")
            if self.classes:
                raise SettingError("--class says what a snapshot is taken as: it goes with --from HISTORY SNAPSHOT")
        then = None if self.function is None else function(self.function)
        if self.start is None:
            assert then is not None
            return then
        first = of_snapshot(*self.start, self.classes)
        return first if then is None else both(first, then)


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


def both(first: Build, then: Build) -> Build:
    """A snapshot, and what the program does behind it."""

    def build(system: Any) -> None:
        first(system)
        then(system)

    build.__name__ = f"{getattr(first, '__name__', 'a snapshot')}, and then {getattr(then, '__name__', 'the program')}"
    return build
