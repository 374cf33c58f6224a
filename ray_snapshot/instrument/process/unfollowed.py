"""What leaves this process by ways that are not followed: some plain tasks, and handles and refs in the store or in files.

A handle that travels in a followed call or task is known by the call. One that is pickled for `ray.put`, for a task that is
not followed (`hooks.tasks` says which), or outside of Ray (a file, a socket) may come to any process; what was given neither
handle nor ref can wake no machine. One that a function of plain tasks has in its closure comes to every worker that runs one.
Counted from the moment when Ray's functions are replaced, which may be before this process is watched.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ray_snapshot.instrument import shape, task_shape
from ray_snapshot.instrument.guard import ours
from ray_snapshot.instrument.here import machine_of
from ray_snapshot.instrument.process.failures import FAILURES
from ray_snapshot.protocol.calls import parsed
from ray_snapshot.runtime.refs import call_of, is_put, put_ref


@dataclass(frozen=True, slots=True)
class Loose:
    """What a process has let go so far."""

    started: int = 0
    """Plain tasks that it has started, of those that are not followed."""
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
        self.in_functions: set[str] = set()
        """Machines of which functions of plain tasks hold a handle, or a ref to a reply."""
        self.sink = _Sink()
        self.has_said_so = False

    def loose(self) -> Loose:
        """The counts as they are now."""
        parents = {parent: task_shape.pending_tasks(parent) for parent in list(self.parents)}
        self.parents -= {
            parent for parent, count in parents.items() if not count and parent != task_shape.current_task()
        }
        return Loose(self.started, sum(parents.values()), self.given, self.scattered)

    def note_task(self, args: Any, kwargs: Any) -> None:
        """A plain task is about to be started; one that a plain task starts is told to the cluster first."""
        if shape.is_worker() and shape.current_actor_key() is None and not self.has_said_so:
            task_shape.say_tasks_begin_more()  # the worker may be gone before a snapshot hears its counts
            self.has_said_so = True
        self.started += 1
        self.parents.add(task_shape.current_task())
        given = (*(args or ()), *(kwargs or {}).values())
        self.given += sum(task_shape.is_reply(item) and not is_put(item) for item in given)

    def note_pickled(self, machine: str | None) -> None:
        """A handle of a machine, or a ref to its reply, is being pickled; None: it is not known whose."""
        if self.sink.name == "task":
            self.given += 1
        elif self.sink.name == "function" and machine is not None and not shape.is_pickling_a_message():
            self.in_functions.add(machine)
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
        ref = original(*args, **options)
    return ours(put_ref, ref, default=ref)


def task(original: Callable[..., Any], function: Any, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
    """Start a plain task that is not followed, by Ray's own function."""
    UNFOLLOWED.note_task(args, kwargs)
    with UNFOLLOWED.into("task"):
        return original(function, args, kwargs, **options)


def pickled_handle(original: Callable[..., Any], handle: Any, *args: Any, **options: Any) -> Any:
    """In place of Ray's function that pickles a handle."""
    UNFOLLOWED.note_pickled(machine_of(handle))
    return original(handle, *args, **options)


def pickled_ref(original: Callable[..., Any], context: Any, ref: Any, *args: Any, **options: Any) -> Any:
    """In place of Ray's function that notes a ref that is pickled."""
    call = call_of(ref)
    if call is not None or not is_put(ref):  # what is in its object was counted when that was put
        machine = None if call is None else parsed(call).target
        UNFOLLOWED.note_pickled(machine)
        if machine is not None:
            FAILURES.passes_on(machine)
    return original(context, ref, *args, **options)
