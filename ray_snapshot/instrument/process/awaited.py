"""Awaits that have lasted for long, and of which it cannot be told what ends them.

Two kinds: they lack nothing but objects that no watched call gives (of `ray.put`, of refs of others), or a future that nothing
seen here sets: of a socket, of a thread that is blocked itself, one that the app has made.

Told when the machine is recorded. Only of the calls of an async actor and, for objects, of the task that a program's loop runs:
whatever waits beside those may wait for ever in peace. Nothing is said where anything seen could end the wait: a timer of the
loop (`asyncio.wait_for`), another reply, the first of several, a thread that acts.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from ray_snapshot.instrument.here import own_threads
from ray_snapshot.instrument.process import loops
from ray_snapshot.instrument.process.blocked_threads import BlockedThread, BlockedThreads
from ray_snapshot.instrument.process.callbacks import awaited_by, pending_futures
from ray_snapshot.instrument.process.coroutines import first_seen, held_up_by, is_tracked, reply_of, site_of
from ray_snapshot.instrument.process.handed import executed, is_queued
from ray_snapshot.instrument.process.reach import Reach
from ray_snapshot.instrument.process.reports import LongWait
from ray_snapshot.names import LONG_S
from ray_snapshot.runtime.here import frames_of_threads
from ray_snapshot.runtime.refs import call_of, is_ref

A_FUTURE = "for a future that nothing seen here sets"
"""What such a wait is for, as it stands behind "has waited for 12 s"."""

_MAIN = ("_run_until_complete_cb", "run_until_complete.<locals>.done_cb")
"""What asyncio, and uvloop, leave on the task that `asyncio.run` runs."""


def awaited_objects(
    until: float, calls: Iterable[tuple[Any, Any]], is_known: Callable[[Any], bool]
) -> tuple[LongWait, ...]:
    """Each such await that was begun before `until`.

    `calls`: (task, coroutine) of those that run; `is_known`: whether another kind of call answers a ref.
    """
    with suppress(Exception):  # of a loop that is not as we know it nothing is said
        return tuple(_awaited(until, calls, is_known))
    return ()


def awaited_futures(
    now: float, calls: Collection[tuple[Any, Any]], threads: BlockedThreads, waiting: Collection[int], loop: Any
) -> tuple[LongWait, ...]:
    """Each await of a future that has lasted for `LONG_S`, and that nothing seen ends.

    `calls`: (task, coroutine) of those that run and are in no noted wait; `threads`: how long those of the process are blocked;
    `waiting`: threads in a `ray.get` or `ray.wait`.
    """
    with suppress(Exception):
        return tuple(_long_awaits(now, calls, threads, waiting, loop))
    return ()


def _long_awaits(
    now: float, calls: Collection[tuple[Any, Any]], threads: BlockedThreads, waiting: Collection[int], loop: Any
) -> Iterator[LongWait]:
    held_up = {task: held_up_by(task, coroutine) for task, coroutine in calls}
    long = [task for task, futures in held_up.items() if futures and now - first_seen(task, now) >= LONG_S]
    timed = loops.pending(loop) if long else None
    if timed is None:
        return
    reach = Reach(calls, long)
    reach.add(timed.timers)
    frames, by_ident = frames_of_threads(), {thread.ident: thread for thread in own_threads()}
    by_future = executed(frames)
    blocked = {
        ident: _is_blocked(thread, wait, ident in waiting)
        for ident, thread in by_ident.items()
        if ident is not None
        and ((wait := threads.wait_of(thread, frames.get(ident), now)) is not None or ident in waiting)
    }
    pool_acts = any(ident not in blocked for ident in by_future.values())
    for task, coroutine in calls:
        lacks = [one for one in held_up[task] if one in by_future or not (is_tracked(one) or reply_of(one))]
        if task not in long or not lacks or task in reach or not reach.is_all:
            continue
        doing = [by_future[one] for one in lacks if one in by_future]
        if all(ident in blocked for ident in doing) and not (pool_acts and any(map(is_queued, lacks))):
            said = [blocked[ident] for ident in doing] or [A_FUTURE]
            yield LongWait(first_seen(task, now), site_of(coroutine) or "", said[0])


def _is_blocked(thread: threading.Thread, wait: BlockedThread | None, is_in_ray: bool) -> str:
    if wait is None or is_in_ray:
        return f"for thread {thread.name}, which waits for replies"
    does = f"waits {wait.what}" if wait.what else "is blocked"
    return f"for thread {thread.name}, which {does}{f' ({wait.call_site})' if wait.call_site else ''}"


def _awaited(until: float, calls: Iterable[tuple[Any, Any]], is_known: Callable[[Any], bool]) -> Iterator[LongWait]:
    objects = _objects(until, is_known)
    running = {future.get_loop() for future in objects}
    for task, coroutine in [*calls, *main_tasks(running)] if objects else ():
        lacks = held_up_by(task, coroutine)
        if lacks and lacks <= objects.keys() and not _may_run_out(task.get_loop()):
            yield LongWait(min(objects[one] for one in lacks), site_of(coroutine) or "")


def _objects(until: float, is_known: Callable[[Any], bool]) -> Mapping[Any, float]:
    """By future of a loop that waits for a ref of which no watched call is known: since when."""
    found: dict[Any, float] = {}
    for since, future in pending_futures():
        ref = getattr(future, "object_ref", None)
        if since <= until and is_ref(ref) and call_of(ref) is None and not is_known(ref):
            found |= dict.fromkeys(awaited_by(future), since)
    return found


def main_tasks(running: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """The tasks for which alone loops are run, each with its coroutine."""
    for loop in running:
        for task in asyncio.all_tasks(loop) if loop is not None else ():
            left = getattr(task, "_callbacks", None) or ()
            if any(loops.name_of(callback) in _MAIN for callback, _ in left):
                yield task, task.get_coro()


def _may_run_out(loop: Any) -> bool:
    found = loops.pending(loop)
    return found is None or bool(found.timers)
