"""A deterministic world around the protocol for calls: actors with slots, a driver, a network that does what Ray does.

`CallWorld` runs the very `CallLedger` and `Coordinator` that the instrumentation runs. As in `world`, what happens is a
list of *steps*: `enabled()` lists them, `perform(step)` takes one, and who chooses is the caller's business (see
`schedules`). Calls are accepted in any order, replies read whenever their reader likes; what goes wrong (calls lost,
repeated and cancelled, machines that die and start again, acknowledgements lost and doubled) are steps that no list
offers: the schedule takes them. Imports the standard library only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.call_collector import CompletedCallSnapshot
from ray_snapshot.protocol.calls import (
    CONSTRUCTOR,
    Acks,
    CallLedger,
    Header,
    MachineReport,
    call_id_of,
    parsed,
)
from ray_snapshot.protocol.collector import Answer
from ray_snapshot.protocol.coordinator import AbortedSnapshot, CompletedSnapshot, Coordinator
from ray_snapshot.protocol.turning import Turning
from ray_snapshot.simulation.calls.oracle import Log, Seen, Waiting
from ray_snapshot.simulation.calls.programs import Call, Create, Fail, Get, Kind, Notify, Park, Post, Program, Work
from ray_snapshot.simulation.calls.reports import id_of, name_of, seen_of

Step = tuple[Any, ...]
"""(kind, ...); see `CallWorld.enabled`."""

INF = float("inf")
APP = ("step", "wake", "timeout", "accept", "birth", "settle", "restart", "notice")
"""Kinds of steps that are the app's own, or Ray's; the others are the snapshot's."""


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


@dataclass(slots=True)
class Travelling:
    """A call that its target has not accepted."""

    header: tuple[Any, ...]
    target: str
    method: str
    needs: tuple[str, ...]
    gives: tuple[str, ...]
    is_repetition: bool = False

    @property
    def call_id(self) -> str:
        return call_id_of(self.header[0], self.header[1], self.target, self.header[2])


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


class Hosts(Protocol):
    """The hosts with machines beside a world of calls (`parties`), as far as a watched actor has to do with them."""

    def posted(self, name: str, step: Post) -> str: ...

    def reply_to(self, call_id: str) -> int | None: ...

    def read_by(self, name: str, call_id: str) -> None: ...

    def ledger_of(self, name: str) -> CallLedger | None: ...

    def accepted(self, call: Travelling) -> None: ...

    def answered(self, call_id: str, colour: int) -> None: ...

    def completed(self, snapshot: CompletedSnapshot) -> None: ...


class Turns(Protocol):
    """The core beside the ledger of a machine that sends to hosts: both turn red at once."""

    @property
    def turning(self) -> Turning: ...

    def __call__(self) -> tuple[int, ...]: ...


class CallWorld:
    """Machines between which steps are taken one at a time; `machines` maps names to kinds, `driver` is its program.

    `turns`: by machine, what turns it red, where that is not its ledger alone.
    """

    def __init__(
        self,
        kinds: Mapping[str, Kind],
        machines: Mapping[str, str],
        driver: Program = (),
        *,
        most_open: int = 4,
        coordinator: Coordinator | None = None,
        turns: Mapping[str, Turns] = MappingProxyType({}),
        trace: list[str] | None = None,
    ) -> None:
        self.kinds = dict(kinds)
        self.turns = dict(turns)
        self.trace = trace
        self.taken = 0
        self.coordinator = coordinator or Coordinator(most_open=most_open)
        self.abroad: Hosts | None = None
        self.alive: dict[str, Alive] = {}
        self.kind_of: dict[str, str] = {}
        self.network: list[Travelling] = []
        self.control: list[Step] = []
        self.replies: dict[str, int] = {}
        """Colour of each reply that is there, by call."""
        self.failures: list[str] = []
        """Calls of which Ray will tell the caller that they failed."""
        self.notices: list[tuple[str, int, str, int, int]] = []
        """(source, its incarnation, target, incarnation, bound): it will hear that calls below `bound` went to an earlier one.

        Whoever begins anew does not hear it: the numbers are those of the one before.
        """
        self.waiting_to_restart: dict[str, int] = {}
        self.constructors: dict[str, Travelling] = {}
        self.dead: set[str] = set()
        self.began: dict[int, tuple[int, bool]] = {}
        self.completed: list[Seen] = []
        self.aborted: list[AbortedSnapshot] = []
        self.answers: Counter[Answer] = Counter()
        self.log = Log()
        for name, kind in machines.items():
            self._be_born(name, kind, 0, 0, is_starting=False)
        self._add_driver(driver)

    def _add_driver(self, program: Program) -> None:
        kind = Kind({"main": program})
        self.kind_of[DRIVER] = ""
        ledger = CallLedger(DRIVER, acts_unasked=True)
        self.coordinator.join(DRIVER)
        self.alive[DRIVER] = Alive(ledger, kind, {None: Run(None, program, [])}, is_built=True)
        self._hold_handles(self.alive[DRIVER])

    def _be_born(self, name: str, kind: str, incarnation: int, colour: int, is_starting: bool) -> None:
        """A machine is registered with the coordinator, and only then exists."""
        colour = self.coordinator.join(name, incarnation, colour)
        self.kind_of[name] = kind
        turn = self.turns.get(name)
        turning = None if turn is None else turn.turning
        ledger = CallLedger(
            name, incarnation=incarnation, colour=colour, is_starting=is_starting, turning=turning, turn=turn
        )
        machine = Alive(ledger, self.kinds[kind], is_built=not is_starting)
        self.alive[name] = machine
        self._hold_handles(machine)
        self.log.record(range(1, colour + 1), name)
        self.log.ended.pop(name, None)
        ledger.welcome(self.coordinator.pending, self.coordinator.last)

    def _hold_handles(self, machine: Alive) -> None:
        for target in machine.kind.handles():
            machine.ledger.hold(target)

    # ---- which steps there are ------------------------------------------------------------------------------------

    def enabled(self) -> list[Step]:
        """Every step that something waits for; not listed: what the schedule starts (`snapshot`, `lose`, `die`, ...)."""
        steps = [step for name in self.alive for step in self.enabled_on(name)]
        steps += [("accept", index) for index, call in enumerate(self.network) if self._can_accept(call)]
        steps += [("birth", index) for index, call in enumerate(self.network) if self._can_be_born(call)]
        steps += [("control", index) for index in range(len(self.control))]
        steps += [("settle", index) for index in range(len(self.failures))]
        steps += [("notice", index) for index in range(len(self.notices))]
        steps += [("restart", name) for name in self.waiting_to_restart]
        return steps

    def enabled_on(self, name: str) -> list[Step]:
        """The steps of one machine."""
        machine = self.alive[name]
        ledger = machine.ledger
        steps: list[Step] = []
        for key, run in machine.runs.items():
            if run.wait_id is None:
                steps.append(("step", name, key))
            elif self._can_wake(run):
                steps.append(("wake", name, key))
            elif run.waiting is not None and run.waiting.may_act and run.owed is None:
                steps.append(("timeout", name, key))
        if ledger.must_record:
            steps.append(("record", name) if ledger.can_copy else ("hurry", name))
        steps += [("report", name, number) for number in ledger.open if number not in machine.reported]
        if ledger.has_acks:
            steps.append(("acknowledge", name))
        return steps

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is left to happen but snapshots."""
        return not any(step[0] in APP for step in self.enabled())

    def _can_wake(self, run: Run) -> bool:
        if run.owed is not None:
            return self.abroad is not None and self.abroad.reply_to(run.owed) is not None
        waiting = run.waiting
        assert waiting is not None
        if waiting.is_local:
            return run.notified
        there = [call for call in waiting.on if id_of(call) in self.replies]
        has_raised = waiting.raises and any(call in self.log.failed | self.log.raised for call in there)
        return has_raised or len(there) >= waiting.k

    def _can_accept(self, call: Travelling) -> bool:
        machine = self.alive.get(call.target)
        if machine is None or not all(one in self.replies for one in call.needs):
            return False
        is_constructor = call.header[2] == CONSTRUCTOR
        return machine.is_built != is_constructor and len(machine.runs) < machine.kind.slots

    def _can_be_born(self, call: Travelling) -> bool:
        is_known = call.target in self.alive or call.target in self.waiting_to_restart
        return call.header[2] == CONSTRUCTOR and not is_known and call.target not in self.dead

    def perform(self, step: Step, choice: int = 0) -> None:
        """Take one step; what the world does in it depends on `choice`."""
        kind, *where = step
        self.taken += 1
        told = _STEPS[kind](self, *where, choice) if kind in _CHOOSING else _STEPS[kind](self, *where)
        if self.trace is not None:
            self.trace.append(f"{self.taken:>4}  {kind:<11} {told or ''}".rstrip())

    # ---- what the app does ------------------------------------------------------------------------------------------

    def _step(self, name: str, key: str | None, choice: int) -> str:
        machine = self.alive[name]
        run = machine.runs[key]
        if run.at == len(run.program):
            return self._finish(name, machine, run)
        step = run.program[run.at]
        run.at += 1
        match step:
            case Call():
                self._submit(name, machine, run, step, choice)
            case Create():
                self._create(name, machine, run, step)
            case Get(refs, k, has_timeout):
                on = [run.refs[index] for index in refs]
                self._wait(name, machine, run, on, k or len(refs), has_timeout, raises=not k)
            case Park():
                self._wait(name, machine, run, [], 1, False, is_local=True)
            case Notify():
                for other in machine.runs.values():
                    if other.wait_id is not None and other.waiting is not None and other.waiting.is_local:
                        other.notified = True
                        machine.ledger.ready(other.wait_id)
                self._worked(name, machine)
            case Work():
                self._worked(name, machine)
            case Post():
                self._post(name, machine, run, step)
            case Fail():
                return self._finish(name, machine, run, is_error=True)
        return f"{name} {key}: {step}"

    def _post(self, name: str, machine: Alive, run: Run, step: Post) -> None:
        assert self.abroad is not None, "there are no hosts here"
        owed = self.abroad.posted(name, step)
        if step.waits:
            wait_id = machine.ledger.wait(run.call_id, (), 1, 0.0, owed=((step.target, owed),))
            caller = name_of(run.call_id) if run.call_id is not None else None
            run.wait_id, run.owed = wait_id, owed
            run.waiting = Waiting(caller, (), 1, may_act=True)  # of calls alone, nothing is known
            self.log.add(name, "wait", waiting=run.waiting)

    def _worked(self, name: str, machine: Alive) -> None:
        machine.steps += 1
        self.log.add(name, "step")

    def _submit(self, name: str, machine: Alive, run: Run, step: Call, choice: int) -> None:
        needs = tuple(run.refs[index] for index in step.needs)
        gives = tuple(run.refs[index] for index in step.gives)
        header = machine.ledger.submit(step.target, step.method, None, 0.0, is_retried=step.is_retried, needs=needs)
        call = Travelling(tuple(header), step.target, step.method, needs, gives)
        self._sent(name, run, call)
        if choice and choice % 11 == 0:  # submitting raised
            machine.ledger.retract(step.target, header.number)
            self._failed(call.call_id)
        elif step.target in self.dead:
            self.failures.append(call.call_id)
        else:
            self.network.append(call)

    def _sent(self, name: str, run: Run, call: Travelling) -> None:
        run.refs.append(call.call_id)
        self.log.add(name, "submit", name_of(call.call_id), is_retried=call.header[5])

    def _failed(self, call_id: str) -> None:
        """Its sender has been told."""
        call = name_of(call_id)
        self.log.faults.append(len(self.log.events))
        self.log.add(call[0], "settle", call)
        self.log.failed.add(call)
        self.replies.setdefault(call_id, 0)

    def _create(self, name: str, machine: Alive, run: Run, step: Create) -> None:
        retried = self.kinds[step.kind].can_restart
        gives = tuple(run.refs[index] for index in step.gives)
        header = machine.ledger.create(step.child, "__init__", None, 0.0, is_retried=retried)
        call = Travelling(tuple(header), step.child, "__init__", (), gives)
        self.kind_of[step.child] = step.kind
        self.constructors[step.child] = call
        self._sent(name, run, call)
        self.network.append(call)

    def _wait(
        self,
        name: str,
        machine: Alive,
        run: Run,
        on: list[str],
        k: int,
        may_act: bool,
        *,
        is_local: bool = False,
        raises: bool = False,
    ) -> None:
        run.wait_id = machine.ledger.wait(
            run.call_id, on, k, 0.0, may_act=may_act, is_local=is_local, raises=raises and len(on) > 1
        )
        caller = name_of(run.call_id) if run.call_id is not None else None
        run.waiting = Waiting(caller, tuple(name_of(one) for one in on), k, is_local, may_act, raises and len(on) > 1)
        run.notified = False
        self.log.add(name, "wait", waiting=run.waiting)

    def _wake(self, name: str, key: str | None) -> str:
        machine = self.alive[name]
        run = machine.runs[key]
        assert run.waiting is not None
        read = [id_of(call) for call in run.waiting.on if id_of(call) in self.replies]
        colour = max((self.replies[one] for one in read), default=0)
        if run.owed is not None and self.abroad is not None:
            colour = self.abroad.reply_to(run.owed) or 0
        if machine.ledger.hear(colour):
            self._record(name)
        self._leave_wait(name, machine, run, colour)
        for one in read:
            self._read(machine, one)
        return f"{name} {key} goes on"

    def _read(self, machine: Alive, call_id: str) -> None:
        """Who reads the reply of a call of its own knows that it was accepted; here, of every other one."""
        source, incarnation, target, number = name_of(call_id)
        if (source, incarnation) != (machine.ledger.machine, machine.ledger.incarnation) or number % 2:
            return
        if name_of(call_id) not in self.log.failed:
            machine.ledger.answered(target, number)

    def _timeout(self, name: str, key: str | None) -> str:
        machine = self.alive[name]
        self._leave_wait(name, machine, machine.runs[key], 0)
        return f"{name} {key} gives up"

    def _leave_wait(self, name: str, machine: Alive, run: Run, colour: int) -> None:
        assert run.wait_id is not None
        machine.ledger.wake(run.wait_id, colour)
        machine.steps += 1
        self.log.add(name, "wake", waiting=run.waiting)
        run.wait_id = run.waiting = None
        if run.owed is not None and self.abroad is not None:
            self.abroad.read_by(name, run.owed)
            run.owed = None

    def _finish(self, name: str, machine: Alive, run: Run, *, is_error: bool = False) -> str:
        del machine.runs[run.call_id]
        if run.call_id is None:
            return self._leave(name, machine)
        colour = machine.ledger.finish(run.call_id, is_error=is_error)
        base = id_of(name_of(run.call_id))
        self.log.add(name, "finish", name_of(base))
        if is_error and base not in self.replies:
            self.log.raised.add(name_of(base))
        self.replies.setdefault(base, colour)
        if self.abroad is not None:
            self.abroad.answered(base, colour)
        machine.travelled.pop(run.call_id, None)
        if name_of(base)[3] == CONSTRUCTOR:
            machine.is_built = True
        return f"{name} {run.call_id} ends"

    def _leave(self, name: str, machine: Alive) -> str:
        """The driver's program is over; what it recorded is sent, and its final counts behind it."""
        due = range(machine.ledger.colour + 1, machine.ledger.turning.due + 1)
        final = machine.ledger.leave()
        self.log.record(due, name)
        for number in sorted(machine.ledger.open):
            if number not in machine.reported:
                self._report(name, number)
        self.log.add(name, "leave")
        self.log.ended[name] = self.log.lengths[name]
        del self.alive[name]
        self.control.append(("left", final))
        return f"{name} leaves"

    def _accept(self, index: int) -> str:
        call = self.network.pop(index)
        machine = self.alive[call.target]
        header = Header(*call.header)
        colour = max([header.colour, *(self.replies[one] for one in call.needs)])
        if machine.ledger.hear(colour):
            self._record(call.target)
        call_id = machine.ledger.accept(header, call.method, 0.0)
        if call.is_repetition:
            self.log.faults.append(len(self.log.events))
        self.log.add(call.target, "accept", name_of(call.call_id))
        if self.abroad is not None:
            self.abroad.accepted(call)
        for one in call.gives:
            machine.ledger.may_read(parsed(one).target)
        machine.runs[call_id] = Run(call_id, machine.kind.program(call.method), list(call.gives))
        machine.travelled[call_id] = call
        return f"{call.target} accepts {call_id} {call.method}"

    def _birth(self, index: int) -> str:
        call = self.network[index]
        self._be_born(call.target, self.kind_of[call.target], 0, call.header[3], is_starting=True)
        return call.target

    # ---- what goes wrong --------------------------------------------------------------------------------------------

    def _fault(self) -> None:
        self.log.faults.append(len(self.log.events))

    def _lose(self, index: int) -> str:
        """A call fails before its target accepts it."""
        call = self.network.pop(index)
        self._fault()
        if not call.is_repetition:
            self.failures.append(call.call_id)
        return call.call_id

    def _repeat(self, index: int) -> str:
        """A call that may be executed again, is."""
        call = self.network[index]
        again = Travelling(call.header, call.target, call.method, call.needs, call.gives, is_repetition=True)
        self._fault()
        self.network.append(again)
        return call.call_id

    def _settle(self, index: int) -> str:
        call_id = self.failures.pop(index)
        source, incarnation, target, number = name_of(call_id)
        machine = self.alive.get(source)
        if machine is not None and machine.ledger.incarnation == incarnation:
            machine.ledger.settle(target, number)
            self._failed(call_id)
        else:
            self._orphaned(call_id)
        return call_id

    def _orphaned(self, call_id: str) -> None:
        """Its owner is gone: whoever waits for it gets an error."""
        self.log.failed.add(name_of(call_id))
        self.replies.setdefault(call_id, 0)

    def _cancel(self, name: str, key: str) -> str:
        """A call that waits is cancelled: it ends where it is."""
        machine = self.alive[name]
        self._fault()
        machine.ledger.finish(key)
        del machine.runs[key]
        machine.travelled.pop(key)
        base = id_of(name_of(key))
        self.log.add(name, "cancelled", name_of(base))
        self.failures.append(base)
        return key

    def _die(self, name: str) -> str:
        machine = self.alive.pop(name)
        is_restarting = machine.kind.can_restart
        self._fault()
        self.log.add(name, "die")
        self.log.ended[name] = self.log.lengths[name]
        self.coordinator.calls.died(name, "died", is_restarting=is_restarting)
        if is_restarting:
            self.waiting_to_restart[name] = machine.ledger.incarnation + 1
        else:
            self.dead.add(name)
        self._end_calls_to(name, machine, is_restarting)
        self._forget_calls_of(name, machine.ledger.incarnation)
        self._announce_death(name, machine.ledger.incarnation + 1, is_restarting)
        self._complete()
        return name

    def _end_calls_to(self, name: str, machine: Alive, is_restarting: bool) -> None:
        flying = [call for call in self.network if call.target == name and not (call.header[5] and is_restarting)]
        self.network = [call for call in self.network if call not in flying]
        for call in [*machine.travelled.values(), *flying]:
            self._end_with(call, is_restarting)

    def _announce_death(self, name: str, incarnation: int, is_restarting: bool) -> None:
        for source, other in self.alive.items():
            if name in other.ledger.outputs:
                bound = other.ledger.outputs[name].last + 1 if is_restarting else 0
                self.notices.append((source, other.ledger.incarnation, name, incarnation, bound))

    def _end_with(self, call: Travelling, is_restarting: bool) -> None:
        """Its target died: it fails, or is executed again (its owner sends it again; not if that is gone)."""
        if call.header[2] != CONSTRUCTOR and self._has_died(*call.header[:2]):
            self._orphaned(call.call_id)
        elif call.header[5] and is_restarting:
            if call not in self.network:
                self.network.append(call)
        elif not call.is_repetition:
            self.failures.append(call.call_id)

    def _has_died(self, name: str, incarnation: int) -> bool:
        machine = self.alive.get(name)
        is_another = machine is not None and machine.ledger.incarnation != incarnation
        return is_another or name in self.dead or name in self.waiting_to_restart

    def _forget_calls_of(self, name: str, incarnation: int) -> None:
        """Ray drops what a dead process had sent; who waits for it gets an error. (A constructor is the GCS's to carry.)"""
        kept = [
            call for call in self.network if call.header[:2] != (name, incarnation) or call.header[2] == CONSTRUCTOR
        ]
        for call in self.network:
            if call not in kept:
                self._orphaned(call.call_id)
        self.network = kept

    def _restart(self, name: str) -> str:
        incarnation = self.waiting_to_restart.pop(name)
        constructor = self.constructors.get(name)
        if constructor is not None and constructor not in self.network:
            self.network.append(constructor)
        self._be_born(name, self.kind_of[name], incarnation, 0, is_starting=constructor is not None)
        return name

    def _notice(self, index: int) -> str:
        source, born, target, incarnation, bound = self.notices.pop(index)
        machine = self.alive.get(source)
        if machine is None or machine.ledger.incarnation != born:
            return f"{source} is gone too"
        before = dict(machine.ledger.outputs[target].log)
        if bound:
            machine.ledger.target_restarted(target, incarnation, bound)
        else:
            machine.ledger.target_died(target)
        for number in before.keys() - machine.ledger.outputs[target].log.keys():
            self._fault()
            call = source, machine.ledger.incarnation, target, number
            if not any(one.call_id == id_of(call) for one in self.network):
                self.log.add(source, "settle", call)
        return f"{source} hears that {target} is gone"

    # ---- snapshots ----------------------------------------------------------------------------------------------------

    def _snapshot(self) -> str:
        quiet = self.is_quiet
        number = self.coordinator.start(0.0, INF)
        if number is None:
            return "too many are open"
        self.begin_snapshot(number, quiet)
        return f"number {number}"

    def begin_snapshot(self, number: int, was_quiet: bool) -> None:
        """Every machine is asked for it."""
        self.began[number] = len(self.log.events), was_quiet
        self.control += [("request", name, number) for name in self.coordinator.calls.machines]
        self._complete()

    def _abort(self, number: int) -> str:
        self.give_up(self.coordinator.abort(number, "given up"))
        return f"number {number}"

    def give_up(self, aborted: AbortedSnapshot) -> None:
        """Every machine hears that nothing of it is wanted."""
        self.aborted.append(aborted)
        self.control += [("close", name, aborted.number) for name in self.coordinator.calls.machines]

    def _record(self, name: str, copy: bool = True) -> str:
        machine = self.alive[name]
        state: Callable[[], int] | None = (lambda: machine.steps) if copy else None
        numbers = machine.ledger.record(state)
        self.log.record(numbers, name)
        return f"{name} records {numbers}"

    def _hurry(self, name: str) -> str:
        return self._record(name, copy=False)

    def _report(self, name: str, number: int) -> str:
        machine = self.alive[name]
        machine.reported.add(number)
        self.control.append(("part", machine.ledger.report(number)))
        return f"{name} reports {number}"

    def _acknowledge(self, name: str) -> str:
        acks = self.alive[name].ledger.take_acks()
        self.control += [("acks", one) for one in acks]
        return f"{name}: {', '.join(f'{one.source} {one.numbers}' for one in acks)}"

    def _control(self, index: int) -> str:
        message = self.control.pop(index)
        self._deliver(message)
        return _told(message)

    def _echo(self, index: int) -> str:
        """A control message comes, and will come again."""
        self._deliver(self.control[index])
        return _told(self.control[index])

    def _mislay(self, index: int) -> str:
        """An acknowledgement is lost; other control messages are sent until they arrive."""
        if self.control[index][0] == "acks":
            del self.control[index]
        return ""

    def _deliver(self, message: Step) -> None:
        match message:
            case ("request", str(name), int(number)):
                if name in self.alive:
                    self.alive[name].ledger.request(number)
            case ("close", str(name), int(number)):
                if name in self.alive:
                    self.alive[name].ledger.close(number)
            case ("acks", Acks() as acks):
                if (ledger := self._ledger_of(acks.source)) is not None:
                    ledger.acknowledge(acks)
            case ("part", MachineReport() as report):
                self._collect(report)
            case ("left", MachineReport() as report):
                self.coordinator.calls.left(report)
        self._complete()

    def _ledger_of(self, name: str) -> CallLedger | None:
        if name in self.alive:
            return self.alive[name].ledger
        return self.abroad.ledger_of(name) if self.abroad is not None else None

    def _collect(self, report: MachineReport) -> None:
        answer = self.coordinator.report_calls(report)
        self.answers[answer] += 1
        if answer is Answer.DISCARDED and report.machine in self.alive:
            self.alive[report.machine].ledger.close(report.number)

    def _complete(self) -> None:
        for number in list(self.coordinator.pending):
            found = self.coordinator.completed(number)
            if found is not None:
                (self.completed_snapshot if self.abroad is None else self.abroad.completed)(found)

    def completed_snapshot(self, found: CompletedSnapshot) -> None:
        """All reports are there: what they say of the calls is put together."""
        self.completed.append(self._seen(found.calls))
        self._leave_out_the_unborn(found.number)
        self.control += [("close", name, found.number) for name in self.coordinator.calls.machines]

    def _leave_out_the_unborn(self, number: int) -> None:
        """Who is created and not born when a snapshot is complete is no part of it, whatever its colour will be."""
        for name in self.kind_of:
            if name not in self.alive and name not in self.log.ended:
                self.log.record((number,), name, 0)

    def _seen(self, found: CompletedCallSnapshot) -> Seen:
        began, quiet = self.began[found.number]
        return seen_of(found, began, len(self.log.events), quiet)

    def slots(self) -> dict[str, int]:
        """Per machine that ever was."""
        return {name: self.kinds[kind].slots for name, kind in self.kind_of.items() if kind}


def _told(message: Step) -> str:
    """A control message, for the trace."""
    kind, what, *more = message
    words = [kind, what.machine, what.number] if isinstance(what, MachineReport) else [kind, what, *more]
    return " ".join(map(str, words))


_CHOOSING = ("step",)
_STEPS: dict[str, Callable[..., str]] = {
    "step": CallWorld._step,
    "wake": CallWorld._wake,
    "timeout": CallWorld._timeout,
    "accept": CallWorld._accept,
    "birth": CallWorld._birth,
    "lose": CallWorld._lose,
    "repeat": CallWorld._repeat,
    "settle": CallWorld._settle,
    "cancel": CallWorld._cancel,
    "die": CallWorld._die,
    "restart": CallWorld._restart,
    "notice": CallWorld._notice,
    "snapshot": CallWorld._snapshot,
    "abort": CallWorld._abort,
    "record": CallWorld._record,
    "hurry": CallWorld._hurry,
    "report": CallWorld._report,
    "acknowledge": CallWorld._acknowledge,
    "control": CallWorld._control,
    "echo": CallWorld._echo,
    "mislay": CallWorld._mislay,
}
