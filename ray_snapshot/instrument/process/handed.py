"""Work that a call has handed to threads of the app's own, and waits for.

A call in `Future.result()` or `Thread.join()` without a timeout ends no sooner than the thread does what it was given. If that
thread is in a `ray.get` or `ray.wait`, the call waits for the same replies. Told from the stacks when the machine is recorded,
and only while a thread waits so. What cannot be told (a future whose work has not begun, or that no executor of the standard
library runs) leaves the call active.
"""

from __future__ import annotations

import inspect
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import thread as executors
from dataclasses import dataclass
from types import FrameType
from typing import Any

from ray_snapshot.instrument.process.callbacks import awaited_by
from ray_snapshot.instrument.process.signals import is_timer_set
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.runtime.here import frames_of_threads

_RESULTS = (Future.result.__code__, Future.exception.__code__)
_WAIT = threading.Condition.wait.__code__
_WORKS = executors._worker.__code__
_RUN = executors._WorkItem.run.__code__
_JOIN = threading.Thread.join.__code__
_JOINS = {_JOIN, getattr(getattr(threading.Thread, "_wait_for_tstate_lock", None), "__code__", _JOIN)}
"""Where a thread sits that joins another; up to Python 3.12 in a function that `join` calls."""


@dataclass(frozen=True, slots=True)
class ThreadWait:
    """What a thread waits for, as `CallLedger.wait` takes it."""

    refs: Sequence[Any]
    on: tuple[str | None, ...]
    k: int
    since: float
    call_site: str
    raises: bool
    """Whether the first error of any of them ends it."""


class HandedWork:
    """The waits of the threads of one process; used under its lock."""

    def __init__(self) -> None:
        self.waits: dict[int, ThreadWait] = {}
        """By thread."""

    def begin(self, wait: ThreadWait | None) -> ThreadWait | None:
        """This thread begins to wait (None: for something that may come by itself); returns what it waits for around that."""
        before = self.waits.pop(threading.get_ident(), None)
        self.end(wait)
        return before

    def end(self, before: ThreadWait | None) -> None:
        """This thread's wait is over; `before`: what `begin` has returned."""
        if before is None:
            self.waits.pop(threading.get_ident(), None)
        else:
            self.waits[threading.get_ident()] = before

    def park(self, ledger: CallLedger, threads: Mapping[str, int]) -> dict[int, Sequence[Any]]:
        """Note as waits those of calls that wait for a thread that waits; returns the refs of each, by wait.

        `threads`: which thread runs a call.
        """
        found: dict[int, Sequence[Any]] = {}
        frames, shared = frames_of_threads(), Counter(threads.values())
        for call_id, running in ledger.running.items():
            thread = threads.get(call_id)
            if thread is None or running.waits or shared[thread] > 1 or is_timer_set(thread):
                continue
            wait = self._wait_behind(thread, frames)
            if wait is not None:
                about = (wait.on, wait.k, max(wait.since, running.started_at))
                noted = ledger.wait(call_id, *about, call_site=wait.call_site, raises=wait.raises, keeps_cpu=True)
                found[noted] = wait.refs
        return found

    def _wait_behind(self, thread: int, frames: Mapping[int, FrameType]) -> ThreadWait | None:
        """What the last of the threads waits for that wait for each other, from this one on."""
        seen: set[int | None] = set()
        awaited: int | None = thread
        while awaited is not None and awaited not in seen:
            if awaited in self.waits:
                return self.waits[awaited]
            seen.add(awaited)
            awaited = awaited_thread(awaited, frames)
        return None


def is_parked(frame: FrameType) -> bool:
    """Whether a thread's innermost frame waits to be notified; once notified, it is no waiter of the condition any
    more. So does a thread of an executor that has nothing to do."""
    if frame.f_code is _WORKS:
        names = frame.f_locals
        return names.get("work_item") is None and names["work_queue"].empty()
    if frame.f_code is not _WAIT:
        return False
    names = frame.f_locals
    waiter, condition = names.get("waiter"), names["self"]
    return names.get("timeout") is None and waiter is not None and waiter in list(condition._waiters)


def joins(frame: FrameType) -> bool:
    """Whether a thread's innermost frame waits for the end of another thread, without a bound."""
    return _joined_by(frame) is not None


def _joined_by(inner: FrameType) -> threading.Thread | None:
    """The thread that another one joins without a bound."""
    frame = inner if inner.f_code is _JOIN else inner.f_back
    if inner.f_code not in _JOINS or frame is None or frame.f_locals.get("timeout") is not None:
        return None
    joined = frame.f_locals.get("self")
    return joined if isinstance(joined, threading.Thread) else None


def awaited_thread(thread: int, frames: Mapping[int, FrameType]) -> int | None:
    """The thread that another one waits for without a bound: it joins it, or needs the result of what it runs."""
    inner = frames.get(thread)
    outer = None if inner is None else inner.f_back
    if inner is None or outer is None:
        return None
    if inner.f_code in _JOINS:
        joined = _joined_by(inner)
        return None if joined is None else joined.ident
    if outer.f_code not in _RESULTS or not is_parked(inner):
        return None
    future = outer.f_locals.get("self")
    if future in _futures_run_in(sys._getframe()):  # this thread, whose wait is about to end
        return threading.get_ident()
    return next((ident for ident, frame in frames.items() if future in _futures_run_in(frame)), None)


def executed(frames: Mapping[int, FrameType]) -> dict[Any, int]:
    """By future of an event loop that awaits work of an executor (`asyncio.to_thread`): the thread that does the work."""
    found: dict[Any, int] = {}
    for ident, frame in frames.items():
        for future in _futures_run_in(frame):
            found |= dict.fromkeys(awaited_by(future), ident)
    return found


def is_queued(future: Any) -> bool:
    """Whether a future of an event loop awaits work that no thread of its executor has begun."""
    for callback, _ in getattr(future, "_callbacks", None) or ():
        for cell in getattr(callback, "__closure__", None) or ():
            source = cell.cell_contents
            if isinstance(source, Future) and not source.running() and not source.done():
                return True
    return False


def _futures_run_in(frame: FrameType | None) -> Iterator[Any]:
    """The futures whose work a thread of an executor is doing."""
    while frame is not None:
        if frame.f_code is _RUN and (future := getattr(local_variable(frame, "self"), "future", None)) is not None:
            yield future
        frame = frame.f_back


def local_variable(frame: FrameType, name: str) -> Any:
    """A variable of a frame, or of its module."""
    found = local_variables(frame, name)
    return found[name] if found else frame.f_globals.get(name)


def local_variables(frame: FrameType, *names: str) -> dict[str, Any]:
    """Those variables of a frame that it has. Up to Python 3.12 a frame keeps the dictionary of its locals: it is emptied
    again, unless the app has it, so that no object of the app lives longer than without us."""
    own = frame.f_locals
    found = {name: own[name] for name in names if name in own}
    if _KEEPS_LOCALS and frame.f_code.co_flags & inspect.CO_OPTIMIZED and sys.getrefcount(own) <= _REFS_OF_LOCALS:
        own.clear()
    return found


_KEEPS_LOCALS = sys.version_info < (3, 13)
_REFS_OF_LOCALS = 3
"""The frame's, the variable's, and that of `sys.getrefcount`."""
