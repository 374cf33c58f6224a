"""The plain tasks that a process has started, or runs: when they are over, and when a worker idles.

Ray tells a sender which of its tasks are over; it drops them when it is as red as any worker could have been. A worker that has
idled for `IDLE_S` takes part no more: Ray ends it without a word a second later, and no snapshot is to wait for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ray_snapshot.instrument import shape
from ray_snapshot.instrument.guard import ours
from ray_snapshot.instrument.here import own_threads
from ray_snapshot.instrument.process.unfollowed import UNFOLLOWED
from ray_snapshot.protocol.tasks import is_task
from ray_snapshot.runtime.refs import call_of

if TYPE_CHECKING:
    from ray_snapshot.instrument.process.process import Process

PRUNE_S = 1.0
"""How old a task is when its sender first asks whether it is over."""

IDLE_S = 0.5
"""So long a worker has nothing to do before it takes part no more."""

END_S = 2.0
"""How long a worker that ends waits until the watcher has its final counts."""

MOST_ASKED = 1_000
"""So many of the tasks of one wait are asked for their outcome; more are not known."""

LARGE_S = 0.2
"""So long a result has lain in the object store before it is taken for none that ends a wait."""

SHARE = 0.05
"""At most this share of the time is used for asking Ray."""

ON_RETIRED: list[Callable[[Process], None]] = []
"""Called when a worker takes part no more; set by what attaches it."""


class OwnTasks:
    """Those of one process; used under its lock."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.refs_of: dict[int, Sequence[Any]] = {}
        """By wait that the first error ends: its refs."""
        self.in_store: dict[Any, float] = {}
        """By ref, of these: when it was first seen in the object store."""
        self.groups: dict[str, tuple[str, Any]] = {}
        """By placement group that was asked whether it is ready: the name that this has as a task, and the first ref to it."""
        self.parents: dict[Any, int] = {}
        """By Ray's id of what has started tasks here (the driver, calls, other tasks): how many."""
        self.is_looking = False
        self.idle_since = 0.0

    # ---- of a sender ----------------------------------------------------------------------------------------------

    def started(self) -> None:
        """A task was started by what this thread runs."""
        parent = shape.current_task()
        self.parents[parent] = self.parents.get(parent, 0) + 1
        if not self.is_looking:
            self.is_looking = True
            self.process.control.after(PRUNE_S, self.look)

    def look(self) -> None:
        """Ask Ray which tasks are over, and the watcher how red a worker could have been."""
        process, began = self.process, time.monotonic()
        with process.lock:
            old, parents = process.ledger.tasks.older_than(time.time() - PRUNE_S), dict(self.parents)
        waiting = self._unmade()
        pending = {parent: shape.pending_task_keys(parent) for parent in parents}
        still = set[str]().union(*pending.values())
        over = [task for task in old if task.rpartition("-")[2] not in still and task not in waiting]
        if over:
            future = process.watcher.last_number.remote().future()
            future.add_done_callback(lambda done: ours(self._told, done, over))
        with process.lock:
            for parent, keys in pending.items():
                if not keys and self.parents.get(parent) == parents[parent]:  # it has started none meanwhile
                    del self.parents[parent]
            self.is_looking = bool(process.ledger.tasks)
        if self.is_looking:
            process.control.after(max(PRUNE_S, (time.monotonic() - began) / SHARE), self.look)

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
        """These are over; `colour`: the highest number that had been given out."""
        with self.process.lock:
            self.process.ledger.tasks_are_over(tasks, colour)

    def outcomes(self) -> Mapping[str, bool]:
        """Of tasks that are waited for in a list, and over: whether they ended in an error."""
        found: dict[str, bool] = {}
        for refs in self.refs_of.values():
            for ref in refs[:MOST_ASKED]:
                call = call_of(ref)
                task = "" if call is None else call.split("/")[2]
                if is_task(task) and (outcome := self._is_error(ref)) is not None:
                    found[task] = outcome
        known = {ref for refs in self.refs_of.values() for ref in refs}
        self.in_store = {ref: since for ref, since in self.in_store.items() if ref in known}
        return found

    def _is_error(self, ref: Any) -> bool | None:
        """Whether the result of a task is an error: then it is in this process's memory, unless it is larger than errors are.

        What lies in the store for `LARGE_S`, while the wait for it goes on, is none: that would have ended the wait.
        """
        outcome = shape.is_error(ref)
        if outcome is not None or not shape.is_in_store(ref):
            return outcome
        now = time.monotonic()
        return False if now - self.in_store.setdefault(ref, now) > LARGE_S else None

    # ---- of a worker ----------------------------------------------------------------------------------------------

    def ended(self) -> None:
        """A task has ended here."""
        if not self.idle_since:
            self.process.control.after(IDLE_S, self.look_idle)
        self.idle_since = time.monotonic()

    def look_idle(self) -> None:
        """Take part no more, if this worker has had nothing to do for long enough."""
        process = self.process
        with process.lock:
            left = self.idle_since + IDLE_S - time.monotonic()
            if left > 0 or not self._may_idle():
                process.control.after(max(left, IDLE_S), self.look_idle)
                return
        self.retire(is_ending=False)

    def _is_at_rest(self) -> bool:
        """Whether nothing runs here, and all that was sent has come."""
        ledger = self.process.ledger
        is_sending = bool(ledger.tasks) or any(one.log for one in ledger.outputs.values())
        return not (ledger.running or ledger.waits or is_sending)

    def _may_idle(self) -> bool:
        """Whether nothing here may act, or has let something go that is not followed, and no snapshot is open."""
        loose = UNFOLLOWED.loose()
        is_loose = loose.started or loose.given or loose.scattered
        return self._is_at_rest() and not (is_loose or self.process.reports or own_threads())

    def retire(self, *, is_ending: bool) -> None:
        """Send the final counts, if there is nothing to come; with `is_ending` the process ends behind this: wait."""
        process = self.process
        with process.lock:
            if process.is_closed or not (self._is_at_rest() if is_ending else self._may_idle()):
                return
            process.take_in()
            process.turn_red(is_forced=False)
            report = process.ledger.leave()
            process.is_closed = True
            reports = list(process.reports.values())
        for retired in ON_RETIRED:
            retired(process)
        process.control.end()
        told = [process.watcher.recorded.remote(one) for one in reports]
        told.append(process.watcher.left.remote(report))
        if is_ending:
            shape.original("get")(told, timeout=END_S)
