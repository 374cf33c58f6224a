"""Threads that wait outside of Ray's calls: for a lock, a queue, another thread, a socket, a pipe, a child process.

`kernel_waits` tells whether a thread waits without a timeout; its frames tell for what. There are two kinds of waits:

- *local* ones (the Condition family of `threading` and `queue`, a bare lock, `SimpleQueue.get`, `join`, an event loop that has
  nothing to run): only a thread, a call or a callback of this process may end them. A wait for a lock in C counts as local only
  if the instruction shows which object it waits for (`lock.acquire()`, `with self.lock:`).
- all others: something outside of the process may end them at any time.

Reads frames and objects as they are; runs no code of the app. Standard library only.
"""

from __future__ import annotations

import gc
import queue
import sys
import threading
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from importlib.machinery import ExtensionFileLoader
from traceback import walk_stack
from types import FrameType
from typing import Any

from ray_snapshot.instrument.process.called import awaited_object, call_names
from ray_snapshot.instrument.process.handed import is_parked, joins, unlisted
from ray_snapshot.instrument.process.kernel_waits import (
    A_SIGNAL,
    SLEEP,
    STANDARD_INPUT,
    KernelWait,
    described_child,
    kernel_wait,
    standing,
)
from ray_snapshot.instrument.process.lock_holders import LOCKS
from ray_snapshot.instrument.process.other_loops import is_at_rest
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import EVENT_WAIT
from ray_snapshot.runtime.here import RAYS, STANDARD, frames_of_threads, place, rank_of

_ENDED_BY_THREADS = {"acquire": LOCKS, "get": (queue.SimpleQueue,)}
"""Methods in C that wait for another thread, with the classes that have them."""


@dataclass(frozen=True, slots=True)
class Threads:
    """Threads of the app's own, each with its place for a person: "Thread-1 (app.py:7)"."""

    acting: tuple[str, ...] = ()
    """Threads that may act, as far as can be told."""
    parked: tuple[str, ...] = ()
    """Threads that wait until another thread, or a reply that comes, wakes them."""


@dataclass(frozen=True, slots=True)
class BlockedThread:
    """A wait outside of Ray's calls."""

    since: float
    """When it was first seen."""
    call_site: str
    """The app's own line, "file:line"."""
    function: str
    """What the app called there: "queue.Queue.get"; "" if that is not known."""
    about: str
    """What it waits for, for a person: "child process 17 (sleep), which is alive"; "" if that is not known."""
    is_local: bool
    """Whether only other threads, calls and callbacks of this process may end it."""

    @property
    def is_for_a_lock(self) -> bool:
        """Whether the app's own line waits for a lock."""
        return self.is_local and self.function.endswith(".acquire")

    @property
    def is_at_rest(self) -> bool:
        """Whether it looks like a program that is parked: in `Event.wait`, or until a signal or its input comes."""
        return self.function == EVENT_WAIT or self.about in (A_SIGNAL, STANDARD_INPUT)

    @property
    def what(self) -> str:
        """ "in subprocess.Popen.wait, for child process 17 (sleep), which is alive"."""
        return ", ".join(
            [*([f"in {self.function}"] if self.function else []), *([f"for {self.about}"] if self.about else [])]
        )


@dataclass(slots=True)
class _Look:
    key: tuple[int, int, int]
    """Frame, instruction, and how often the thread was put to sleep: equal as long as it has not run."""
    since: float


class BlockedThreads:
    """Since when the threads of one process are blocked, as far as they were looked at."""

    def __init__(self) -> None:
        self._looks: dict[int, _Look] = {}
        """By the native id of the thread."""

    def look(self, thread: int, frame: FrameType, now: float) -> BlockedThread | None:
        """The wait of a thread (its native id); None if it runs, waits with a timeout, or the kernel does not show it."""
        waits_in = kernel_wait(thread)
        is_local = _is_local(frame, waits_in)
        if waits_in is None and not is_local:
            self._looks.pop(thread, None)
            return None
        key = standing(thread, frame)
        look = self._looks.get(thread)
        if look is None or look.key != key or key[2] < 0:
            if len(self._looks) > LIMITS.looked_at_threads:
                self._looks.clear()
            look = self._looks[thread] = _Look(key, now)
        about = "" if is_local else awaited_child(frame) or (waits_in.awaited() if waits_in is not None else "")
        at = place(frame)
        site, inside = ("", "") if at is None else (at.call_site, at.inside)
        return BlockedThread(look.since, site, inside or _called_name(frame), about, is_local)

    def wait_of(self, thread: threading.Thread, frame: FrameType | None, now: float) -> BlockedThread | None:
        """The wait of a thread; None if it may have run since the look before.

        What the frames show holds for the instant at which they were taken, for all threads; what the kernel shows, only while
        a thread does not run.
        """
        one = None if frame is None else self.look(thread.native_id or 0, frame, now)
        if one is None or frame is None or not (one.since < now or is_parked(frame) or joins(frame)):
            return None
        return one

    def report(self, threads: Iterable[threading.Thread], now: float, waiting: Collection[int | None] = ()) -> Threads:
        """What these threads are doing; `waiting`: those that only go on when a reply comes, which the ledger knows."""
        frames = frames_of_threads()
        names: dict[bool, list[str]] = {True: [], False: []}
        for thread in threads:
            frame = frames.get(thread.ident or 0)  # none of the one that asks, and is acting
            where = place(sys._getframe() if thread.ident == threading.get_ident() else frame)
            wait = self.wait_of(thread, frame, now)
            is_idle = thread.ident in waiting or (wait is not None and wait.is_local)
            names[is_idle].append(f"{thread.name} ({where})" if where else thread.name)
        return Threads((*names[False], *unlisted(frames)), tuple(names[True]))

    def has_run(self, thread: int, frame: FrameType | None) -> bool:
        """Whether a thread has run since it was looked at last."""
        look = self._looks.get(thread)
        return frame is None or look is None or look.key != standing(thread, frame)


def timed_function(thread: int, frame: FrameType) -> str | None:
    """What the app called, if a thread (its native id) waits with a timeout, or sleeps: for what only this process, or a child
    of it, does, as far as it is for anything. None if not."""
    waits_in, at = kernel_wait(thread, is_timed=True), place(frame)
    if at is None:
        return None
    if waits_in is not None and waits_in.kind == SLEEP:
        is_own = frame.f_code is at.frame.f_code
        return "time.sleep" if is_own else at.inside if awaited_child(frame) else None
    return at.inside or _called_name(frame) if _is_local(frame, waits_in, is_timed=True) else None


def _is_local(frame: FrameType, waits_in: KernelWait | None, *, is_timed: bool = False) -> bool:
    """Whether only this process can end the wait of a thread whose innermost frame this is."""
    if is_parked(frame, is_timed=is_timed) or joins(frame, is_timed=is_timed):
        return True
    if waits_in is None or not waits_in.is_lock:
        return waits_in is not None and not is_timed and is_at_rest(frame)
    names = call_names(frame.f_code, frame.f_lasti)
    if names is None or names[0] not in _ENDED_BY_THREADS:
        return False
    method, variable, attributes = names
    return issubclass(type(awaited_object(frame, variable, attributes)), _ENDED_BY_THREADS[method])


def _called_name(frame: FrameType) -> str:
    """The method in C that the app called, by its names: "self.lock.acquire"; "" if that is not known."""
    names = call_names(frame.f_code, frame.f_lasti)
    return ".".join([names[1], *names[2], names[0]]) if names is not None and names[1] else ""


def awaited_child(frame: FrameType) -> str:
    """The child process that a thread waits for, by the `Popen` of `subprocess` or `multiprocessing` in its frames."""
    for one, _ in walk_stack(frame):
        module = str(one.f_globals.get("__name__", ""))
        if module == "subprocess" or module.startswith("multiprocessing.popen"):
            pid = getattr(one.f_locals.get("self"), "pid", None)
            if isinstance(pid, int):
                return described_child(pid)
    return ""


# ---- who else may end a local wait --------------------------------------------------------------------------------------

_HARMLESS = (
    *("ray", "ray_snapshot", "numpy", "pyarrow", "pandas", "scipy", "google", "msgpack", "psutil", "pydantic_core"),
    *("yaml", "charset_normalizer", "markupsafe", "requests", "rpds", "uvloop", "wcwidth"),
)
"""Packages whose compiled parts call nothing of the app from threads of their own, but for these:"""

_CALLING = ("pyarrow._flight", "pyarrow._fs", "pyarrow._dataset", "pyarrow._compute", "scipy._lib._ccallback_c")


def calls_from_outside() -> bool:
    """Whether compiled code may call into the app from a thread that has no frame in Python yet.

    It may if `ctypes` has made a callback (for a timer of the C library, say), or if the app has loaded a compiled package that
    is not in `_HARMLESS`: the app may have given it a callback. What `gc.freeze` hides may be such a callback. Walks over all
    objects, and what the app drops meanwhile is finalized in this thread: not under a lock of ours.
    """
    hides = gc.get_freeze_count() > _FROZEN_BY_PYTHON
    if hides or any(type(one).__name__ == "CThunkObject" for one in gc.get_objects()):
        return True
    return any(_is_of_others(name, one) for name, one in list(sys.modules.items()))


_FROZEN_BY_PYTHON = 1_000
"""More than so many objects `gc.freeze` has hidden: every program has thousands. Python 3.12 hides some hundreds itself, the
bases of its own classes."""


def _is_of_others(name: str, module: Any) -> bool:
    """Whether a module is compiled, and neither CPython's nor of a package that calls nothing."""
    spec = getattr(module, "__spec__", None)
    if spec is None or not isinstance(spec.loader, ExtensionFileLoader):
        return False
    if name in _CALLING:
        return True
    return name.partition(".")[0] not in _HARMLESS and rank_of(str(spec.origin)) not in (STANDARD, RAYS)
