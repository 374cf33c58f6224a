"""Records calls (and a driver) whose thread waits outside of Ray's calls: for a lock, a queue, a socket, a child process.

The thread of such a call stands still, so the call's machine is recorded at once, with its state. What may end the wait decides
what else is recorded:

- Only this process may end it, and none of the app's own threads here can act: the call is in a *local* wait, like `await` of
  an asyncio lock. A call that runs here now, or a later one, may end it. `_unknown` says when that is certain: no compiled
  code calls in, the app handles no signal in this thread, and garbage was collected after the wait began.
- Anything else may end it: the call counts as active. After `LONG_S` the snapshot lists the wait (coverage, `unexplained`);
  before that it is too early to tell, unless something seen may end it.

Callers hold the lock of the process.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from types import FrameType
from typing import TYPE_CHECKING, Any

from ray_snapshot.instrument import capacity
from ray_snapshot.instrument.here import own_threads
from ray_snapshot.instrument.process.answer_uses import Use
from ray_snapshot.instrument.process.blocked_threads import BlockedThread, BlockedThreads
from ray_snapshot.instrument.process.coroutines import held_up_by, last_before, parked_at, site_of
from ray_snapshot.instrument.process.handed import awaited_task, awaited_thread, executed, joins
from ray_snapshot.instrument.process.kernel_waits import kernel_wait
from ray_snapshot.instrument.process.lock_holders import LockHolders
from ray_snapshot.instrument.process.other_loops import goes_on
from ray_snapshot.instrument.process.polls import Poll, PolledMethod
from ray_snapshot.instrument.process.reports import LongWait
from ray_snapshot.instrument.process.signals import handled_signals, is_timer_set
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER, LONG_S
from ray_snapshot.protocol.calls import Awaited, CallWait
from ray_snapshot.runtime.here import PACKAGES, RAYS, USERS, frames_of_threads, outward, place, rank_of

if TYPE_CHECKING:
    from ray_snapshot.instrument.process.process import Process


COLLECT_S = LONG_S / 2
"""After a local wait of this length garbage is collected: a finalizer might end the wait."""


class BlockedCalls:
    """The calls of one process that wait outside of Ray's calls."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.threads = BlockedThreads()
        self.long_waits: tuple[LongWait, ...] = ()
        """The waits longer than `LONG_S` that anything but this process may end, as of the last `park`."""
        self.young: list[Poll] = []
        """Shorter ones that only this process may end, as of the last `park`."""
        self.on_loop: str | None = None
        """The call that blocks the event loop of an async actor by such a wait, as of the last `park`."""
        self.wait_at_rest: BlockedThread | None = None
        """The wait of a driver at rest: it does nothing more until a signal comes or an event is set."""
        self._calls_seen: tuple[int, frozenset[str]] = (0, frozenset())
        """How many calls have begun here, and which of them run."""
        self._changed_at = 0.0
        """When that was last seen to change: a call that has ended may have left a callback, or garbage with a finalizer."""
        self._parked: dict[int, int] = {}
        """Thread (ident) to native id, of the threads whose waits `park` noted."""

    def park(self, now: float) -> list[int]:
        """Note these waits in the ledger; returns their ids, for `CallLedger.wake`."""
        process, frames = self.process, frames_of_threads()
        self.forget()
        calls = process.begun, frozenset(process.ledger.running)
        if calls != self._calls_seen:
            self._calls_seen, self._changed_at = calls, now
        waiting, wait_ids = list(self.calls()), list[int]()
        methods = dict.fromkeys((one.ident or 0 for one in own_threads()), "") | {
            thread: process.ledger.running[call].method for call, thread in process.threads.items() if call in calls[1]
        }
        locks = LockHolders(methods, frames)
        beside = self.waits_beside(frames, now) if waiting else []  # looked at before those whose waits they may end
        for call_id, thread in waiting:
            one = self._blocked(thread, frames, now)
            if one is None:
                continue
            if one.is_for_a_lock:
                one = replace(one, function=locks.of(frames[thread]) or one.function)
            if (task := awaited_task(thread, frames)) is not None:
                one = _of_coroutine(one, last_before(task).get_coro())
            is_long = now - one.since >= LONG_S
            unknown = self._unknown(call_id, one, now)
            is_proven = unknown is None and is_long and beside == [] and call_id is not None
            if call_id is None and one.is_at_rest:
                self.wait_at_rest = one if is_long and beside == [] and not process.ledger.waits else None
            elif not is_long and one.is_local and beside is not None:
                self.young.append(_poll(call_id, one))
            elif is_long and not is_proven and not self._goes_on(thread, frames):
                one = replace(
                    one, about=self._joined(one.about) or self._awaited_thread(thread, frames) or unknown or ""
                )
                waits = (one, *(each for each in beside or () if now - each.since >= LONG_S))
                long = (LongWait(each.since, each.call_site, each.what) for each in waits)
                self.long_waits = tuple(dict.fromkeys((*self.long_waits, *long)))
            if call_id is not None and not process.reloading.keeps:  # its hooks might want a lock that the call holds
                wait_ids.append(self._note(call_id, thread, one, is_proven=is_proven))
        return wait_ids

    def _note(self, call_id: str, thread: int, one: BlockedThread, *, is_proven: bool) -> int:
        """Note a wait in the ledger; returns its id."""
        process = self.process
        self.on_loop = call_id if process.actor_loop.is_async and not process.actor_loop.has_many_loops else None
        self._parked[thread] = self.native_of(thread) or 0
        return process.ledger.wait(
            call_id,
            (),
            int(is_proven),
            one.since,
            call_site=one.call_site,
            may_act=not is_proven,
            is_local=is_proven,
            keeps_cpu=True,
            what=one.function,
        )

    def of_libraries(self, now: float) -> Iterator[LongWait]:
        """Waits of the app's code on threads of Ray's libraries, such as Train's: no call waits for it but by asking."""
        frames = frames_of_threads()
        for thread in own_threads():
            at = place(frame := frames.get(thread.ident or 0))
            if at is None or rank_of(at.frame.f_code.co_filename) != USERS:
                continue
            ranks = [rank_of(one.f_code.co_filename) for one in outward(frame)]
            if [rank for rank in ranks if rank in (USERS, PACKAGES, RAYS)][-1] != RAYS:
                continue
            if (reply := self.process.handed.waits.get(thread.ident or 0)) is not None:
                calls = tuple(one.call_id for one in reply.on if isinstance(one, Awaited) and one.call_id)
                long = LongWait(reply.since, at.call_site, f"in {at.inside or 'ray.get'}", calls)
            elif (one := self.threads.wait_of(thread, frame, now)) is not None:
                long = LongWait(one.since, one.call_site, one.what)
            else:
                continue
            if now - long.since >= LONG_S:
                yield long

    def forget(self) -> None:
        """Drop what the last `park` noted."""
        self.long_waits, self.young, self._parked, self.on_loop, self.wait_at_rest = (), [], {}, None, None

    def is_loop_still(self) -> bool:
        """Whether the loop of an async actor stands still outside of Ray's calls."""
        frames, now = frames_of_threads(), time.time()
        return self.process.actor_loop.is_async and any(
            self._blocked(thread, frames, now) is not None for _, thread in self.calls()
        )

    def have_run(self) -> bool:
        """Whether a thread has run since `park` noted its wait: then a state copied since does not belong to one instant."""
        frames = frames_of_threads() if self._parked else {}
        return any(self.threads.has_run(native, frames.get(thread)) for thread, native in self._parked.items())

    def calls(self) -> Iterator[tuple[str | None, int]]:
        """(call, its thread) of calls that run and are in no noted wait; (None, main thread) of a driver in no noted wait."""
        process = self.process
        if process.actor_loop.is_async:
            generators = process.streams.running
            threads = {call: thread for call, thread in process.threads.items() if call not in generators}
            yield from process.actor_loop.in_a_step(process.ledger, threads)
            return
        shared = Counter(process.threads.values())
        for call_id, running in process.ledger.running.items():
            thread = process.threads.get(call_id)
            if thread is not None and not running.waits and shared[thread] == 1:
                yield call_id, thread
        if process.machine == DRIVER and process.program_threads.may_wait_elsewhere(process.ledger.waits):
            yield None, threading.main_thread().ident or 0

    def _blocked(self, thread: int, frames: Mapping[int, FrameType], now: float) -> BlockedThread | None:
        """The wait of a thread (its ident), once it has lasted for `settled_thread_s`."""
        process, frame = self.process, frames.get(thread)
        native = self.native_of(thread)
        if frame is None or native is None or is_timer_set(thread):
            return None
        one = self.threads.look(native, frame, now)
        if one is not None and process.actor_loop.is_async and not one.call_site:
            return None  # the loop waits for its next step
        if one is not None and now - one.since < LIMITS.settled_thread_s:
            process.control.after(LIMITS.settled_thread_s, process.recording.record_soon)
            return None
        return one

    def native_of(self, thread: int) -> int | None:
        """The native id of a thread that runs calls, or the program; None if that is not known."""
        main = threading.main_thread()
        return main.native_id if thread == main.ident else self.process.native_threads.get(thread)

    def _goes_on(self, thread: int, frames: Mapping[int, FrameType]) -> bool:
        """Whether a thread (its ident) waits for a task on another loop that runs, sleeps, or waits for a thread that acts."""
        task = awaited_task(thread, frames)
        if task is None or parked_at(last := last_before(task), last.get_coro()) is not None:
            return False
        by_future = executed(frames)
        working = [by_future[one] for one in held_up_by(task, task.get_coro()) if one in by_future]
        natives = {one.ident: one.native_id or 0 for one in own_threads()}
        return goes_on(task, frames) or any(kernel_wait(natives.get(one, 0)) is None for one in working)

    def _awaited_thread(self, thread: int, frames: Mapping[int, FrameType]) -> str:
        """The thread whose end, or result, a thread (its ident) waits for: "the end of thread beat, which is in A.beat
        (app.py:7)"."""
        awaited = awaited_thread(thread, frames)
        name = next((one.name for one in threading.enumerate() if one.ident == awaited), None)
        at = place(frames.get(awaited or 0))
        is_in = "" if at is None else f", which is in {at.frame.f_code.co_qualname} ({at})"
        return "" if name is None else f"the {'end' if joins(frames[thread]) else 'result'} of thread {name}{is_in}"

    def waits_beside(
        self, frames: Mapping[int, FrameType], now: float, idle: Collection[int] = ()
    ) -> list[BlockedThread] | None:
        """The waits of the app's own threads, but for these, that something outside of this process may end; None if such a
        thread acts."""
        waits = []
        for thread in own_threads():
            if thread.ident in self.process.handed.waits or thread.ident in idle:
                continue
            one = self.threads.wait_of(thread, frames.get(thread.ident or 0), now)
            if one is None:
                return None
            if not one.is_local:
                waits.append(one)
        return waits

    def _unknown(self, call_id: str | None, one: BlockedThread, now: float) -> str | None:
        """What might end a wait beside threads, calls and callbacks that are followed, for a person; "" if it is not known yet;
        None if nothing can."""
        process, collections = self.process, capacity.COLLECTIONS
        if not one.is_local or process.reloading.keeps:
            return ""
        if process.actor_loop.has_many_loops:
            others = [call.method for key, call in process.ledger.running.items() if not call.waits and key != call_id]
            return f"what its other concurrency groups may do{f' ({others[0]} runs)' if others else ''}"
        if collections.are_since(self._quiet_since(one)):
            if handled := handled_signals():
                return f"what the app's handler of {', '.join(handled)} may do"
            return "what compiled code may do, which can call the app" if collections.may_be_called else None
        if now - one.since >= COLLECT_S:
            collections.collect()
        return ""

    def _joined(self, about: str) -> str:
        """What a wait is for; of a pipe with the child process that has ended, which may have had its other end."""
        ended = self.process.recording.meter.ended if about == "a pipe" else ()
        children = (f"child process {one.pid} ({one.program}) has ended with {one.how}" for one in ended)
        return ", and ".join(filter(None, (about, *children)))

    def _quiet_since(self, one: BlockedThread) -> float:
        """Since when a thread has waited, and no other call has begun or ended here."""
        return max(one.since, self._changed_at)


def _poll(call_id: str | None, one: BlockedThread) -> Poll:
    """A wait of which it is too early to tell."""
    wait = CallWait(0, call_id, (), 1, one.since, one.call_site, may_act=True, is_local=True, what=one.function)
    asked = PolledMethod("", one.function, one.call_site, 1, "")
    return Poll(call_id, "", one.since, (asked,), Use.UNKNOWN.value, (), is_young=True, wait=wait)


def _of_coroutine(one: BlockedThread, coroutine: Any) -> BlockedThread:
    """The wait of a thread that waits for a coroutine on another loop, which tells more: where that is."""
    about = f"{getattr(coroutine, '__qualname__', 'a coroutine')}, on the event loop of another thread"
    return replace(one, call_site=site_of(coroutine) or one.call_site, about=about)
