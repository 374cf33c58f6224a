"""Simulated actors: a `CallLedger`, the calls that run in it, and what Ray keeps for one out there.

Imports the standard library only; read `world` next.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ray_snapshot.protocol.calls import CONSTRUCTOR, CallLedger, call_id_of
from ray_snapshot.protocol.demands import Demand
from ray_snapshot.protocol.tasks import call_of_task, is_task
from worlds.calls.oracle import Log, Waiting
from worlds.calls.programs import Kind, Program
from worlds.calls.reports import name_of


@dataclass(slots=True)
class Run:
    """A call that runs."""

    call_id: str | None
    """None: the driver's program."""
    program: Program
    refs: list[str]
    at: int = 0
    wait_id: int | None = None
    waiting: Waiting | None = None
    notified: bool = False
    owed: str | None = None
    """What it waits for, if that is the reply of a machine of a host."""

    def waits_for(self, on: Sequence[str] = (), k: int = 1, **options: bool) -> Waiting:
        """The wait that it begins, as the oracle knows it."""
        caller = name_of(self.call_id) if self.call_id is not None else None
        return Waiting(caller, tuple(name_of(one) for one in on), k, **options)


@dataclass(slots=True)
class Travelling:
    """A call that its target has not accepted."""

    header: tuple[Any, ...]
    target: str
    method: str
    needs: tuple[str, ...]
    gives: tuple[str, ...]
    is_repetition: bool = False
    demand: Demand | None = None
    """What it must find on a node before it can begin."""

    @property
    def call_id(self) -> str:
        if is_task(self.target):
            return call_of_task(self.target)
        return call_id_of(self.header[0], self.header[1], self.target, self.header[2])

    @property
    def is_constructor(self) -> bool:
        return bool(self.header[2] == CONSTRUCTOR) and not is_task(self.target)


@dataclass(slots=True)
class Alive:
    """A machine that lives, and what the world keeps for it."""

    ledger: CallLedger
    kind: Kind
    runs: dict[str | None, Run] = field(default_factory=dict)
    steps: int = 0
    """Its state: how many steps its calls have taken."""
    is_built: bool = False
    reported: set[int] = field(default_factory=set)
    travelled: dict[str | None, Travelling] = field(default_factory=dict)
    """How each running call came here."""
    dropped: set[str] = field(default_factory=set)
    """Actors whose only handle it had, and has dropped."""

    def __post_init__(self) -> None:
        for target in self.kind.handles():
            self.ledger.hold(target)

    def has_room_for(self, call: Travelling) -> bool:
        """Whether it may begin this call now."""
        return self.is_built != call.is_constructor and len(self.runs) < self.kind.slots

    def begin(self, call: Travelling, call_id: str) -> None:
        """The call runs."""
        self.runs[call_id] = Run(call_id, self.kind.program(call.method), list(call.gives))
        self.travelled[call_id] = call

    def work(self, log: Log) -> None:
        """One step that changes its state, and nothing else."""
        self.steps += 1
        log.add(self.ledger.machine, "step")

    def wait(self, run: Run, on: list[str], k: int, log: Log, *, may_act: bool, is_local: bool, raises: bool) -> None:
        """The call waits for `k` of the calls `on`; in a local wait, for another call to notify it."""
        raises = raises and len(on) > 1
        site = run.call_id or ""
        run.wait_id = self.ledger.wait(
            run.call_id, on, k, 0.0, call_site=site, may_act=may_act, is_local=is_local, raises=raises
        )
        run.waiting = run.waits_for(on, k, is_local=is_local, may_act=may_act, raises=raises)
        run.notified = False
        log.add(self.ledger.machine, "wait", waiting=run.waiting)

    def wait_for_machine(self, run: Run, target: str, owed: str, log: Log) -> None:
        """The call waits for the reply of a machine of a host."""
        run.wait_id = self.ledger.wait(run.call_id, (), 1, 0.0, owed=((target, owed),))
        run.owed = owed
        run.waiting = run.waits_for(may_act=True)  # of calls alone, nothing is known
        log.add(self.ledger.machine, "wait", waiting=run.waiting)

    def notify(self) -> None:
        """Every local wait is over."""
        for run in self.runs.values():
            if run.wait_id is not None and run.waiting is not None and run.waiting.is_local:
                run.notified = True
                self.ledger.ready(run.wait_id)

    def read(self, call_id: str, log: Log) -> None:
        """It has the reply. Who reads the reply of a call of its own knows that it was accepted; here, of every other one."""
        source, incarnation, target, number = name_of(call_id)
        if is_task(target) and len(target) % 2:
            self.ledger.answered(target, number)
            return
        if (source, incarnation) != (self.ledger.machine, self.ledger.incarnation) or number % 2:
            return
        if name_of(call_id) not in log.failed:
            self.ledger.answered(target, number)
