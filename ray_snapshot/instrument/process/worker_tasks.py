"""The plain tasks that a worker runs, and when it takes part no more.

A worker that has idled for `IDLE_S` leaves: Ray ends it without a word a second later, and no snapshot is to wait for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from ray_snapshot.instrument.connection import CONNECTION
from ray_snapshot.instrument.here import own_threads
from ray_snapshot.instrument.process.unfollowed import UNFOLLOWED

if TYPE_CHECKING:
    from ray_snapshot.instrument.process.process import Process

IDLE_S = 0.5
"""So long a worker has nothing to do before it takes part no more."""

ON_RETIRED: list[Callable[[Process], None]] = []
"""Called when a worker takes part no more; set by what attaches it."""


class WorkerTasks:
    """Those of one process."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.idle_since = 0.0

    def enter(self, task: str, method: str, colour: int) -> str | None:
        """A task begins in this worker, which records first if it is white; None if it takes part no more."""
        process = self.process
        with process.lock:
            if process.is_closed:
                return None
            ledger = process.ledger
            if process.heard_of:
                process.take_in()
            ledger.hear(colour)
            if ledger.must_record:
                process.turn_red(is_forced=colour > ledger.colour)
            call_id = ledger.accept_task(task, method, time.time(), colour=colour)
            process.run_here(call_id)
        return call_id

    def leave(self, call_id: str, *, is_error: bool = False) -> int:
        """A task has ended; returns the colour of its reply."""
        process = self.process
        with process.lock:
            ledger = process.ledger
            process.recording.ended_at = time.time()
            colour = ledger.finish_task(call_id, process.recording.ended_at, is_error=is_error)
            process.threads.pop(call_id, None)
            process.waiting.end_call(call_id)
            process.streams.end(call_id)
            if process.heard_of:
                process.take_in()
            if ledger.must_record:
                process.turn_red(is_forced=False)
            self._ended()
        return colour

    def _ended(self) -> None:
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
        return self._is_at_rest() and not (is_loose or self.process.recording.reports or own_threads())

    def retire(self, *, is_ending: bool = True) -> None:
        """Send the final counts, if there is nothing to come. `is_ending`: the process ends; Ray waits for its calls."""
        process = self.process
        with process.lock:
            if process.is_closed or not (self._is_at_rest() if is_ending else self._may_idle()):
                return
            process.take_in()
            process.turn_red(is_forced=False)
            report = process.ledger.leave()
            process.is_closed = True
            reports = list(process.recording.reports.values())
        for retired in ON_RETIRED:
            retired(process)
        process.control.end()
        for one in reports:
            CONNECTION.use(process.watcher.recorded.remote, one)
        CONNECTION.use(process.watcher.left.remote, report)
