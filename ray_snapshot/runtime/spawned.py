"""What a driver knows of the machines that it has spawned: handles that are made when they are asked for, and classes by name.

A million machines take the driver a name and a place each, and a handle where the program wants one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, overload

from ray_snapshot.runtime.handles import KINDS, MachineHandle, handle_of, interned, note_kind
from ray_snapshot.runtime.numbered import run_of, split

M = TypeVar("M")


class Handles(Sequence[MachineHandle[M]]):
    """The handles of many machines, in the order in which they were asked for; a list where it is sent or added to."""

    __slots__ = ("_names", "_places", "_run_id")

    def __init__(self, run_id: str, names: Sequence[str], places: Sequence[str | None]) -> None:
        self._run_id = run_id
        self._names = names
        self._places = places

    def __len__(self) -> int:
        return len(self._names)

    @overload
    def __getitem__(self, at: int) -> MachineHandle[M]: ...
    @overload
    def __getitem__(self, at: slice) -> Handles[M]: ...
    def __getitem__(self, at: int | slice) -> MachineHandle[M] | Handles[M]:
        if isinstance(at, slice):
            return Handles(self._run_id, self._names[at], self._places[at])
        return handle_of(self._run_id, self._names[at], self._places[at])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, (Handles, list, tuple)) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]

    def __add__(self, other: Iterable[Any]) -> list[Any]:
        return [*self, *other]

    def __radd__(self, other: Iterable[Any]) -> list[Any]:
        return [*other, *self]

    def __reduce__(self) -> tuple[Any, ...]:
        return list, ([*self],)

    def __repr__(self) -> str:
        if not self._names:
            return "<no machines>"
        return f"<{len(self):,} machines, {self._names[0]} to {self._names[-1]}>"


class Kinds:
    """The classes of the machines that a driver has spawned in one run."""

    def __init__(self) -> None:
        self.named: dict[str, type] = {}
        """Of machines whose names the program gave, and of those whose number stands alone."""
        self.numbered: dict[str, list[tuple[range, type]]] = {}
        """Of the others ("Account-17"): by what stands before the number, which numbers were spawned together."""

    def add(self, run_id: str, names: Sequence[str], kind: type, *, is_named: bool) -> None:
        """Machines of a class have been spawned; who has a handle of one already knows it from now on."""
        KINDS[run_id] = self
        numbers = None if is_named else run_of(names)
        if numbers is None:
            self.named.update(dict.fromkeys(names, kind))
        else:
            self.numbered.setdefault(names[0].rpartition("-")[0], []).append((numbers, kind))
        for name in names:
            if (handle := interned(run_id, name)) is not None:
                note_kind(handle, kind)

    def of(self, name: str) -> type | None:
        """The class of a machine; None if this driver has not spawned it."""
        if (found := self.named.get(name)) is not None:
            return found
        prefix, number = split(name)
        return next((kind for numbers, kind in self.numbered.get(prefix, ()) if number in numbers), None)
