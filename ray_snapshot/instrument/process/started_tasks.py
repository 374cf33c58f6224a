"""The plain tasks that a process has started: logged as they go, and dropped when they are over.

Ray tells a sender which of its tasks are over; it drops them when it is as red as any worker could have been (`hooks.tasks`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ray import ObjectRef

from ray_snapshot import redaction
from ray_snapshot.instrument import shape, task_shape
from ray_snapshot.instrument.guard import ours
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.tasks import is_task
from ray_snapshot.runtime.refs import call_of

if TYPE_CHECKING:
    from ray_snapshot.instrument.process.process import Process
    from ray_snapshot.protocol.demands import Demand


class StartedTasks:
    """Those of one process; what does not say that it takes the lock is used under it."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.refs_of: dict[int, Sequence[Any]] = {}
        """By wait that the first error ends: its refs."""
        self.in_store: dict[bytes, float] = {}
        """By the id of a ref, of these: when it was first seen in the object store. A ref would keep the object there."""
        self.groups: dict[str, tuple[str, Any]] = {}
        """By placement group that was asked whether it is ready: the name that this has as a task, and the first ref to it."""
        self.parents: dict[Any, int] = {}
        """By Ray's id of what has started tasks here (the driver, calls, other tasks): how many."""
        self.unread: dict[str, Any] = {}
        """By task that was started without a result: the ref to what it gives, until it is over."""
        self.is_looking = False

    @property
    def are_followed(self) -> bool:
        """Whether they are followed: not where arguments of calls must be kept for a restore."""
        return not self.process.reloading.keeps

    def begin(self) -> int | None:
        """A task is about to be started, outside the lock; returns the colour for its header, if it needs one."""
        process = self.process
        with process.lock:
            if process.heard_of:
                process.take_in()
            process.making.begin()
            return process.ledger.colour if process.ledger.is_ahead else None

    def end(
        self,
        task: str | None,
        function: str,
        args: Any,
        *,
        is_retried: bool,
        needs: tuple[str | None, ...] = (),
        demand: Demand | None = None,
    ) -> None:
        """A task was started (None: that raised), in the colour that this machine has. Takes the lock."""
        process = self.process
        about = tuple(redaction.arguments(function, args)) if task is not None else None
        with process.lock:
            process.making.end()
            if task is not None:
                process.ledger.start_task(
                    function, task, about, time.time(), is_retried=is_retried, needs=needs, demand=demand
                )
                self._started()
        if process.ledger.must_record:
            process.recording.record_soon()

    def exported(self, machines: Iterable[str]) -> None:
        """Functions of plain tasks hold handles of these. Takes the lock."""
        with self.process.lock:
            self.process.ledger.to_tasks.update(machines)

    def keep_unread(self, task: str | None, ref: Any) -> None:
        """Nobody will read what this task gives. Takes the lock."""
        if task is not None:
            with self.process.lock:
                self.unread[task] = ref

    def _started(self) -> None:
        """A task was started by what this thread runs."""
        parent = task_shape.current_task()
        self.parents[parent] = self.parents.get(parent, 0) + 1
        if not self.is_looking:
            self.is_looking = True
            self.process.control.after(LIMITS.young_task_s, self.look)

    def look(self) -> None:
        """Ask Ray which tasks are over, and the watcher how red a worker could have been. Takes the lock."""
        process, began = self.process, time.monotonic()
        with process.lock:
            old, parents = process.ledger.tasks.older_than(time.time() - LIMITS.young_task_s), dict(self.parents)
            unread = list(self.unread)
        waiting = self._unmade()
        pending = {parent: task_shape.pending_task_keys(parent) for parent in parents}
        still = set[str]().union(*pending.values())
        over = [task for task in old if _key(task) not in still and task not in waiting]
        self._look_at([task for task in unread if _key(task) not in still])
        if over:
            future = process.watcher.last_number.remote().future()
            future.add_done_callback(lambda done: ours(self._told, done, over))
        with process.lock:
            for parent, keys in pending.items():
                if not keys and self.parents.get(parent) == parents[parent]:  # it has started none meanwhile
                    del self.parents[parent]
            self.is_looking = bool(process.ledger.tasks or self.unread)
        if self.is_looking:
            process.control.after(max(LIMITS.young_task_s, (time.monotonic() - began) / LIMITS.asking_share), self.look)

    def _look_at(self, over: Sequence[str]) -> None:
        """Look at what these gave: of an error that nobody has looked at Ray logs, when the ref is dropped, that it was not."""
        with self.process.lock:
            refs = [self.unread.pop(task) for task in over]
        for ref in refs:
            task_shape.is_error(ref)

    def _unmade(self) -> set[str]:
        """Of the placement groups that are waited for: those that have not been made."""
        with self.process.lock:
            groups = dict(self.groups)
        if groups:
            refs = [ref for _, ref in groups.values()]
            made = {*shape.original("wait")(refs, num_returns=len(refs), timeout=0, fetch_local=False)[0]}
            with self.process.lock:
                for key in [key for key, (_, ref) in groups.items() if ref in made]:
                    del self.groups[key], groups[key]
        return {name for name, _ in groups.values()}

    def _told(self, done: Any, over: list[str]) -> None:
        if done.exception() is None:
            colour = int(done.result())
            self.process.control.soon(lambda: self.over(over, colour))

    def over(self, tasks: Sequence[str], colour: int) -> None:
        """These are over; `colour`: the highest number that had been given out. Takes the lock."""
        with self.process.lock:
            self.process.ledger.tasks_are_over(tasks, colour)

    def outcomes(self) -> Mapping[str, bool]:
        """Of tasks that are waited for in a list, and over: whether they ended in an error."""
        found: dict[str, bool] = {}
        for refs in self.refs_of.values():
            for ref in refs[: LIMITS.asked_tasks]:
                call = call_of(ref)
                task = "" if call is None else call.split("/")[2]
                if is_task(task) and (outcome := self._is_error(ref)) is not None:
                    found[task] = outcome
        known = {ref.binary() for refs in self.refs_of.values() for ref in refs if isinstance(ref, ObjectRef)}
        self.in_store = {key: since for key, since in self.in_store.items() if key in known}
        return found

    def _is_error(self, ref: Any) -> bool | None:
        """Whether the result of a task is an error: then it is in this process's memory, unless it is larger than errors are.

        What lies in the store for `stored_result_s`, while the wait for it goes on, is none: that would have ended the wait.
        """
        outcome = task_shape.is_error(ref)
        if outcome is not None or not task_shape.is_in_store(ref):
            return outcome
        now = time.monotonic()
        return False if now - self.in_store.setdefault(ref.binary(), now) > LIMITS.stored_result_s else None


def _key(task: str) -> str:
    """Ray's id of a task."""
    return task.rpartition("-")[2]
