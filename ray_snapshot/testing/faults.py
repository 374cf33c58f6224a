"""What goes wrong, each as often as a search is told: machines are lost, the past comes back, mail comes twice.

`Faults.crashes` without a rollback: a machine is gone, with its timers and its mailbox, and who waits for it hears so. With
one: a snapshot is taken at any moment at which one could be restored, and a crash takes all machines and all channels back to
it, as `rs.System(recover="rollback")` does; the program that built the system is not taken back. Each machine's state goes
through its own `snapshot_state` and `restore_state`: what they do not bring back is lost. By the theorem the snapshot is a
state, so all that is new behind a rollback is what those hooks, the clock, and the program bring.

`duplicates`: a message comes once more than it was sent, as after a restore from a snapshot of `at-least-once-barrier`: at
once, or behind any of the messages that are in its channel.
`overtakes`: a message is accepted before one that was sent earlier on its channel. Never imports Ray.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ray_snapshot.errors import MachineFailedError, NotRestorableError, SettingError
from ray_snapshot.names import DRIVER
from ray_snapshot.testing.calls import Calls
from ray_snapshot.testing.records import (
    ANSWER,
    CHANNEL,
    CHANNELS,
    FAULTS,
    KEPT,
    MACHINE,
    TIMERS,
    Gone,
    Inside,
    Mail,
    Move,
    Record,
    Rest,
    State,
    Step,
    Task,
    Unborn,
)
from ray_snapshot.testing.stage import Stage
from ray_snapshot.testing.table import Table, packed
from ray_snapshot.testing.timing import Timing


@dataclass(frozen=True, slots=True)
class Faults:
    """How many of each a search tries."""

    crashes: int = 0
    rollback: bool = False
    """Whether a crash takes all back to a snapshot."""
    duplicates: int = 0
    overtakes: int = 0

    def check(self) -> None:
        """Raises `SettingError` for what is no setting."""
        for name in ("crashes", "duplicates", "overtakes"):
            if getattr(self, name) < 0:
                raise SettingError(f"{name}={getattr(self, name)}: how many are tried, 0 or more")
        if self.rollback and not self.crashes:
            raise SettingError("rollback=True says what a crash does: say crashes=1, too")

    def beside(self, other: Faults) -> Faults:
        """As many of each as both need."""
        return Faults(
            max(self.crashes, other.crashes),
            self.rollback or other.rollback,
            max(self.duplicates, other.duplicates),
            max(self.overtakes, other.overtakes),
        )

    @property
    def settings(self) -> dict[str, Any]:
        """As a schedule has them: `crashes`, and the others that are not the default."""
        others = {name: getattr(self, name) for name in ("rollback", "duplicates", "overtakes") if getattr(self, name)}
        return {"crashes": self.crashes, **others}


NO_FAULTS = Faults()


class Failing:
    """The faults in the states of one table."""

    def __init__(self, table: Table, calls: Calls, timing: Timing, stage: Stage, faults: Faults) -> None:
        self.table, self.calls, self.timing, self.stage, self.faults = table, calls, timing, stage, faults
        self.has_mail_faults = bool(faults.duplicates or faults.overtakes)
        self.could_restore = False
        """Whether any state was met that a crash could go back to."""
        self.obstacles: dict[str, None] = {}
        """Why states could not be restored, beside waits and calls."""
        self._passed: dict[tuple[int, int], tuple[int, str | None]] = {}
        """By (cell, value) of a machine: its value once it has been restored, 0 if it cannot be; what its hook raised."""

    def count(self, state: State | list[int], word: str) -> int:
        """How many faults of a kind have come."""
        cell = self.table.cell(FAULTS, word)
        found: int = self.table.at(state, cell) or 0
        return found

    def note(self, cells: list[int], word: str) -> None:
        """One more has come."""
        self.table.put(cells, self.table.cell(FAULTS, word), self.table.id_of(self.count(cells, word) + 1))

    # ---- which are possible -----------------------------------------------------------------------------------------

    def tasks(self, state: State) -> Iterator[Task]:
        """Crashes, and the snapshot that one goes back to."""
        if not self.faults.crashes:
            return
        if self.faults.rollback:
            if self.table.at(state, self.table.cell(KEPT, "snapshot")) is not None:
                if self.count(state, "rollback") < self.faults.crashes:
                    yield ("rollback",)
            elif self._can_be_restored(state):
                yield ("snapshot",)
            return
        values, cells = self.table.values, self.table.cells
        if sum(type(values[value]) is Gone for value in state) >= self.faults.crashes:
            return
        for cell, value in enumerate(state):
            if value and cells[cell][0] == MACHINE and type(values[value]) in (Rest, Inside) and values[value].kind:
                yield ("crash", cell)

    def mail_tasks(self, state: State, cell: int) -> Iterator[Task]:
        """What may go wrong with a channel whose head could be accepted."""
        table = self.table
        kind, channel = table.cells[cell]
        if kind != CHANNEL:
            return
        if channel[2] == "mail" and self.count(state, "again") < self.faults.duplicates:
            head, *rest = table.values[state[cell]]
            for place in range(len(rest) + 1):
                if not place or rest[place - 1] != head:
                    yield ("again", cell, place)
        if self.faults.overtakes and self.count(state, "overtake") < self.faults.overtakes:
            queue = table.values[state[cell]]
            for index in range(1, len(queue)):
                if queue[index] not in queue[:index]:
                    yield ("overtake", cell, index)

    def _can_be_restored(self, state: State) -> bool:
        """Whether no machine waits inside an action, no call is in flight, and no result of one is kept."""
        table = self.table
        for cell, value in enumerate(state):
            if not value or not cell:
                continue
            kind, name = table.cells[cell]
            record = table.values[value]
            if kind == MACHINE and (type(record) is Inside or record.refs):
                return False
            if kind == MACHINE and name != DRIVER and type(record) is Rest and not self._restored(cell, value)[0]:
                return False
            if kind == CHANNEL and (name[2] == "call" or any(table.values[mail].refs for mail in record)):
                return False
            if kind == TIMERS and any(table.values[mail].refs for _, mail in record):
                return False
        self.could_restore = True
        return True

    # ---- what they do -----------------------------------------------------------------------------------------------

    def move(self, state: State, task: Task) -> Move:
        """A crash, a snapshot, or a rollback."""
        cells = [*state]
        if task[0] == "crash":
            self._crash(cells, task[1])
            return Move(Step(task), packed(cells))
        if task[0] == "snapshot":
            self.table.put(cells, self.table.cell(KEPT, "snapshot"), self.table.id_of(("snapshot", state)))
            return Move(Step(task), packed(cells))
        return self._roll_back(state)

    def _crash(self, cells: list[int], cell: int) -> None:
        """A machine is gone, with its timers and what was in its mailboxes; who waits for it hears so."""
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

    def _roll_back(self, now: State) -> Move:
        table = self.table
        kept = table.cell(KEPT, "snapshot")
        then: State = table.values[now[kept]][1]
        cells = [*then, *[0] * (len(table.cells) - len(then))]
        trouble = None
        for cell, (kind, name) in enumerate(table.cells):
            here = now[cell] if cell < len(now) else 0
            if kind in (FAULTS, KEPT) or (kind == MACHINE and name == DRIVER):
                cells[cell] = here
            elif kind == ANSWER:
                cells[cell] = 0
            elif kind == MACHINE and cells[cell] and type(table.values[cells[cell]]) is not Unborn:
                cells[cell], wrong = self._restored(cell, cells[cell])
                trouble = trouble or wrong
        self._wind(cells, now)
        self.note(cells, "rollback")
        return Move(Step(("rollback",)), packed(cells), trouble=trouble)

    def _restored(self, cell: int, value: int) -> tuple[int, str | None]:
        """(the machine's value as its hooks bring it back, what they raised)."""
        found = self._passed.get((cell, value))
        if found is None:
            record: Record = self.table.values[value]
            assert isinstance(record, Rest)
            try:
                state = self.stage.restored(self.table.cells[cell][1], record.kind, record.state)
            except NotRestorableError as obstacle:
                self.obstacles[str(obstacle)] = None
                found = 0, None
            except MachineFailedError as error:
                found = value, str(error)
            else:
                found = self.table.id_of(replace(record, state=state.data, refs=state.refs)), None
            self._passed[cell, value] = found
        return found

    def _wind(self, cells: list[int], now: State) -> None:
        """The clock goes on: what was left of timers is left of them."""
        table = self.table
        then, here = table.values[cells[0]], table.values[now[0]]
        if then.clock is None:
            return
        cells[0] = table.id_of(replace(then, clock=here.clock))
        for cell, (kind, _) in enumerate(table.cells):
            if kind == TIMERS and cells[cell]:
                queue = table.values[cells[cell]]
                cells[cell] = table.id_of(
                    tuple(
                        (when._replace(due=round(when.due + here.clock - then.clock, 9)), mail) for when, mail in queue
                    )
                )
