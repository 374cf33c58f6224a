"""Threads of the app's own that an exception has ended: what waits for their work waits in vain.

What calls `threading.excepthook` is made with each thread, and replaced; the hook stays the program's own.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from ray_snapshot.instrument.guard import ours
from ray_snapshot.instrument.process.failures import place_of
from ray_snapshot.limits import LIMITS


class EndedThread(NamedTuple):
    """A thread whose function raised, in the user's code."""

    thread: str
    """Its name."""
    error: str
    """Its type."""
    at: float
    call_site: str
    """ "file:line" of the innermost line of the user's."""


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
