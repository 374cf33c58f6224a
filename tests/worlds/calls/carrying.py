"""What Ray does with calls, as far as the protocol can tell: it carries them, and tells callers what has become of them.

Calls may be lost and repeated; when a machine dies, the calls to it fail or are sent again, and its own are dropped. Imports
the standard library only; read `world` next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.protocol.tasks import is_task
from worlds.calls.actors import Alive, Run, Travelling
from worlds.calls.oracle import Log
from worlds.calls.reports import id_of, name_of


@dataclass(slots=True)
class Carrying:
    """Calls on their way, replies that are there, and what has become of those that will have none."""

    log: Log
    network: list[Travelling] = field(default_factory=list)
    replies: dict[str, int] = field(default_factory=dict)
    """Colour of each reply that is there, by call."""
    failures: list[str] = field(default_factory=list)
    """Calls of which Ray will tell the caller that they failed."""
    notices: list[tuple[str, int, str, int, int]] = field(default_factory=list)
    """(source, its incarnation, target, incarnation, bound): it will hear that calls below `bound` went to an earlier one.

    A machine that begins anew does not hear it: the numbers are those of the one before.
    """
    constructors: dict[str, Travelling] = field(default_factory=dict)
    restarting: dict[str, int] = field(default_factory=dict)
    """Machines that have died and will start again, with their next incarnation."""
    dead: set[str] = field(default_factory=set)

    def submit(self, call: Travelling) -> None:
        """A call is sent; to a machine that is dead it fails."""
        if call.target in self.dead:
            self.failures.append(call.call_id)
        else:
            self.network.append(call)

    def construct(self, call: Travelling) -> None:
        """A machine is created."""
        self.constructors[call.target] = call
        self.network.append(call)

    def has_all(self, call_ids: Iterable[str]) -> bool:
        """Whether the replies of all of these calls are there."""
        return all(one in self.replies for one in call_ids)

    def is_over(self, run: Run) -> bool:
        """Whether what a call waits for has come; not asked of those that wait for machines of hosts."""
        waiting = run.waiting
        assert waiting is not None
        if waiting.is_local:
            return run.notified
        there = [call for call in waiting.on if id_of(call) in self.replies]
        has_raised = waiting.raises and any(call in self.log.failed | self.log.raised for call in there)
        return has_raised or len(there) >= waiting.k

    def outcomes(self, machine: Alive) -> dict[str, bool]:
        """Of the plain tasks that calls of a machine wait for in lists, and that are over: whether they ended in an error."""
        lists = [run.waiting.on for run in machine.runs.values() if run.waiting is not None and run.waiting.raises]
        over = {call for on in lists for call in on if is_task(call[2]) and id_of(call) in self.replies}
        return {call[2]: call in self.log.failed | self.log.raised for call in over}

    def can_be_born(self, call: Travelling) -> bool:
        """Whether the call makes a machine that never was, unless that is alive by now."""
        return call.is_constructor and call.target not in self.restarting and call.target not in self.dead

    # ---- what goes wrong ------------------------------------------------------------------------------------------

    def lose(self, index: int) -> str:
        """A call fails before its target accepts it."""
        call = self.network.pop(index)
        self.log.fault()
        if not call.is_repetition:
            self.failures.append(call.call_id)
        return call.call_id

    def repeat(self, index: int) -> str:
        """A call that may be executed again, is."""
        call = self.network[index]
        self.log.fault()
        self.network.append(
            Travelling(call.header, call.target, call.method, call.needs, call.gives, is_repetition=True)
        )
        return call.call_id

    def fail(self, call_id: str) -> None:
        """Its sender has been told that it failed."""
        call = name_of(call_id)
        self.log.fault()
        self.log.add(call[0], "settle", call)
        self.orphan(call_id)

    def orphan(self, call_id: str) -> None:
        """A call that waits for it gets an error: its owner is gone, or has been told."""
        self.log.failed.add(name_of(call_id))
        self.replies.setdefault(call_id, 0)

    def die(self, name: str, machine: Alive, ledgers: Mapping[str, CallLedger]) -> None:
        """A machine is gone: calls to it, and calls of it, end; those that live, whose `ledgers` these are, will hear of it."""
        incarnation, is_restarting = machine.ledger.incarnation, machine.kind.can_restart
        if is_restarting:
            self.restarting[name] = incarnation + 1
        else:
            self.dead.add(name)
        self._end_calls_to(name, machine, ledgers)
        self._forget_calls_of(name, incarnation)
        for source, ledger in ledgers.items():
            if name in ledger.outputs:
                bound = ledger.outputs[name].last + 1 if is_restarting else 0
                self.notices.append((source, ledger.incarnation, name, incarnation + 1, bound))

    def _end_calls_to(self, name: str, machine: Alive, ledgers: Mapping[str, CallLedger]) -> None:
        is_restarting = machine.kind.can_restart
        flying = [call for call in self.network if call.target == name and not (call.header[5] and is_restarting)]
        self.network = [call for call in self.network if call not in flying]
        for call in [*machine.travelled.values(), *flying]:
            self._end_with(call, is_restarting, ledgers)

    def _end_with(self, call: Travelling, is_restarting: bool, ledgers: Mapping[str, CallLedger]) -> None:
        """Its target died: it fails, or is executed again (its owner sends it again; not if that is gone)."""
        if not call.is_constructor and self._has_died(call.header[0], call.header[1], ledgers):
            self.orphan(call.call_id)
        elif call.header[5] and is_restarting:
            if call not in self.network:
                self.network.append(call)
        elif not call.is_repetition:
            self.failures.append(call.call_id)

    def _has_died(self, name: str, incarnation: int, ledgers: Mapping[str, CallLedger]) -> bool:
        is_another = name in ledgers and ledgers[name].incarnation != incarnation
        return is_another or name in self.dead or name in self.restarting

    def _forget_calls_of(self, name: str, incarnation: int) -> None:
        """What a dead process had sent is dropped, and waits for it end in an error. (Constructors are the GCS's to carry.)"""
        kept = [call for call in self.network if call.header[:2] != (name, incarnation) or call.is_constructor]
        for call in self.network:
            if call not in kept:
                self.orphan(call.call_id)
        self.network = kept

    def restart(self, name: str) -> tuple[int, bool]:
        """A machine starts again: its incarnation, and whether a constructor is on its way."""
        incarnation = self.restarting.pop(name)
        constructor = self.constructors.get(name)
        if constructor is not None and constructor not in self.network:
            self.network.append(constructor)
        return incarnation, constructor is not None
