"""The analyst of a system: the detector service, and the writer of its history.

A Ray actor of its own, off the snapshot's path: snapshots arrive as they are completed, a thread evaluates every detector
on each and writes snapshots and verdicts in batches. Verdicts are kept for whoever polls (subscribers, `wait_for`).
"""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from typing import Any

import ray

from ray_snapshot.errors import RaySnapshotError
from ray_snapshot.runtime.post import first_line
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Detector, Verdict, evaluate

FLUSH_S = 2.0
"""How long snapshots and verdicts are gathered before they are committed together."""

POLL_S = 10.0


class Analyst:
    """See the module."""

    def __init__(self, system: str, detectors: list[Detector], history: str | None) -> None:
        self.system = system
        self.detectors = list(detectors)
        self.verdicts: list[tuple[int, Verdict]] = []
        self.evaluated = 0
        """Snapshots evaluated so far."""
        self.received = 0
        self.earlier: dict[str, Snapshot] = {}
        """Per detector that compares: the last snapshot on which it raised no alarm."""
        self.trouble: RaySnapshotError | None = None
        """Why the history is not written any more."""
        self.inbox: queue.SimpleQueue[Snapshot | None] = queue.SimpleQueue()
        self.lock = threading.Lock()
        self.loop = asyncio.get_event_loop()
        self.changed = asyncio.Condition()
        self.writer = self._open(history)
        self.thread = threading.Thread(target=self._work, name="analyst", daemon=True)
        self.thread.start()

    def _open(self, history: str | None) -> Any:
        if history is None:
            return None
        from ray_snapshot.history import HistoryWriter

        return HistoryWriter(history, system=self.system)

    # ---- the thread -----------------------------------------------------------------------------------------------

    def _work(self) -> None:
        flushed = time.monotonic()
        while True:
            try:
                snapshot = self.inbox.get(timeout=FLUSH_S)
            except queue.Empty:
                snapshot = None
            if snapshot is not None:
                self._take(snapshot)
            if self.writer is not None and time.monotonic() - flushed > FLUSH_S:
                self._commit()
                flushed = time.monotonic()

    def _take(self, snapshot: Snapshot) -> None:
        with self.lock:
            detectors = list(self.detectors)
        found = [self._evaluate(item, snapshot) for item in detectors] if snapshot.status == "complete" else []
        if self.writer is not None and self.trouble is None:
            self._guarded(lambda: (self.writer.add(snapshot), self.writer.add_verdicts(found)))
        with self.lock:
            self.verdicts += [(snapshot.sequence, verdict) for verdict in found]
            self.evaluated += 1
        self.loop.call_soon_threadsafe(self._tell)

    def _evaluate(self, item: Detector, snapshot: Snapshot) -> Verdict:
        verdict = evaluate(item, snapshot, earlier=self.earlier.get(item.name))
        if not verdict.alarm and verdict.holds is not None:
            self.earlier[item.name] = snapshot
        return verdict

    def _commit(self) -> None:
        if self.trouble is None:
            self._guarded(self.writer.flush)

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except RaySnapshotError as error:
            self.trouble = error
        except Exception as error:
            self.trouble = RaySnapshotError(f"the history cannot be written: {type(error).__name__}: {first_line(error)}")

    def _tell(self) -> None:
        asyncio.ensure_future(self._notify())

    async def _notify(self) -> None:
        async with self.changed:
            self.changed.notify_all()

    # ---- calls ----------------------------------------------------------------------------------------------------

    async def add(self, snapshot: Snapshot) -> None:
        """A snapshot has been completed or aborted."""
        self.received += 1
        self.inbox.put(snapshot)

    async def watch(self, item: Detector) -> None:
        """Evaluate one more detector from now on, unless one of its name is evaluated already."""
        with self.lock:
            if item.name not in {known.name for known in self.detectors}:
                self.detectors.append(item)

    async def verdicts_after(self, seen: int) -> list[tuple[int, Verdict]]:
        """(snapshot number, verdict) of all verdicts behind the first `seen`; waits a while for some."""
        deadline = time.monotonic() + POLL_S
        while len(self.verdicts) <= seen and (left := deadline - time.monotonic()) > 0:
            async with self.changed:
                try:
                    await asyncio.wait_for(self.changed.wait(), left)
                except TimeoutError:
                    break
        with self.lock:
            return self.verdicts[seen:]

    async def count(self) -> int:
        """How many verdicts there are."""
        return len(self.verdicts)

    async def drain(self, timeout: float) -> RaySnapshotError | None:
        """Wait until all that was received is evaluated, and commit it; returns what went wrong with the history."""
        deadline = time.monotonic() + timeout
        while self.evaluated < self.received and time.monotonic() < deadline:
            await asyncio.sleep(0.01)
        if self.writer is not None:
            await asyncio.get_running_loop().run_in_executor(None, self._commit)
        return self.trouble

    async def ready(self) -> None:
        """Answers once the history is open."""


AnalystActor = ray.remote(Analyst)
