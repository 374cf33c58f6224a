"""The parties of a system that report logs of calls: who must report, when that is complete, and the join of the reports.

Complete means: every machine that is registered, or named inside the cut, has reported, has died, or is counted in flight
with its constructor. The join subtracts: on each channel the calls in flight are the sender's log at its instant, less what
the receiver had accepted at its own, so that

    sent = accepted + in flight + settled.

Imports the standard library only. Read `calls` first, and `coordinator` next.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from ray_snapshot.errors import ProtocolError
from ray_snapshot.protocol.acceptance import Ranges, is_in
from ray_snapshot.protocol.call_messages import (
    CONSTRUCTOR,
    Awaited,
    CallWait,
    InReport,
    MachineReport,
    OutReport,
    Sent,
    awaited,
    call_id_of,
    parsed,
)
from ray_snapshot.protocol.callers import EVERY, CallersOfCut
from ray_snapshot.protocol.collector import Answer
from ray_snapshot.protocol.streams import StreamsOfCut
from ray_snapshot.protocol.task_collector import TasksOfCut, apart, group_of
from ray_snapshot.protocol.tasks import ANYBODY, KEPT_S, call_of_task, is_task, is_worker

Channel = tuple[str, int, str]
"""(source, incarnation of the source, target)."""


@dataclass(frozen=True, slots=True)
class CallsOf:
    """One channel of a completed snapshot."""

    source: str
    incarnation: int
    """Of the source."""
    target: str
    sent_count: int
    accepted_count: int
    settled_count: int
    in_flight: Mapping[int, Sent] = field(default_factory=dict)
    tasks: Mapping[int, str] = field(default_factory=dict)
    """Of plain tasks, whose target is all tasks of a function: the name of each that is in flight."""

    def call_id(self, number: int) -> str:
        """The id of a call that is in flight."""
        if number in self.tasks:
            return call_of_task(self.tasks[number])
        return call_id_of(self.source, self.incarnation, self.target, number)

    @property
    def in_flight_count(self) -> int:
        """How many calls are on their way, or in Ray's queues."""
        return len(self.in_flight)


@dataclass(frozen=True, slots=True)
class ResolvedWait:
    """A wait, and what the cut knows of what it waits for."""

    machine: str
    wait: CallWait
    answers: tuple[bool | None, ...]
    """For each of `wait.on`: its reply or item is there or in flight; None: unknown."""
    on_machines: tuple[str, ...]
    """Who must act for the wait to end; of a local wait, any one of them is enough."""
    is_satisfied: bool | None
    errors: tuple[tuple[str | None, bool], ...] = ()
    """Of a wait that the first error ends: each call that may end it so, and whether it has ended in an error.

    None: a call of which that is not known. Those that are answered well are left out.
    """


@dataclass(frozen=True, slots=True)
class CompletedCallSnapshot:
    """A snapshot of which nothing is missing."""

    number: int
    machines: Mapping[str, MachineReport]
    """Those of the cut: born, and reported."""
    channels: tuple[CallsOf, ...]
    waits: tuple[ResolvedWait, ...]
    argument_waits: tuple[ResolvedWait, ...]
    """Of calls in flight that need replies before they can begin: `machine` is their target, `wait_id` is 0."""
    problems: tuple[str, ...]
    """Why the cut is not consistent: none, unless there is a bug of ours."""
    obstacles: tuple[str, ...]
    """What it does not know: machines that died meanwhile, states that could not be copied."""
    held: frozenset[str] = frozenset()
    """Plain tasks that are over, and that their senders have not dropped."""
    unsettled: frozenset[str] = frozenset()
    """Plain tasks in a log of which it is not known whether they are: their ends are kept as long, too."""
    idle_holds: tuple[str, ...] = ()
    """Machines of which a worker may have a handle that idles: any task may come to use it."""
    callers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Of some machines: who may call one, or drop it, kill it, or cancel what it runs. While something waits for room on a
    node, of those that hold some of one; of those that are blocked, if deadlocks are to be broken."""
    unclean: frozenset[str] = frozenset()
    """Processes in whose garbage the generator may lie whose items one that is held at a `yield` waits for."""

    def open_calls(self) -> Iterator[str]:
        """The ids of the calls that run, or are on their way; one that has been retried is there twice."""
        for report in self.machines.values():
            calls = [call for call in report.calls if call.caller is not None or call.call_id.startswith(ANYBODY)]
            yield from (call.call_id.partition("#")[0] for call in calls)
        for channel in self.channels:
            yield from map(channel.call_id, channel.in_flight)


class PendingCallSnapshot:
    """A snapshot of which reports are missing.

    `left`: the final reports of machines that have ended; `dead`: machines that died before the snapshot began.
    """

    def __init__(
        self,
        number: int,
        machines: Iterable[str],
        left: Mapping[str, MachineReport] | None = None,
        dead: Iterable[str] = (),
        idle_holds: Iterable[str] = (),
        *,
        tells_callers: bool = False,
    ) -> None:
        self.number = number
        self.idle_holds = set(idle_holds)
        self.tells_callers = tells_callers
        self.awaited = set(machines)
        self.dead = frozenset(dead)
        self.reports: dict[str, MachineReport] = {}
        self.gone: dict[str, str] = {}
        """Machines that went away while the snapshot was open, with the reason."""
        self.unborn: set[str] = set()
        """Machines known to have been born red."""
        self.final = dict(left or {})

    def expect(self, machine: str, colour: int = 0) -> None:
        """A machine was registered, born with this colour: it belongs to the system, unless it was born red."""
        if machine in self.reports:
            return
        if colour >= self.number:
            self.unborn.add(machine)
        else:
            self.awaited.add(machine)

    def report(self, report: MachineReport) -> Answer:
        """What a machine recorded; of several incarnations, the first report counts."""
        if report.machine in self.reports:
            return Answer.DUPLICATE
        self.awaited.discard(report.machine)
        if report.is_born:
            self.reports[report.machine] = report
        else:
            self.unborn.add(report.machine)
        return Answer.SUCCESS

    def left(self, report: MachineReport) -> None:
        """A machine has ended: its final counts stand for the report of what it did not record."""
        if report.colour < self.number:  # else it has recorded the number, and that report is on its way
            self.awaited.discard(report.machine)
            self.final.setdefault(report.machine, report)

    def died(self, machine: str, reason: str = "died") -> None:
        """A machine is gone, and what it had recorded may be gone with it; it is waited for no more."""
        self.awaited.discard(machine)
        self.gone.setdefault(machine, reason)

    def unheard(self) -> set[str]:
        """Machines that are named inside the cut, and that were not asked."""
        reports = [*self.reports.values(), *self.final.values()]
        outputs = [out for report in reports for out in report.outputs]
        named = {out.target for out in outputs} - {out.target for out in outputs if CONSTRUCTOR in out.log}
        named |= {channel.source for report in reports for channel in report.inputs}
        named = {name for name in named if not is_worker(name)}  # they register before they call, and are forgotten
        known = self.reports.keys() | self.gone.keys() | self.final.keys()
        return named - known - self.unborn - self.awaited - self.dead

    @property
    def is_complete(self) -> bool:
        """Every machine of the cut has reported, is gone, or is in flight with its constructor."""
        return not self.awaited and not self.unheard()

    def waits_for(self) -> str:
        """What is missing, for a person."""
        missing = sorted(self.awaited | self.unheard())
        return f"the report of {', '.join(missing[:5])}" if missing else "nothing"

    def completed(self) -> CompletedCallSnapshot:
        """The join of the reports; raises `ProtocolError` while something is missing."""
        if not self.is_complete:
            raise ProtocolError(f"snapshot {self.number} waits for {self.waits_for()}", number=self.number)
        final = {name: report for name, report in self.final.items() if name not in self.reports}
        told = {**self.reports, **final}
        return _Join(self, told).completed()


class _Join:
    """The reports of one snapshot, indexed."""

    def __init__(self, pending: PendingCallSnapshot, told: Mapping[str, MachineReport]) -> None:
        self.number, self.tells_callers = pending.number, pending.tells_callers
        self.gone = gone = pending.gone
        self.tasks = TasksOfCut(told.values())
        self.streams = StreamsOfCut(told.values(), self.tasks)
        self.reports = reports = self.streams.told_apart(apart(told.values()))
        self.idle_holds = set(pending.idle_holds)
        for report in reports.values():
            self.idle_holds |= {*report.to_tasks}
            if is_worker(report.machine):
                self.idle_holds |= {*report.holds, *report.reads}
        alive = {name for name, report in reports.items() if not report.has_left}
        self.over = (pending.dead | reports.keys()) - alive
        """Machines that had died or left before: a call to one ends, with an error if with nothing else."""
        self.ended = self.over | (gone.keys() - alive)
        """Machines that will never accept anything again."""
        self.outputs: dict[Channel, OutReport] = {
            (report.machine, report.incarnation, out.target): out
            for report in reports.values()
            for out in report.outputs
        }
        self.inputs: dict[Channel, InReport] = {
            (channel.source, channel.incarnation, report.machine): channel
            for report in reports.values()
            for channel in report.inputs
        }
        self.channels = [self._sent_on(key, out) for key, out in self.outputs.items()]
        self.channels += [one for report in reports.values() for one in self._tasks_of(report)]
        self.channels += [_of_the_dead(key, self.inputs[key]) for key in self.inputs if key not in self.outputs]
        running = {call.call_id.partition("#")[0]: call for report in reports.values() for call in report.calls}
        self.running = running
        self.repeated = {call_id for call_id, call in running.items() if call.is_repeated}
        """Of those that run: another run of them may have ended, with a reply or an error."""
        self.callers = CallersOfCut(reports, self.channels, self.tasks, self.idle_holds)

    def completed(self) -> CompletedCallSnapshot:
        waits = tuple(self._resolved(report.machine, wait) for report in self.reports.values() for wait in report.waits)
        return CompletedCallSnapshot(
            self.number,
            self.reports,
            tuple(self.channels),
            waits,
            tuple(self._argument_waits()),
            tuple(self._problems()),
            tuple(self._obstacles()),
            self.tasks.held,
            self.tasks.unsettled,
            tuple(sorted(self.idle_holds)),
            {**self.callers.of_holders(), **(self.callers.of_blocked() if self.tells_callers else {})},
            frozenset(one.unclean for one in self.streams.readers.values() if one.unclean is not None),
        )

    def _accepted(self, key: Channel) -> Ranges:
        channel = self.inputs.get(key)
        return channel.accepted if channel is not None else ()

    def _sent_on(self, key: Channel, out: OutReport) -> CallsOf:
        accepted = self._accepted(key)
        in_flight = {number: sent for number, sent in out.log.items() if not is_in(accepted, number)}
        settled = out.settled_count
        if key[2] in self.ended:
            settled, in_flight = settled + len(in_flight), {}
        accepted_count = out.sent_count - settled - len(in_flight)
        return CallsOf(*key, out.sent_count, accepted_count, settled, in_flight)

    def _tasks_of(self, report: MachineReport) -> Iterable[CallsOf]:
        """The tasks that a machine has sent: one channel a function."""
        for one in report.tasks:
            flying = {task.number: name for name, task in one.log.items() if name in self.tasks.on_the_way}
            yield CallsOf(
                report.machine,
                report.incarnation,
                group_of(one.function),
                one.sent_count,
                one.sent_count - len(flying),
                0,
                {number: one.log[name].sent for number, name in flying.items()},
                flying,
            )

    def _problems(self) -> Iterable[str]:
        """Calls accepted inside the cut and sent outside it."""
        for key, channel in self.inputs.items():
            source, incarnation, target = key
            report = self.reports.get(source)
            if report is None or report.incarnation != incarnation or not channel.accepted:
                continue  # what the dead sent is known by its acceptance alone
            last = self.outputs[key].last if key in self.outputs else -1
            highest = channel.accepted[-1][1]
            if highest > last:
                yield f"call {highest} from {source} to {target} was accepted inside the cut and sent outside it"

    def _obstacles(self) -> Iterable[str]:
        for machine, reason in self.gone.items():
            yield f"{machine} {reason} while the snapshot was open"
        for report in self.reports.values():
            if report.was_inside:
                yield f"{report.machine} was inside an action when it had to record: its state is unknown"

    def _argument_waits(self) -> Iterable[ResolvedWait]:
        for one in self.channels:
            for number, sent in one.in_flight.items():
                if sent.needs:
                    call_id = one.call_id(number)
                    yield self._resolved(
                        one.target, CallWait(0, call_id, awaited(sent.needs), len(sent.needs), sent.sent_at)
                    )

    # ---- waits ----------------------------------------------------------------------------------------------------

    def _resolved(self, machine: str, wait: CallWait) -> ResolvedWait:
        if wait.is_local:
            return ResolvedWait(machine, wait, (), self.callers.may_call(machine), wait.is_ready)
        if wait.at_yield:
            readers = self.streams.readers[machine, wait.wait_id]
            return ResolvedWait(machine, wait, (), readers.machines, False if readers.is_certain else None)
        answers = tuple(self._has_come(*one) for one in wait.on)
        targets = [parsed(call_id).target for call_id in wait.calls if call_id is not None]
        on_machines = tuple(dict.fromkeys([*targets, *(name for name, _ in wait.owed)]))
        errors = (
            tuple(self._errors(zip(wait.on, answers, strict=True)))
            if wait.raises and len(wait.on) + len(wait.owed) + wait.may_raise > 1
            else ()
        )
        errors += ((None, False),) * wait.may_raise
        unknown = (None,) * len(wait.owed)  # what machines owe, their hosts tell
        is_satisfied = wait.is_ready or _any_of(_at_least(wait.k, answers + unknown), _has_raised(errors))
        return ResolvedWait(machine, wait, answers, on_machines, is_satisfied, errors)

    def _errors(self, answers: Iterable[tuple[Awaited, bool | None]]) -> Iterable[tuple[str | None, bool]]:
        for (call_id, item), answer in answers:
            is_error = self._is_error(call_id) if answer and call_id is not None and item is None else None
            if not answer or is_error is not False:
                yield (call_id if answer is False or is_error else None), bool(is_error)

    def _is_error(self, call_id: str) -> bool | None:
        """Whether a call that has ended inside the cut ended in an error.

        Its target tells of what it has accepted, its sender of what never came there. Nothing tells of calls that an
        earlier incarnation may have ended, or to a machine that is gone.
        """
        source, incarnation, target, number = parsed(call_id)
        if is_task(target):
            return self.tasks.is_error(target)
        sent, received = self.outputs.get((source, incarnation, target)), self.inputs.get((source, incarnation, target))
        if target in self.ended or sent is None or not self._is_certain(sent, source, number):
            return None
        if is_in(sent.errors, number) or (received is not None and is_in(received.errors, number)):
            return True
        is_known = received is not None and number >= max(sent.errors_since, received.errors_since)
        return False if is_known else None

    def _has_come(self, call_id: str | None, item: int | None) -> bool | None:
        """Whether what a wait needs of a call is there or in flight: its reply, or this item of a streaming generator.

        An earlier incarnation may have yielded the item.
        """
        answer = self._is_answered(call_id)
        if call_id is None or item is None or answer is not False:
            return answer
        running, target = self.running.get(call_id), self.reports.get(parsed(call_id).target)
        if running is not None and running.yielded > item:
            return True
        return None if target is not None and target.incarnation > 0 else False

    def _is_answered(self, call_id: str | None) -> bool | None:
        """Whether the call has ended inside the cut: then its reply is in flight, or there."""
        if call_id is None:
            return None
        source, incarnation, target, number = parsed(call_id)
        if is_task(target):
            is_answered = self.tasks.is_answered(target)
            is_unsure = self.tasks.is_unsure(target) or (is_answered and self.gone)
            return None if is_unsure else is_answered
        if target in self.over:
            return True
        if target in self.gone or (target not in self.reports and not self._is_in_flight(call_id)):
            return None
        if call_id in self.running:
            return None if call_id in self.repeated else False
        out = self.outputs.get((source, incarnation, target))
        if out is None:  # its sender is gone: only the receiver knows
            return True if is_in(self._accepted((source, incarnation, target)), number) else None
        if number > out.last:
            return None
        if number not in out.log or is_in(self._accepted((source, incarnation, target)), number):
            return True
        return False if self._is_certain(out, source, number) else None

    def _is_certain(self, out: OutReport, source: str, number: int) -> bool:
        """Whether a call that counts as in flight cannot have been answered.

        An earlier incarnation of its target may have ended it, and the acknowledgement died with it; and with its owner,
        a ref ends in an error.
        """
        target = self.reports.get(out.target)
        now = target.incarnation if target is not None else 0
        return not self.reports[source].has_left and out.target_incarnation >= now and number >= out.fresh_from

    def _is_in_flight(self, call_id: str) -> bool:
        source, incarnation, target, number = parsed(call_id)
        out = self.outputs.get((source, incarnation, target))
        return out is not None and number in out.log


def _of_the_dead(key: Channel, channel: InReport) -> CallsOf:
    """A channel whose sender has no report: what was accepted is all there is."""
    return CallsOf(*key, channel.accepted_count, channel.accepted_count, 0)


def _has_raised(errors: Iterable[tuple[str | None, bool]]) -> bool | None:
    """Whether one of them has ended in an error."""
    found = list(errors)
    return any(has_ended for _, has_ended in found) or (None if (None, False) in found else False)


def _any_of(one: bool | None, other: bool | None) -> bool | None:
    return one or other or (None if None in (one, other) else False)


def _at_least(k: int, answers: Iterable[bool | None]) -> bool | None:
    """Whether k of them are True; None if the unknown ones decide."""
    found = list(answers)
    if found.count(True) >= k:
        return True
    return None if found.count(True) + found.count(None) >= k else False


class CallParties:
    """The machines of one system that report logs of calls, and what its pending snapshots have of them."""

    def __init__(self) -> None:
        self.machines: dict[str, int] = {}
        """Incarnation of each machine that lives."""
        self.restarting: dict[str, str] = {}
        """Machines that are to start again, with the reason why they do not answer."""
        self.dead: set[str] = set()
        self.left_reports: dict[str, MachineReport] = {}
        self.has_tasks = False
        """Whether a plain task was ever run."""
        self.idle_holds: set[str] = set()
        """What workers had handles of that take part no more."""
        self.ended_workers: set[str] = set()
        """Workers that are forgotten here; the others are to be told."""
        self.pending: dict[int, PendingCallSnapshot] = {}
        self.tells_callers = False
        """Whether snapshots tell who may end the machines that are blocked."""

    def register(self, machine: str, incarnation: int, colour: int, last: int) -> int:
        """A machine is about to accept its constructor, sent in this colour; returns the colour to be born with.

        A new incarnation is born red for every number given out (up to `last`): the one before may have recorded any of
        them, and what it did not record is over.
        """
        if incarnation > 0:
            self.died(machine, "started again")
            colour = max(colour, last)
        else:  # it will not be asked for what is pending no more
            colour = max(colour, min((n for n in self.pending if n > colour), default=last + 1) - 1)
        self.restarting.pop(machine, None)
        self.dead.discard(machine)
        self.has_tasks |= is_worker(machine)
        self.machines[machine] = incarnation
        for pending in self.pending.values():
            pending.expect(machine, colour)
        return colour

    def open(self, number: int) -> PendingCallSnapshot:
        """A snapshot is started, pending on every machine."""
        pending = self.pending[number] = PendingCallSnapshot(
            number,
            self.machines,
            self.left_reports,
            self.dead,
            self.idle_holds,
            tells_callers=self.tells_callers,
        )
        for machine, reason in self.restarting.items():
            pending.died(machine, reason)
        return pending

    def close(self, number: int) -> None:
        """A snapshot is pending no more."""
        self.pending.pop(number, None)

    def died(self, machine: str, reason: str = "died", *, is_restarting: bool = False) -> None:
        """A machine is gone; while it `is_restarting`, no snapshot can tell what it will do."""
        self.machines.pop(machine, None)
        if is_restarting:
            self.restarting[machine] = reason
        else:
            self.restarting.pop(machine, None)
            (self.ended_workers if is_worker(machine) else self.dead).add(machine)
            self.idle_holds.discard(machine)
            if is_worker(machine):  # whatever it had, nobody can tell any more
                self.idle_holds.add(EVERY)
        for pending in self.pending.values():
            pending.died(machine, reason)

    def left(self, report: MachineReport) -> None:
        """A machine has ended, with its final counts."""
        self.machines.pop(report.machine, None)
        self.left_reports[report.machine] = report
        if is_worker(report.machine):
            self.idle_holds |= {*report.holds, *report.reads, *report.to_tasks}
            self._forget_old(report)
        for pending in self.pending.values():
            pending.left(report)

    def known_workers(self) -> set[str]:
        """Those that take part, or of whose ends something is kept."""
        return {name for name in (*self.machines, *self.left_reports) if is_worker(name)}

    def _forget_old(self, latest: MachineReport) -> None:
        """While no snapshot is taken, workers whose tasks have ended long ago are forgotten with them."""
        now = max((one.at for one in latest.ended.values()), default=0.0)
        for name, report in list(self.left_reports.items()):
            if is_worker(name) and all(one.at < now - KEPT_S for one in report.ended.values()) and not self.pending:
                del self.left_reports[name]
                self.ended_workers.add(name)

    def fold(self, completed: CompletedCallSnapshot) -> None:
        """Forget workers that have left, but for the ends of tasks that are in a log yet."""
        told = completed.machines
        for name in [name for name in self.left_reports if is_worker(name) and name in told and told[name].has_left]:
            report = self.left_reports[name]
            kept = completed.held | completed.unsettled
            ended = {task: one for task, one in report.ended.items() if task in kept}
            if ended:
                self.left_reports[name] = replace(report, ended=ended)
            else:
                del self.left_reports[name]
                self.ended_workers.add(name)
