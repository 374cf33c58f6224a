"""A history that is written in a thread of its own: the thread that adds a snapshot does not wait for the disk.

What is added is committed together with what comes soon after: when the oldest of it has waited `flush_s`, or when all of it
takes `flush_bytes`. If the disk cannot follow, `add` waits at `most_bytes`, so that memory is bounded; if a commit fails, it
is tried again, and `add` raises once there is no room. Small files are merged on the way. Imports no Ray.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import pyarrow as pa

from ray_snapshot.errors import HistoryWriteError, RaySnapshotError
from ray_snapshot.history.writer import HistoryWriter
from ray_snapshot.limits import LIMITS
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Verdict


class BackgroundWriter:
    """A `HistoryWriter` and the thread that flushes it; every method may be called from any thread."""

    def __init__(
        self,
        writer: HistoryWriter,
        *,
        flush_s: float = LIMITS.flush_s,
        flush_bytes: int = LIMITS.flush_bytes,
        most_bytes: int = LIMITS.unwritten_bytes,
    ) -> None:
        self.writer = writer
        self.flush_s = flush_s
        self.flush_bytes = flush_bytes
        self.most_bytes = most_bytes
        self.trouble: RaySnapshotError | None = None
        """Why the last commit failed; None once one has succeeded."""
        self.changed = threading.Condition()
        self.oldest: float | None = None
        """When the oldest of what is not committed came (monotonic)."""
        self.flushes = 0
        self.added = self.committed = 0
        """How many snapshots have been added, and how many of these are committed with their verdicts; see `add_whole`."""
        self.is_closed = False
        self.thread = threading.Thread(target=self._work, name="history", daemon=True)
        self.thread.start()

    def add(self, snapshot: Snapshot) -> None:
        """Take in a snapshot, as `HistoryWriter.add`; wait while too much is uncommitted, raise if commits fail."""
        self._wait_for_room()
        self._added(lambda: self.writer.add(snapshot))

    def add_whole(self, snapshot: Snapshot, verdicts: list[Verdict], *, again: bool = False) -> int:
        """Take in a snapshot and the verdicts on it. Both are in the history once `committed` has reached the number
        returned.

        `again`: they may be in the history already, wholly or in part.
        """
        self._wait_for_room()
        if again:
            self._added(lambda: self.writer.add_again(snapshot, verdicts))
        else:
            self._added(lambda: self.writer.add_both(snapshot, verdicts))
        self.added += 1
        return self.added

    def add_verdicts(self, verdicts: Iterable[Verdict]) -> None:
        """Take in verdicts, as `HistoryWriter.add_verdicts`."""
        self._added(lambda: self.writer.add_verdicts(verdicts))

    def add_actions(self, rows: pa.Table, *, system: str) -> None:
        """Take in rows of the trace, as `HistoryWriter.add_actions`; wait as `add` does."""
        self._wait_for_room()
        self._added(lambda: self.writer.add_actions(rows, system=system))

    def add_classes(self, rows: Iterable[Mapping[str, Any]], *, system: str) -> None:
        """Take in rows of `classes`, as `HistoryWriter.add_classes`."""
        self._added(lambda: self.writer.add_classes(rows, system=system))

    def flush(self) -> None:
        """Commit what has been added, now; raises `HistoryWriteError`."""
        began, added = time.monotonic(), self.added
        try:
            self.writer.flush()
        except RaySnapshotError as error:
            self._flushed(began, error)
            raise
        self.committed = max(self.committed, added)
        self._flushed(began, None)

    def close(self) -> None:
        """Commit the rest, and take nothing more."""
        with self.changed:
            self.is_closed = True
            self.changed.notify_all()
        self.thread.join()
        self.writer.close()

    def _added(self, add: Callable[[], None]) -> None:
        add()
        with self.changed:
            if self.oldest is None:
                self.oldest = time.monotonic()
            self.changed.notify_all()

    def _wait_for_room(self) -> None:
        with self.changed:
            while self.writer.buffered_bytes > self.most_bytes:
                if self.trouble is not None:
                    raise self.trouble
                if self.is_closed:
                    return
                self.changed.wait(1.0)

    def _flushed(self, began: float, trouble: RaySnapshotError | None) -> None:
        """Note how a flush that `began` then has ended. Rows that are left, or came since, count as waiting since it
        began."""
        with self.changed:
            self.trouble = trouble
            self.oldest = began if self.writer.buffered_bytes or trouble is not None else None
            self.changed.notify_all()

    def _work(self) -> None:
        while self._is_due():
            try:
                self.flush()
                self._merge()
            except RaySnapshotError as error:
                self.trouble = error
            except Exception as error:  # the thread must not be gone when the next snapshot comes
                reason = f"{type(error).__name__}: {error}"
                self.trouble = HistoryWriteError(
                    f"the history {self.writer.path} cannot be written: {reason}", path=self.writer.path
                )

    def _is_due(self) -> bool:
        """Wait until there is something to commit; False if nothing will come any more."""
        with self.changed:
            while not self.is_closed:
                waited = 0.0 if self.oldest is None else time.monotonic() - self.oldest
                is_full = self.writer.buffered_bytes >= self.flush_bytes and self.trouble is None
                if self.oldest is not None and (is_full or waited >= self.flush_s):
                    return True
                self.changed.wait(None if self.oldest is None else self.flush_s - waited)
        return False

    def _merge(self) -> None:
        self.flushes += 1
        if self.flushes % LIMITS.merge_every_commits == 0:
            self.writer.merge_small()
