"""A deterministic world around the protocol for calls: actors with slots, a driver, a network that does what Ray does.

`CallWorld` runs the very `CallLedger` and `Coordinator` that the instrumentation runs. As in `mail.world`, what happens is a
list of *steps*: `enabled()` lists them, `perform(step)` takes one, and who chooses is the caller's business (see
`schedules`). Calls are accepted in any order, replies read whenever their reader likes; what goes wrong (calls lost,
repeated and cancelled, machines that die and start again, acknowledgements lost and doubled) are steps that no list
offers: the schedule takes them. Imports the standard library only.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Protocol

from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.calls import CONSTRUCTOR, Acks, CallLedger, Header, MachineReport, parsed
from ray_snapshot.protocol.collector import Answer
from ray_snapshot.protocol.coordinator import AbortedSnapshot, CompletedSnapshot, Coordinator
from ray_snapshot.protocol.tasks import is_task, is_worker
from ray_snapshot.protocol.turning import Turning
from worlds.calls.actors import Alive, Run, Travelling
from worlds.calls.carrying import Carrying
from worlds.calls.central import CallCentral, Step
from worlds.calls.nodes import Nodes
from worlds.calls.oracle import Log
from worlds.calls.pool import Pool
from worlds.calls.programs import (
    Call,
    Create,
    Drop,
    Fail,
    Get,
    Kind,
    Notify,
    Park,
    Post,
    Program,
    Start,
    Work,
)
from worlds.calls.reports import id_of, name_of

INF = float("inf")
MANY = 1 << 30
"""Workers, where nodes say how many tasks may run."""

APP = ("step", "wake", "timeout", "accept", "birth", "settle", "restart", "notice", "run", "end")
"""Kinds of steps that are the app's own, or Ray's; the others are the snapshot's."""


class Hosts(Protocol):
    """The hosts with machines beside a world of calls (`parties`), as far as a watched actor has to do with them."""

    def posted(self, name: str, step: Post) -> str: ...

    def reply_to(self, call_id: str) -> int | None: ...

    def read_by(self, name: str, call_id: str) -> None: ...

    def accepted(self, call: Travelling) -> None: ...

    def answered(self, call_id: str, colour: int) -> None: ...

    def completed(self, snapshot: CompletedSnapshot) -> None: ...

    def ledgers(self) -> Mapping[str, CallLedger]: ...

    def failed(self, call_id: str) -> None: ...

    def died(self, name: str, incarnation: int) -> None: ...

    def born_again(self, name: str, incarnation: int, colour: int) -> Turns | None: ...


class Turns(Protocol):
    """The core beside the ledger of a machine that sends to hosts: both turn red at once."""

    @property
    def turning(self) -> Turning: ...

    def __call__(self) -> tuple[int, ...]: ...


class CallWorld:
    """Machines between which steps are taken one at a time; `machines` maps names to kinds, `driver` is its program.

    `turns`: by machine, what turns it red, where that is not its ledger alone. `nodes`: where tasks, and machines that are
    created, need room; without, there is room for two workers.
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
        functions: Mapping[str, Program] = MappingProxyType({}),
        nodes: Nodes | None = None,
        trace: list[str] | None = None,
    ) -> None:
        self.kinds = dict(kinds)
        self.kind_of: dict[str, str] = {}
        """By machine that ever was."""
        self.turns = dict(turns)
        self.trace = trace
        self.taken = 0
        self.abroad: Hosts | None = None
        self.alive: dict[str, Alive] = {}
        self.log = Log()
        self.ray = Carrying(self.log)
        self.control: list[Step] = []
        self.central = CallCentral(coordinator or Coordinator(most_open=most_open))
        self.nodes = Nodes() if nodes is None else nodes
        self.pool = Pool(self, dict(functions)) if nodes is None else Pool(self, dict(functions), MANY)
        self.ending: set[str] = set()
        """Actors of which nothing has a handle any more."""
        for name, kind in machines.items():
            self.be_born(name, kind, 0, 0, is_starting=False)
        self._add_driver(driver)

    def _add_driver(self, program: Program) -> None:
        kind = Kind({"main": program})
        self.kind_of[DRIVER] = ""
        self.central.coordinator.join(DRIVER)
        ledger = CallLedger(DRIVER, acts_unasked=True)
        self.alive[DRIVER] = Alive(ledger, kind, {None: Run(None, program, [])}, is_built=True)

    def be_born(self, name: str, kind: str, incarnation: int, colour: int, is_starting: bool) -> None:
        """A machine is registered with the coordinator, and only then exists."""
        coordinator = self.central.coordinator
        colour = coordinator.join(name, incarnation, colour)
        self.kind_of[name] = kind
        turn = self.turns.get(name)
        if incarnation and self.abroad is not None:
            turn = self.abroad.born_again(name, incarnation, colour)
        turning = None if turn is None else turn.turning
        ledger = CallLedger(
            name, incarnation=incarnation, colour=colour, is_starting=is_starting, turning=turning, turn=turn
        )
        self.alive[name] = Alive(ledger, self.kinds[kind] if kind else self.pool.kind, is_built=not is_starting)
        self.log.record(range(1, colour + 1), name)
        self.log.ended.pop(name, None)
        ledger.welcome(coordinator.pending, coordinator.last, coordinator.settled)

    # ---- which steps there are ------------------------------------------------------------------------------------

    def enabled(self) -> list[Step]:
        """Every step that something waits for; not listed: what the schedule starts (`snapshot`, `lose`, `die`, ...)."""
        ray = self.ray
        steps = [step for name in self.alive for step in self.enabled_on(name)]
        steps += [("accept", index) for index, call in enumerate(ray.network) if self._can_accept(call)]
        unborn = [(index, call) for index, call in enumerate(ray.network) if self._can_be_born(call)]
        steps += [("birth", index, node) for index, call in unborn for node in self.nodes.fitting(call.demand)]
        steps += [("control", index) for index in range(len(self.control))]
        steps += [("settle", index) for index in range(len(ray.failures))]
        steps += [("notice", index) for index in range(len(ray.notices))]
        steps += [("restart", name) for name in ray.restarting]
        steps += [("end", name) for name in sorted(self.ending) if self._can_end(name)]
        return [*steps, *self.pool.enabled()]

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
        return self.ray.is_over(run)

    def _can_accept(self, call: Travelling) -> bool:
        machine = self.alive.get(call.target)  # of a task there is none
        return machine is not None and machine.has_room_for(call) and self.ray.has_all(call.needs)

    def _can_be_born(self, call: Travelling) -> bool:
        return call.target not in self.alive and not is_task(call.target) and self.ray.can_be_born(call)

    def _can_end(self, name: str) -> bool:
        machine = self.alive.get(name)
        is_idle = machine is not None and machine.is_built and not machine.runs
        return is_idle and not any(call.target == name for call in self.ray.network)

    def perform(self, step: Step, choice: int = 0) -> None:
        """Take one step; what the world does in it depends on `choice`."""
        kind, *where = step
        self.taken += 1
        told = _STEPS[kind](self, *where, choice) if kind == "step" else _STEPS[kind](self, *where)
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
            case Start():
                self.pool.start(name, machine, run, step)
            case Create():
                self._create(name, machine, run, step)
            case Drop(child):
                machine.dropped.add(child)
                self.ending.add(child)
                machine.work(self.log)
            case Get(refs, k, has_timeout):
                on = [run.refs[index] for index in refs]
                machine.wait(run, on, k or len(refs), self.log, may_act=has_timeout, is_local=False, raises=not k)
                if is_worker(name):
                    self.nodes.waiting.add(name)
            case Park():
                machine.wait(run, [], 1, self.log, may_act=False, is_local=True, raises=False)
            case Notify():
                machine.notify()
                machine.work(self.log)
            case Work():
                machine.work(self.log)
            case Post():
                self._post(name, machine, run, step)
            case Fail():
                return self._finish(name, machine, run, is_error=True)
        return f"{name} {key}: {step}"

    def _post(self, name: str, machine: Alive, run: Run, step: Post) -> None:
        assert self.abroad is not None, "there are no hosts here"
        owed = self.abroad.posted(name, step)
        if step.waits:
            machine.wait_for_machine(run, step.target, owed, self.log)

    def _submit(self, name: str, machine: Alive, run: Run, step: Call, choice: int) -> None:
        needs = tuple(run.refs[index] for index in step.needs)
        gives = tuple(run.refs[index] for index in step.gives)
        header = machine.ledger.submit(step.target, step.method, None, 0.0, is_retried=step.is_retried, needs=needs)
        call = Travelling(tuple(header), step.target, step.method, needs, gives)
        self._sent(name, run, call)
        if choice and choice % 11 == 0:  # submitting raised
            machine.ledger.retract(step.target, header.number)
            self.ray.fail(call.call_id)
        else:
            self.ray.submit(call)

    def _sent(self, name: str, run: Run, call: Travelling) -> None:
        run.refs.append(call.call_id)
        self.log.add(name, "submit", name_of(call.call_id), is_retried=call.header[5])

    def _create(self, name: str, machine: Alive, run: Run, step: Create) -> None:
        retried = self.kinds[step.kind].can_restart
        gives = tuple(run.refs[index] for index in step.gives)
        header = machine.ledger.create(step.child, "__init__", None, 0.0, is_retried=retried, demand=step.demand)
        call = Travelling(tuple(header), step.child, "__init__", (), gives, demand=step.demand)
        self.kind_of[step.child] = step.kind
        self._sent(name, run, call)
        self.ray.construct(call)

    def _wake(self, name: str, key: str | None) -> str:
        machine = self.alive[name]
        run = machine.runs[key]
        assert run.waiting is not None
        read = [id_of(call) for call in run.waiting.on if id_of(call) in self.ray.replies]
        colour = max((self.ray.replies[one] for one in read), default=0)
        if run.owed is not None and self.abroad is not None:
            colour = self.abroad.reply_to(run.owed) or 0
        if machine.ledger.hear(colour):
            self.record(name)
        self._leave_wait(name, machine, run, colour)
        for one in read:
            self.pool.noting_drops(name, functools.partial(machine.read, one, self.log))
        return f"{name} {key} goes on"

    def _timeout(self, name: str, key: str | None) -> str:
        machine = self.alive[name]
        self._leave_wait(name, machine, machine.runs[key], 0)
        return f"{name} {key} gives up"

    def _leave_wait(self, name: str, machine: Alive, run: Run, colour: int) -> None:
        assert run.wait_id is not None
        machine.ledger.wake(run.wait_id, colour)
        self.nodes.waiting.discard(name)
        machine.steps += 1
        self.log.add(name, "wake", waiting=run.waiting)
        run.wait_id = run.waiting = None
        if run.owed is not None and self.abroad is not None:
            self.abroad.read_by(name, run.owed)
            run.owed = None

    def _finish(self, name: str, machine: Alive, run: Run, *, is_error: bool = False) -> str:
        del machine.runs[run.call_id]
        if run.call_id is None:
            self.send_final(name)
            return f"{name} leaves"
        if is_worker(name):
            return self.pool.finish(name, machine, run, is_error=is_error)
        colour = machine.ledger.finish(run.call_id, is_error=is_error)
        base = id_of(name_of(run.call_id))
        self.log.add(name, "finish", name_of(base))
        if is_error and base not in self.ray.replies:
            self.log.raised.add(name_of(base))
        self.ray.replies.setdefault(base, colour)
        if self.abroad is not None:
            self.abroad.answered(base, colour)
        machine.travelled.pop(run.call_id, None)
        if name_of(base)[3] == CONSTRUCTOR:
            machine.is_built = True
        return f"{name} {run.call_id} ends"

    def send_final(self, name: str) -> None:
        """A machine ends: what it recorded is sent, and its final counts behind it."""
        machine = self.alive[name]
        due = range(machine.ledger.colour + 1, machine.ledger.turning.due + 1)
        final = self.pool.noting_drops(name, machine.ledger.leave)
        self._note_held(name)
        self.log.record(due, name)
        for number in sorted(machine.ledger.open):
            if number not in machine.reported:
                self._report(name, number)
        self.log.add(name, "leave")
        self.log.ended[name] = self.log.lengths[name]
        del self.alive[name]
        self.nodes.leave(name)
        self.control.append(("left", final))

    def _accept(self, index: int) -> str:
        call = self.ray.network.pop(index)
        machine = self.alive[call.target]
        header = Header(*call.header)
        colour = max([header.colour, *(self.ray.replies[one] for one in call.needs)])
        if machine.ledger.hear(colour):
            self.record(call.target)
        call_id = machine.ledger.accept(header, call.method, 0.0)
        if call.is_repetition:
            self.log.fault()
        self.log.add(call.target, "accept", name_of(call.call_id))
        if self.abroad is not None:
            self.abroad.accepted(call)
        for one in call.gives:
            machine.ledger.may_read(parsed(one).target)
        machine.begin(call, call_id)
        return f"{call.target} accepts {call_id} {call.method}"

    def _birth(self, index: int, node: str) -> str:
        call = self.ray.network[index]
        self.be_born(call.target, self.kind_of[call.target], 0, call.header[3], is_starting=True)
        self.nodes.take(call.target, node, call.demand)
        return f"{call.target} {node}".rstrip()

    # ---- what goes wrong --------------------------------------------------------------------------------------------

    def _lose(self, index: int) -> str:
        return self.pool.lose(index) if is_task(self.ray.network[index].target) else self.ray.lose(index)

    def _repeat(self, index: int) -> str:
        return self.ray.repeat(index)

    def _settle(self, index: int) -> str:
        call_id = self.ray.failures.pop(index)
        source, incarnation, target, number = name_of(call_id)
        ledger = self._ledger_of(source)
        if ledger is not None and ledger.incarnation == incarnation:
            ledger.settle(target, number)
            self.ray.fail(call_id)
            if self.abroad is not None:
                self.abroad.failed(call_id)
        else:
            self.ray.orphan(call_id)
        return call_id

    def _cancel(self, name: str, key: str) -> str:
        """A call that waits is cancelled: it ends where it is."""
        machine = self.alive[name]
        self.log.fault()
        machine.ledger.finish(key)
        del machine.runs[key]
        machine.travelled.pop(key)
        base = id_of(name_of(key))
        self.log.add(name, "cancelled", name_of(base))
        self.ray.failures.append(base)
        return key

    def _die(self, name: str) -> str:
        machine = self.alive.pop(name)
        self.log.fault()
        self.log.add(name, "die")
        self.log.ended[name] = self.log.lengths[name]
        self.central.coordinator.calls.died(name, "died", is_restarting=machine.kind.can_restart)
        if is_worker(name):
            self.pool.worker_died(machine)
            machine.travelled.clear()
        self.nodes.leave(name)
        self.ray.die(name, machine, self._ledgers())
        if self.abroad is not None:
            self.abroad.died(name, machine.ledger.incarnation)
        self._complete()
        return name

    def _ledgers(self) -> dict[str, CallLedger]:
        """Of all that live, and of machines of hosts."""
        found = {} if self.abroad is None else dict(self.abroad.ledgers())
        return found | {name: one.ledger for name, one in self.alive.items()}

    def _join(self, node: str) -> str:
        self.nodes.join(node)
        return node

    def _restart(self, name: str) -> str:
        incarnation, is_starting = self.ray.restart(name)
        self.be_born(name, self.kind_of[name], incarnation, 0, is_starting=is_starting)
        return name

    def _notice(self, index: int) -> str:
        source, born, target, incarnation, bound = self.ray.notices.pop(index)
        ledger = self._ledger_of(source)
        if ledger is None or ledger.incarnation != born:
            return f"{source} is gone too"
        before = dict(ledger.outputs[target].log)
        if bound:
            ledger.target_restarted(target, incarnation, bound)
        else:
            ledger.target_died(target)
        for number in before.keys() - ledger.outputs[target].log.keys():
            self.log.fault()
            call = source, ledger.incarnation, target, number
            if not any(one.call_id == id_of(call) for one in self.ray.network):
                self.log.add(source, "settle", call)
        return f"{source} hears that {target} is gone"

    # ---- snapshots ----------------------------------------------------------------------------------------------------

    def _snapshot(self) -> str:
        was_quiet = self.is_quiet
        number = self.central.coordinator.start(0.0, INF)
        if number is None:
            return "too many are open"
        self.begin_snapshot(number, was_quiet=was_quiet)
        return f"number {number}"

    def begin_snapshot(self, number: int, *, was_quiet: bool) -> None:
        """Every machine is asked for it."""
        self.control += self.central.begin(number, len(self.log.events), was_quiet=was_quiet)
        self._complete()

    def _abort(self, number: int) -> str:
        self.give_up(self.central.coordinator.abort(number, "given up"))
        return f"number {number}"

    def give_up(self, aborted: AbortedSnapshot) -> None:
        """Every machine hears that nothing of it is wanted."""
        self.control += self.central.give_up(aborted)

    def record(self, name: str, copy: bool = True) -> str:
        machine = self.alive[name]
        state: Callable[[], int] | None = (lambda: machine.steps) if copy else None
        numbers = self.pool.noting_drops(name, lambda: self._recorded(name, state))
        return f"{name} records {numbers}"

    def _recorded(self, name: str, state: Callable[[], int] | None) -> tuple[int, ...]:
        machine = self.alive[name]
        machine.ledger.outcomes = self.ray.outcomes(machine)
        numbers = machine.ledger.record(state)
        self._note_held(name)
        self.log.record(numbers, name)
        return numbers

    def _note_held(self, name: str) -> None:
        """What has just recorded tells what it has of its node, too."""
        machine = self.alive[name]
        for number, report in machine.ledger.open.items():
            if report.held is None:
                held = self.nodes.report(name, is_clean=machine.dropped <= self.ray.dead)
                machine.ledger.open[number] = replace(report, held=held)

    def _hurry(self, name: str) -> str:
        return self.record(name, copy=False)

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
            case ("complete", str(name), int(number), held, ended, unsettled):
                if name in self.alive:
                    self.alive[name].ledger.complete(number, held, unsettled)
                    self.alive[name].ledger.forget_workers(ended)
            case ("ask", str(name), over):
                self.pool.asked(name, over)
            case ("over", str(name), over, int(colour)):
                self.pool.told(name, over, colour)
            case ("acks", Acks() as acks):
                if (ledger := self._ledger_of(acks.source)) is not None:
                    ledger.acknowledge(acks)
            case ("part", MachineReport() as report):
                self._collect(report)
            case ("left", MachineReport() as report):
                self.central.coordinator.calls.left(report)
        self._complete()

    def _ledger_of(self, name: str) -> CallLedger | None:
        if name in self.alive:
            return self.alive[name].ledger
        return self.abroad.ledgers().get(name) if self.abroad is not None else None

    def _collect(self, report: MachineReport) -> None:
        if self.central.collect(report) is Answer.DISCARDED and report.machine in self.alive:
            self.alive[report.machine].ledger.close(report.number)

    def _complete(self) -> None:
        for snapshot in self.central.newly_completed():
            (self.complete if self.abroad is None else self.abroad.completed)(snapshot)

    def complete(self, snapshot: CompletedSnapshot) -> None:
        """All reports are there."""
        self.control += self.central.complete(snapshot, len(self.log.events))
        self._leave_out_the_unborn(snapshot.number)

    def _leave_out_the_unborn(self, number: int) -> None:
        """Who is created and not born when a snapshot is complete is no part of it, whatever its colour will be."""
        for name in self.kind_of:
            if name not in self.alive and name not in self.log.ended:
                self.log.record((number,), name, 0)

    def slots(self) -> dict[str, int]:
        """Per machine that ever was."""
        return {name: self.kinds[kind].slots for name, kind in self.kind_of.items() if kind}


def _told(message: Step) -> str:
    """A control message, for the trace."""
    kind, what, *more = message
    words = [kind, what.machine, what.number] if isinstance(what, MachineReport) else [kind, what, *more]
    return " ".join(map(str, words))


_OWN = (
    "step wake timeout accept birth lose repeat settle cancel die restart join notice snapshot abort hurry report acknowledge"
    " control echo mislay"
)
_STEPS: dict[str, Callable[..., str]] = {
    **{name: getattr(CallWorld, f"_{name}") for name in _OWN.split()},
    "end": CallWorld._die,
    "record": CallWorld.record,
    "run": lambda world, index, place: world.pool.run(index, place),
    "retire": lambda world, name: world.pool.retire(name),
    "prune": lambda world, name: world.pool.prune(name),
}
