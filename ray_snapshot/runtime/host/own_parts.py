"""Rows that a host keeps until they are in the history, and writes there itself, as a file of its own.

Where a history is written, rows go to the analyst with the report, as long as they are few. A host that has shown many within
`WINDOW_S` keeps them (`kept`), and the analyst asks for them when it commits (`history.host_files`): then the host writes one
file for all snapshots of that commit, and the rows pass through no other process. What is kept so is dropped when the analyst
says that it is committed, and not before.

Never imports `history` at its top: it is loaded where a host writes its first file.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ray_snapshot import redaction
from ray_snapshot.columns import labelled
from ray_snapshot.runtime.assembly import by_name, delayed
from ray_snapshot.runtime.faults import first_line
from ray_snapshot.runtime.report import at

if TYPE_CHECKING:
    from ray_snapshot.history.host_files import Given, Owed, Wanted
    from ray_snapshot.runtime.host.resting import Rows

WINDOW_S = 5.0
"""Commits are about so far apart (`history.background.FLUSH_S`)."""

BYTES_PER_ROW = 128
"""Rows of so many bytes each are as many as rows by number: 65,536 rows, or 8 MB."""

MOST_OWED = 100
"""Rows of so many snapshots wait for the history; those of later ones are sent with the report."""

MOST_BYTES = 500_000_000
"""Less than that of rows is kept for the history."""

Found = tuple["Rows", int]
"""Rows, and the moment at which the host turned red, in microseconds since 1970."""


class OwnParts:
    """Of one host, in one generation; used by several threads."""

    def __init__(self, own_from: int | None, clock: Callable[[], float] = time.monotonic) -> None:
        """`own_from`: from so many rows on within `WINDOW_S` they are kept, and written here; None: never."""
        self.own_from = own_from
        self.clock = clock
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="ray-snapshot-parts")
        """Files are written here, one after the other."""
        self._lock = threading.Lock()
        self._owed: dict[int, Found] = {}
        self._shown: deque[tuple[float, int, int]] = deque()
        """When so many rows, of so many bytes, were shown."""
        self._last: tuple[str, Given] | None = None
        """The name of the file that was written last, and what was said of it."""
        self._spent_s = 0.0

    def keep(self, number: int, rows: Rows, recorded_at: int) -> bool:
        """Whether these rows are kept for the history from now on; else they go with the report. In the thread of reports."""
        if self.own_from is None:
            return False
        with self._lock:
            count, size = self._within(rows)
            is_many = count >= self.own_from or size >= self.own_from * BYTES_PER_ROW
            held = {id(one.base): one.base.nbytes for one, _ in self._owed.values()} | {id(rows.base): rows.base.nbytes}
            if not is_many or len(self._owed) >= MOST_OWED or sum(held.values()) > MOST_BYTES:
                return False
            self._owed[number] = rows, recorded_at
        return True

    def _within(self, rows: Rows) -> tuple[int, int]:
        """How many rows, of how many bytes, have been shown within `WINDOW_S`, with these; under the lock."""
        now, count = self.clock(), rows.count
        size = rows.base.nbytes * count // max(1, rows.base.num_rows)
        self._shown.append((now, count, size))
        while self._shown[0][0] <= now - WINDOW_S:
            self._shown.popleft()
        return sum(one[1] for one in self._shown), sum(one[2] for one in self._shown)

    def of(self, number: int) -> Found | None:
        """The rows of a snapshot that are kept for the history."""
        with self._lock:
            return self._owed.get(number)

    def release(self, numbers: Iterable[int]) -> None:
        """The history has the rows of these snapshots, or will never have them."""
        with self._lock:
            for number in numbers:
                self._owed.pop(number, None)

    def spent(self) -> float:
        """The processor time that this has taken, and that was not told yet."""
        with self._lock:
            found, self._spent_s = self._spent_s, 0.0
        return found

    def give(self, wanted: Wanted) -> Given:
        """A file with the rows of these snapshots, or the rows where they are few. In `pool`."""
        began = time.thread_time()
        try:
            return self._given(wanted)
        finally:
            with self._lock:
                self._spent_s += time.thread_time() - began

    def _given(self, wanted: Wanted) -> Given:
        from ray_snapshot.history.host_files import Given

        if self._last is not None and self._last[0] == wanted.name and wanted.may_write:
            return self._last[1]  # it is asked again, for the answer took too long
        there = [(one, found) for one in wanted.snapshots if (found := self.of(one.number)) is not None]
        lost = "" if len(there) == len(wanted.snapshots) else f"{wanted.host} has not kept rows for the history"
        if wanted.may_write and not lost and self._is_own(wanted, [rows for _, (rows, _) in there]):
            given = _written(wanted, there)
            if given is not None:
                self._last = wanted.name, given
                return given
        return Given(rows={one.snapshot_id: _sent(one, *found) for one, found in there}, lost=lost)

    def _is_own(self, wanted: Wanted, rows: Sequence[Rows]) -> bool:
        """Whether these are enough for a file, and this process may write it."""
        from ray_snapshot.history.host_files import is_seen

        assert self.own_from is not None
        size = sum(one.base.nbytes * one.count // max(1, one.base.num_rows) for one in rows)
        is_many = sum(one.count for one in rows) >= self.own_from or size >= self.own_from * BYTES_PER_ROW
        return is_many and not redaction.is_active and is_seen(wanted.path, wanted.owner)


def _written(wanted: Wanted, there: Sequence[tuple[Owed, Found]]) -> Given | None:
    """The file; None if it cannot be written here, for whatever reason: then the rows are sent, and it is told there."""
    from ray_snapshot.history.host_files import Given, write

    def tables() -> Iterator[pa.Table]:
        for one, (rows, recorded_at) in there:
            yield _table(one, rows, recorded_at)

    try:
        return Given(write(wanted, tables()))
    except Exception as error:  # the store, the disk, Arrow: the history may be written all the same
        print(f"ray-snapshot: {wanted.host} cannot write into {wanted.path}: {first_line(error)}", file=sys.stderr)
        return None


def _table(owed: Owed, rows: Rows, recorded_at: int) -> pa.Table:
    """The rows of one snapshot, as the history has them."""
    machines = by_name(delayed(at(rows.table(), recorded_at), owed.started_us))
    return labelled(machines, owed.snapshot_id, owed.run_id)


def _sent(owed: Owed, rows: Rows, recorded_at: int) -> Any:
    """The same for another process: without what is redacted here, of which that may not know."""
    from ray_snapshot.columns import packed
    from ray_snapshot.history.purging import purged

    return packed(purged("machines", _table(owed, rows, recorded_at)))
