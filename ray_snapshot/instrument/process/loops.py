"""What an event loop has still to run besides the steps of its tasks: timers, callbacks, sockets.

No loop shows that in public. asyncio's own have attributes for it. uvloop keeps it in members of a compiled class, which the
garbage collector lists (`gc.get_referents`); that is tried on a loop of our own before it is relied on. Of any other kind
of loop nothing is known. Reads only, each container in one piece, for another thread may run the loop. Standard library only.
"""

from __future__ import annotations

import asyncio
import gc
import socket
import sys
from collections import deque
from dataclasses import dataclass
from functools import cache
from types import MethodType
from typing import Any
from weakref import WeakValueDictionary

_STEPS = ("task_wakeup", "Task.__step", "Task.__wakeup")
"""Callbacks that are a task's next step, where they have a name: the tasks are looked at themselves."""

_HARMLESS = ("BaseSelectorEventLoop._read_from_self", "_chain_future.<locals>._call_set_state")
"""Callbacks of asyncio that wake nothing on the loop: its own pipe, and the reply of a call that goes to another thread."""


@dataclass(frozen=True, slots=True)
class Pending:
    """What a loop has still to run."""

    timers: list[Any]
    """Handles that are not cancelled."""
    has_callbacks: bool
    """Whether callbacks are due that are no steps of tasks."""
    has_sockets: bool
    """Whether something from outside may call back: sockets, servers, child processes, signals."""


def pending(loop: Any) -> Pending | None:
    """What the loop has still to run; None if this kind of loop cannot be looked into."""
    if isinstance(loop, asyncio.BaseEventLoop):
        return _of_asyncio(loop)
    uvloop = sys.modules.get("uvloop")
    if uvloop is not None and isinstance(loop, uvloop.Loop) and _shows(uvloop):
        return _of_uvloop(loop)
    return None


def _of_asyncio(loop: Any) -> Pending | None:
    try:
        ready, timers = list(loop._ready), list(loop._scheduled)
        sockets = {*loop._selector._fd_to_key} - {loop._ssock.fileno()}
        signals = loop._signal_handlers
    except AttributeError:  # a proactor, or a subclass that keeps them elsewhere
        return None
    return _pending(ready, timers, has_sockets=bool(sockets or signals))


def _of_uvloop(loop: Any) -> Pending | None:
    """The loop's only queue holds what is due; a set of timers is one; what else is not empty may call back."""
    kept, attributes = gc.get_referents(loop), getattr(loop, "__dict__", None)
    pipe = {item.fileno() for item in kept if isinstance(item, socket.socket)}
    queues = [item for item in kept if isinstance(item, deque)]
    sets: list[Any] = [list(item) for item in kept if isinstance(item, set)]
    sets += [item.valuerefs() for item in kept if isinstance(item, WeakValueDictionary)]
    maps = [item for item in kept if isinstance(item, dict) and item is not attributes]
    if len(queues) != 1:
        return None
    timers = [one for item in sets for one in item if hasattr(one, "when")]
    others: list[Any] = [one for item in sets for one in item if not hasattr(one, "when")]
    for item in maps:
        others += [key for key, value in list(item.items()) if key not in pipe or hasattr(value, "cancelled")]
    return _pending(list(queues[0]), timers, has_sockets=bool(others))


def _pending(ready: list[Any], timers: list[Any], *, has_sockets: bool) -> Pending:
    has_callbacks = not all(handle.cancelled() or _is_step(handle) for handle in ready)
    return Pending([timer for timer in timers if not timer.cancelled()], has_callbacks, has_sockets)


def _is_step(handle: Any) -> bool:
    """Whether a callback that is due is a task's next step, or ours, or wakes nothing."""
    found = [item for item in gc.get_referents(handle) if callable(item) and not isinstance(item, type)]
    return bool(found) and all(_wakes_nothing(item) for item in found)


def name_of(callback: Any) -> str:
    """The qualified name of a function or method; "" of any other callback, which would run code of the app to tell it."""
    one = callback.__func__ if type(callback) is MethodType else callback
    return str(one.__qualname__) if type(one).__name__ in _FUNCTIONS else ""


_FUNCTIONS = ("function", "builtin_function_or_method", "cython_function_or_method")


def _wakes_nothing(callback: Any) -> bool:
    name = name_of(callback)
    is_step = type(callback).__name__ == "TaskStepMethWrapper" or name.endswith(_STEPS)
    return is_step or name in _HARMLESS or str(getattr(callback, "__module__", "")).startswith("ray_snapshot.")


@cache
def _shows(uvloop: Any) -> bool:
    """Whether this uvloop keeps its timers, callbacks and sockets where we look for them."""
    loop, (here, there) = uvloop.new_event_loop(), socket.socketpair()
    try:
        if _of_uvloop(loop) != Pending([], False, False):
            return False
        timer, callback = loop.call_later(3_600, here.close), loop.call_soon(here.fileno)
        without = _of_uvloop(loop)
        loop.add_reader(here, here.fileno)
        found = _of_uvloop(loop)
        loop.remove_reader(here)
        timer.cancel()
        callback.cancel()
        return without == Pending([timer], True, False) and found == Pending([timer], True, True)
    finally:
        loop.close()
        here.close()
        there.close()
