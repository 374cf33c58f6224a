"""This process's machine: one ledger, one lock, and what its threads do with them.

Every step of the protocol is taken under the lock; nothing else happens under it but copying the state. The app's threads
make calls, accept them and wait; the control thread (`control`) talks with the watcher. Where the state is copied: at the
boundary between two calls, in a tracked wait, or on the loop of an async actor.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, TypeVar, assert_never

from ray.exceptions import RayActorError

from ray_snapshot import redaction
from ray_snapshot.encoding import Encoded
from ray_snapshot.errors import RolledBackError
from ray_snapshot.instrument import shape
from ray_snapshot.instrument.control import Control
from ray_snapshot.instrument.coroutines import background, current_task, parked_at, resolved, site_of
from ray_snapshot.instrument.guard import ours
from ray_snapshot.instrument.here import CURRENT, own_threads
from ray_snapshot.instrument.refs import call_of
from ray_snapshot.instrument.reloading import Reloading, Terms, generation_of, stamp_of
from ray_snapshot.instrument.shown import ShownStates
from ray_snapshot.instrument.threads import Threads, may_be_interrupted, threads_of
from ray_snapshot.instrument.unfollowed import UNFOLLOWED, Loose
from ray_snapshot.protocol.calls import CONSTRUCTOR, Acks, CallLedger, Header, MachineReport, parsed
from ray_snapshot.protocol.commands import (
    Abort,
    Acknowledged,
    Close,
    Died,
    Leave,
    Overdue,
    ProcessCommand,
    Release,
    Request,
    Restarted,
    Roll,
)
from ray_snapshot.runtime.faults import named
from ray_snapshot.runtime.here import call_site_of

DRIVER = "driver"

MOST_PASSED = 1_000
"""So many calls are remembered whose refs have come from others; of older ones, only the machine that answers them."""

if TYPE_CHECKING:
    from ray_snapshot.instrument.states import Kept

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Recorded:
    """A machine's report, and what its process knows besides."""

    report: MachineReport
    recorded_at: float
    call_sites: dict[str, str] = field(default_factory=dict)
    """Where the calls are that run and do not wait."""
    loose: Loose = field(default_factory=Loose)
    """Plain tasks, and handles that went where they are not followed."""
    threads: Threads = field(default_factory=Threads)
    """Threads of the app's own in the process."""
    blocking_call: str | None = None
    """The call that blocks the loop of an async actor, and with it all others."""
    background: str = ""
    """What of the app's own may act on its loop (tasks, timers, ...); "" if nothing can."""
    kept: Kept | None = None
    """The state, as a restore needs it; None if nothing is kept, or there is no state."""
    births: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Actors whose constructors are on their way: by machine, what names it (`class`, `name`, `ordinal`)."""
    passed: tuple[str, ...] = ()
    """The calls whose refs other processes have passed on to this one; empty unless it has parked calls."""
    passed_before: tuple[str, ...] = ()
    """The machines that answer older calls of this kind."""


_FIRST = Terms()


class Hearing(threading.local):
    """Per thread: whether it is inside a tracked wait, and the reddest colour that came with a reply in it."""

    is_waiting = False
    colour = 0


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
        self.hearing = Hearing()
        self.body: Any = None
        self.loop: asyncio.AbstractEventLoop | None = None
        """The loop that runs every call, if the actor is asynchronous."""
        self.is_async = False
        self.has_many_loops = False
        self.blocking_call: str | None = None
        self.is_loop_blocked = False
        """Whether the loop sits in a blocking `ray.get`."""
        self.coroutines: dict[str, tuple[Any, Any]] = {}
        """By call: the asyncio task that runs it, and the method's own coroutine."""
        self.threads: dict[str, int] = {}
        """Which thread runs a call."""
        self.is_flushing = False
        self.is_closed = False
        self.creating = 0
        """Actors that are being made: their calls are numbered, and not yet in the ledger, so this is no boundary."""
        self.heard_of: list[int] = []
        """Colours that were read outside a tracked wait, to be taken in before the next step."""
        self.wait_tasks: dict[int, Any] = {}
        """By wait: the asyncio task that is in it."""
        self.resting: int | None = None
        """The wait of a driver for a verdict, if it is in one."""
        self.reports: dict[int, Recorded] = {}
        """What was recorded, until it is closed or given up."""
        self.made: Counter[str] = Counter()
        """By class: the actors that this driver has made."""
        self.passed: dict[str, None] = {}
        """Calls whose refs other processes have passed on, in the order in which they came."""
        self.passed_before: dict[str, None] = {}
        """The machines that answer the calls that came earlier than those in `passed`."""
        self.births: dict[str, Mapping[str, Any]] = {}
        """Actors that this process has made, and whose constructors are not known to have begun; see `Recorded`."""
        self.kept: Kept | None = None
        """The state as it was copied last."""
        self.shown_states = ShownStates(terms.library_states)
        self.reloading = Reloading(self, terms)
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
        if isinstance(error, RayActorError) or not shape.is_connected():  # the watcher is gone, or Ray is
            return
        with suppress(Exception):
            print(
                f"ray-snapshot: {self.machine} is not watched any more, by a fault of ours: {named(error)}",
                file=sys.stderr,
            )
        with suppress(Exception):
            self.watcher.unwatched.remote(self.machine)

    # ---- sending --------------------------------------------------------------------------------------------------

    def submit(
        self,
        target: str,
        method: str,
        args: Any,
        is_retried: bool,
        needs: tuple[str | None, ...],
        group: str | None = None,
        kwargs: Any = None,
    ) -> tuple[Header, str]:
        """Number, colour and log a call that is about to be made; returns its header, and what stands in front of it.

        `group`: the concurrency group that it names.
        """
        if redaction.is_active:
            redaction.met(method, args or (), kwargs)
        about, now = tuple(redaction.arguments(method, args or ())), time.time()
        kept = self.reloading.keep_call(args, kwargs) if self.reloading.keeps else None
        with self.lock:
            if self.heard_of:
                self._take_in()
            header = self.ledger.submit(
                target, method, about, now, is_retried=is_retried, needs=needs, group=group, kept=kept
            )
            return header, self.stamp

    def ordinal(self, class_name: str) -> int | None:
        """Which actor of its class, of those without names, the driver is about to make: so another run finds it again."""
        if self.machine != DRIVER:
            return None
        with self.lock:
            self.made[class_name] += 1
            return self.made[class_name] - 1

    def begin_creation(self) -> tuple[str, int, int]:
        """An actor is about to be made, outside the lock: (machine, incarnation, colour) for its header."""
        with self.lock:
            self._take_in()
            self.creating += 1
            return self.machine, self.ledger.incarnation, self.ledger.colour

    def end_creation(self, target: str | None, args: Any, birth: Mapping[str, Any]) -> None:
        """An actor has been made (`target` None: that raised); from now on its constructor is in the ledger.

        `birth`: what the maker knows of it (`shape.options_of`, and its ordinal).
        """
        about, is_retried = tuple(redaction.arguments("__init__", args or ())), bool(birth["is_retried"])
        with self.lock:
            self.creating -= 1
            if target is not None:
                self.ledger.create(target, "__init__", about, time.time(), is_retried=is_retried)
                self.births[target] = {"class": birth["kind"], "name": birth["name"], "ordinal": birth["ordinal"]}
            self.reloading.ended()
        if self.ledger.must_record:
            self.record_soon()

    def retract(self, header: Header, target: str) -> None:
        """Take a call back out of the ledger: making it raised."""
        with self.lock:
            if header.incarnation == self.ledger.incarnation:  # else the numbers have begun anew meanwhile
                self.ledger.retract(target, header.number)

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
            if self.is_async:
                self._meet(running_loop())
            if self.heard_of:
                self._take_in()
            if header is not None:
                ledger.hear(header.colour)
            if ledger.must_record:
                self._record(is_forced=header is not None and header.colour > ledger.colour)
            if header is None:
                call_id = ledger.accept_unknown(method, time.time(), group=group)
            else:
                call_id = ledger.accept(header, method, time.time(), group=group)
            self.threads[call_id] = threading.get_ident()
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
                self._record(is_forced=True)
                self.ledger.finish(self.ledger.accept(header, method, time.time(), group=group))
            raise

    def begin_anew(self, incarnation: int, colour: int, others: Mapping[str, int]) -> None:
        """All numbering begins anew; what the process has handles of stays known. Under the lock, while nothing runs."""
        self.ledger = self.ledger.successor(incarnation, colour, others)
        self.call_prefix = f"{self.machine}/{incarnation}/"
        self.reports.clear()
        self.heard_of.clear()
        self.coroutines.clear()
        self.threads.clear()
        self.wait_tasks.clear()

    def _meet(self, loop: asyncio.AbstractEventLoop | None) -> None:
        """A call runs on this loop: concurrency groups have loops of their own."""
        self.loop = self.loop or loop
        self.has_many_loops |= loop is not None and loop is not self.loop

    def leave(self, call_id: str, *, is_error: bool = False) -> int:
        """A call has ended, in an error or not; returns the colour of its reply."""
        with self.lock:
            ledger = self.ledger
            colour = ledger.finish(call_id, is_error=is_error)
            self.threads.pop(call_id, None)
            if self.coroutines:
                self.coroutines.pop(call_id, None)
            if self.heard_of:
                self._take_in()
            if ledger.must_record:
                self._record()
            if not self.is_flushing and ledger.has_acks:
                self._flush_soon()
            if self.reloading.is_stopping:
                self.reloading.ended()
        return colour

    def heard(self, colour: int) -> None:
        """Something of this colour is being read in this process, perhaps by a thread of Ray's, which must never wait here."""
        if self.hearing.is_waiting:
            self.hearing.colour = max(self.hearing.colour, colour)
        else:
            self.heard_of.append(colour)

    def _take_in(self) -> None:
        """Take in the colours that were read outside a tracked wait, and record if one is redder. Under the lock."""
        while self.heard_of:
            if self.ledger.hear(self.heard_of.pop()):
                self._record(is_forced=True)

    # ---- waiting --------------------------------------------------------------------------------------------------

    def begin_wait(
        self,
        refs: list[Any],
        k: int,
        timeout: float | None,
        call_site: str,
        *,
        is_blocking: bool,
        is_resting: bool = False,
        raises: bool = False,
    ) -> tuple[int, list[str | None]]:
        """The current call (or the driver) begins to wait for `k` of `refs`; returns what `end_wait` takes.

        `raises`: the first error of any of them ends the wait.
        """
        on = [call_of(ref) for ref in refs]
        now = time.time()
        may_act = not is_resting and (timeout is not None or len(on) - on.count(None) < k or may_be_interrupted())
        call_id, hearing = CURRENT.get(), self.hearing
        with self.lock:
            if not call_site and call_id in self.coroutines:  # awaited by a task of its own, as in `gather`
                call_site = site_of(self.coroutines[call_id][1]) or ""
            wait_id = self.ledger.wait(
                call_id if call_id in self.ledger.running else None,
                on,
                k,
                now,
                call_site=call_site,
                may_act=may_act
                or self._others_send()
                or (self.machine == DRIVER and not is_blocking and not is_resting),
                timeout_at=None if timeout is None else now + timeout,
                raises=raises,
            )
            if is_resting:
                self.resting = wait_id
            elif not is_blocking:
                self.wait_tasks[wait_id] = current_task()
            if is_blocking:
                hearing.is_waiting, hearing.colour = True, 0
                if self.loop is not None and running_loop() is self.loop:
                    self.is_loop_blocked, self.blocking_call = True, call_id
            if self.ledger.must_record:
                self._record()
        return wait_id, on

    def end_wait(
        self, wait_id: int, answered: Sequence[str | None], colour: int = 0, *, settled: Sequence[str | None] = ()
    ) -> None:
        """The wait is over: what the replies were red for is recorded before anything of them is used."""
        hearing = self.hearing
        with self.lock:
            if self.heard_of:
                self._take_in()
            if self.wait_tasks:
                self.wait_tasks.pop(wait_id, None)
            if hearing.is_waiting:
                colour = max(colour, hearing.colour)
                if self.loop is not None and running_loop() is self.loop:
                    self.is_loop_blocked = False
                hearing.is_waiting = False
            self.ledger.hear(colour)
            if self.ledger.must_record:
                self._record(is_forced=colour > self.ledger.colour)
            self.ledger.wake(wait_id, colour)
            if wait_id == self.resting:
                self.resting = None
            for call_id in answered:
                if (mine := self._sent_here(call_id)) is not None:
                    self.ledger.answered(*mine)
            for call_id in settled:
                if (mine := self._sent_here(call_id)) is not None:
                    self.ledger.settle(*mine)

    def _sent_here(self, call_id: str | None) -> tuple[str, int] | None:
        """(target, number) of a call that this machine has made; None for a call of another machine."""
        if call_id is None or not call_id.startswith(self.call_prefix):
            return None
        target, _, number = call_id[len(self.call_prefix) :].rpartition("/")
        return target, int(number)

    def may_read(self, call_id: str) -> None:
        """A ref to the reply of this call has come to this process."""
        target = parsed(call_id).target
        with self.lock:
            self.ledger.may_read(target)
            self.passed[call_id] = None
            if len(self.passed) > MOST_PASSED:
                oldest = next(iter(self.passed))
                del self.passed[oldest]
                self.passed_before[parsed(oldest).target] = None

    def follows(self) -> bool:
        """Whether a wait of this thread is a wait of the machine."""
        return CURRENT.get() is not None or (self.machine == DRIVER and not self.hearing.is_waiting)

    def _others_send(self) -> bool:
        """Whether threads of the program, beside the main one, may act: then the driver is never only waiting."""
        if self.machine != DRIVER:
            return False
        return threading.current_thread() is not threading.main_thread()

    # ---- recording ------------------------------------------------------------------------------------------------

    def _record(self, *, is_forced: bool = False) -> None:
        """Turn red if this is a boundary; `is_forced`: in the middle of an action if need be, without a state."""
        between_steps = self.machine == DRIVER or self._is_between_steps()
        if self.creating and not is_forced:
            return
        if not (is_forced or between_steps or self.ledger.can_copy):
            return
        sites, now, threads = self.call_sites(), time.time(), threads_of(own_threads())
        self.kept = None
        parked = self._park(now, sites) if self.is_async and between_steps else []
        acting = self._background() if self.is_async else ""
        for number in self.ledger.record(self._copy_state, between_steps=between_steps):
            if number in self.ledger.open:
                report = self._rested(self.ledger.report(number))
                if self.is_async:
                    report = resolved(report, self.coroutines, self.wait_tasks, self.loop)
                blocking = self.blocking_call if self.is_loop_blocked and not self.has_many_loops else None
                facts = (UNFOLLOWED.loose(), threads, blocking, acting)
                is_parked = any(wait.is_local for wait in report.waits)
                passed = (tuple(self.passed), tuple(self.passed_before)) if is_parked else ()
                self.births = {name: self.births[name] for name in _being_made(report) if name in self.births}
                self.reports[number] = Recorded(report, now, sites, *facts, self.kept, self.births, *passed)
                self.control.report(self.reports[number])
        for wait_id in parked:
            self.ledger.wake(wait_id)

    def _rested(self, report: MachineReport) -> MachineReport:
        """A driver that waits for a verdict waits for no machine: it is passive."""
        if self.resting is None:
            return report
        waits = tuple(wait for wait in report.waits if wait.wait_id != self.resting)
        return replace(report, waits=waits, status="blocked" if waits else "passive")

    def _park(self, now: float, sites: dict[str, str]) -> list[int]:
        """Note the calls that await something of their own loop: only a later call to this actor can end that.

        Or a thread, task or timer of the app's own, which the report tells of.
        """
        found: list[int] = []
        for call_id, (task, coroutine) in self.coroutines.items():
            running = self.ledger.running.get(call_id)
            site = parked_at(task, coroutine) if running is not None and not running.waits else None
            if site is not None:
                sites[call_id] = site
                found.append(self.ledger.wait(call_id, (), 1, now, call_site=site, is_local=True))
        return found

    def _background(self) -> str:
        """What may act on the loops besides calls."""
        if self.has_many_loops:
            return "tasks and timers on the loops"
        calls = [*(task for task, _ in self.coroutines.values()), *self.wait_tasks.values()]
        return "" if self.loop is None else background(self.loop, calls)

    def follow(self, call_id: str, coroutine: Any) -> None:
        """This coroutine is a call's own, and will be looked into when the machine is recorded."""
        with self.lock:
            self.coroutines[call_id] = current_task(), coroutine

    def _is_between_steps(self) -> bool:
        """Whether no coroutine of an async actor can be in the middle of a step now."""
        if self.loop is None or self.has_many_loops:
            return False
        return self.is_loop_blocked or running_loop() is self.loop

    def _copy_state(self) -> Encoded | None:
        """The state as JSON; an app's object is asked for nothing that could run its code."""
        if self.body is None:
            return None
        if self.reloading.keeps:
            self.kept = self.reloading.keep_state(self.body)
        return self.shown_states.of(self.body)

    def call_sites(self) -> dict[str, str]:
        """Where the calls are that run and do not wait."""
        found = {}
        for call_id, running in self.ledger.running.items():
            thread = self.threads.get(call_id)
            if not running.waits and thread is not None and (site := call_site_of(thread)):
                found[call_id] = site
        return found

    def record_soon(self) -> None:
        """Record as soon as it can be done from outside the app's threads."""
        with self.lock:
            if not self.ledger.must_record:
                return
            if self.loop is not None and not self.is_loop_blocked:
                self.loop.call_soon_threadsafe(ours, self._record_on_loop)
            else:
                self._record()

    def _record_on_loop(self) -> None:
        with self.lock:
            if self.ledger.must_record:
                self._record()

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
        with self.lock:
            ledger = self.ledger
            match command:
                case Request(number):
                    ledger.request(number)
                    if (
                        number in ledger.open
                    ):  # it was recorded before the watcher asked, or this machine was born behind it
                        found = self.reports.get(number) or Recorded(ledger.report(number), time.time())
                        self.control.report(found)
                case Overdue(number):
                    if ledger.request(number):
                        self._record(is_forced=True)
                case Close(number):
                    self.reports.pop(number, None)
                    ledger.close(number)
                case Abort(number):
                    self.reports.pop(number, None)
                    ledger.abort(number)
                case Acknowledged(acks):
                    ledger.acknowledge(acks)
                case Died(machine):
                    ledger.target_died(machine)
                case Restarted(machine, incarnation):
                    ledger.target_restarted(machine, incarnation)
                case Leave():
                    self.control.end()
                case _:
                    assert_never(command)
        if ledger.must_record:
            self.record_soon()

    def leave_system(self) -> None:
        """The program ends: its channels close at their final counts."""
        with self.lock:
            report = self.ledger.leave()
        self.is_closed = True
        self.control.end()
        self.watcher.left.remote(report)


def _being_made(report: MachineReport) -> list[str]:
    """The actors whose constructors are in the sender's log."""
    return [output.target for output in report.outputs if CONSTRUCTOR in output.log]


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The loop that this thread is running, if any."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
