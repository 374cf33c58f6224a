"""Which machine this process is, and what actors are called between processes.

Imports nothing of the process itself: the code that attaches it (`attaching`) says so here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote

from ray_snapshot.instrument import shape

if TYPE_CHECKING:
    from ray_snapshot.instrument.process.process import Process

CURRENT: ContextVar[str | None] = ContextVar("ray_snapshot_call", default=None)
"""The call that this thread, or this task of an event loop, is executing."""

_here: list[Process] = []


class NotActingError(Exception):
    """The thread that calls an actor is in no action of a machine: the call is not followed."""


def attached() -> list[Process]:
    """This process's machine, also when it is watched no more."""
    return _here


def here() -> Process | None:
    """This process's machine, once it is watched."""
    return _here[0] if _here and not _here[0].is_closed else None


@contextmanager
def asking() -> Iterator[None]:
    """The actor's own hooks run inside, between two calls: what they use of its methods is no call that begins."""
    token = CURRENT.set("a hook")
    try:
        yield
    finally:
        CURRENT.reset(token)


def settle_in(process: Process | None) -> None:
    """This process's machine is `process` from now on."""
    _here[:] = [process] if process is not None else []
    if process is not None:
        for name in _held:
            process.hold(name)


def hold(machine: str) -> None:
    """A handle of `machine` has come to this process."""
    process = here()
    if process is None:
        _held.add(machine)
    else:
        process.hold(machine)


_held: set[str] = set()
"""Handles that came before this process was watched."""


def machine_of(handle: Any) -> str:
    """The internal name of a handle's actor, the same in every process; the watcher gives it a name for people."""
    key = handle._ray_actor_id
    found = _names.get(key)
    if found is None:
        found = _names[key] = internal_name(shape.class_name_of(handle), shape.actor_key(handle))
    return found


def internal_name(class_name: str, key: str) -> str:
    """What an actor is called between processes: of the class only letters, digits and _ . - ~ stay as they are.

    So it can stand in headers and in ids of calls, which are taken apart again at spaces and slashes.
    """
    return f"{quote(class_name[:LONGEST_CLASS], safe='', errors='surrogatepass')}:{key[:16]}"


def class_in(machine: str) -> str:
    """The class in an internal name; all of it if it has no key, as the driver's."""
    class_name, colon, _ = machine.rpartition(":")
    return unquote(class_name, errors="surrogatepass") if colon else machine


LONGEST_CLASS = 80
"""Characters of a class's name in every header."""


def name_here() -> str:
    """The name that other processes have for this process's actor, from their handles; asked before it is watched.

    They know the class's name from the handle; the name of the object's class may be another. The handle that is looked
    at here does not count as one that came to the actor.
    """
    held = set(_held)
    name = machine_of(shape.own_handle())
    if name not in held:
        _held.discard(name)
    return name


_names: dict[Any, str] = {}


def own_threads() -> list[threading.Thread]:
    """The threads of this process that are neither Ray's nor ours nor the one that runs calls."""
    found = [
        thread
        for thread in threading.enumerate()
        if thread is not threading.main_thread()
        and not isinstance(thread, threading._DummyThread)
        and not thread.name.startswith(_KNOWN_THREADS)
    ]
    rays = shape.rays_threads() if found else ()
    return [thread for thread in found if thread not in rays]


_KNOWN_THREADS = ("ray-snapshot", "ray_", "PythonGCThread", "AsyncIO Thread", "Dummy", "raylet")
