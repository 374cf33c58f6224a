"""What the threads of an app are doing, told from their stacks: some may act, others wait until another thread wakes them.

A thread in `Condition.wait` without a timeout (so in an Event, a Queue, a Semaphore, a Future) that was not notified cannot act
by itself. What waits in C (a lock, a socket, a `SimpleQueue`) cannot be told from what runs. Standard library only.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import thread as executors
from dataclasses import dataclass
from traceback import walk_stack
from types import FrameType

from ray_snapshot.instrument.here import HARNESS
from ray_snapshot.runtime.here import frames_of_threads, place

_WAIT = threading.Condition.wait.__code__
_WORKS = executors._worker.__code__


@dataclass(frozen=True, slots=True)
class Threads:
    """Threads of the app's own, each with its place for a person: "Thread-1 (app.py:7)"."""

    acting: tuple[str, ...] = ()
    """Threads that may act, as far as can be told."""
    parked: tuple[str, ...] = ()
    """Threads that wait until another thread, or a reply that comes, wakes them."""


def threads_of(threads: Iterable[threading.Thread], waiting: Collection[int] = ()) -> Threads:
    """What these threads are doing now; `waiting`: those that only go on when a reply comes, which the ledger knows."""
    frames = frames_of_threads()
    found: dict[bool, list[str]] = {True: [], False: []}
    for thread in threads:
        frame = frames.get(thread.ident or 0)  # none of the one that asks, and is acting
        where = place(sys._getframe() if thread.ident == threading.get_ident() else frame)
        is_idle = thread.ident in waiting or (frame is not None and is_parked(frame))
        found[is_idle].append(f"{thread.name} ({where})" if where else thread.name)
    return Threads((*found[False], *_unlisted(frames)), tuple(found[True]))


def _unlisted(frames: Mapping[int, FrameType]) -> list[str]:
    """The places of threads that `threading` has not started (`_thread` has, or C), and that are not Ray's or ours.

    A thread of Ray's that sets the result of a future has no frame of Ray's, and none of the app's either.
    """
    listed = {thread.ident for thread in threading.enumerate() if not isinstance(thread, threading._DummyThread)}
    found = [
        frame
        for ident, frame in frames.items()
        if ident not in listed and not _is_begun_by(frame, (*_NOT_THE_APPS, *HARNESS))
    ]
    return [f"without a name ({where})" for frame in found if (where := place(frame)) is not None]


_NOT_THE_APPS = ("ray.", "ray_snapshot.")


def _is_begun_by(frame: FrameType, packages: tuple[str, ...]) -> bool:
    """Whether the outermost frame of a thread, but for those of `threading` itself, is in one of these packages.

    A debugger takes its threads out of the list of `threading`.
    """
    names = [str(one.f_globals.get("__name__", "")) for one, _ in walk_stack(frame)]
    begun = [name for name in names if name != "threading"]
    return bool(begun) and begun[-1].startswith(packages)


def is_timer_set(thread: int) -> bool:
    """Whether a timer is set whose signal the program handles, and a thread is the one that runs the handlers of signals."""
    if not hasattr(signal, "getitimer") or signal.getitimer(signal.ITIMER_REAL)[0] <= 0:
        return False
    return thread == threading.main_thread().ident and is_handled_by_the_app(signal.getsignal(signal.SIGALRM))


_FROM_OUTSIDE = ("SIGCHLD", "SIGUSR1", "SIGUSR2")
"""Signals of which a handler of the app's may act any time. Ctrl-C is somebody's wish, and SIGTERM has a handler of Ray's."""


def signals(*, is_program: bool) -> str:
    """Which signals may act in this process, by a timer that is set or a handler of the app's; "" if none does.

    A timer without a handler ends the process: for the program that is no way to go on, but who waits for an actor goes on.
    """
    if not hasattr(signal, "getitimer"):
        return ""
    is_set = signal.getitimer(signal.ITIMER_REAL)[0] > 0
    found = (
        ["a timer"] if is_set and (not is_program or is_handled_by_the_app(signal.getsignal(signal.SIGALRM))) else []
    )
    handled = [name for name in _FROM_OUTSIDE if is_handled_by_the_app(signal.getsignal(getattr(signal, name)))]
    return " and ".join([*found, *(f"the handler of {name}" for name in handled)])


def is_handled_by_the_app(handler: object) -> bool:
    """Whether a handler of a signal is the app's: not Ray's, ours, asyncio's or Python's own for Ctrl-C."""
    module = str(getattr(handler, "__module__", ""))
    return callable(handler) and not module.startswith(("ray.", "ray_snapshot.", "asyncio.", "_signal", *HARNESS))


def is_parked(frame: FrameType) -> bool:
    """Whether a thread's innermost frame waits to be notified; once notified, it is no waiter of the condition any
    more. So does a thread of an executor that has nothing to do."""
    if frame.f_code is _WORKS:
        names = frame.f_locals
        return names.get("work_item") is None and names["work_queue"].empty()
    if frame.f_code is not _WAIT:
        return False
    names = frame.f_locals
    waiter, condition = names.get("waiter"), names["self"]
    return names.get("timeout") is None and waiter is not None and waiter in list(condition._waiters)
