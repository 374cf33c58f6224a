"""What the calls of an async actor await, told from their suspended coroutines.

A coroutine that awaits a lock, a queue, an event or a condition of its own loop waits for a later call to the same actor.
One that sleeps, or waits for a thread or for anything that we do not know, may go on by itself. Reads coroutines between
two steps of their loop; changes nothing. Imports the standard library and the protocol's plain data only.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from ray_snapshot.protocol.calls import CallWait, MachineReport

_LOCAL = {"queues.py": {"get", "put", "join"}, "locks.py": {"acquire", "wait"}}
"""Functions of asyncio that wait for somebody else on the same loop."""


def parked_at(task: Any, coroutine: Any) -> str | None:
    """Where ("file:line") a call's coroutine, run by `task`, awaits something of its own loop.

    None if it may go on by itself, as far as can be told.
    """
    frames = _frames(coroutine)
    if not frames or not _is_local(frames[-1]) or _goes_on(task):
        return None
    return site_of(coroutine)


def site_of(coroutine: Any) -> str | None:
    """Where ("file:line") the app's own code is in a suspended coroutine."""
    frames = _frames(coroutine)
    own = [frame for frame in frames if not _is_asyncio(frame) and "ray_snapshot" not in frame.f_code.co_filename]
    found = own[-1:] or frames[-1:]
    return f"{found[0].f_code.co_filename}:{found[0].f_lineno}" if found else None


def is_quiet(loop: asyncio.AbstractEventLoop, calls: Iterable[Any]) -> bool:
    """Whether nothing on the loop can act but new calls: no timers, and no tasks of the app's own that may go on."""
    if getattr(loop, "_scheduled", None) != []:  # not asyncio's own kind of loop: its timers cannot be seen
        return False
    known = set(calls)
    others = (task for task in asyncio.all_tasks(loop) if task not in known and task is not asyncio.current_task(loop))
    return all(_is_waiting(task) for task in others)


def _is_waiting(task: Any) -> bool:
    """Whether a task that runs no call waits for a tracked reply, or for something of its own loop."""
    frames = _frames(task.get_coro())
    if any(frame.f_code.co_name == "_awaited" and "ray_snapshot" in frame.f_code.co_filename for frame in frames):
        return True
    return bool(frames) and _is_local(frames[-1]) and not _goes_on(task)


def gathered(coroutines: Mapping[str, tuple[Any, Any]]) -> set[str]:
    """The calls that need every one of the waits they have begun side by side (`gather`, `wait` for all)."""
    return {call_id for call_id, (task, coroutine) in coroutines.items() if _waits_for_all(task, coroutine)}


def merged(report: MachineReport, together: set[str]) -> MachineReport:
    """The report with the waits of those calls as one wait for all."""
    if not together:
        return report
    waits = [wait for wait in report.waits if wait.call_id not in together]
    for call_id in sorted(together):
        own = [wait for wait in report.waits if wait.call_id == call_id]
        if own:
            waits.append(_joined(own))
    return replace(report, waits=tuple(waits))


def _joined(waits: list[CallWait]) -> CallWait:
    on = tuple(item for wait in waits for item in wait.on)
    return replace(
        waits[0],
        on=on,
        k=len(on),
        may_act=all(wait.may_act for wait in waits),
        is_ready=all(wait.is_ready for wait in waits),
    )


def _frames(coroutine: Any) -> list[Any]:
    """The frames of a suspended coroutine, the innermost last."""
    found = []
    item = coroutine
    while item is not None:
        frame = _first(item, "cr_frame", "ag_frame", "gi_frame")
        if frame is not None:
            found.append(frame)
        item = _first(item, "cr_await", "ag_await", "gi_yieldfrom")
    return found


def _first(item: Any, *names: str) -> Any:
    return next((value for name in names if (value := getattr(item, name, None)) is not None), None)


def _goes_on(task: Any) -> bool:
    """Whether what it awaits has come, and it will run as soon as the loop has time."""
    waiter = getattr(task, "_fut_waiter", None)
    return waiter is None or bool(waiter.done())


def _is_asyncio(frame: Any) -> bool:
    return PurePath(frame.f_code.co_filename).parent.name == "asyncio"


def _is_local(frame: Any) -> bool:
    names = _LOCAL.get(PurePath(frame.f_code.co_filename).name, set())
    return _is_asyncio(frame) and frame.f_code.co_name in names


def _waits_for_all(task: Any, coroutine: Any) -> bool:
    waiter = getattr(task, "_fut_waiter", None)
    if type(waiter).__name__ == "_GatheringFuture":
        return True
    frames = _frames(coroutine)
    if frames and _is_asyncio(frames[-1]) and frames[-1].f_code.co_name == "_wait":
        return bool(frames[-1].f_locals.get("return_when") == asyncio.ALL_COMPLETED)
    return False
