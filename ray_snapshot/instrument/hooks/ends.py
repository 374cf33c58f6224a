"""The ways in which Ray ends a process, each of which closes our connection first.

An actor ends gracefully (dropped, `exit_actor`, `sys.exit`, SIGTERM) through one function of Ray's, which it calls when its
calls have ended and before anything is freed. A worker of plain tasks ends when a task raises `SystemExit`, and by a function
that raises it for `max_calls` and SIGTERM. What Ray ends as idle has no ref, and so no poll of ours (`process.control`). The
driver's end is `attaching.detach`. `ray.kill`, and whatever else ends a process at once, frees nothing before it is gone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray_snapshot.instrument.connection import CONNECTION
from ray_snapshot.instrument.guard import ours
from ray_snapshot.instrument.here import CURRENT, process_here, settled


def actor_ends(original: Callable[..., Any]) -> None:
    """In place of what runs an actor's `__ray_shutdown__`, and lets go of its object."""
    try:
        original()
    finally:
        ours(end_process)


def exits(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """In place of what raises `SystemExit` in a worker for Ray. An actor has calls to end, and a task sees the error itself."""
    process = process_here()
    if CURRENT.get() is None and (process is None or process.is_worker):
        ours(end_process)
    return original(*args, **kwargs)


def end_process() -> None:
    """Ray ends this process: send the final counts of a worker of plain tasks, then close the connection."""
    process = settled()
    if process is not None and process.is_worker:
        process.worker_tasks.retire()
    if process is not None:
        process.end()
    CONNECTION.end()
    if process is not None:
        process.control.drop_poll()  # now: no thread polls any more, and Ray is still there
