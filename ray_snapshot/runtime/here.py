"""What this thread is doing: on which host, for which machine, and whether it is in a tracked wait."""

from __future__ import annotations

import gc
import sys
import threading
from functools import lru_cache
from pathlib import PurePath
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray_snapshot.protocol.host import Machine
    from ray_snapshot.runtime.host.post import HostPost


class Here(threading.local):
    """Thread-local; None outside the action threads of a host."""

    post: HostPost | None = None
    machine: Machine | None = None
    is_waiting: bool = False
    heard: Any = None
    """The reddest colour that arrived with a reply during the current tracked wait."""


HERE = Here()

BEHIND: dict[str, Any] = {}
"""Ray's own functions, by name, in whose place `instrument.shape` has put others."""

_INNER = (
    "ray_snapshot.runtime.",
    "ray_snapshot.instrument.",
    "ray_snapshot.protocol.",
    "ray.",
    "concurrent.",
    "threading.",
    "asyncio.",
)


_RAYS_MAIN = str(PurePath("ray", "_private", "workers", "default_worker.py"))
"""What is `__main__` in a worker."""


@lru_cache(1024)
def is_inner(module: str, file: str) -> bool:
    """Whether a module is ours, Ray's, or of a library that only waits."""
    return f"{module}.".startswith(_INNER) or (module == "__main__" and file.endswith(_RAYS_MAIN))


def call_site(frame: FrameType | None) -> str | None:
    """ "file:line" of the innermost frame that is neither ours nor Ray's nor a library's that only waits."""
    while frame is not None:
        if not is_inner(frame.f_globals.get("__name__", ""), frame.f_code.co_filename):
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return None


def call_site_here() -> str | None:
    """Where the program is that called us."""
    return call_site(sys._getframe(1))


_STOPS_IF_COLLECTED = sys.version_info < (3, 11, 9)
_LOOKING = threading.RLock()


def frames_of_threads() -> dict[int, FrameType]:
    """The innermost frame of each thread of this process but the one that asks.

    Who held its own frame would leave a cycle, and with it whatever the frames of the app hold. Up to Python 3.11.8 the whole
    process stops for good if garbage is collected meanwhile: it holds the interpreter's list of threads (cpython issue 106883).
    There collection waits the microseconds that this takes.
    """
    if not _STOPS_IF_COLLECTED:
        return _of_others(sys._current_frames())
    with _LOOKING:
        if not gc.isenabled():
            return _of_others(sys._current_frames())
        gc.disable()
        try:
            return _of_others(sys._current_frames())
        finally:
            gc.enable()


def _of_others(frames: dict[int, FrameType]) -> dict[int, FrameType]:
    del frames[threading.get_ident()]
    return frames


def call_site_of(thread: int) -> str | None:
    """Where a thread of this process is."""
    return call_site_here() if thread == threading.get_ident() else call_site(frames_of_threads().get(thread))
