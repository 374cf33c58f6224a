"""Calls of one process whose own threads wait outside of Ray's calls: what is recorded of them.

Such a call stands still, so its machine is recorded as it is, with its state. What may end the wait decides on the rest:

- Only this process, for certain, and no thread of the app's may act: it is a *local* wait, as an `await` of an asyncio lock is,
  which a call that runs here, or a later one, may end. Traps 40 to 40b: no callback from compiled code, no signal, a collection
  of garbage since it began.
- Anything else: the call counts as active, and once the wait is long the snapshot says that it cannot be told what ends it.

Used under the lock of the process.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import TYPE_CHECKING

from ray_snapshot.instrument import capacity
from ray_snapshot.instrument.here import own_threads
from ray_snapshot.instrument.process.blocked_threads import (
    SETTLED_S,
    BlockedThread,
    BlockedThreads,
    calls_from_outside,
    signals_may_act,
)
from ray_snapshot.instrument.process.reports import LONG_S, LongWait
from ray_snapshot.instrument.process.threads import is_timer_set
from ray_snapshot.names import DRIVER
from ray_snapshot.runtime.here import frames_of_threads

if TYPE_CHECKING:
    from ray_snapshot.instrument.process.process import Process


COLLECT_S = LONG_S / 2
"""Behind so long a local wait garbage is collected: a finalizer might end it."""


class BlockedCalls:
    """Of one process."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.threads = BlockedThreads()
        self.long: tuple[LongWait, ...] = ()
        """Waits that have lasted for long, and of which it cannot be told what ends them, as of the last look."""
        self.on_loop: str | None = None
        """The call that blocks the loop of an async actor so, as of the last look."""
        self._parked: dict[int, int] = {}
        """By thread (ident) of which a wait is noted: its native id."""

    def park(self, now: float) -> list[int]:
        """Note the waits of calls that stand still outside of Ray's calls; returns the waits."""
        process, frames = self.process, frames_of_threads()
        self.forget()
        found: list[int] = []
        for call_id, thread in self._calls():
            one = self._blocked(thread, frames, now)
            if one is None:
                continue
            if one.is_local and now - one.since >= COLLECT_S and not capacity.COLLECTIONS.are_since(one.since):
                capacity.COLLECTIONS.collect()
            is_long = now - one.since >= LONG_S
            others = self._others(frames, now) if is_long else None
            is_proven = others == [] and one.is_local and call_id is not None and self._is_all_known(one, thread)
            if not is_proven and others is not None and not (call_id is None and one.is_at_rest):
                self.long += tuple(LongWait(each.since, each.call_site, each.what) for each in (one, *others))
            if call_id is not None:
                self.on_loop = call_id if process.actor_loop.is_async else None
                self._parked[thread] = process.native_threads[thread]
                found.append(
                    process.ledger.wait(
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
                )
        return found

    def forget(self) -> None:
        """The waits that were noted count no more."""
        self.long, self._parked, self.on_loop = (), {}, None

    def is_loop_still(self) -> bool:
        """Whether the loop of an async actor stands still outside of Ray's calls."""
        frames, now = frames_of_threads(), time.time()
        return self.process.actor_loop.is_async and any(
            self._blocked(thread, frames, now) is not None for _, thread in self._calls()
        )

    def have_run(self) -> bool:
        """Whether any of the threads has run since its wait was noted: then what was copied meanwhile is of no one instant."""
        frames = frames_of_threads() if self._parked else {}
        return any(self.threads.has_run(native, frames.get(thread)) for thread, native in self._parked.items())

    def _calls(self) -> Iterator[tuple[str | None, int]]:
        """(call, its thread) of those that run and are in no wait; (None, the main thread) of a driver that is in none."""
        process = self.process
        if process.actor_loop.is_async:
            call = process.actor_loop.running_call()
            if call in process.threads and not process.actor_loop.is_blocked:
                yield call, process.threads[call]
            return
        shared = Counter(process.threads.values())
        for call_id, running in process.ledger.running.items():
            thread = process.threads.get(call_id)
            if thread is not None and not running.waits and shared[thread] == 1:
                yield call_id, thread
        if process.machine == DRIVER and not process.ledger.waits:
            yield None, threading.main_thread().ident or 0

    def _blocked(self, thread: int, frames: Mapping[int, FrameType], now: float) -> BlockedThread | None:
        """What a thread (its ident) waits in, once that has settled."""
        process, frame = self.process, frames.get(thread)
        native = process.native_threads.get(thread)
        if frame is None or native is None or is_timer_set(thread):
            return None
        one = self.threads.look(native, frame, now)
        if one is not None and now - one.since < SETTLED_S:
            process.control.after(SETTLED_S, process.recording.record_soon)
            return None
        return one

    def _others(self, frames: Mapping[int, FrameType], now: float) -> list[BlockedThread] | None:
        """The app's own threads that wait for what is outside of this process; None if any of its threads acts."""
        found = []
        for thread in own_threads():
            frame = frames.get(thread.ident or 0)
            if thread.ident in self.process.handed.waits:
                continue
            one = None if frame is None else self.threads.look(thread.native_id or 0, frame, now)
            if one is None:
                return None
            if not one.is_local:
                found.append(one)
        return found

    def _is_all_known(self, one: BlockedThread, thread: int) -> bool:
        """Whether nothing but threads, calls and callbacks that are followed can end a local wait."""
        return capacity.COLLECTIONS.are_since(one.since) and not (signals_may_act(thread) or calls_from_outside())
