"""Calls: how a machine of an existing Ray app takes part in a snapshot. One `CallLedger` per machine.

Sources: T. H. Lai and T. H. Yang, "On Distributed Snapshots" (1987): colours on messages instead of markers, so that no
order is needed; EWD864a: no red message is accepted in a white action; F. Mattern (1993): colours as numbers. What is not
in them: the receiver of a call may be blocked for ever and never see it, so the *sender's log* is the channel state.

Assumed of the channels (ordinary Ray calls): nothing. They may be lost, repeated, reordered and cancelled, and an actor
may die and start again. Assumed of acknowledgements: nothing either (one that is lost is memory lost, never a wrong cut).
Assumed of creation: a machine is registered with the coordinator before its constructor is accepted; the answer is the
colour to be born with.

A channel is (source, incarnation of the source, target); its calls are numbered from 1, the constructor is number 0. For
one snapshot, a number of a channel is, at the sender's instant: settled (ended without acceptance), known to be accepted,
or in the sender's log. A call is in flight if it is in the log and not among what the receiver had accepted at its instant.

    event (method)             in white for its colour               red for its colour
    submit, create             number, colour and log entry in one step; what raises is taken back by `retract`
    settle, target_died        the number leaves the log             the same
    acknowledge                the numbers leave the log             kept back until this machine has recorded
    hear                       nothing                               `due` rises: record before you accept it
    accept, wake               call runs, wait ends                  ProtocolError (no red message in a white action)
    request                    `due` rises: record at the next boundary
    record                     colour := due; the recording of every number in between is taken, in the same instant

Not in the table: time, threads, processes, how anything travels. Every method is one step: call it under the machine's
lock. No method waits. Imports nothing of Ray. `sent_log` and `acceptance` are the two ends of a channel; read `call_collector`
next, then `docs/protocols.md`, "Calls".
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ray_snapshot.errors import ProtocolError
from ray_snapshot.protocol.acceptance import Acceptance, Errors, Numbers, numbers_in, told
from ray_snapshot.protocol.call_messages import (
    CONSTRUCTOR,
    Acks,
    Awaited,
    CallId,
    CallWait,
    Header,
    InReport,
    MachineReport,
    OutReport,
    RunningCall,
    Sent,
    Stream,
    awaited,
    call_id_of,
    frozen,
    parsed,
)
from ray_snapshot.protocol.demands import Demand
from ray_snapshot.protocol.sent_log import SentLog
from ray_snapshot.protocol.tasks import ENDED_WORKERS, TaskEnds, TaskLog, call_of_task, is_task
from ray_snapshot.protocol.turning import Turning


@dataclass(slots=True)
class _Running:
    method: str
    started_at: float
    header: Header | None
    group: str | None
    holds_slot: bool
    waits: int = 0
    """How many waits it is in."""
    yielded: int = 0

    def call(self, call_id: str, is_repeated: bool = False) -> RunningCall:
        caller = None if self.header is None else self.header.source
        about = self.method, self.started_at, caller, self.group, self.holds_slot
        return RunningCall(call_id, *about, is_repeated, self.yielded)


class CallLedger:
    """One machine's side: its sent log, what it accepted, what runs, who waits for what, and what it recorded.

    `colour`: born red for every number up to it: the creator's colour for a new machine, and for a new incarnation the
    highest number given out so far, for its predecessor may have recorded any of them. `turning`: that of the host in this
    process, if there is one; its colour counts then. `turn`: what turns it red, if more must happen then (a host's
    `boundary`). `acts_unasked`: a driver, active except in a wait of its own. `is_starting`: its constructor is about to be
    accepted; until then it is active, and there is no state (no other party may know of that call: the creator of a new
    incarnation has long forgotten it).
    """

    def __init__(
        self,
        machine: str,
        *,
        incarnation: int = 0,
        colour: int = 0,
        turning: Turning | None = None,
        turn: Callable[[], tuple[int, ...]] | None = None,
        acts_unasked: bool = False,
        is_starting: bool = False,
        others: Mapping[str, int] | None = None,
    ) -> None:
        self.machine = machine
        self.incarnation = incarnation
        self.acts_unasked = acts_unasked
        self.is_starting = is_starting
        if turning is not None and colour not in (0, turning.colour):
            raise ProtocolError(f"{machine} cannot be born with colour {colour} beside a host of {turning.colour}")
        self.is_alone = turning is None
        """Whether no host is beside it in its process."""
        self.turning = Turning(born=colour) if turning is None else turning
        self.turn = self.turning.turn if turn is None else turn
        self.born = self.colour
        self.outputs: dict[str, SentLog] = {}
        self.inputs: dict[tuple[str, int], Acceptance] = {}
        self.running: dict[str, _Running] = {}
        self.repeated: set[str] = set()
        """Calls that run and were accepted more than once."""
        self.waits: dict[int, CallWait] = {}
        self.open: dict[int, MachineReport] = {}
        """Recordings that the coordinator may still ask for."""
        self.closed: set[int] = set()
        """Numbers above `colour`, or not above `born`, of which nothing is wanted: a request for one comes too late."""
        self.others = dict(others or {})
        """Incarnations that other machines had when this one began, if not their first."""
        self.holds: set[str] = set()
        self.reads: set[str] = set()
        self.tasks = TaskLog()
        self.ends = TaskEnds()
        self.to_tasks: set[str] = set()
        """Machines of which every task may have a handle: functions have it in their closures."""
        self.outcomes: Mapping[str, bool] = {}
        """See `MachineReport.outcomes`."""
        self.streams: Mapping[str, Stream] | None = None
        """See `MachineReport.streams`."""
        self.settled = 0
        """Every machine has recorded every number up to it: what is no redder needs no colour on the way."""
        self.kept_back: list[Acks] = []
        """Red acknowledgements, until this machine is red too."""
        self._unacknowledged: dict[tuple[str, int, int], list[int]] = {}
        self.last_wait = 0
        """The number of the latest wait."""
        self._last_unknown = 0
        self._own_waits = 0

    @property
    def colour(self) -> int:
        """Red for every number up to it. The steps of each call read `turning.colour`: they are to be short."""
        return self.turning.colour  # type: ignore[no-any-return]

    def turn_with(self, turn: Callable[[], tuple[int, ...]] | None) -> None:
        """There is a host's core of the same colour in this process from now on, whose boundary `turn` is; None: no more."""
        self.is_alone = turn is None
        self.turn = self.turning.turn if turn is None else turn

    def successor(self, incarnation: int, colour: int, others: Mapping[str, int]) -> CallLedger:
        """The ledger of a machine that was rolled back, in the same process: all that was sent and accepted is of the past.

        What the process has handles of stays known, and no wait of before is taken for one of those that come. The driver's
        program is not rolled back: where it waits, it waits on. Raises `ProtocolError` beside a host, whose core would stay.
        """
        if not self.is_alone:
            raise ProtocolError(f"{self.machine} cannot begin anew without the host beside it", machine=self.machine)
        found = CallLedger(
            self.machine, incarnation=incarnation, colour=colour, acts_unasked=self.acts_unasked, others=others
        )
        found.holds, found.reads, found.to_tasks = set(self.holds), set(self.reads), set(self.to_tasks)
        found.last_wait = self.last_wait
        found.waits = {key: wait for key, wait in self.waits.items() if wait.call_id is None}
        found._own_waits = len(found.waits)
        return found

    # ---- sender ---------------------------------------------------------------------------------------------------

    def submit(
        self,
        target: str,
        method: str,
        about: Any,
        now: float,
        *,
        is_retried: bool = False,
        needs: Sequence[str | None] = (),
        group: str | None = None,
        kept: Any = None,
    ) -> Header:
        """Number a call, colour it, and log it; `about` is kept frozen.

        `is_retried`: its actor has `max_task_retries`. `needs`: the calls whose refs are top-level arguments (None: a ref
        of something we know nothing of). `kept`: its arguments, as a restore needs them.
        """
        output = self.outputs.get(target) or self._open_output(target)
        number = output.add(Sent(method, frozen(about), now, is_retried, tuple(needs), group, kept))
        return Header(self.machine, self.incarnation, number, self.turning.colour, output.floor, is_retried)

    def create(
        self,
        target: str,
        method: str,
        about: Any,
        now: float,
        *,
        is_retried: bool = False,
        demand: Demand | None = None,
    ) -> Header:
        """Log the constructor call of a new machine. `is_retried`: it has `max_restarts`."""
        output = self.outputs.get(target) or self._open_output(target)
        if not output.is_fresh:
            raise ProtocolError(f"{self.machine} was about to create {target}, which it knows already", machine=target)
        output.create(Sent(method, frozen(about), now, is_retried, demand=demand))
        return Header(self.machine, self.incarnation, CONSTRUCTOR, self.colour, CONSTRUCTOR, is_retried)

    def _open_output(self, target: str) -> SentLog:
        self.holds.add(target)
        self.reads.add(target)
        output = self.outputs[target] = SentLog(self.others.get(target, 0))
        return output

    def retract(self, target: str, number: int) -> None:
        """Submitting raised: the number stays a hole, settled."""
        self.settle(target, number)

    def settle(self, target: str, number: int) -> None:
        """The call ended without acceptance, as far as its sender can tell; if it was accepted after all, no harm."""
        output = self.outputs.get(target)
        if output is not None:
            output.settle(number)

    def answered(self, target: str, number: int) -> None:
        """The sender has read the reply: the call was accepted, and its acknowledgement is not needed."""
        output = self.outputs.get(target)
        if output is not None:
            output.end(number)
        elif is_task(target):
            self.tasks.drop(target)

    def acknowledge(self, acks: Acks) -> None:
        """The receiver has accepted these; a red acknowledgement is kept back until this machine has recorded."""
        if acks.source != self.machine:
            raise ProtocolError(f"{self.machine} got an acknowledgement for {acks.source}", machine=self.machine)
        if acks.incarnation != self.incarnation or acks.target not in self.outputs:
            return
        if acks.colour > self.colour:  # a white log must not forget what was accepted in red
            self.turning.hear(acks.colour)
            self.kept_back.append(acks)
            return
        output = self.outputs[acks.target]
        for number in numbers_in(acks.numbers):
            output.end(number)

    def target_died(self, target: str) -> None:
        """The target is gone for good: every call to it that is not known to be accepted has ended."""
        output = self.outputs.get(target)
        if output is not None:
            output.settle_all()

    def target_restarted(self, target: str, incarnation: int, before: int | None = None) -> None:
        """The target has this incarnation now: calls below `before` (None: all so far) that are not retried have ended.

        Those that are retried stay in the log, for the new incarnation will accept them; what was accepted by the old one
        stays accepted. Until the sender has heard of it, the join does not say of its calls that they are unanswered.
        """
        output = self.outputs.get(target)
        if output is not None:
            output.restarted(incarnation, before)

    # ---- plain tasks ----------------------------------------------------------------------------------------------

    @property
    def is_ahead(self) -> bool:
        """Whether others may not have recorded yet what this machine has: what it sends must tell its colour."""
        return self.colour > self.settled

    def start_task(
        self,
        function: str,
        task: str,
        about: Any,
        now: float,
        *,
        is_retried: bool = False,
        needs: Sequence[str | None] = (),
        demand: Demand | None = None,
    ) -> None:
        """Log a task that was sent, in the colour that this machine has now. `is_retried`: Ray runs it again if it raises."""
        self.tasks.add(function, task, Sent("", frozen(about), now, is_retried, tuple(needs), demand=demand))

    def tasks_are_over(self, tasks: Iterable[str], colour: int) -> None:
        """Ray says that these have ended; `colour`: the highest number that was given out by then."""
        self.tasks.end(tasks, colour, self.colour)

    def accept_task(self, task: str, method: str, now: float, *, colour: int = 0) -> str:
        """A task begins in this worker; returns its call's id. Raises `ProtocolError` if it is red and this machine is not."""
        if colour > self.colour:
            raise ProtocolError(
                f"{self.machine} was about to run red task {task} in a white action", machine=self.machine
            )
        call_id = call_of_task(task)
        if call_id in self.running:
            call_id = self._next_run(call_id)
        self.ends.begin(task)
        self.running[call_id] = _Running(method, now, None, None, True)
        return call_id

    def finish_task(self, call_id: str, now: float, *, is_error: bool = False) -> int:
        """The task has ended, in an error or not; returns the colour that its reply must carry."""
        colour = self.finish(call_id)
        self.ends.add(parsed(call_id).target, now, is_error=is_error)
        return colour

    def complete(self, number: int, held: Collection[str] = (), unsettled: Collection[str] = ()) -> None:
        """Every machine has recorded `number`, and the snapshot is complete; `held`: tasks that are over, and in a log yet.

        `unsettled`: those in a log of which that is not known; the ends of both are told again.
        """
        report = self.open.get(number)
        if report is not None and report.ended:
            self.ends.forget(report.ended, lambda task: task in held or task in unsettled)
        for task in held:
            self.tasks.drop(task)
        self.settled = max(self.settled, number)
        self.close(number)

    def forget_workers(self, ended: Collection[str]) -> None:
        """These workers call nobody any more: of what was accepted from them only the sum is kept."""
        for key in [key for key in self.inputs if key[0] in ended]:
            total = self.inputs.setdefault((ENDED_WORKERS, 0), Acceptance())
            total.count += self.inputs.pop(key).count

    # ---- handles and replies: who could ever call whom ------------------------------------------------------------

    def hold(self, target: str) -> None:
        """A handle of `target` has come to this machine (sending to it says so too)."""
        self.holds.add(target)

    def may_read(self, target: str) -> None:
        """A ref to a reply of `target` has come to this machine (sending to it says so too)."""
        self.reads.add(target)

    # ---- receiver -------------------------------------------------------------------------------------------------

    def hear(self, colour: int) -> bool:
        """Something of this colour is about to be accepted (a call, a reply, an argument, a name); True: record first."""
        if colour > self.turning.due:
            self.turning.hear(colour)
        return bool(colour > self.turning.colour)

    def accept(
        self, header: Header, method: str, now: float, *, group: str | None = None, holds_slot: bool = True
    ) -> str:
        """A call begins; returns its id. Raises `ProtocolError` if it is red and this machine is not.

        A number that comes again (a retry) is accepted once and runs again; while the first run lasts, the id of the second
        one ends in `#2`.
        """
        source, incarnation, number, colour, floor, is_retried = header
        if colour > self.turning.colour:
            raise ProtocolError(
                f"{self.machine} was about to accept red call {number} of {source} in a white action",
                machine=self.machine,
            )
        channel = self.inputs.get((source, incarnation))
        if channel is None:
            channel = self.inputs[source, incarnation] = Acceptance()
        is_new = channel.accept(number, floor)
        if not is_retried:
            self._acknowledge_later(header)
        call_id = f"{source}/{incarnation}/{self.machine}/{number}"
        if not is_new:
            self.repeated.add(call_id)
        if call_id in self.running:
            call_id = self._next_run(call_id)
        self.running[call_id] = _Running(method, now, header, group, holds_slot)
        self.is_starting = False
        return call_id

    def accept_unknown(self, method: str, now: float, *, group: str | None = None, holds_slot: bool = True) -> str:
        """A call without a header begins: its sender is a process without us. Returns its id."""
        self._last_unknown += 1
        call_id = f"?/{self.incarnation}/{self.machine}/{self._last_unknown}"
        self.running[call_id] = _Running(method, now, None, group, holds_slot)
        self.is_starting = False
        return call_id

    def _next_run(self, call_id: str) -> str:
        run = 2
        while f"{call_id}#{run}" in self.running:
            run += 1
        return f"{call_id}#{run}"

    def finish(self, call_id: str, *, is_error: bool = False) -> int:
        """The call has ended, in an error or not; returns the colour that its reply must carry."""
        running = self.running.get(call_id)
        if running is None:
            raise ProtocolError(f"{self.machine} was about to end {call_id}, which does not run", machine=self.machine)
        del self.running[call_id]
        if self.repeated:
            self.repeated &= {_first_run(other) for other in self.running}
        if running.waits:
            self.waits = {key: wait for key, wait in self.waits.items() if wait.call_id != call_id}
        if running.header is not None and running.header.is_retried:
            self._acknowledge_later(running.header)
        if is_error and running.header is not None:
            channel = self.inputs.get((running.header.source, running.header.incarnation))
            if channel is not None:  # else its sender is a worker that has ended, and of its calls only the sum is kept
                channel.errors = channel.errors or Errors()
                note = channel.errors.may_be if running.header.is_retried else channel.errors.add
                note(running.header.number)
        return self.turning.colour  # type: ignore[no-any-return]

    def yields(self, call_id: str) -> None:
        """A streaming generator is about to hand an item out; before Ray has it."""
        running = self.running.get(call_id)
        if running is not None:
            running.yielded += 1

    def _acknowledge_later(self, header: Header) -> None:
        key = header.source, header.incarnation, self.turning.colour
        self._unacknowledged.setdefault(key, []).append(header.number)

    def take_acks(self) -> list[Acks]:
        """The acknowledgements to send, at most one per source and colour of acceptance; they are handed out once."""
        waiting, self._unacknowledged = self._unacknowledged, {}
        return [
            Acks(source, incarnation, self.machine, colour, Numbers(numbers).ranges())
            for (source, incarnation, colour), numbers in waiting.items()
        ]

    @property
    def has_acks(self) -> bool:
        """Whether `take_acks` would return any."""
        return bool(self._unacknowledged)

    # ---- waits ----------------------------------------------------------------------------------------------------

    def wait(
        self,
        call_id: str | None,
        on: Iterable[Awaited | str | None],
        k: int,
        now: float,
        *,
        call_site: str = "",
        may_act: bool = False,
        is_local: bool = False,
        timeout_at: float | None = None,
        raises: bool = False,
        may_raise: bool = False,
        owed: Sequence[tuple[str, str]] = (),
        keeps_cpu: bool = False,
        at_yield: bool = False,
        is_long: bool = False,
        is_unsure: bool = False,
        objects: int = 0,
        what: str = "",
    ) -> int:
        """A call (None: the machine itself) begins to wait for `k` of `on`; returns what `wake` takes.

        `raises`: the first error of any of them ends it. `may_raise`: so may an error that is there already. `owed`:
        (machine, call id) of replies of machines of hosts. For the rest see `CallWait`.
        """
        if call_id is None:
            self._own_waits += 1
        elif call_id in self.running:
            self.running[call_id].waits += 1
        else:
            raise ProtocolError(f"{self.machine}: {call_id} waits and does not run", machine=self.machine)
        self.last_wait += 1
        self.waits[self.last_wait] = CallWait(
            self.last_wait,
            call_id,
            awaited(on),
            k,
            now,
            call_site,
            may_act,
            is_local,
            timeout_at,
            raises=raises,
            may_raise=may_raise,
            owed=tuple(owed),
            keeps_cpu=keeps_cpu,
            at_yield=at_yield,
            is_long=is_long,
            is_unsure=is_unsure,
            objects=objects,
            what=what,
        )
        return self.last_wait

    def ready(self, wait_id: int) -> None:
        """What it waits for has come, and it will go on by itself when its thread or loop has time."""
        wait = self.waits.get(wait_id)
        if wait is not None:
            self.waits[wait_id] = replace(wait, is_ready=True)

    def wake(self, wait_id: int, colour: int = 0) -> None:
        """The wait is over, with replies of this colour. Raises `ProtocolError` if they are red and this machine is not."""
        if colour > self.colour:
            raise ProtocolError(f"{self.machine} was about to read a red reply in a white action", machine=self.machine)
        wait = self.waits.pop(wait_id, None)
        if wait is None:
            return  # its call has ended meanwhile, and its waits with it
        if wait.call_id is None:
            self._own_waits -= 1
        else:
            self.running[wait.call_id].waits -= 1

    # ---- snapshots ------------------------------------------------------------------------------------------------

    @property
    def must_record(self) -> bool:
        """Whether to record at the next boundary."""
        return self.turning.must_turn

    @property
    def can_copy(self) -> bool:
        """Whether nothing is inside an action: every call that runs is in a wait, and so is who acts unasked."""
        if self.is_starting or (self.acts_unasked and not self._own_waits):
            return False
        return all(running.waits for running in self.running.values())

    def request(self, number: int) -> bool:
        """The coordinator asks for `number`; True if it is to be recorded at the next boundary."""
        if number in self.closed or number in self.open:
            return False
        if number <= self.colour:
            if number <= self.born:
                self.open[number] = MachineReport(self.machine, self.incarnation, number, self.born, is_born=False)
            return False
        self.turning.request(number)
        return True

    def record(self, copy_state: Callable[[], Any] | None, *, between_steps: bool = False) -> tuple[int, ...]:
        """Turn red for all that is due, and copy the state, in one instant; returns the numbers recorded.

        With None, or while a call is inside an action (`can_copy`), it turns red without a state. `between_steps`: the caller
        is the one loop that runs every call of this machine, and none of them is in the middle of a step. If `copy_state`
        raises, nothing has changed.
        """
        if not self.must_record:
            return ()
        report = self.seen(copy_state, between_steps=between_steps)
        numbers = self.turn()
        self.turned(numbers, report)
        return numbers

    def seen(self, copy_state: Callable[[], Any] | None, *, between_steps: bool = False) -> MachineReport:
        """Everything as it is now, as `record` has it; nothing changes."""
        is_copied = copy_state is not None and (between_steps or self.can_copy)
        state = copy_state() if copy_state is not None and is_copied else None
        was_inside = not between_steps and any(not running.waits for running in self.running.values())
        report = self._report(self.turning.due)
        return replace(report, has_state=is_copied, state=state, was_inside=was_inside)

    def turned(self, numbers: tuple[int, ...], report: MachineReport) -> None:
        """The machine has turned red for these numbers, and this is what was `seen` in the instant before."""
        for number in numbers:
            if number not in self.closed:
                self.open[number] = replace(report, number=number)
        self.closed = {number for number in self.closed if number > self.colour or number <= self.born}
        self._release_acks()

    def _release_acks(self) -> None:
        kept, self.kept_back = self.kept_back, []
        for acks in kept:
            self.acknowledge(acks)
        self.tasks.release(self.colour)

    def _report(self, number: int) -> MachineReport:
        """Everything as it is now; nothing in it changes when the ledger does."""
        return MachineReport(
            machine=self.machine,
            incarnation=self.incarnation,
            number=number,
            colour=self.colour,
            status=self._status(),
            outputs=tuple(output.report(target) for target, output in self.outputs.items()),
            inputs=tuple(_in_report(*key, channel) for key, channel in self.inputs.items()),
            calls=tuple(
                running.call(call_id, _first_run(call_id) in self.repeated) for call_id, running in self.running.items()
            ),
            waits=tuple(self.waits.values()),
            holds=tuple(sorted(self.holds)),
            reads=tuple(sorted(self.reads)),
            tasks=self.tasks.report(),
            ended=self.ends.report(),
            to_tasks=tuple(sorted(self.to_tasks)),
            outcomes=self.outcomes,
            streams=self.streams,
        )

    def _status(self) -> str:
        has_tasks = self._own_waits > 0 and not self.acts_unasked
        if not (self.running or self.acts_unasked or self.is_starting or has_tasks):
            return "passive"
        if has_tasks or not self.can_copy or any(wait.may_act or wait.is_ready for wait in self.waits.values()):
            return "active"  # what a task of its own does when its reply comes is not known
        return "blocked"

    def report(self, number: int) -> MachineReport:
        """What was recorded for `number`; raises `ProtocolError` if there is nothing."""
        if number not in self.open:
            raise ProtocolError(f"{self.machine} has nothing recorded for snapshot {number}", number=number)
        return self.open[number]

    def welcome(self, pending: Iterable[int], last: int, settled: int = 0) -> tuple[int, ...]:
        """The coordinator knows this machine: of the numbers up to `last`, only `pending` are wanted; returns the due ones.

        `settled`: the highest number that every machine has recorded.
        """
        self.settled = settled
        wanted = set(pending)
        for number in [number for number in self.open if number <= last and number not in wanted]:
            self.close(number)
        self.closed.update(number for number in range(self.colour + 1, last + 1) if number not in wanted)
        return tuple(number for number in sorted(wanted) if self.request(number))

    def close(self, number: int) -> None:
        """The coordinator has everything of `number`, or wants nothing of it."""
        self.open.pop(number, None)
        if number > self.colour or number <= self.born:
            self.closed.add(number)

    def abort(self, number: int) -> None:
        """`number` was given up; who is red elsewhere stays red, and so does this machine when it hears of it."""
        self.close(number)

    def leave(self) -> MachineReport:
        """The machine ends (the driver's exit, an actor's): its final counts, good for every snapshot it has not recorded.

        Records what is due first; send the reports of `open` too.
        """
        self.record(None)
        return replace(self._report(self.colour), has_left=True, status="stopped", calls=(), waits=())

    def fingerprint(self) -> Hashable:
        """A value that is equal exactly for states that behave alike."""
        return (
            repr(self._report(0)),
            (self.turning.fingerprint(), self.born, self.incarnation, self.is_starting),
            repr(sorted(self.open.items())),
            tuple(sorted(self.closed)),
            tuple(sorted(self.kept_back)),
            (self.settled, repr(sorted(self.tasks.kept_back))),
            repr(sorted(self._unacknowledged.items())),
        )


def _first_run(call_id: str) -> str:
    """The id that the call has whichever of its runs this is."""
    return call_id.partition("#")[0]


def _in_report(source: str, incarnation: int, channel: Acceptance) -> InReport:
    accepted = channel.accepted.ranges()
    return InReport(source, incarnation, channel.floor, accepted, channel.count, *told(channel.errors))


__all__ = [
    "CONSTRUCTOR",
    "Acks",
    "Awaited",
    "CallId",
    "CallLedger",
    "CallWait",
    "Header",
    "InReport",
    "MachineReport",
    "OutReport",
    "RunningCall",
    "Sent",
    "Stream",
    "awaited",
    "call_id_of",
    "frozen",
    "parsed",
]
