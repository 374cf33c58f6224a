"""This process's machine: one ledger, one lock, and what its threads do with them.

Every step of the protocol is taken under the lock; nothing else happens under it but copying the state. The app's threads
make calls, accept them and wait; the control thread (`control`) talks with the watcher. Where the state is copied: at the
boundary between two calls, in a tracked wait, or on the loop of an async actor.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

from ray.exceptions import ActorUnavailableError, RayActorError

from ray_snapshot import redaction
from ray_snapshot.errors import DeadlockError, RolledBackError
from ray_snapshot.instrument import capacity, shape
from ray_snapshot.instrument.connection import CONNECTION
from ray_snapshot.instrument.guard import blamed, ours
from ray_snapshot.instrument.here import CURRENT
from ray_snapshot.instrument.process.actor_loop import ActorLoop
from ray_snapshot.instrument.process.answer_uses import Chain, asking, chain_of
from ray_snapshot.instrument.process.blocked_calls import BlockedCalls
from ray_snapshot.instrument.process.control import Control
from ray_snapshot.instrument.process.coroutines import current_task, tasks_awaiting
from ray_snapshot.instrument.process.failures import FAILURES
from ray_snapshot.instrument.process.handed import HandedWork
from ray_snapshot.instrument.process.making import Making
from ray_snapshot.instrument.process.passed import PassedRefs
from ray_snapshot.instrument.process.polls import Polls
from ray_snapshot.instrument.process.program_loop import ProgramLoop
from ray_snapshot.instrument.process.program_threads import ProgramThreads
from ray_snapshot.instrument.process.raising import Raising, Told, ended_by
from ray_snapshot.instrument.process.recording import Recording
from ray_snapshot.instrument.process.reloading import CONSTRUCTOR, Reloading, Share, Terms, generation_of, stamp_of
from ray_snapshot.instrument.process.reports import ProcessReport
from ray_snapshot.instrument.process.stacks import stacks
from ray_snapshot.instrument.process.started_tasks import StartedTasks
from ray_snapshot.instrument.process.streams import Streams
from ray_snapshot.instrument.process.until_heard import until_heard
from ray_snapshot.instrument.process.waiting import Waiting
from ray_snapshot.instrument.process.worker_tasks import WorkerTasks
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.calls import Acks, CallLedger, Header, parsed
from ray_snapshot.protocol.commands import (
    Abort,
    Acknowledged,
    Based,
    Close,
    Collect,
    Condemn,
    Died,
    HostsLeft,
    Leave,
    Overdue,
    ProcessCommand,
    Release,
    Request,
    Restarted,
    Roll,
    Stopped,
    TellStacks,
)
from ray_snapshot.protocol.tasks import is_task, is_worker
from ray_snapshot.runtime.here import outward
from ray_snapshot.runtime.refs import call_of
from ray_snapshot.stderr import say

if TYPE_CHECKING:
    from ray_snapshot.instrument.process.journal import Entry, Journal
    from ray_snapshot.instrument.process.mail import Mail

_T = TypeVar("_T")


_FIRST = Terms()

ON_HOSTS_LEFT: list[Callable[[], None]] = []
"""Called when a system of machines has ended."""


class Process:
    """What one watched process keeps of its one machine: the ledger, the calls that run and wait, and the reports."""

    def __init__(
        self, system: str, watcher: Any, ledger: CallLedger, about: dict[str, Any], terms: Terms = _FIRST
    ) -> None:
        self.system = system
        self.stamp = stamp_of(system, terms.generation)
        """What its headers say: the system, and the generation that it is in."""
        self.watcher = watcher
        self.ledger = ledger
        self.machine = ledger.machine
        self.call_prefix = f"{ledger.machine}/{ledger.incarnation}/"
        """What the ids of this machine's own calls begin with."""
        self.group_of: dict[str, str] = about.get("group_of", {})
        """The concurrency group of each method that has one."""
        self.lock = threading.RLock()
        self.body: Any = None
        self.actor_loop = ActorLoop()
        self.program_loop = ProgramLoop()
        self.program_threads = ProgramThreads()
        self.handed = HandedWork()
        self.waiting = Waiting(self)
        self.streams = Streams()
        self.polls = Polls()
        self.making = Making()
        self.passed = PassedRefs()
        self.started_tasks = StartedTasks(self)
        self.worker_tasks = WorkerTasks(self)
        self.is_worker = is_worker(ledger.machine)
        """Whether it runs plain tasks, and is no actor and no driver."""
        self.threads: dict[str, int] = {}
        """Which thread runs a call."""
        self.last_calls: dict[str, str] = {}
        """By source: the method that it has called last."""
        self.begun = 0
        """How many calls have begun here."""
        self.native_threads: dict[int, int] = {}
        """The kernel's number of each thread that has run calls."""
        self.blocked = BlockedCalls(self)
        self.is_flushing = False
        self.is_closed = False
        self.heard_of: list[int] = []
        """Colours that were read outside a tracked wait, to be taken in before the next step."""
        self.recording = Recording(self, library_states=terms.library_states)
        self.raising = Raising(is_on=terms.raises)
        self.reloading = Reloading(self, terms)
        self.mail: Mail | None = None
        """What this process sends to machines of hosts, if that is of the same system."""
        self.control = Control(self, watcher)
        self.control.start()

    def guarded(self, step: Callable[[], _T]) -> _T | None:
        """Take one step; if that fails, this process is watched no more, and the app goes on as if it never had been."""
        found: _T | None = ours(step)
        return found

    def give_up(self, error: BaseException) -> None:
        """Watch this process no more, and tell the watcher not to wait for its reports. Raises nothing."""
        self.is_closed = True
        self.control.end()
        then = ""
        if isinstance(error, ActorUnavailableError):  # it may be gone, or come back
            then = f"{self.machine} is not watched any more: its watcher could not be reached"
        elif isinstance(error, RayActorError) or not (CONNECTION.is_open and shape.is_connected()):
            return  # the watcher is gone, or Ray is
        else:
            with suppress(Exception):
                say(f"ray-snapshot: {self.machine} is not watched any more, {blamed(error)}")
        with suppress(Exception):
            until_heard(lambda: self.watcher, lambda found: found.unwatched.remote(self.machine), then=then)

    def unanswered(self, error: BaseException) -> None:
        """The watcher does not answer a poll: mostly it has ended, or this process has left."""
        if isinstance(error, ActorUnavailableError) and not self.is_closed:
            self.give_up(error)
        else:
            self.control.end()

    # ---- sending --------------------------------------------------------------------------------------------------

    def check_sending(self, args: Any = None, kwargs: Any = None) -> None:
        """Raise `RolledBackError` if the app is being rolled back, or the arguments are of the past."""
        self.reloading.check_sending(args, kwargs)

    def submit(
        self,
        target: str,
        method: str,
        args: Any,
        is_retried: bool,
        needs: tuple[str | None, ...],
        group: str | None = None,
        kwargs: Any = None,
        entry: Any = None,
    ) -> tuple[Header, str]:
        """Number, colour and log a call that is about to be made; returns its header, and what stands in front of it.

        `group`: the concurrency group that it names. `entry`: what the journal keeps of it.
        """
        about, now = tuple(redaction.arguments(method, args)), time.time()
        kept = self.reloading.keep_call(args, kwargs) if self.reloading.keeps else None
        with self.lock:
            if entry is not None:  # once more: what is numbered while all load would be made again at the start
                self.reloading.check_sending()
            if self.heard_of:
                self._take_in()
            header = self.ledger.submit(
                target, method, about, now, is_retried=is_retried, needs=needs, group=group, kept=kept
            )
            if self.polls.is_armed:
                self.polls.sent(target, method, header.number, (*(args or ()), *(kwargs or {}).values()), now)
            if entry is not None and self.journal is not None:
                self.journal.add(entry, target, header)
            return header, self.stamp

    @property
    def journal(self) -> Journal | None:
        """The program's calls, if they may have to be made again."""
        return self.reloading.journal

    def made(self, entry: Entry, refs: Any) -> Any:
        """A call that is in the journal has been made; returns the refs that answer it."""
        with self.lock:
            return refs if self.journal is None else self.journal.made(entry, refs)

    def ordinal(self, class_name: str) -> int | None:
        """Which actor of its class, of those without names, the driver is about to make: so another run finds it again."""
        if self.machine != DRIVER:
            return None
        with self.lock:
            return self.making.ordinal(class_name)

    def begin_creation(self) -> tuple[str, int, int]:
        """An actor is about to be made, outside the lock: (machine, incarnation, colour) for its header."""
        with self.lock:
            self._take_in()
            self.making.begin()
            return self.machine, self.ledger.incarnation, self.ledger.colour

    def end_creation(self, target: str | None, args: Any, birth: Mapping[str, Any]) -> None:
        """An actor has been made (`target` None: that raised); from now on its constructor is in the ledger.

        `birth`: what the maker knows of it (`shape.options_of`, its ordinal, and its key).
        """
        about, is_retried = tuple(redaction.arguments("__init__", args)), bool(birth["is_retried"])
        with self.lock:
            self.making.end()
            if target is not None:
                self.ledger.create(
                    target, "__init__", about, time.time(), is_retried=is_retried, demand=birth.get("demand")
                )
                self.making.made(target, birth)
            self.reloading.ended()
        if self.ledger.must_record:
            self.recording.record_soon()

    def retract(self, header: Header, target: str, entry: Entry | None = None) -> None:
        """Take a call back out of the ledger, and out of the journal: making it raised."""
        with self.lock:
            if entry is not None and self.journal is not None:
                self.journal.remove(entry)
            if header.incarnation == self.ledger.incarnation:  # else the numbers have begun anew meanwhile
                self.ledger.retract(target, header.number)

    def answers_read(self, refs: Sequence[Any], answers: Sequence[Any], awaiting: Any = None) -> None:
        """This thread, or a task that awaits them (`awaiting`), has read the answers to these, while polls are looked for."""
        chain, task = self._asker(awaiting)
        with self.lock:
            self.polls.read([call_of(ref) for ref in refs], answers, chain, time.time(), task)

    def asked_ray(self, function: str, answer: str, refs: Sequence[Any], awaiting: Any = None) -> None:
        """This thread, or a task of it, has asked Ray for these, and has got `answer` in their place; "": it has got them."""
        self.polls.missed += bool(answer)
        if self.polls.is_armed:
            chain, task = self._asker(awaiting)
            with self.lock:
                self.polls.asked_ray(function, answer, [call_of(ref) for ref in refs], chain, time.time(), task)

    def _asker(self, awaiting: Any) -> tuple[Chain, Any]:
        """What has led to a question that this thread asks, or a task that stands there, and the task but for an async
        actor's."""
        if awaiting is None:
            chain, task = chain_of(outward(sys._getframe())), current_task()
        else:
            call = self.actor_loop.coroutines.get(CURRENT.get() or "", (None, None))
            found = [*tasks_awaiting(awaiting, call)]
            chain, task = chain_of(frame for _, frames in found for frame in frames), found[-1][0]
        return chain, None if self.actor_loop.is_async else task

    def _look_beside(self) -> None:
        """What a snapshot needs that is looked up without the lock: calls go on meanwhile."""
        capacity.STORES.look()
        with self.lock:
            places = self.polls.to_look_up(time.time())
        self.polls.places |= {place: asking(place) for place in places}

    # ---- accepting ------------------------------------------------------------------------------------------------

    def enter(self, header: Header | None, method: str, group: str | None = None, stamp: str | None = None) -> str:
        """A call begins; a white machine records first. `group`: the concurrency group that the call names, if any.

        `stamp`: what stands in front of its header. Raises `RolledBackError` if it is of the past.
        """
        group = group or self.group_of.get(method)
        with self.lock:
            if self.reloading.is_held or (stamp is not None and stamp != self.stamp):
                self._admit(header, method, group, stamp)
            ledger = self.ledger
            if self.actor_loop.is_async:
                self.actor_loop.meet()
            if self.heard_of:
                self._take_in()
            if header is not None:
                ledger.hear(header.colour)
            if ledger.must_record:
                self.recording.record(is_forced=header is not None and header.colour > ledger.colour)
            if header is None:
                call_id = ledger.accept_unknown(method, time.time(), group=group)
            else:
                call_id = ledger.accept(header, method, time.time(), group=group)
                self.last_calls[header.source] = method
            self.run_here(call_id)
            if not self.is_flushing and ledger.has_acks:
                self._flush_soon()
        return call_id

    def _admit(self, header: Header | None, method: str, group: str | None, stamp: str | None) -> None:
        """A call may be of the past; one that its sender's log still has is accepted and ended at once. Under the lock."""
        generation = None if stamp is None else generation_of(stamp, self.system)
        generation = self.reloading.loaded if generation is None else generation
        try:
            self.reloading.admit(generation, method)
        except RolledBackError:
            if header is not None and generation == self.reloading.loaded:
                self.ledger.hear(header.colour)
                self.recording.record(is_forced=True)
                self.ledger.finish(self.ledger.accept(header, method, time.time(), group=group))
            raise

    def begin_anew(self, generation: int, share: Share) -> None:
        """All numbering begins anew; what the process has handles of stays known. Under the lock, while nothing runs."""
        incarnation, mail = share.incarnation, self.mail
        self.mail = None
        self.ledger.turn_with(None)
        self.ledger = self.ledger.successor(incarnation, share.colour, share.incarnations)
        self.call_prefix = f"{self.machine}/{incarnation}/"
        self.recording.reports.clear()
        FAILURES.raised.clear()
        self.last_calls.clear()
        self.heard_of.clear()
        self.threads.clear()
        self.streams, self.polls = Streams(), Polls()
        self.actor_loop.begin_anew()
        if mail is not None and mail.load(generation, share.post):
            self.send_with(mail)

    def run_here(self, call_id: str) -> None:
        """This thread runs a call. Under the lock."""
        self.begun += 1
        self.threads[call_id] = thread = threading.get_ident()
        self.native_threads[thread] = threading.get_native_id()

    def leave(self, call_id: str, *, is_error: bool = False) -> int:
        """A call has ended, in an error or not; returns the colour of its reply."""
        with self.lock:
            ledger = self.ledger
            running = ledger.running.get(call_id)
            is_built = running is not None and running.method == CONSTRUCTOR and not is_error
            colour, self.recording.ended_at = ledger.finish(call_id, is_error=is_error), time.time()
            self.threads.pop(call_id, None)
            if self.waiting.plain:
                self.waiting.end_call(call_id)
            self.streams.end(call_id)
            self.actor_loop.coroutines.pop(call_id, None)
            if self.heard_of:
                self._take_in()
            if ledger.must_record:
                self.recording.record()
            if not self.is_flushing and ledger.has_acks:
                self._flush_soon()
            if is_built and self.reloading.recovers:
                self.reloading.built()
            if self.reloading.is_stopping:
                self.reloading.ended()
        return colour

    def heard(self, colour: int) -> None:
        """Something of this colour is being read in this process, perhaps by a thread of Ray's, which must never wait here."""
        hearing = self.waiting.hearing
        if hearing.is_waiting:
            hearing.colour = max(hearing.colour, colour)
        else:
            self.heard_of.append(colour)

    def _take_in(self) -> None:
        """Take in the colours that were read outside a tracked wait, and record if one is redder. Under the lock."""
        while self.heard_of:
            if self.ledger.hear(self.heard_of.pop()):
                self.recording.record(is_forced=True)

    def begin_items(self, call_id: str, generator: Any) -> None:
        """A call is a streaming generator: this one."""
        with self.lock:
            self.streams.begin(call_id, generator)

    def hand_out(self, call_id: str) -> None:
        """It is about to give Ray an item."""
        with self.lock:
            self.ledger.yields(call_id)
            self.streams.go_out(call_id)

    def resume(self, call_id: str) -> None:
        """Ray lets it go on."""
        with self.lock:
            self.streams.come_back(call_id)

    def take_items(self, refs: Any, call_id: str, at_most: int | None) -> None:
        """A call of this machine is a streaming generator: its items come by `refs`."""
        with self.lock:
            self.streams.take(refs, call_id, at_most)

    def rest(self) -> AbstractContextManager[None]:
        """The driver's program waits for a verdict, and does nothing else."""
        return self.waiting.rest()

    def tell_where(self, seconds: float, was_idle: bool = False) -> None:
        """Tell the watcher in so many seconds where this actor is, and again and again from then on, at last once a second."""

        def look() -> None:
            with self.lock:
                sites = self.recording.call_sites()
                sites |= {wait.call_id or "": wait.call_site for wait in self.ledger.waits.values()}
                found = [(one.method, sites.get(call_id, "")) for call_id, one in self.ledger.running.items()]
            if found or was_idle:  # of one that ends nothing runs for a moment
                self.control.tell("was_at", self.machine, *(found[0] if found else ("", "")))
            self.tell_where(min(2 * seconds, 1.0), not found)

        self.control.after(seconds, look)

    # ---- refs and handles -----------------------------------------------------------------------------------------

    def knows(self, ref: Any) -> bool:
        """Whether a ref is that of an item of a generator that this process has."""
        with self.lock:
            return self.streams.asked(ref) is not None

    def has_come(self, ref: Any) -> bool:
        """Whether a ref is that of an item that this process has taken from a generator: its object is there."""
        with self.lock:
            return self.streams.has_come(ref)

    def may_read(self, call_id: str) -> None:
        """A ref to the reply of this call has come to this process."""
        target = parsed(call_id).target
        with self.lock:
            if not is_task(target):  # one that runs is a machine of its own, one that has ended sends nothing
                self.ledger.may_read(target)
            self.passed.add(call_id)

    def hold(self, machine: str) -> None:
        """A handle of an actor has come to this process."""
        with self.lock:
            self.ledger.hold(machine)

    def owes(self, ref: Any) -> bool:
        """Whether a machine of a host answers this ref."""
        return self.mail is not None and bool(self.mail.calls.find([ref]))

    # ---- ending waits that can never end ----------------------------------------------------------------------------

    def condemn(self, number: int, call_id: str | None, error: DeadlockError) -> Told:
        """Waits of this call (None: of the machine itself) end in the error; see `Raising.condemn`."""
        with self.lock:
            futures, told = self.raising.condemn(self.ledger, number, call_id, error)
        ended_by(error, futures)
        return told

    # ---- recording ------------------------------------------------------------------------------------------------

    def send_with(self, mail: Mail) -> None:
        """From now on this process sends to machines of hosts, too, and turns red with what it sends. Under the lock."""
        self.mail = mail
        self.ledger.turn_with(mail.turn)

    def stay_alone(self) -> None:
        """There are no machines any more; under the lock."""
        if self.mail is not None:
            self.ledger.turn_with(None)
            mail, self.mail = self.mail, None
            mail.leave()

    def turn_red(self, *, is_forced: bool) -> None:
        """Record if that is due and can be, or if it is forced."""
        with self.lock:
            if self.ledger.must_record:
                self.recording.record(is_forced=is_forced)

    def take_in(self) -> None:
        """Before anything is sent: record what was read outside a tracked wait, if it is redder."""
        with self.lock:
            self._take_in()

    def follow(self, call_id: str, coroutine: Any) -> None:
        """This coroutine is a call's own, and will be looked into when the machine is recorded."""
        with self.lock:
            self.actor_loop.follow(call_id, coroutine)

    # ---- of the control thread ------------------------------------------------------------------------------------

    def _flush_soon(self) -> None:
        self.is_flushing = True
        self.control.flush_soon()

    def take_acks(self) -> list[Acks]:
        """The acknowledgements to send; the next one asks for another flush."""
        with self.lock:
            self.is_flushing = False
            return self.ledger.take_acks()

    def obey(self, command: ProcessCommand) -> None:  # noqa: PLR0912 - one branch for each command
        """Do what the watcher asks for."""
        if isinstance(command, (Roll, Release)):
            self.reloading.obey(command)
            return
        if isinstance(command, Condemn):
            self.condemn(command.number, command.call_id, command.error)
            return
        if isinstance(command, TellStacks):
            self.control.tell(
                "stacks_told", command.question, self.machine, stacks(self, with_locals=command.with_locals)
            )
            return
        if isinstance(command, Request):
            self._look_beside()
        with self.lock:
            ledger = self.ledger
            match command:
                case Request(number):
                    ledger.request(number)
                    if (
                        number in ledger.open
                    ):  # it was recorded before the watcher asked, or this machine was born behind it
                        found = self.recording.reports.get(number) or ProcessReport(ledger.report(number), time.time())
                        self.control.report(found)
                case Overdue(number):
                    if ledger.request(number):
                        self.recording.record(is_forced=True)
                case Collect():
                    capacity.COLLECTIONS.collect()
                case Close(number, held, ended, unsettled, is_store_short):
                    capacity.STORES.is_wanted = is_store_short
                    self.recording.close(number)
                    ledger.complete(number, held, unsettled)
                    self._forget_workers(ended)
                case Abort(number):
                    self.recording.reports.pop(number, None)
                    ledger.abort(number)
                case Based():
                    self.reloading.based(command)
                case Acknowledged(acks):
                    ledger.acknowledge(acks)
                case Died(machine):
                    ledger.target_died(machine)
                case Restarted(machine, incarnation):
                    ledger.target_restarted(machine, incarnation)
                case Stopped(names, colour):
                    if self.mail is not None:
                        self.mail.learn_stopped(names, colour)
                case HostsLeft():
                    self.stay_alone()
                    for forget in ON_HOSTS_LEFT:
                        forget()
                case Leave(fault):
                    self._leave(fault)
                case _:
                    assert_never(command)
        if ledger.must_record:
            self.recording.record_soon()

    def _forget_workers(self, ended: Collection[str]) -> None:
        self.ledger.forget_workers(ended)
        for worker in ended:
            self.last_calls.pop(worker, None)

    def _leave(self, fault: str) -> None:
        """The watching is over; of a `fault` that has ended it the program says so, once for all."""
        if fault and self.machine == DRIVER:
            say(f"ray-snapshot: {fault}")
        self.control.leave()

    def leave_system(self) -> None:
        """The program ends: its channels close at their final counts."""
        with self.lock:
            report = self.ledger.leave()
        self.is_closed = True
        self.control.end()
        CONNECTION.use(self.watcher.left.remote, report)

    def end(self) -> None:
        """Ray ends this process: nothing is recorded or sent any more, and the actor's object is kept alive no longer."""
        self.is_closed = True
        self.control.end()
        with self.lock:  # not while its state is copied
            _body, self.body = self.body, None  # what finalizes it runs when this returns, without the lock
