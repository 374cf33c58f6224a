"""Threads and asyncio tasks of the app's own that an exception has ended: what waits for their work waits in vain.

What calls `threading.excepthook` is made with each thread, and replaced; the hook stays the program's own. Tasks are looked
through with each report, as long as the program keeps them; when it lets go of one, the loop is told of the error.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import WeakSet

from ray_snapshot.instrument.guard import ours
from ray_snapshot.instrument.process.failures import place_of
from ray_snapshot.limits import LIMITS


class EndedThread(NamedTuple):
    """A thread whose function raised, in the user's code; or a task whose error nothing has read."""

    thread: str
    """Its name."""
    error: str
    """Its type."""
    at: float
    call_site: str
    """ "file:line" of the innermost line of the user's."""
    is_task: bool = False


ENDED_THREADS: deque[EndedThread] = deque(maxlen=LIMITS.raised_errors)
"""Those of this process, the latest last."""


def caller_made(original: Callable[[], Callable[[threading.Thread], None]]) -> Callable[[threading.Thread], None]:
    """In place of what makes a thread's caller of `threading.excepthook`."""
    call_hook = original()

    def called(thread: threading.Thread) -> Any:
        ours(_note, thread)
        return call_hook(thread)

    return called


def _note(thread: threading.Thread) -> None:
    error = sys.exception()
    if isinstance(error, Exception) and (place := place_of(error)):
        ENDED_THREADS.append(EndedThread(thread.name, type(error).__name__, time.time(), place))


_SEEN = WeakSet[Any]()
"""Tasks that have been told."""


def note_failed_tasks() -> None:
    """Note each task that has newly failed, with the time of this look. That its error was not read stays so."""
    for task in _tasks():
        error = getattr(task, "_exception", None)  # task.exception() would count as reading it
        if getattr(task, "_log_traceback", False):
            _note_task(task, error)


def handled(original: Callable[..., Any], loop: Any, context: dict[str, Any]) -> Any:
    """In place of what a loop calls when a task goes whose error nothing has read: no look may have come before."""
    ours(_note_task, context.get("future"), context.get("exception"))
    return original(loop, context)


def _note_task(task: Any, error: Any) -> None:
    if isinstance(task, asyncio.Task) and isinstance(error, Exception) and task not in _SEEN:
        _SEEN.add(task)
        ended = EndedThread(task.get_name(), type(error).__name__, time.time(), place_of(error), is_task=True)
        if ended.call_site and all(one._replace(at=ended.at) != ended for one in ENDED_THREADS.copy()):
            ENDED_THREADS.append(ended)  # garbage has lost its weak references


def _tasks() -> list[Any]:
    """Those that there are, done or not; none where Python lists only those that are not done."""
    alive: Any = getattr(asyncio.tasks, "_all_tasks", None) or getattr(asyncio.tasks, "_scheduled_tasks", ())
    for _ in range(10):
        try:
            return list(alive)
        except RuntimeError:  # a loop of another thread makes tasks meanwhile
            continue
    return []
