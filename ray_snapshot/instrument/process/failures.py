"""Calls of this process's actor that raised, and the errors of calls that were read here, whoever made these.

An error is read where Ray unpickles it: by `ray.get`, an `await`, a future, or as an argument. Ray unpickles an argument
without its ref; then all errors that the process that raised has told so far count as read. So does nothing that is only
dropped, which Ray unpickles to log it. Where a process has passed a ref on, who reads its error may not be seen: so it tells
whose replies those were. A call that does not raise costs nothing here.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Collection
from types import FrameType
from typing import Any, NamedTuple

from ray.exceptions import AsyncioActorExit, RayTaskError

from ray_snapshot.errors import RaySnapshotError
from ray_snapshot.instrument import shape, task_shape
from ray_snapshot.instrument.guard import ours
from ray_snapshot.limits import LIMITS
from ray_snapshot.runtime.here import USERS, rank_of

PROCESS = "process "
"""Before the id of a process of which all errors so far count as read."""


class Raised(NamedTuple):
    """A call that ended in an error."""

    call_id: str
    method: str
    error: str
    """Its type."""
    at: float
    call_site: str
    """ "file:line" of the innermost line of the user's."""
    task: str
    """Ray's id of the call, as text: it is in the refs of its replies."""
    is_retried: bool
    """Ray may run it again."""
    pid: int
    times: int = 1
    """How often it has raised: Ray has run it again."""


class Failures:
    """Those of this process."""

    def __init__(self) -> None:
        self.raised: dict[str, Raised] = {}
        """By call, the oldest first."""
        self.read: deque[tuple[str, float]] = deque(maxlen=LIMITS.read_errors)
        """Calls by Ray's ids, or `PROCESS` and an id, and when their errors were read."""
        self.forgotten = 0.0
        """What was read until then is not all among these any more."""
        self.passed_on: set[str] | None = set()
        """Machines of which this process has passed on refs to replies; None: there are too many."""

    def ended(self, call_id: str, method: str, error: BaseException | None, is_retried: bool) -> None:
        """A call has ended, in this error or in none. What leaves a process by an exception is no error of a call."""
        call_id = call_id.partition("#")[0]
        before = self.raised.pop(call_id, None)
        if before is not None and error is None:  # Ray has run it again
            self.was_read(before.task)
        if isinstance(error, Exception) and not isinstance(error, _EXITS) and shape.is_connected():
            cause = error.cause if isinstance(error, RayTaskError) and error.cause is not None else error
            place, task = place_of(error), task_shape.current_task().hex()
            kind = type(cause).__name__
            self.raised[call_id] = Raised(
                call_id,
                method,
                kind,
                time.time(),
                place,
                task,
                is_retried,
                os.getpid(),
                1 + (before.times if before is not None else 0),
            )
            while len(self.raised) > LIMITS.raised_errors:
                self.raised.pop(next(iter([*self.raised])), None)  # any thread of the actor may do so

    def was_read(self, key: str) -> None:
        """An error is being read, by any thread."""
        if len(self.read) == LIMITS.read_errors:
            self.forgotten = self.read[0][1]
        self.read.append((key, time.time()))

    def passes_on(self, machine: str) -> None:
        """A ref to a reply of this machine leaves the process."""
        if self.passed_on is not None:
            self.passed_on = {*self.passed_on, machine} if len(self.passed_on) < LIMITS.passed_on_errors else None

    def told(self, keys: Collection[str]) -> None:
        """The watcher knows that these were read."""
        known = {*keys}
        while self.read and self.read[0][0] in known:
            self.read.popleft()


_EXITS = RaySnapshotError, AsyncioActorExit
"""Errors that are ours, or end an actor."""

FAILURES = Failures()


def place_of(error: BaseException) -> str:
    """Where it was raised, as far as that is the user's."""
    lines = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [(file, line) for file, line in lines if rank_of(file) == USERS]
    return "{}:{}".format(*own[-1]) if own else ""


def read(original: Callable[..., Any], pickled: bytes) -> Any:
    """In place of what unpickles the error of a call."""
    error = original(pickled)
    ours(_note_read, error)
    return error


def _note_read(error: Any) -> None:
    frame: FrameType | None = sys._getframe(1)
    names: list[str] = []
    ref = None
    while frame is not None and len(names) < _DEEPEST:
        names.append(frame.f_code.co_name)
        if ref is None:
            ref = frame.f_locals.get("object_ref") if names[-1] == _UNPICKLES else None
        frame = frame.f_back
    if _DROPPED in names:
        return
    if ref is not None and not ref.is_nil():
        FAILURES.was_read(ref.task_id().hex())
    else:
        FAILURES.was_read(f"{PROCESS}{getattr(error, 'pid', os.getpid())}")


_DEEPEST = 12
_UNPICKLES, _DROPPED = "_deserialize_object", "raise_errors"
"""Functions of Ray's: the one that knows the ref, and the one that unpickles an error in order to log it."""
