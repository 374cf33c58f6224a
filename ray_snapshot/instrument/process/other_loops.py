"""Event loops that threads of the app's own run: where one stands, and what may act on it.

A loop of another thread is looked at while that thread waits in its selector: whoever looks has the GIL, so nothing runs there
meanwhile. Changes nothing. Standard library only.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Mapping
from traceback import walk_stack
from types import FrameType, FunctionType, MethodType
from typing import Any

from ray_snapshot.instrument.process import loops
from ray_snapshot.instrument.process.called import awaited_object, call_names, local_variable
from ray_snapshot.instrument.process.coroutines import REPLIES, frames_of, held_up_by, may_go_on, tasks_before
from ray_snapshot.instrument.process.kernel_waits import kernel_wait
from ray_snapshot.instrument.process.reach import Reach

_STEP = asyncio.BaseEventLoop._run_once.__code__  # type: ignore[attr-defined]
_MAIN = {asyncio.BaseEventLoop.run_until_complete.__code__: "future", asyncio.Runner.run.__code__: "task"}
"""What runs a loop until a task has ended, and which variable that is."""


def loop_between_steps(frame: FrameType) -> Any:
    """The loop that a thread with this innermost frame runs, while it waits for something to run; None if it does not."""
    if frame.f_globals.get("__name__") == "selectors":
        outer = frame.f_back
        return local_variable(outer, "self") if outer is not None and outer.f_code is _STEP else None
    names = call_names(frame.f_code, frame.f_lasti)
    loop = None
    if frame.f_code is asyncio.Runner.run.__code__:  # a loop in C
        loop = getattr(local_variable(frame, "self"), "_loop", None)
    elif frame.f_code is threading.Thread.run.__code__:
        target = getattr(local_variable(frame, "self"), "_target", None)
        loop = getattr(target, "__self__", None) if getattr(target, "__name__", "") == "run_forever" else None
    elif names is not None and names[0] == "run_forever":
        loop = awaited_object(frame, *names[1:])
    return loop if isinstance(loop, asyncio.AbstractEventLoop) else None


def is_at_rest(frame: FrameType) -> bool:
    """Whether such a thread runs a loop that has nothing to run until a reply comes, or another thread wakes it."""
    loop = loop_between_steps(frame)
    pending = None if loop is None else loops.pending(loop)
    if pending is None or pending.timers or pending.has_callbacks or pending.has_sockets:
        return False
    return not any(map(may_go_on, asyncio.all_tasks(loop)))


def main_task(frame: FrameType) -> Any:
    """The task for which alone a thread runs a loop, which waits for something to run; None if there is none."""
    if loop_between_steps(frame) is None:
        return None
    mains = (local_variable(one, _MAIN[one.f_code]) for one, _ in walk_stack(frame) if one.f_code in _MAIN)
    return next((one for one in mains if isinstance(one, asyncio.Task)), None)


def thread_of(task: Any, frames: Mapping[int, FrameType]) -> int | None:
    """The thread that is in a step of a task."""
    inside = frames_of(task.get_coro())
    running = (ident for ident, frame in frames.items() if any(one in inside for one, _ in walk_stack(frame)))
    return next(running, None)


class LoopsOfThreads:
    """What may end the tasks on loops of threads, looked at once for a report; it holds while none of these threads has run.

    What the loop of the calls may do, on which this is asked, is looked at elsewhere.
    """

    def __init__(self, frames: Mapping[int, FrameType]) -> None:
        self._standing = {loop_between_steps(frame) for frame in frames.values()} - {None}
        pending = [loops.pending(one) for one in self._standing]
        self._acts = any(one is None or one.has_callbacks or one.has_sockets for one in pending)
        tasks: set[Any] = set().union(*map(asyncio.all_tasks, self._standing))
        own = [*(timer for one in pending if one is not None for timer in one.timers), *tasks]
        self._end_all = {one for one in own if _may_end_all(one)}
        self._reach = Reach((), (self,))
        self._reached = self._reach.anew([one for one in own if one not in tasks or may_go_on(one)])
        self._by_reply: dict[Any, Mapping[int, Any]] = {}

    def may_cancel(self, task: Any) -> bool:
        """Whether anything but the replies that a task needs may end what it awaits: a timer, a socket, another task or
        reply."""
        wanted, needed = tasks_before(task), held_up_by(task, task.get_coro())
        if self._acts or any(one.get_loop() not in self._standing for one in wanted) or self._end_all - wanted:
            return True
        replies = (one() for one in REPLIES.keyrefs())
        others = (one for one in replies if one is not None and not one.done() and one not in needed)
        reached = (self._reached, *map(self._from, others))
        return any(id(one) in each for each in reached for one in wanted) or not self._reach.is_all

    def _from(self, reply: Any) -> Mapping[int, Any]:
        """What this reply may end or wake, by id."""
        if self._reach.is_all and reply not in self._by_reply:
            self._by_reply[reply] = self._reach.anew([reply])
        return self._by_reply.get(reply, {})


def _may_end_all(item: Any) -> bool:
    """Whether the code of a task or a timer names what ends every task of its loop."""
    if isinstance(item, asyncio.Task):
        codes = [frame.f_code for frame in frames_of(item.get_coro())]
        return any("all_tasks" in code.co_names for code in codes)
    called = [one for one in gc.get_referents(item) if type(one) in (FunctionType, MethodType)]
    return any(one.__name__ == "stop" or not _ENDS_ALL.isdisjoint(one.__code__.co_names) for one in called)


_ENDS_ALL = {"all_tasks", "stop"}


def goes_on(task: Any, frames: Mapping[int, FrameType]) -> bool:
    """Whether a task on the loop of a thread, or one that it waits for, runs or sleeps."""
    for one in tasks_before(task):
        waiter, own = one._fut_waiter, frames_of(one.get_coro())
        if waiter is None and (ident := thread_of(one, frames)) is not None:
            native = next((thread.native_id for thread in threading.enumerate() if thread.ident == ident), None)
            if native is not None and kernel_wait(native) is None:
                return True
        elif waiter is None or waiter.done() or (own and own[-1].f_code is asyncio.sleep.__code__):
            return True
    return False
