"""What the app has put on replies to come (`ref.future().add_done_callback(...)`): when one comes, a thread of Ray's runs it.

So a process that waits may act before its wait is over. Which futures Ray makes of refs is told by `future_made`, in place of
the class that it makes them of; whether something of the app's is on one is seen when the machine is recorded.
"""

from __future__ import annotations

import concurrent.futures
import functools
import sys
import threading
import time
from asyncio import isfuture
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any
from weakref import WeakValueDictionary

from ray_snapshot.instrument.process.coroutines import is_tracked, reply_of
from ray_snapshot.instrument.process.loops import name_of
from ray_snapshot.protocol.calls import CallWait, awaited
from ray_snapshot.runtime.here import frames_of_threads
from ray_snapshot.runtime.refs import call_of

_FUTURES: WeakValueDictionary[int, Any] = WeakValueDictionary()
"""Of replies that have not come, as far as is known; by `id`."""

_OUR_THREADS = ("ray-snapshot", "ray-snapshot-driver", "ray-snapshot-mail")
"""Threads in which nothing of the app's runs, and that await replies to ours."""

_SETTING = (concurrent.futures.Future.set_result.__code__, concurrent.futures.Future.set_exception.__code__)


def future_made(original: Callable[..., Any], *args: Any) -> Any:
    """In place of the class of futures that Ray makes of refs."""
    made = original(*args)
    if threading.current_thread().name not in _OUR_THREADS:
        made.ray_snapshot_since = time.time()
        _FUTURES[id(made)] = made
    return made


def pending_futures() -> Iterator[tuple[float, Any]]:
    """(when it was made, future) of those whose replies have not come."""
    for known in _FUTURES.valuerefs():  # a list: other threads may add meanwhile
        if (future := known()) is not None and not future.done():
            yield future.ray_snapshot_since, future


def awaited_by(future: Any) -> list[Any]:
    """The futures of event loops that wait for this one, as an `await` of a ref does."""
    return [cell for one in list(future._done_callbacks) for cell in _cells(one) if isfuture(cell)]


def callback_wait() -> CallWait | None:
    """What the process waits for with callbacks: any one of these replies; None if the app has put none on any."""
    calls: dict[str | None, str] = {}
    since: list[float] = []
    is_ready = False
    being_set: set[int] | None = None
    for known in _FUTURES.valuerefs():  # a list: other threads may add meanwhile
        if (future := known()) is None:
            continue
        callbacks, is_over = _callbacks(future), future.done()
        if is_over and callbacks and being_set is None:
            being_set = _being_set()
        if is_over and not (callbacks and id(future) in (being_set or ())):
            _FUTURES.pop(id(future), None)
        elif callbacks:
            is_ready |= is_over
            since.append(future.ray_snapshot_since)
            calls.setdefault(call_of(getattr(future, "object_ref", None)), _site(callbacks[0]))
    if not calls:
        return None
    site = next(iter(calls.values()))
    return CallWait(0, None, awaited(calls), 1, min(since), site, is_ready=is_ready, is_callback=True)


def _being_set() -> set[int]:
    """The futures (by id) of which a thread sets the result: their callbacks may run now, perhaps the one that asks."""
    frames = frames_of_threads()
    return set(_set_from(sys._getframe())).union(*map(_set_from, frames.values()))


def _set_from(frame: FrameType | None) -> Iterator[int]:
    """The futures of which this frame, or one outside of it, sets the result."""
    while frame is not None:
        if frame.f_code in _SETTING:
            yield id(frame.f_locals.get("self"))
        frame = frame.f_back


def _callbacks(future: Any) -> list[Any]:
    """What of the app's is on a future; not what resumes an `await` that is followed, and nothing of ours."""
    return [one for one in list(future._done_callbacks) if not _is_known(one)]


def _is_known(callback: Any) -> bool:
    if str(getattr(_function(callback), "__module__", "")).startswith("ray_snapshot."):
        return True
    return any(is_tracked(cell) for cell in _cells(callback))


def _cells(callback: Any) -> Iterator[Any]:
    """What asyncio's callback on the future that an `await` waits for has in its closure: the future of the loop."""
    if name_of(callback) == "_chain_future.<locals>._call_set_state":
        yield from (cell.cell_contents for cell in callback.__closure__ or ())


def _function(callback: Any) -> Any:
    return _function(callback.func) if isinstance(callback, functools.partial) else callback


def _site(callback: Any) -> str:
    """Where ("file:line") a callback begins, or the `await` stands that it resumes; "" if that is not written in Python."""
    replies = (wait for cell in _cells(callback) if (wait := reply_of(cell)) is not None)
    if (wait := next(replies, None)) is not None:
        return str(wait.call_site)
    code = getattr(_function(callback), "__code__", None)
    return "" if code is None else f"{code.co_filename}:{code.co_firstlineno}"
