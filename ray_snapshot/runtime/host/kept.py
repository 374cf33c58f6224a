"""Rows of machines at rest that stay with their host until somebody asks for them.

Most snapshots are judged by counts alone. So where no history is written, or where this host writes its own part of it
(`own_parts`), a host says how many machines are at rest, of which class, and keeps their rows. They are those of that snapshot,
whatever became of the machines since: Arrow columns never change, and snapshots share them (`resting.Rows`).

Looked up by any thread; what is asked for is made in a thread of its own, so that no report waits for a detector.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot import redaction
from ray_snapshot.columns import labelled, packed, unpacked
from ray_snapshot.runtime.assembly import with_delay
from ray_snapshot.runtime.host.own_parts import OwnParts
from ray_snapshot.runtime.host.partials import Partials
from ray_snapshot.runtime.host.resting import Rows
from ray_snapshot.runtime.kept_rows import PartialAnswer
from ray_snapshot.runtime.report import Kept, Resting, at
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import told

MOST_SNAPSHOTS = 100
"""Rows of so many of the latest snapshots are kept: more than can wait to be judged."""

FEWEST = 5
"""Of so many of the latest in any case: so many may wait for the analyst."""

MOST_BYTES = 200_000_000
"""Less than that of rows that nobody has leased is kept beside those."""

GRACE_S = 5.0
"""How long rows are kept behind the verdicts on their snapshot: a program that has taken it may lease them yet."""

Found = tuple[Rows, int]
"""Rows, and the moment at which the host turned red, in microseconds since 1970."""


class KeptTables:
    """The kept rows of one host, in one generation."""

    def __init__(self, host: str, keep_from: int | None, own: OwnParts | None = None) -> None:
        """`keep_from`: fewer rows are sent at once; None: all are, unless they are kept for the history (`own`)."""
        self.host = host
        self.own = own or OwnParts(None)
        self.keep_from = keep_from
        self.pool = ThreadPoolExecutor(1, thread_name_prefix="ray-snapshot-rows")
        """What is asked for is made here."""
        self._lock = threading.Lock()
        self._tables: OrderedDict[int, Found] = OrderedDict()
        self._judged: dict[int, float] = {}
        """By snapshot: when its rows were needed no more, in monotonic seconds."""
        self._leased: dict[int, Found] = {}
        self._partials = Partials()
        self._counted: tuple[Any, dict[str, int] | None, int] = (None, None, 0)
        """Rows, their machines by class (None: not all are passive), and the bytes of their states."""
        self._before: Rows | None = None
        """Those of the snapshot before."""
        self._spent_s = 0.0

    def keep(self, number: int, resting: Resting, recorded_at: int) -> Kept | None:
        """Keep these rows; None if they are to be sent, for what is said of them in place of rows would not be enough.

        Those that are as in the snapshot before may be sent packed (`brought`). In the thread of reports.
        """
        rows, before, self._before = resting.machines, self._before, resting.machines
        is_packed = rows is before and rows.is_worth_packing
        if resting.inputs or redaction.is_active or not (self._is_kept(rows) or self.own.own_from or is_packed):
            return None
        if self._counted[0] is not rows:
            self._counted = (rows, *_counted(rows))
        _, classes, state_bytes = self._counted
        if classes is None:
            return None
        if not (self._is_kept(rows) or self.own.keep(number, rows, recorded_at)):
            return Kept(self.host, classes, state_bytes, recorded_at, rows.packed()) if is_packed else None
        with self._lock:
            self._tables[number] = rows, recorded_at
            self._drop()
        return Kept(self.host, classes, state_bytes, recorded_at)

    def _is_kept(self, rows: Rows) -> bool:
        """Whether rows are kept for who asks, where no history is written."""
        return self.keep_from is not None and rows.count >= self.keep_from

    def lease(self, begun: Iterable[int], over: Iterable[int]) -> None:
        """Keep the rows of the snapshots `begun` until they are given back, as those of `over` are now."""
        with self._lock:
            for number in over:
                self._leased.pop(number, None)
            for number in begun:
                if (found := self._tables.get(number) or self.own.of(number)) is not None:
                    self._leased[number] = found

    def judged(self, numbers: Iterable[int]) -> None:
        """All verdicts on some snapshots are there."""
        with self._lock:
            self._judged.update(dict.fromkeys(numbers, time.monotonic()))
            self._drop()

    def spent(self) -> float:
        """The processor time that was spent on what was asked for, and not told yet."""
        with self._lock:
            found, self._spent_s = self._spent_s, 0.0
        return found + self.own.spent()

    def packed(self, number: int, names: Sequence[str] | None = None) -> pa.Buffer | None:
        """The rows of a snapshot, or of some machines in it; None if they are not kept any more. In `pool`."""
        found = self._found(number)
        if found is None:
            return None
        began = time.thread_time()
        rows, recorded_at = found
        table = rows.table()
        if names is not None:
            table = table.filter(pc.is_in(table["machine"], pa.array(names, pa.string())))
        buffer = packed(at(table, recorded_at))
        self._spend(began)
        return buffer

    def partial(self, number: int, header: pa.Buffer, key: str, detector: bytes | None = None) -> PartialAnswer:
        """What a detector makes of the rows of a snapshot; `header`: the snapshot's row, as a packed table. In `pool`."""
        found = self._found(number)
        if found is None:
            return PartialAnswer(is_gone=True)
        began = time.thread_time()
        rows, recorded_at = found
        try:
            if detector is not None:
                self._partials.learn(key, detector)
            elif not self._partials.knows(key):
                return PartialAnswer(is_unknown=True)
            return PartialAnswer(self._partials.of(key, rows, lambda: _part(rows, recorded_at, unpacked(header))))
        except BaseException as error:  # whatever a detector of the user's does, sys.exit() too
            return PartialAnswer(error=told(error))
        finally:
            self._spend(began)

    def _spend(self, began: float) -> None:
        with self._lock:
            self._spent_s += time.thread_time() - began

    def _found(self, number: int) -> Found | None:
        """Nothing where something is redacted by now, for the rows may have it."""
        with self._lock:
            found = self._leased.get(number) or self._tables.get(number) or self.own.of(number)
            return None if redaction.is_active else found

    def _drop(self) -> None:
        """Forget what is needed no more, too old, or too much; under the lock."""
        past = time.monotonic() - GRACE_S
        last = next(reversed(self._tables), None)
        for number in [number for number, when in self._judged.items() if when < past and number != last]:
            del self._judged[number]
            self._tables.pop(number, None)
        while len(self._tables) > MOST_SNAPSHOTS:
            self._tables.popitem(last=False)
        while len(self._tables) > FEWEST and _bytes([rows for rows, _ in self._tables.values()]) > MOST_BYTES:
            self._tables.popitem(last=False)


def _bytes(kept: Sequence[Rows]) -> int:
    """What they take beside the last: columns that several share count once."""
    tables = {id(rows.base): rows.base.nbytes for rows in kept if rows.base is not kept[-1].base}
    return sum(tables.values())


def _part(rows: Rows, recorded_at: int, header: pa.Table) -> Snapshot:
    """The rows as a snapshot that has nothing else."""
    bare = Snapshot({"snapshots": header})
    machines = with_delay(at(rows.table(), recorded_at), bare.started_at.timestamp())
    return bare.with_machines(labelled(machines, bare.snapshot_id, bare.run_id))


def _counted(rows: Rows) -> tuple[dict[str, int] | None, int]:
    """Machines by class, None if not all are passive; and the bytes of their states."""
    table = rows.table("class_name", "status", "state_bytes")
    if not pc.all(pc.equal(table["status"], "passive")).as_py():
        return None, 0
    counts = pc.value_counts(table["class_name"]).to_pylist()
    return {one["values"]: one["counts"] for one in counts}, int(pc.sum(table["state_bytes"]).as_py() or 0)
