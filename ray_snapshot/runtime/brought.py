"""Rows of machines at rest that come with their host's report, packed: they are read where something asks for them.

Most snapshots are judged by counts alone. Where rows stay as they are from one snapshot to the next, their host packs them once
(`host.resting.Rows`) and sends the same bytes with each report: every report is complete, and nothing in it refers to
another snapshot. Here it is remembered what was read of the same bytes before, so that this costs little for the next snapshot.
A snapshot says how many there are, by class, before they are read (`Snapshot.parted`).
Imports no Ray. Read `assembly` for where they come in.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.adding import AddsUp, remembered_as
from ray_snapshot.columns import labelled, unpacked
from ray_snapshot.large_columns import taken
from ray_snapshot.runtime.report import HostPart, Packed, at
from ray_snapshot.snapshot import Snapshot

MOST_BYTES = 64_000_000
"""Of what was read, so much is remembered in one process, and what the last snapshot has in any case."""

_TIMES = ("recorded_at", "record_delay_ms")
"""The columns that are not the same in the next snapshot."""


@dataclass(frozen=True, eq=False)
class Read:
    """What one host's bytes hold; it never changes."""

    table: pa.Table
    """Rows in the order of names; `recorded_at` and `record_delay_ms` are of no moment."""
    sums: dict[str, Any] = field(default_factory=dict)
    """By the data of a timeless detector that adds up: what it makes of these rows."""

    @cached_property
    def names(self) -> frozenset[str]:
        """Of the machines."""
        return frozenset(self.table["machine"].to_pylist())


class _Remembered:
    """What was read last; used by all threads of the process."""

    def __init__(self) -> None:
        self._read: OrderedDict[bytes, Read] = OrderedDict()
        self._repeats: tuple[tuple[Read, ...], bool] | None = None
        self._lock = threading.Lock()

    def read(self, packed: Sequence[bytes]) -> tuple[Read, ...]:
        """What the bytes of the hosts of one snapshot hold."""
        with self._lock:
            known = {one: self._read[one] for one in packed if one in self._read}
        found = {one: known.get(one) or Read(unpacked(pa.py_buffer(one))) for one in packed}
        with self._lock:
            for one, read in found.items():
                self._read[one] = read
                self._read.move_to_end(one)
            size = sum(read.table.nbytes for read in self._read.values())
            while size > MOST_BYTES and len(self._read) > len(found):
                size -= self._read.popitem(last=False)[1].table.nbytes
        return tuple(found[one] for one in packed)

    def repeats(self, parts: tuple[Read, ...]) -> bool:
        """Whether a machine is there twice: told of the names, for the rows may never be asked for."""
        with self._lock:
            if self._repeats is not None and self._repeats[0] == parts:
                return self._repeats[1]
        names = pa.concat_tables([one.table.select(["machine"]) for one in parts])["machine"]
        found = bool(len(names) != pc.count_distinct(names).as_py())
        with self._lock:
            self._repeats = parts, found
        return found


_REMEMBERED = _Remembered()


@dataclass(frozen=True, slots=True)
class Label:
    """What is the same in all rows of a snapshot."""

    snapshot_id: str
    run_id: str
    started_us: int
    """When it was started, in microseconds since 1970."""


class BroughtRows:
    """Of one snapshot (see `snapshot.Brought`)."""

    def __init__(self, label: Label, packed: Sequence[Packed]) -> None:
        """`packed`: of each host."""
        self.label = label
        self.packed = sorted(packed, key=lambda one: one.host)
        self.hosts = {one.host: sum(one.classes.values()) for one in packed}

    @cached_property
    def _parts(self) -> tuple[Read, ...]:
        return _REMEMBERED.read([one.rows for one in self.packed])

    def tables(self) -> Iterator[pa.Table]:
        """The rows, host by host."""
        for one, read in zip(self.packed, self._parts, strict=True):
            yield self._timed(read.table, pa.repeat(pa.scalar(one.recorded_at), read.table.num_rows).to_numpy())

    def of(self, names: Collection[str] | None) -> pa.Table:
        """Those of machines of these names, of any (None: all)."""
        found = pa.concat_tables(self.tables())
        return found if names is None else found.filter(pc.is_in(found["machine"], pa.array(names, pa.string())))

    def repeats(self, names: pa.ChunkedArray) -> bool:
        """Whether a machine is there twice, here or among others of these names."""
        others, parts = names.to_pylist(), self._parts
        return _REMEMBERED.repeats(parts) or not all(one.names.isdisjoint(others) for one in parts)

    def rows(self) -> pa.Table:
        """All rows, in the order of names."""
        found = pa.concat_tables(self.tables()).combine_chunks()
        return taken(found, pc.sort_indices(found["machine"]))

    def partials(self, item: AddsUp, header: pa.Table) -> Iterator[Any]:
        """What a detector that adds up makes of the rows, host by host; `header`: the row of the snapshot."""
        bare = Snapshot({"snapshots": header})
        key = remembered_as(item)
        for read, rows in zip(self._parts, self.tables(), strict=True):
            if not key:
                yield item.partial(bare.with_machines(rows))
            else:
                if key not in read.sums:
                    read.sums[key] = item.partial(bare.with_machines(rows))
                yield read.sums[key]

    def _timed(self, rows: pa.Table, recorded: npt.NDArray[np.int64]) -> pa.Table:
        """`recorded`: when the host of each row turned red, in microseconds since 1970."""
        for name, values in zip(_TIMES, (recorded, (recorded - self.label.started_us) / 1e3), strict=True):
            place = rows.schema.get_field_index(name)
            rows = rows.set_column(
                place, rows.schema.field(place), pa.array(values).cast(rows.schema.field(place).type)
            )
        return labelled(rows, self.label.snapshot_id, self.label.run_id)


def whole(part: HostPart) -> HostPart:
    """A part with all rows that it has brought among those of its machines."""
    if part.packed is None:
        return part
    (read,) = _REMEMBERED.read([part.packed.rows])
    brought = at(read.table, part.packed.recorded_at)
    there = [] if part.machines is None else [part.machines]
    tables = [one if isinstance(one, pa.Table) else pa.Table.from_batches([one]) for one in there]
    part.machines, part.packed = pa.concat_tables([brought, *tables]), None
    return part
