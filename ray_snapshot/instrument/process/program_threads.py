"""Waits of the driver's threads beside the main one: each counts as acting, until all threads of the program wait.

Then the program goes on as soon as any of these waits ends, and not before. A thread waits if it is in a `ray.get` or a
`ray.wait` without a timeout, or until another thread wakes it. Told from the stacks when the driver is recorded, and only while
another thread than the main one is in such a wait. Used under the lock of the process.
"""

from __future__ import annotations

import threading
from collections.abc import Collection
from dataclasses import replace

from ray_snapshot.instrument.here import own_threads
from ray_snapshot.instrument.process.handed import is_parked, joins
from ray_snapshot.protocol.calls import MachineReport
from ray_snapshot.runtime.here import frames_of_threads


class ProgramThreads:
    """It stays empty in every process but the driver's."""

    def __init__(self) -> None:
        self.thread_of: dict[int, int] = {}
        """By wait that blocks a thread: which."""
        self.beside: set[int] = set()
        """Of these, the waits that end with their replies alone, of threads beside the main one."""

    def begin(self, wait_id: int, *, is_certain: bool) -> None:
        """This thread begins a wait; `is_certain`: it ends with its replies alone."""
        self.thread_of[wait_id] = threading.get_ident()
        if is_certain and threading.current_thread() is not threading.main_thread():
            self.beside.add(wait_id)

    def end(self, wait_id: int) -> None:
        """It is over."""
        self.thread_of.pop(wait_id, None)
        self.beside.discard(wait_id)

    def waiting(self) -> set[int]:
        """The threads, beside the main one, that are in such a wait."""
        return {self.thread_of[wait_id] for wait_id in self.beside}

    def may_wait_elsewhere(self, waits: Collection[int]) -> bool:
        """Whether the main thread is in none of these waits, nor any thread in one that ends with its replies alone."""
        is_in_one = threading.main_thread().ident in self.thread_of.values()
        return not is_in_one and not self.beside and self.thread_of.keys() >= set(waits)

    def resolved(self, report: MachineReport) -> MachineReport:
        """The report, with the waits of threads as ones that do not act, if no thread of the program does."""
        if self.beside.isdisjoint(wait.wait_id for wait in report.waits) or not self._all_wait():
            return report
        waits = tuple(replace(one, may_act=False) if one.wait_id in self.beside else one for one in report.waits)
        is_active = any(wait.may_act or wait.is_ready for wait in waits)
        return replace(report, waits=waits, status="active" if is_active else "blocked")

    def _all_wait(self) -> bool:
        frames, waiting = frames_of_threads(), set(self.thread_of.values())
        for thread in (threading.main_thread(), *own_threads()):
            frame = frames.get(thread.ident or 0)  # none of the one that records: its wait is beginning, or ending
            if thread.ident not in waiting and (frame is None or not (is_parked(frame) or joins(frame))):
                return False
        return True
