"""Plain tasks: machines that live for one action. How they are named, what their senders log, what workers tell of their ends.

Ray chooses the worker that runs a task, so a sender knows no target, and a worker no sender. What both know is Ray's id of the
task: it is in the task's name, and a task has one call. A task travels without a header as long as its sender has recorded
no number that others may not have recorded yet; then everybody is as red as it is. For one snapshot a task is

- running, if a worker had accepted it and not ended it at its instant;
- over, if a worker tells of its end (not if that was an error behind which Ray runs it again), or if its sender had dropped it;
- else, if it is in its sender's log, on its way.

A sender drops what it has read the reply of, and what Ray says is over: not before it is as red as any worker could be by then
(`TaskLog.end`, as with acknowledgements). A worker keeps the ends of its tasks until a snapshot is complete in which no
log has them.

Two attempts at once are two machines. Imports nothing of Ray; read `calls` first, and `task_collector` next.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote, unquote

from ray_snapshot.protocol.call_messages import Sent

ANYBODY = "*"
"""The source in the id of a task's call: a ref does not say who has started the task that answers it."""

_TASK = ":task-"
_WORKER = "*worker:"

ENDED_WORKERS = f"{_WORKER}ended"
"""Who stands for all workers that have ended, where calls that were accepted are counted."""

KEPT_S = 60.0
"""How long a worker keeps the end of a task while no snapshot is taken; a sender drops the task within seconds."""

LONGEST = 80
"""Characters of a function's name."""


class Task(NamedTuple):
    """A task that was sent, and not dropped by its sender."""

    number: int
    """From 1 among those of its function and its sender."""
    sent: Sent
    """`is_retried`: Ray runs it again if it raises."""


@dataclass(frozen=True, slots=True)
class TasksOf:
    """The tasks of one function that a machine has sent, at its instant."""

    function: str
    """As `function_name` has it."""
    sent_count: int
    log: Mapping[str, Task]
    """By the task's name."""


class Ended(NamedTuple):
    """A task that has ended, as its worker tells."""

    is_error: bool
    at: float


@functools.lru_cache(1_024)
def function_name(name: str) -> str:
    """A function's name as it stands in names of tasks."""
    return quote(name.rpartition(".")[2][:LONGEST], safe="<>", errors="surrogatepass")


def task_name(function: str, key: str) -> str:
    """What a task is called between processes; `key`: Ray's id of it. As a target without a key: any task of the function."""
    return f"{function}{_TASK}{key}"


def call_of_task(task: str) -> str:
    """The id of a task's one call, the same wherever a ref to its reply is."""
    return f"{ANYBODY}/0/{task}/0"


def is_task(machine: str) -> bool:
    """Whether this names a task, or all tasks of a function."""
    return _TASK in machine


def function_of(task: str) -> str:
    """The function of a task, for people."""
    return unquote(task.partition(_TASK)[0], errors="surrogatepass")


def worker_name(key: str, session: int) -> str:
    """What a worker is called between processes: it takes part from its first task on until it idles, then anew."""
    return f"{_WORKER}{key[:16]}.{session}"


def is_worker(machine: str) -> bool:
    """Whether this names a worker that runs plain tasks."""
    return machine.startswith(_WORKER)


class _OfFunction:
    """The tasks of one function."""

    __slots__ = ("log", "sent_count")

    def __init__(self) -> None:
        self.sent_count = 0
        self.log: dict[str, Task] = {}


class TaskLog:
    """The tasks that one machine has sent; used under its lock."""

    __slots__ = ("_functions", "kept_back")

    def __init__(self) -> None:
        self._functions: dict[str, _OfFunction] = {}
        self.kept_back: list[tuple[int, tuple[str, ...]]] = []
        """(colour, tasks that are over), until this machine is as red."""

    def __bool__(self) -> bool:
        return any(one.log for one in self._functions.values())

    def add(self, function: str, task: str, sent: Sent) -> None:
        """A task was sent."""
        found = self._functions.get(function)
        if found is None:
            found = self._functions[function] = _OfFunction()
        found.sent_count += 1
        found.log[task] = Task(found.sent_count, sent)

    def drop(self, task: str) -> None:
        """Its reply was read, and what was red in it recorded."""
        found = self._functions.get(task.partition(_TASK)[0])
        if found is not None:
            found.log.pop(task, None)

    def end(self, tasks: Iterable[str], colour: int, own: int) -> None:
        """These are over; `colour`: no worker was redder by then. Kept back while this machine (`own`) is not as red."""
        if colour > own:
            self.kept_back.append((colour, tuple(tasks)))
            return
        for task in tasks:
            self.drop(task)

    def release(self, own: int) -> None:
        """This machine has recorded."""
        kept, self.kept_back = self.kept_back, []
        for colour, tasks in kept:
            self.end(tasks, colour, own)

    def older_than(self, instant: float) -> list[str]:
        """The tasks that were sent before `instant`, and are not known to be over."""
        known = {task for _, tasks in self.kept_back for task in tasks}
        logs = (one.log for one in self._functions.values())
        return [name for log in logs for name, task in log.items() if task.sent.sent_at < instant and name not in known]

    def report(self) -> tuple[TasksOf, ...]:
        """Everything as it is now."""
        return tuple(TasksOf(name, one.sent_count, dict(one.log)) for name, one in self._functions.items())


class TaskEnds:
    """The ends of the tasks that one worker has run; used under its lock."""

    __slots__ = ("_ended",)

    def __init__(self) -> None:
        self._ended: dict[str, Ended] = {}

    def begin(self, task: str) -> None:
        """It runs (again)."""
        self._ended.pop(task, None)

    def add(self, task: str, now: float, *, is_error: bool) -> None:
        """It has ended."""
        self._ended.pop(task, None)
        self._ended[task] = Ended(is_error, now)
        while (oldest := next(iter(self._ended))) != task and self._ended[oldest].at < now - KEPT_S:
            del self._ended[oldest]

    def forget(self, told: Iterable[str], held: Callable[[str], bool]) -> None:
        """A snapshot is complete that was `told` of these; which of them are in a log yet, `held` says."""
        for task in told:
            if not held(task):
                self._ended.pop(task, None)

    def report(self) -> Mapping[str, Ended]:
        """Everything as it is now."""
        return dict(self._ended)
