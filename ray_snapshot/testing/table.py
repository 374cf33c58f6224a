"""What the integers of a state stand for: cells by their place, values by their number. Never imports Ray."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ray_snapshot.testing.records import ANSWER, CHANNEL, CHANNELS, MACHINE, TIMERS, State


class ByCell(dict[tuple[int, int], Any]):
    """What is found out of (cell, value), once for each."""

    def __init__(self, find: Callable[[int, int], Any]) -> None:
        self.find = find

    def __missing__(self, item: tuple[int, int]) -> Any:
        found = self[item] = self.find(*item)
        return found


class Table:
    """Cells and values of one space; only ever added to."""

    def __init__(self) -> None:
        self.cells: list[tuple[int, Any]] = [(-1, None)]
        """(kind, name) of each cell; a name is a machine, (source, target, kind), or (caller, number)."""
        self.targets: list[int] = [0]
        """By cell of a channel: the cell of its target."""
        self.answers: list[int] = []
        """The cells of answers."""
        self.timers: dict[str, list[int]] = {}
        """By machine: the cells of its timers."""
        self.has_calls = False
        """Whether any machine has called another."""
        self.values: list[Any] = [None]
        self._places: dict[tuple[int, Any], int] = {}
        self._ids: dict[Any, int] = {}

    def cell(self, kind: int, name: Any) -> int:
        """The cell of a machine, a channel, an answer, ..."""
        found = self._places.get((kind, name))
        if found is None:
            target = self.cell(MACHINE, name[1]) if kind in CHANNELS else 0
            found = self._places[kind, name] = len(self.cells)
            self.cells.append((kind, name))
            self.targets.append(target)
            if kind == ANSWER:
                self.answers.append(found)
            elif kind == TIMERS:
                self.timers.setdefault(name[0], []).append(found)
            elif kind == CHANNEL and name[2] == "call":
                self.has_calls = True
        return found

    def id_of(self, value: Any) -> int:
        """The integer that stands for a value."""
        found = self._ids.get(value)
        if found is None:
            found = self._ids[value] = len(self.values)
            self.values.append(value)
        return found

    def at(self, state: State | list[int], cell: int) -> Any:
        """What is in a cell."""
        return self.values[state[cell]] if cell < len(state) else None

    def mails(self, cell: int, value: int) -> Sequence[int]:
        """The messages that a channel's value stands for, in order."""
        queue: Sequence[Any] = self.values[value]
        return [mail for _, mail in queue] if self.cells[cell][0] == TIMERS else queue

    def put(self, cells: list[int], cell: int, value: int) -> None:
        """Fill a cell, which may be new."""
        if cell >= len(cells):
            cells += [0] * (len(self.cells) - len(cells))
        cells[cell] = value


def packed(cells: list[int]) -> State:
    """Cells as a state: none that are empty at its end."""
    while not cells[-1]:
        cells.pop()
    return tuple(cells)
