"""Work that a call has handed to threads of the app's own, and waits for.

A call in `Future.result()` or `Thread.join()` without a timeout ends no sooner than the thread does what it was given. If that
thread is in a `ray.get` or `ray.wait`, the call waits for the same replies; so it does if the thread runs an event loop and a
coroutine there, which the call waits for, awaits them. Told from the stacks when the machine is recorded,
and only while a thread waits so. What cannot be told (a future whose work has not begun, or that no executor of the standard
library runs) leaves the call active.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import thread as executors
from dataclasses import dataclass, replace
from functools import cached_property
from traceback import walk_stack
from types import FrameType
from typing import Any

from ray_snapshot.instrument.here import HARNESS, own_threads
from ray_snapshot.instrument.process import other_loops
from ray_snapshot.instrument.process.callbacks import awaited_by
from ray_snapshot.instrument.process.called import local_variable
from ray_snapshot.instrument.process.coroutines import held_up_by, reply_of, task_behind
from ray_snapshot.instrument.process.kernel_waits import context_switches_of
from ray_snapshot.instrument.process.signals import is_timer_set
from ray_snapshot.protocol.calls import Awaited, CallLedger
from ray_snapshot.runtime.here import frames_of_threads, place

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
    on: tuple[Awaited | str | None, ...]
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
        self.followed: set[int] = set()
        """Threads that are in a wait since it stood for a call's at the last `park`."""

    def begin(self, wait: ThreadWait | None) -> ThreadWait | None:
        """This thread begins to wait (None: for something that may come by itself); returns what it waits for around that."""
        before = self.waits.pop(threading.get_ident(), None)
        self.end(wait)
        return before

    def end(self, before: ThreadWait | None) -> None:
        """This thread's wait is over; `before`: what `begin` has returned."""
        self.followed.discard(threading.get_ident())
        if before is None:
            self.waits.pop(threading.get_ident(), None)
        else:
            self.waits[threading.get_ident()] = before

    def park(self, ledger: CallLedger, calls: Iterable[tuple[str | None, int]]) -> dict[int, Sequence[Any]]:
        """Note as waits those of calls that wait for a thread that waits; returns the refs of each, by wait.

        `calls`: (call, None for the program; the thread that runs it).
        """
        found: dict[int, Sequence[Any]] = {}
        look, of_threads = Look(self.waits), {*map(id, self.waits.values())}
        waits = [(one, None if is_timer_set(thread) else self._wait_behind(thread, look)) for one, thread in calls]
        self.followed = {ident for ident, own in self.waits.items() if any(own is wait for _, wait in waits)}
        for call_id, wait in waits:
            if wait is not None:  # a call that acts may cancel a coroutine, but no thread
                on = wait.on if id(wait) in of_threads or all(one for _, one in waits) else (*wait.on, None)
                began = wait.since if call_id is None else ledger.running[call_id].started_at
                about = (on, wait.k, max(wait.since, began))
                noted = ledger.wait(call_id, *about, call_site=wait.call_site, raises=wait.raises, keeps_cpu=True)
                found[noted] = wait.refs
        return found

    def _wait_behind(self, thread: int, look: Look) -> ThreadWait | None:
        """What the last of the threads waits for that wait for each other, from this one on."""
        seen: set[int | None] = set()
        awaited: int | None = thread
        while awaited is not None and awaited not in seen:
            if awaited in self.waits:
                return self.waits[awaited]
            seen.add(awaited)
            task = awaited_task(awaited, look.frames)
            if task is not None and (wait := self.behind(task, look)) is not None:
                return wait
            awaited = awaited_thread(awaited, look.frames) if task is None else other_loops.thread_of(task, look.frames)
        return None

    def behind(self, task: Any, look: Look) -> ThreadWait | None:
        """What a task on the loop of a thread waits for: any one of replies; None if not for these alone."""
        futures = held_up_by(task, task.get_coro())
        waits: list[ThreadWait] = [wait for one in futures if (wait := reply_of(one)) is not None]
        if not waits or len(waits) < len(futures):
            return None
        on: list[Awaited | str | None] = [item for wait in waits for item in wait.on]
        if look.may_end(task):
            on.append(None)
        refs = [ref for wait in waits for ref in wait.refs]
        return replace(waits[0], refs=refs, on=tuple(on), k=1, since=min(wait.since for wait in waits), raises=False)


class Look:
    """What the threads of the app's own do, looked at once for a report; it holds while none of them has run."""

    def __init__(self, waiting: Collection[int]) -> None:
        """`waiting`: threads that only go on when a reply comes."""
        self._own, self._waiting = own_threads(), waiting
        self._before = _switches(self._own)
        self.frames = frames_of_threads()

    def may_end(self, task: Any) -> bool:
        """Whether anything but the replies that a task on the loop of a thread needs may end what it awaits, or may have."""
        may_act = self._acts or self._loops.may_cancel(task)
        return may_act or -1 in self._before or self._before != _switches(self._own)

    @cached_property
    def _loops(self) -> other_loops.LoopsOfThreads:
        return other_loops.LoopsOfThreads(self.frames)

    @cached_property
    def _acts(self) -> bool:
        """Whether a thread may run now; what a loop has to run that stands between two steps is looked at by itself."""
        return bool(unlisted(self.frames)) or any(map(self._may_run, self._own))

    def _may_run(self, thread: threading.Thread) -> bool:
        frame = self.frames.get(thread.ident or 0)
        if frame is None or thread.ident in self._waiting:
            return frame is None
        return not (is_parked(frame) or joins(frame) or other_loops.loop_between_steps(frame) is not None)


def _switches(threads: Iterable[threading.Thread]) -> list[int]:
    """Equal as long as none of them has run; -1 among it: not known."""
    return [context_switches_of(one.native_id or 0) for one in threads]


def unlisted(frames: Mapping[int, FrameType]) -> list[str]:
    """The places of threads that `threading` has not started (`_thread` has, or C), and that are not Ray's or ours.

    A thread of Ray's that sets the result of a future has no frame of Ray's, and none of the app's either.
    """
    listed = {thread.ident for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread)}
    unlisted = [
        frame
        for ident, frame in frames.items()
        if ident not in listed and not _is_begun_by(frame, (*_NOT_THE_APPS, *HARNESS))
    ]
    return [f"without a name ({where})" for frame in unlisted if (where := place(frame)) is not None]


_NOT_THE_APPS = ("ray.", "ray_snapshot.")

_AROUND_THE_APPS = ("ray.util.tracing.", "ray_snapshot.instrument.hooks.")
"""Modules whose frames stand around code of the app's: Ray traces each method of an actor, and so do we."""


def _is_begun_by(frame: FrameType, packages: tuple[str, ...]) -> bool:
    """Whether the outermost frame of a thread, but for those of `threading` and around methods, is in one of these packages.

    A debugger takes its threads out of the list of `threading`.
    """
    names = [str(one.f_globals.get("__name__", "")) for one, _ in walk_stack(frame)]
    begun = [name for name in names if name != "threading" and not name.startswith(_AROUND_THE_APPS)]
    return bool(begun) and begun[-1].startswith(packages)


def is_parked(frame: FrameType, *, is_timed: bool = False) -> bool:
    """Whether a thread's innermost frame waits to be notified, without a timeout, or with one; once notified, it is no waiter
    of the condition any more. So does a thread of an executor that has nothing to do."""
    if frame.f_code is _WORKS and not is_timed:
        names = frame.f_locals
        return names.get("work_item") is None and names["work_queue"].empty()
    if frame.f_code is not _WAIT:
        return False
    names = frame.f_locals
    waiter, condition = names.get("waiter"), names["self"]
    is_so = (names.get("timeout") is not None) is is_timed
    return is_so and waiter is not None and waiter in list(condition._waiters)


def joins(frame: FrameType, *, is_timed: bool = False) -> bool:
    """Whether a thread's innermost frame waits for the end of another thread, without a timeout, or with one."""
    return _joined_by(frame, is_timed=is_timed) is not None


def _joined_by(inner: FrameType, *, is_timed: bool = False) -> threading.Thread | None:
    """The thread that another one joins."""
    frame = inner if inner.f_code is _JOIN else inner.f_back
    if inner.f_code not in _JOINS or frame is None or (frame.f_locals.get("timeout") is not None) is not is_timed:
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


def awaited_task(thread: int, frames: Mapping[int, FrameType]) -> Any:
    """The task on another loop whose result a thread waits for without a bound, or for which alone it runs a loop."""
    inner = frames.get(thread)
    outer = None if inner is None else inner.f_back
    if inner is None or outer is None:
        return None
    if outer.f_code in _RESULTS:
        return task_behind(outer.f_locals.get("self")) if is_parked(inner) else None
    return other_loops.main_task(inner)


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
