"""Which signals may act in this process: of a timer that is set, or with a handler of the app's. Standard library only."""

from __future__ import annotations

import signal
import threading

from ray_snapshot.instrument.here import HARNESS


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


def handled_signals() -> list[str]:
    """The signals that the app handles: the main thread runs the handler, and may end the wait of any thread."""
    handled = (one for one in signal.valid_signals() if is_handled_by_the_app(signal.getsignal(one)))
    return [getattr(one, "name", f"signal {one}") for one in handled]
