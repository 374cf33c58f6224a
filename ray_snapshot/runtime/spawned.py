"""The handles of the machines that a driver has spawned, made when asked for: a million take a name and a place each."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar, overload

from ray_snapshot.runtime.handles import MachineHandle, handle_of

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
