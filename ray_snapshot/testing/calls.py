"""Answers to calls: who is still to hear them, and which numbers are taken. Never imports Ray."""

from __future__ import annotations

from typing import Any

from ray_snapshot.errors import HostDiedError
from ray_snapshot.testing.acts import Answer, Ref
from ray_snapshot.testing.records import ANSWER, CHANNEL, CHANNELS, MACHINE, Inside, Mail, State
from ray_snapshot.testing.table import Table


class Calls:
    """The calls in the states of one table."""

    def __init__(self, table: Table) -> None:
        self.table = table

    def alive(self, cells: list[int]) -> set[Ref]:
        """The calls whose results some machine, message or answer refers to."""
        values = self.table.values
        found: set[Ref] = set()
        for cell, value in enumerate(cells):
            kind = self.table.cells[cell][0]
            if not value or not cell:
                continue
            if kind in (MACHINE, ANSWER):
                found |= values[value].refs
            elif kind in CHANNELS:
                found.update(*(values[mail].refs for mail in self.table.mails(cell, value)))
        return found

    def forget(self, cells: list[int]) -> None:
        """Answers that nothing refers to are gone."""
        answers = self.table.answers
        if any(cell < len(cells) and cells[cell] for cell in answers):
            alive = self.alive(cells)
            for cell in answers:
                if cell < len(cells) and cells[cell] and self.table.cells[cell][1] not in alive:
                    cells[cell] = 0

    def used(self, state: State, name: str) -> tuple[int, ...]:
        """The numbers of calls of a machine that something still refers to, or answers."""
        if not self.table.has_calls:
            return ()
        values = self.table.values
        found = {number for caller, number in self.alive([*state]) if caller == name}
        for cell, value in enumerate(state):
            kind, channel = self.table.cells[cell]
            if kind == CHANNEL and value and channel[0] == name and channel[2] == "call":
                found.update(values[mail].call[1] for mail in values[value])
            elif kind == MACHINE and type(values[value]) is Inside:
                calls = [mail.call for _, _, mail in values[value].taken if isinstance(mail, Mail)]
                found.update(call[1] for call in calls if call is not None and call[0] == name)
        return tuple(sorted(found))

    def answer(self, cells: list[int], ref: Ref | None, value: int) -> None:
        """A call has its result."""
        if ref is not None:
            self.table.put(cells, self.table.cell(ANSWER, ref), value)

    def refuse(self, cells: list[int], name: str, wrong: int) -> None:
        """Calls to a machine that it has not accepted are answered with an error."""
        for cell in range(len(cells)):
            kind, channel = self.table.cells[cell]
            if kind == CHANNEL and cells[cell] and channel[1] == name and channel[2] == "call":
                for mail in self.table.values[cells[cell]]:
                    self.answer(cells, self.table.values[mail].call, wrong)

    def lost(self, name: str) -> int:
        """What a call to a machine that has crashed is answered with."""
        return self.error(HostDiedError(f"the host of {name} died", host=name, machines=[name]))

    def error(self, error: Exception) -> int:
        """An answer that is an error."""
        return self.table.id_of(Answer.of(error))


def refs_of(item: Any) -> frozenset[Ref]:
    """The calls that an accepted message, or an input, refers to."""
    found: frozenset[Ref] = frozenset()
    for part in item if isinstance(item, tuple) else ():
        found |= part.refs if isinstance(part, Mail | Answer) else refs_of(part)
    return found
