"""Awaits that have lasted for long, and lack nothing but objects that no watched call gives: of `ray.put`, of refs of others.

Told when the machine is recorded, from the futures that Ray has made of refs. Only of the calls of an async actor and of the
task that a program's loop runs: whatever waits beside those may wait for ever in peace. Nothing is said where anything else
could end the wait: a timer of the loop (`asyncio.wait_for`), another reply, the first of several.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any

from ray_snapshot.instrument.process import loops
from ray_snapshot.instrument.process.callbacks import awaited_by, pending_futures
from ray_snapshot.instrument.process.coroutines import held_up_by, site_of
from ray_snapshot.instrument.process.reports import LongWait
from ray_snapshot.runtime.refs import call_of, is_ref

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


def _awaited(until: float, calls: Iterable[tuple[Any, Any]], is_known: Callable[[Any], bool]) -> Iterator[LongWait]:
    objects = _objects(until, is_known)
    running = {future.get_loop() for future in objects}
    for task, coroutine in [*calls, *_main_tasks(running)] if objects else ():
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


def _main_tasks(running: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    for loop in running:
        for task in asyncio.all_tasks(loop):
            left = getattr(task, "_callbacks", None) or ()
            if any(getattr(callback, "__qualname__", "") in _MAIN for callback, _ in left):
                yield task, task.get_coro()


def _may_run_out(loop: Any) -> bool:
    found = loops.pending(loop)
    return found is None or bool(found.timers)
