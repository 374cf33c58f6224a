"""Rows of the machines of one host that are at rest: columns that are kept from one snapshot to the next, and patched.

The core has no copies of machines at rest (`protocol.host`). Their rows are here, made when each was put to rest, and go into
every report as they are: 10,000 of them in a fraction of a millisecond. So a report is always complete, whatever it cost to
make, and nothing that is sent or written refers to another snapshot.

Used by the thread that makes reports, in the order in which recordings became whole.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from itertools import repeat

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot import redaction
from ray_snapshot.columns import MOST_SQUEEZED, packed
from ray_snapshot.limits import LIMITS
from ray_snapshot.parts.reporting import LinkCounts, show
from ray_snapshot.protocol.host import Recording
from ray_snapshot.protocol.joins import Inputs
from ray_snapshot.protocol.parts import GroupCopy, MachineCopy
from ray_snapshot.runtime.assembly import by_name
from ray_snapshot.runtime.checkpointing import saved_machine
from ray_snapshot.runtime.ends import ENDS, OWNED, compact
from ray_snapshot.runtime.report import Packed, PartRows, Resting
from ray_snapshot.runtime.saved_machines import saved_table
from ray_snapshot.shapes import Shape

Booleans = npt.NDArray[np.bool_]
_Shown = tuple["Rows", pa.Table, "Rows"]
"""Rows of machines, of the ends of their channels, and what checkpoints keep of them."""


class Rows:
    """Some rows of a table that others share: a snapshot that keeps them takes a bit a row. They never change."""

    __slots__ = ("base", "shown")

    def __init__(self, base: pa.Table, shown: Booleans | None = None) -> None:
        """`shown`: which rows of `base`; None: all."""
        self.base = base
        self.shown = shown

    @property
    def count(self) -> int:
        """How many."""
        return self.base.num_rows if self.shown is None else int(self.shown.sum())

    def table(self, *columns: str) -> pa.Table:
        """The rows, all columns or these."""
        base = self.base.select(list(columns)) if columns else self.base
        return base if self.shown is None else base.filter(pa.array(self.shown))

    @property
    def is_worth_packing(self) -> bool:
        """Whether `packed` is cheaper for all than rows that are sent as they are."""
        count = self.count
        return count >= LIMITS.packed_rows and self.base.nbytes * count <= MOST_SQUEEZED * self.base.num_rows

    def packed(self) -> bytes:
        """The rows in the order of their machines' names, as `brought` reads them."""
        found: bytes = packed(by_name(self.table()), "zstd").to_pybytes()
        return found

    def without(self, column: str, values: Collection[str]) -> Rows:
        """Those whose `column` is none of `values`."""
        hidden = pc.is_in(self.base[column], pa.array(values, pa.string())).to_numpy(zero_copy_only=False)
        return Rows(self.base, ~hidden if self.shown is None else self.shown & ~hidden)

    def compact(self) -> Rows:
        """The same, in columns of their own if too much of these is hidden."""
        if self.shown is None or self.base.num_rows - self.count <= LIMITS.hidden_share * self.base.num_rows:
            return self
        return Rows(self.table())

    def plus(self, more: pa.Table) -> Rows:
        """These, and `more` behind them."""
        base = pa.concat_tables([self.base, more])
        if base.column(0).num_chunks > LIMITS.resting_chunks:
            return Rows(pa.concat_tables([self.table(), more]).combine_chunks())
        return Rows(base, None if self.shown is None else np.append(self.shown, np.ones(more.num_rows, np.bool_)))


class Packing:
    """Packs rows that are as in the snapshot before, once (`brought`). Used by the thread that makes reports."""

    def __init__(self, host: str) -> None:
        self.host = host
        self._before: Rows | None = None
        """The rows of the snapshot before."""
        self._packed: Packed | None = None
        """The same, once they were packed."""

    def packed(self, resting: Resting, recorded_at: int) -> Packed | None:
        """These rows, packed; None if they are sent as they are: new ones, few, or such as counts do not say enough of."""
        rows = resting.machines
        if rows is not self._before:
            self._before, self._packed = rows, None
            return None
        if resting.inputs or redaction.is_active or not rows.is_worth_packing:
            return None
        if self._packed is None:
            self._packed = self._pack(rows)
        return None if self._packed is None else replace(self._packed, recorded_at=recorded_at)

    def _pack(self, rows: Rows) -> Packed | None:
        """None if not all machines are passive."""
        table = rows.table("class_name", "status", "state_bytes")
        if not pc.all(pc.equal(table["status"], "passive")).as_py():
            return None
        counts = pc.value_counts(table["class_name"]).to_pylist()
        classes = {one["values"]: one["counts"] for one in counts}
        return Packed(self.host, classes, int(pc.sum(table["state_bytes"]).as_py() or 0), 0, rows.packed())


class RestingRows:
    """The rows of one host, in one generation."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.size = 0
        """Of all rows, in bytes."""
        rows = PartRows()
        self.machines, self.ends = Rows(rows.machines_of(host)), rows.ends.table(OWNED)
        self.saved = Rows(saved_table(()))
        """What checkpoints keep of these machines; nothing, where none are written."""
        self.inputs: dict[str, Inputs] = {}
        self.shapes: dict[str, Shape | None] = {}
        """By machine at rest."""
        self.shape_counts: Counter[Shape] = Counter()
        self.filtered: tuple[Collection[str], _Shown] = ((), self._all())
        """What `_without` was last asked for, and its answer."""
        self.whole: Resting | None = None
        """What `beside` says where it leaves nobody out: the same object until the rows change."""

    @property
    def has_room(self) -> bool:
        """Whether more machines may be put to rest; asked by other threads too."""
        return self.size < LIMITS.resting_bytes

    def take(self, rested: Sequence[MachineCopy | GroupCopy]) -> None:
        """These have been put to rest, in that order."""
        if not rested:
            return
        recording, count = _of(rested), len(self.shapes)
        self._note_shapes(recording)
        if len(self.shapes) < count + len(recording.names):  # some had been put to rest before, or are here twice
            recording = _latest(rested)
            self.forget(recording.names)
            self._note_shapes(recording)
            self.shape_counts = Counter(shape for shape in self.shapes.values() if shape is not None)
        rows = PartRows()
        show(recording, rows)
        self.machines = self.machines.plus(rows.machines_of(self.host))
        self.ends = _joined(self.ends, rows.ends.table(OWNED))
        keeping = (copy for copy in recording.copies if copy.extra.kept is not None)
        if (saved := saved_table(map(saved_machine, keeping))).num_rows:
            self.saved = self.saved.plus(saved)
        self.size = self._bytes()
        self.inputs |= rows.part.inputs
        self.filtered, self.whole = ((), self._all()), None

    def _note_shapes(self, recording: Recording) -> None:
        for group in recording.groups:
            shape: Shape | None = group.extras.shape
            self.shapes.update(zip(group.machines, repeat(shape)))
            if shape is not None:
                self.shape_counts[shape] += len(group.machines)
        for copy in recording.copies:
            self.shapes[copy.machine] = shape = copy.extra.shape
            if shape is not None:
                self.shape_counts[shape] += 1

    def forget(self, names: Sequence[str]) -> None:
        """These are not at rest any more."""
        if self.shapes.keys().isdisjoint(names):
            return
        found = self.shapes.keys() & {*names}
        machines, self.ends, saved = self._without(found)
        self.machines, self.saved = machines.compact(), saved.compact()
        self.filtered, self.whole = ((), self._all()), None
        self.size = self._bytes()
        for name in found:
            self.inputs.pop(name, None)
            if (shape := self.shapes.pop(name, None)) is not None:
                self.shape_counts[shape] -= 1
        self.shape_counts = +self.shape_counts

    def beside(self, names: Iterable[str]) -> Resting:
        """What goes into a report that shows the machines of these names by itself."""
        hidden = self.shapes.keys() & {*names}
        if not hidden and self.whole is not None:
            return self.whole
        machines, ends, saved = self._without(hidden)
        inputs = self.inputs.copy()
        for name in hidden:
            inputs.pop(name, None)
        shapes = self.shape_counts - Counter(shape for name in hidden if (shape := self.shapes[name]) is not None)
        kept = saved if saved.count else None
        found = Resting(machines, ends.select(ENDS.names), _counts(self.host, ends), inputs, tuple(shapes), kept)
        if not hidden:
            self.whole = found
        return found

    def _all(self) -> _Shown:
        return self.machines, self.ends, self.saved

    def _bytes(self) -> int:
        return int(self.machines.base.nbytes + self.ends.nbytes + self.saved.base.nbytes)

    def _without(self, names: Collection[str]) -> _Shown:
        """The rows but for those of some machines at rest."""
        if names != self.filtered[0]:
            if not names:
                found = self._all()
            elif len(names) == len(self.shapes):
                found = Rows(self.machines.base[:0]), compact(self.ends[:0]), Rows(self.saved.base[:0])
            else:
                those = pa.array(names, pa.string())
                left = self.ends.filter(pc.invert(pc.is_in(self.ends["owner"], those)))
                saved = self.saved.without("machine", names) if self.saved.base.num_rows else self.saved
                found = self.machines.without("machine", names), compact(left), saved
            self.filtered = (names, found)
        return self.filtered[1]


def _of(rested: Sequence[MachineCopy | GroupCopy]) -> Recording:
    """What was put to rest."""
    found = Recording(0)
    found.groups = [one for one in rested if isinstance(one, GroupCopy)]
    found.copies = [one for one in rested if isinstance(one, MachineCopy)]
    return found


def _latest(rested: Sequence[MachineCopy | GroupCopy]) -> Recording:
    """The same, of each machine only what was copied last."""
    found = Recording(0)
    each = (copy for one in rested for copy in (one.each() if isinstance(one, GroupCopy) else (one,)))
    found.copies = [*{copy.machine: copy for copy in each}.values()]
    return found


def _joined(one: pa.Table, other: pa.Table) -> pa.Table:
    found = pa.concat_tables([one, other])
    return found.combine_chunks() if found.column(0).num_chunks > LIMITS.resting_chunks else found


def _counts(host: str, ends: pa.Table) -> LinkCounts:
    """The sums of each link over these ends, of which nothing is in flight."""
    found = LinkCounts(host)
    if not ends.num_rows:
        return found
    sides = ("host_behind", "accepted", found.accepted_from), ("host_ahead", "sent", found.sent_to)
    for end, count, sums in sides:
        totals = ends.select([end, count]).group_by(end, use_threads=False).aggregate([(count, "sum")])
        for other, total in zip(totals[end].to_pylist(), totals[f"{count}_sum"].to_pylist(), strict=True):
            if other is not None:
                sums[other] = total
    return found
