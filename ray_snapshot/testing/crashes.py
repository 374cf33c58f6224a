"""Crashes: a machine is lost at any moment, with its timers and its mailbox, and who waits for it hears so."""

from __future__ import annotations

from collections.abc import Iterator

from ray_snapshot.testing.calls import Calls
from ray_snapshot.testing.records import CHANNELS, MACHINE, TIMERS, Gone, Inside, Mail, Move, Rest, State, Step, Task
from ray_snapshot.testing.table import Table, packed
from ray_snapshot.testing.timing import Timing


class Crashes:
    """The crashes in the states of one table."""

    def __init__(self, table: Table, calls: Calls, timing: Timing, most: int) -> None:
        self.table, self.calls, self.timing = table, calls, timing
        self.most = most
        """So many machines may be lost."""

    def tasks(self, state: State) -> Iterator[Task]:
        """Those that are possible in a state."""
        values, cells = self.table.values, self.table.cells
        if sum(type(values[value]) is Gone for value in state) >= self.most:
            return
        for cell, value in enumerate(state):
            if value and cells[cell][0] == MACHINE and type(values[value]) in (Rest, Inside) and values[value].kind:
                yield ("crash", cell)

    def move(self, state: State, task: Task) -> Move:
        """A machine is gone, with its timers and what was in its mailboxes; who waits for it hears so."""
        cells, cell = [*state], task[1]
        table, calls = self.table, self.calls
        name, record = table.cells[cell][1], table.values[cells[cell]]
        wrong = calls.lost(name)
        calls.refuse(cells, name, wrong)
        if type(record) is Inside:
            for _, _, mail in record.taken:
                calls.answer(cells, mail.call if isinstance(mail, Mail) else None, wrong)
        cells[cell] = table.id_of(Gone(record.kind))
        sources = {name}
        for place in range(len(cells)):
            kind, channel = table.cells[place]
            if kind in CHANNELS and (channel[1] == name or (kind == TIMERS and channel[0] == name)):
                cells[place] = 0
                sources.add(channel[0])
        for source in sorted(sources):
            self.timing.tidy(cells, source)
        calls.forget(cells)
        return Move(Step(task), packed(cells))
