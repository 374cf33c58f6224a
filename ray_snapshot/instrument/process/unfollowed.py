"""What leaves this process by ways that are not followed: plain tasks, and handles and refs in the store or in files.

A handle that travels in a followed call is known by the call. One that is pickled for `ray.put`, for a plain task, or outside
of Ray (a closure, a file, a socket) may come to any process; what was given neither handle nor ref can wake no machine.
Counted from the moment when Ray's functions are replaced, which may be before this process is watched.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ray_snapshot.instrument import shape


@dataclass(frozen=True, slots=True)
class Loose:
    """What a process has let go so far."""

    started: int = 0
    """Plain tasks that it has started."""
    pending: int = 0
    """Plain tasks that it has started and that have not ended."""
    given: int = 0
    """Handles and refs to calls that went into plain tasks."""
    scattered: int = 0
    """Handles and refs that went into the store, or were pickled outside of Ray."""


class _Sink(threading.local):
    """What this thread is pickling for."""

    name = ""


class Unfollowed:
    """The counts of this process."""

    def __init__(self) -> None:
        self.started = self.given = self.scattered = 0
        self.parents: set[Any] = set()
        """Tasks of Ray's (the driver's, an actor's call) that have started plain tasks."""
        self.sink = _Sink()
        self.has_said_so = False

    def loose(self) -> Loose:
        """The counts as they are now."""
        parents = {parent: shape.pending_tasks(parent) for parent in list(self.parents)}
        self.parents -= {parent for parent, count in parents.items() if not count and parent != shape.current_task()}
        return Loose(self.started, sum(parents.values()), self.given, self.scattered)

    def note_task(self, args: Any, kwargs: Any) -> None:
        """A plain task is about to be started; one that a plain task starts is told to the cluster first."""
        if shape.is_worker() and shape.current_actor_key() is None:
            if not self.has_said_so:
                shape.say_tasks_begin_more()
                self.has_said_so = True
            return
        self.started += 1
        self.parents.add(shape.current_task())
        self.given += sum(shape.is_reply(item) for item in (*(args or ()), *(kwargs or {}).values()))

    def note_pickled(self) -> None:
        """A handle or a ref is being pickled."""
        if self.sink.name == "task":
            self.given += 1
        elif self.sink.name == "store" or not shape.is_pickling_a_message():
            self.scattered += 1

    @contextmanager
    def into(self, name: str) -> Iterator[None]:
        """Note for the time of the block that what this thread pickles goes to `name`."""
        before, self.sink.name = self.sink.name, name
        try:
            yield
        finally:
            self.sink.name = before


UNFOLLOWED = Unfollowed()


def put(original: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """In place of `ray.put`: what is in the store may hold a handle, and any process that gets the ref may read it."""
    with UNFOLLOWED.into("store"):
        return original(*args, **options)


def task(original: Callable[..., Any], function: Any, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
    """In place of `RemoteFunction._remote`: a plain task is no machine."""
    UNFOLLOWED.note_task(args, kwargs)
    with UNFOLLOWED.into("task"):
        return original(function, args, kwargs, **options)


def pickled(original: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """In place of Ray's functions that pickle a handle, and note a ref that is pickled."""
    UNFOLLOWED.note_pickled()
    return original(*args, **options)
