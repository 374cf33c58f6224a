"""Rows of machines at rest that stay with their host until somebody asks for them.

Where no history is written, most snapshots are judged by counts alone: then a host says how many machines are at rest, of which
class, and keeps their rows. They are those of that snapshot, whatever became of the machines since: Arrow columns never
change, and two snapshots between which no machine was touched share them.

Used by the thread that makes reports.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot import redaction
from ray_snapshot.adding import Partials
from ray_snapshot.columns import packed
from ray_snapshot.runtime.collected import PartialAnswer
from ray_snapshot.runtime.report import Kept, Resting, at
from ray_snapshot.verdicts import told

MOST_SNAPSHOTS = 200
"""Rows of so many of the latest snapshots are kept: more than can wait to be judged."""

MOST_BYTES = 300_000_000
"""Less than that of rows that nobody has leased is kept, beside those of the last snapshot."""

GRACE_S = 5.0
"""How long rows are kept behind the verdicts on their snapshot: a program that has taken it may lease them yet."""


class KeptTables:
    """The kept rows of one host, in one generation."""

    def __init__(self, host: str, keep_from: int | None) -> None:
        """`keep_from`: fewer rows are sent at once; None: all are."""
        self.host = host
        self.keep_from = keep_from
        self._tables: OrderedDict[int, tuple[pa.Table, int]] = OrderedDict()
        """By snapshot: rows, and the moment at which the host turned red, in microseconds since 1970."""
        self._judged: dict[int, float] = {}
        """By snapshot: when its rows were needed no more, in monotonic seconds."""
        self._leased: dict[int, tuple[pa.Table, int]] = {}
        self._partials = Partials()
        self._counted: tuple[Any, dict[str, int] | None, int] = (None, None, 0)
        """A table, its machines by class (None: not all are passive), and the bytes of their states."""

    def keep(self, number: int, resting: Resting, recorded_at: int) -> Kept | None:
        """Keep these rows; None if they are to be sent, for what is said of them in place of rows would not be enough."""
        table = resting.machines
        if self.keep_from is None or table.num_rows < self.keep_from or resting.inputs or redaction.is_active:
            return None
        if self._counted[0] is not table:
            self._counted = (table, *_counted(table))
        _, classes, state_bytes = self._counted
        if classes is None:
            return None
        self._tables[number] = table, recorded_at
        self._drop()
        return Kept(self.host, classes, state_bytes, recorded_at)

    def lease(self, number: int, is_begun: bool) -> None:
        """Keep the rows of a snapshot until they are given back."""
        if is_begun and number in self._tables:
            self._leased[number] = self._tables[number]
        elif not is_begun:
            self._leased.pop(number, None)

    def judged(self, number: int) -> None:
        """All verdicts on a snapshot are there."""
        self._judged[number] = time.monotonic()
        self._drop()

    def _found(self, number: int) -> tuple[pa.Table, int] | None:
        """Nothing where a secret has been met meanwhile, for the rows may have it."""
        return None if redaction.is_active else self._leased.get(number) or self._tables.get(number)

    def packed(self, number: int, names: Sequence[str] | None = None) -> pa.Buffer | None:
        """The rows of a snapshot, or of some machines in it; None if they are not kept any more."""
        found = self._found(number)
        if found is None:
            return None
        table, recorded_at = found
        if names is not None:
            table = table.filter(pc.is_in(table["machine"], pa.array(names, pa.string())))
        return packed(at(table, recorded_at))

    def partial(self, number: int, snapshot_id: str, key: str, detector: bytes | None = None) -> PartialAnswer:
        """What a detector makes of the rows of a snapshot."""
        found = self._found(number)
        if found is None:
            return PartialAnswer(is_gone=True)
        try:
            if detector is not None:
                self._partials.learn(key, detector)
            elif not self._partials.knows(key):
                return PartialAnswer(is_unknown=True)
            return PartialAnswer(self._partials.of(key, found[0], snapshot_id))
        except Exception as error:  # whatever a detector of the user's does
            return PartialAnswer(error=told(error))

    def _drop(self) -> None:
        """Forget what is too old, or too much: tables that several snapshots share count once."""
        past = time.monotonic() - GRACE_S
        last = next(reversed(self._tables), None)
        for number in [number for number, when in self._judged.items() if when < past and number != last]:
            del self._judged[number]
            self._tables.pop(number, None)
        while len(self._tables) > MOST_SNAPSHOTS:
            self._tables.popitem(last=False)
        sizes = {id(table): table.nbytes for table, _ in self._tables.values()}
        while len(sizes) > 1 and sum(sizes.values()) > MOST_BYTES:
            self._tables.popitem(last=False)
            sizes = {id(table): table.nbytes for table, _ in self._tables.values()}


def _counted(table: pa.Table) -> tuple[dict[str, int] | None, int]:
    """Machines by class, None if not all are passive; and the bytes of their states."""
    if not pc.all(pc.equal(table["status"], "passive")).as_py():
        return None, 0
    counts = pc.value_counts(table["class_name"]).to_pylist()
    return {one["values"]: one["counts"] for one in counts}, int(pc.sum(table["state_bytes"]).as_py() or 0)
