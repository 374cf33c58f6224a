"""What one process records of its machine, and when: at a boundary, or where it is forced to.

A boundary is between two calls, in a tracked wait, or between two steps of a loop. Beside the ledger's own report stands
what only the process can tell: where its calls are, what its threads and loops may do, what it holds of its node. Used under
the lock of the process where nothing else is said.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from ray_snapshot.instrument import capacity
from ray_snapshot.instrument.connection import CONNECTION
from ray_snapshot.instrument.guard import ours
from ray_snapshot.instrument.here import own_threads
from ray_snapshot.instrument.process.awaited import awaited_futures, awaited_objects
from ray_snapshot.instrument.process.callbacks import callback_wait
from ray_snapshot.instrument.process.cells import cells
from ray_snapshot.instrument.process.collectives import Collectives, Membership
from ray_snapshot.instrument.process.coroutines import REPLIES
from ray_snapshot.instrument.process.ended_children import WELL
from ray_snapshot.instrument.process.ended_threads import ENDED_THREADS, note_failed_tasks
from ray_snapshot.instrument.process.failures import FAILURES
from ray_snapshot.instrument.process.handed import awaited_thread, is_parked
from ray_snapshot.instrument.process.plain_methods import AskedMethods
from ray_snapshot.instrument.process.reports import LongWait, ProcessReport
from ray_snapshot.instrument.process.shown import ShownStates
from ray_snapshot.instrument.process.signals import signals
from ray_snapshot.instrument.process.timed_waits import TimedWaits
from ray_snapshot.instrument.process.unfollowed import UNFOLLOWED
from ray_snapshot.instrument.process.usage import Meter
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER, LONG_S
from ray_snapshot.runtime.here import frames_of_threads, place_of

if TYPE_CHECKING:
    from ray_snapshot.encoding import Encoded
    from ray_snapshot.instrument.process.blocked_threads import Threads
    from ray_snapshot.instrument.process.polls import Poll
    from ray_snapshot.instrument.process.process import Process
    from ray_snapshot.instrument.process.states import SavedValue
    from ray_snapshot.protocol.calls import CallWait, MachineReport


_LOCKS = ("asyncio.Lock", "asyncio.Semaphore", "asyncio.BoundedSemaphore")


class Recording:
    """Of one process."""

    def __init__(self, process: Process, *, library_states: bool) -> None:
        self.process = process
        self.reports: dict[int, ProcessReport] = {}
        """What was recorded, until it is closed or given up."""
        self.ended_at = time.time()
        """When a call last ended here, or a thread of the app's was last seen."""
        self.was_quiet = False
        """Whether nothing beside calls could act when this was last recorded."""
        self.kept: SavedValue | None = None
        """The state as it was copied last."""
        self.shown_states = ShownStates(library_states)
        self.meter = Meter()
        self.collectives = Collectives()
        self.asked_methods = AskedMethods()
        self.timed = TimedWaits(process)

    def close(self, number: int) -> None:
        """The watcher has what was recorded for this snapshot."""
        if (told := self.reports.pop(number, None)) is not None and told.read:
            FAILURES.told(told.read)

    def record_soon(self) -> None:
        """Record as soon as it can be done from outside the app's threads. Takes the lock."""
        process = self.process
        with process.lock:
            if not process.ledger.must_record:
                return
            loop = process.actor_loop.to_ask() or process.program_loop.to_ask()
            try:
                if loop is not None and not process.blocked.is_loop_still():
                    loop.call_soon_threadsafe(ours, CONNECTION.use, self._record_on_loop)
                    return
            except RuntimeError:  # it was closed meanwhile
                pass
            self.record()

    def _record_on_loop(self) -> None:
        with self.process.lock:
            if self.process.ledger.must_record:
                self.record()

    def record(self, *, is_forced: bool = False) -> None:
        """Turn red if this is a boundary; `is_forced`: in the middle of an action if need be, without a state."""
        process, loop = self.process, self.process.actor_loop
        has_no_state = process.machine == DRIVER or process.is_worker
        between_steps = has_no_state or loop.is_between_steps()
        if process.making.under_way:
            if not is_forced:
                return
            process.making.wait_for_others(process.lock)
            if not process.ledger.must_record:
                return
        was_starting, now = bool(process.making.under_way), time.time()
        began, plain = time.thread_time(), process.waiting.park()
        in_threads: dict[int, Any] = {}
        if process.handed.waits or REPLIES:
            in_threads = process.handed.park(process.ledger, process.blocked.calls())
        on_loop = next((process.ledger.waits[one].call_id for one in in_threads if loop.is_async), None)
        at_yields: list[int] = []
        if process.streams.running or process.streams.blocking:
            at_yields = process.streams.park(process.ledger, process.threads, now, has_loop=loop.is_async)
        left = callback_wait()  # before the threads that a callback may have woken
        blocked = process.blocked.park(now)
        if on_loop is not None and not loop.has_many_loops:
            process.blocked.on_loop = on_loop
        between_steps |= process.blocked.on_loop is not None
        try:
            if is_forced or between_steps or process.ledger.can_copy:
                process.started_tasks.refs_of.update(in_threads)
                with loop.standing_still(process.blocked.on_loop):
                    self._record_now(now, began, left, between_steps=between_steps, was_starting=was_starting)
        except _ThreadRan:
            blocked = self._wake(blocked)
            between_steps &= process.blocked.on_loop is None
            process.blocked.forget()
            if is_forced:
                self._record_now(now, began, left, between_steps=between_steps, was_starting=was_starting)
        finally:
            self._wake((*in_threads, *at_yields, *blocked))
            process.waiting.unpark(plain)

    def _wake(self, waits: Iterable[int]) -> list[int]:
        for wait_id in waits:
            self.process.started_tasks.refs_of.pop(wait_id, None)
            self.process.actor_loop.unpark(wait_id)
            self.process.ledger.wake(wait_id)
        return []

    def _record_now(
        self, now: float, began: float, left: CallWait | None, *, between_steps: bool, was_starting: bool
    ) -> None:
        """`began`: the thread's processor time before anything was done for this; `left`: what callbacks wait for."""
        process, ledger, loop = self.process, self.process.ledger, self.process.actor_loop
        sites = self.call_sites()
        threads = process.blocked.threads.report(
            own_threads(), now, process.program_threads.waiting() | process.handed.followed
        )
        self.kept = None
        parked = loop.park(ledger, now, sites, process.handed) if between_steps else []
        process.started_tasks.refs_of.update({wait_id: refs for wait_id, (_, refs) in loop.in_threads.items()})
        acting = self._background(now)
        ledger.outcomes = process.started_tasks.outcomes()
        ledger.streams = process.streams.report()
        held = capacity.held(self._quiet_since(now, is_quiet=not (acting or own_threads())))
        try:
            numbers = ledger.record(self._copy_state, between_steps=between_steps)
        except _ThreadRan:
            self._wake(parked)
            raise
        process.raising.recorded(numbers, ledger)
        running = [loop.coroutines[one] for one in ledger.running if one in loop.coroutines]
        free = [
            loop.coroutines[one] for one in ledger.running if one in loop.coroutines and not ledger.running[one].waits
        ]
        futures = (
            awaited_futures(now, free, process.blocked.threads, process.handed.waits, loop.loop)
            if between_steps
            else ()
        )
        awaited = awaited_objects(now - LONG_S, running, lambda ref: process.owes(ref) or process.knows(ref))
        occupied = None if process.streams.running else loop.occupied_by(ledger, process.threads, now - LONG_S)
        shown = cells() if process.machine == DRIVER else {}
        self.meter.look(now)
        groups = self._groups(now)
        polls = (*self._polls(threads, now), *process.blocked.young) if numbers else ()
        is_open = numbers and process.body is not None and (between_steps or ledger.can_copy)
        asked = self.asked_methods
        if numbers:
            note_failed_tasks()
        plain = asked.look(process.body, process.last_calls, process.begun, now) if is_open else ()
        for number in numbers:
            mail = None if process.mail is None else process.mail.part(number)
            if number in ledger.open:
                report = loop.resolved(process.program_loop.resolved(self._rested(ledger.report(number))))
                report = process.program_threads.resolved(report)
                report = replace(report, held=held)
                if left is not None:
                    report = replace(report, waits=(*report.waits, left))
                report = replace(report, waits=(*report.waits, *(one.wait for one in polls if one.wait is not None)))
                blocking = loop.blocking_call or process.streams.blocking or occupied
                facts = (UNFOLLOWED.loose(), threads, blocking, acting)
                has_parked = any(wait.is_local for wait in report.waits)
                passed, before = process.passed.known() if has_parked else ((), ())
                births = process.making.unborn(report)
                told = ProcessReport(report, now, sites, *facts, self.kept, births, passed, before, mail, was_starting)
                cpu_s = time.thread_time() - began
                self.reports[number] = replace(
                    told,
                    long_waits=(*awaited, *futures, *self._long_waits(groups or (), now)),
                    groups=groups,
                    usage=self.meter.usage,
                    ended_children=(*(one for one in self.meter.ended if one.how != WELL), *self.meter.gone),
                    ended_threads=tuple(ENDED_THREADS.copy()),  # any thread may end
                    raised=tuple(FAILURES.raised.values()),
                    read=tuple(key for key, _ in FAILURES.read.copy()),  # any thread may read
                    passed_on=FAILURES.passed_on,
                    read_forgotten=FAILURES.forgotten,
                    passed_through=self._passed_through(report) if has_parked else (),
                    cells=shown,
                    polls=polls,
                    plain_methods=plain,
                    cpu_s=cpu_s,
                )
                process.control.report(self.reports[number])
        self.meter.recording_s += time.thread_time() - began + LIMITS.look_cpu_s
        self._wake(parked)

    def _polls(self, threads: Threads, now: float) -> tuple[Poll, ...]:
        """Those of this process; no young ones beside a thread that may bring another answer."""
        polls, frames = self.process.polls, frames_of_threads()
        asking = {thread for call_id, thread in polls.asking(now) if call_id is None}
        names, behind = {one.name for one in own_threads() if one.ident in asking}, dict[int, str | None]()
        if names and all(one.rpartition(" (")[0] in names for one in threads.acting):
            calls = {} if self.process.actor_loop.is_async else self.process.threads
            program = [(None, threading.main_thread().ident or 0)] if self.process.machine == DRIVER else []
            for call, thread in (*calls.items(), *program):
                awaited, frame = awaited_thread(thread, frames), frames.get(thread)
                waits_for_any = awaited is None and frame is not None and is_parked(frame)
                behind |= dict.fromkeys(asking if waits_for_any else asking & {awaited}, call)
        found = polls.look(self.process.ledger, now, behind)
        told = (one for one in found if one.wait is None or not self.timed.may_end)
        return tuple(one for one in told if behind or one.wait is not None or not (threads.acting and one.is_young))

    def _passed_through(self, report: MachineReport) -> tuple[tuple[str, str], ...]:
        """Who has got through a method in which other calls wait for a lock, and has called nothing here since."""
        running = self.process.ledger.running
        parked = {wait.call_id for wait in report.waits if wait.is_local and wait.what.startswith(_LOCKS)}
        methods = {one.method for call_id, one in running.items() if call_id in parked}
        inside = {one.header.source for one in running.values() if one.header is not None}
        last = reversed(self.process.last_calls.items())
        found = ((source, method) for source, method in last if method in methods and source not in inside)
        return tuple(itertools.islice(found, LIMITS.passed_calls))

    def _groups(self, now: float) -> tuple[Membership, ...] | None:
        """The groups of ranks that this process is in, and where it stands in a collective of one; None: not known."""
        process = self.process
        calls = process.threads if not process.actor_loop.is_async else dict[str, int]()
        threads = Counter(calls.values())
        of = {calls[call]: call for call in process.ledger.running if call in calls and threads[calls[call]] == 1}
        if process.machine == DRIVER:
            of[threading.main_thread().ident or 0] = DRIVER
        return self.collectives.look(frames_of_threads(), of, now, self.meter.recording_s)

    def _long_waits(self, groups: Iterable[Membership], now: float) -> Iterable[LongWait]:
        """Waits outside of Ray's calls; what stands in a collective is told as that, whichever system call it is in."""
        found = [
            LongWait(one.stand.since, one.stand.call_site, one.what)
            for one in groups
            if one.stand is not None and now - one.stand.since >= LONG_S
        ]
        sites = {wait.call_site for wait in found}
        blocked = self.process.blocked
        waits = (*blocked.long_waits, *blocked.of_libraries(now))
        return (*(wait for wait in waits if wait.call_site not in sites), *found)

    def call_sites(self) -> dict[str, str]:
        """Where the calls are that run and do not wait."""
        process = self.process
        found = process.streams.sites()
        for call_id, running in process.ledger.running.items():
            thread = process.threads.get(call_id)
            if running.waits or thread is None or call_id in found:
                continue
            if site := process.actor_loop.site_of(call_id) or str(place_of(thread) or ""):
                found[call_id] = site
        return found

    def _background(self, now: float) -> str:
        """What may act here besides calls and threads; "" if nothing. Looks at what waits with a timeout: its timers do not."""
        process = self.process
        self.timed.look(now)
        if (rest := process.blocked.wait_at_rest) is not None:
            return f"{rest.about or f'what ends {rest.function}'} at {rest.call_site}"
        asking = [call_id for call_id, _ in process.polls.asking(now)]
        found = process.actor_loop.background(asking, self.timed.tasks) or process.program_loop.background()
        return " and ".join(filter(None, (found, signals(is_program=process.machine == DRIVER))))

    def _quiet_since(self, now: float, *, is_quiet: bool) -> float:
        """Since when nothing has acted here; `now` if something does, or did when this was asked before."""
        was_quiet, self.was_quiet = self.was_quiet, is_quiet
        if not (was_quiet and is_quiet):
            self.ended_at = now
        if not self.process.ledger.can_copy:
            return now
        return max([self.ended_at, *(wait.waiting_since for wait in self.process.ledger.waits.values())])

    def _rested(self, report: MachineReport) -> MachineReport:
        """A driver that waits for a verdict waits for no machine: it is passive, and so is a program at rest."""
        resting = self.process.waiting.resting
        if self.process.blocked.wait_at_rest is not None:
            return replace(report, status="passive")
        if resting is None:
            return report
        waits = tuple(wait for wait in report.waits if wait.wait_id != resting)
        return replace(report, waits=waits, status="blocked" if waits else "passive")

    def _copy_state(self) -> Encoded | None:
        """The state as JSON; an app's object is asked for nothing that could run its code."""
        process = self.process
        if process.body is None:
            return None
        if process.reloading.keeps:
            self.kept = process.reloading.keep_state(process.body)
        state = self.shown_states.of(process.body)
        if process.blocked.have_run():
            raise _ThreadRan
        return state


class _ThreadRan(Exception):
    """A thread that stood still went on while the state was copied."""
