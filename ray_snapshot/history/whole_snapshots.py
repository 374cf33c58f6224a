"""Whole snapshots of a history, put together of their rows: few or many at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.errors import HistoryFormatError
from ray_snapshot.history import tables
from ray_snapshot.history.stored_rows import StoredRows
from ray_snapshot.history.verification import COUNTS, row_batches, row_count
from ray_snapshot.large_columns import taken
from ray_snapshot.limits import LIMITS
from ray_snapshot.schema import TABLES
from ray_snapshot.snapshot import Snapshot


class WholeSnapshots:
    """Of one history."""

    def __init__(self, stored: StoredRows) -> None:
        self.stored = stored

    def load_many(
        self, snapshot_ids: Iterable[str], *, columns: Mapping[str, Sequence[str]] | None = None
    ) -> Iterator[Snapshot]:
        """Snapshots in the order of `snapshot_ids`; many small ones cost little more than one.

        `columns`: by table those that are read; of tables that are not in it, all. The snapshots have no others.
        """
        for snapshot_id, parts in self.parts(snapshot_ids, columns=columns):
            yield self.assembled(snapshot_id, parts)

    def parts(
        self, snapshot_ids: Iterable[str], *, columns: Mapping[str, Sequence[str]] | None = None
    ) -> Iterator[tuple[str, dict[str, pa.Table]]]:
        """The rows of snapshots as they lie there, table by table, with their partitions; not checked."""
        chosen = columns or {}
        ids = list(snapshot_ids)
        listed = self._snapshot_rows(ids) if ids else {}
        sizes = {snapshot_id: row_count(row) for snapshot_id, row in listed.items()}
        is_narrow = "state" not in chosen.get("machines", ["state"]) and "args" not in chosen.get("messages", ["args"])
        for batch in row_batches(sizes, LIMITS.verified_narrow_rows if is_narrow else LIMITS.verified_rows):
            details = {
                name: _split(self.stored.read(name, snapshot_ids=batch, columns=chosen.get(name)), batch)
                for name in tables.DETAIL_TABLES
            }
            for snapshot_id in batch:
                parts = {name: found[snapshot_id] for name, found in details.items()}
                yield snapshot_id, {"snapshots": listed[snapshot_id], **parts}

    def whole(self, snapshot_id: str) -> dict[str, pa.Table]:
        """All rows of one snapshot, sorted, table by table; raises as `load` does."""
        ((_, parts),) = self.parts([snapshot_id])
        self.assembled(snapshot_id, parts)
        return {name: tables.in_order(part, tables.ORDER[name]) for name, part in parts.items()}

    def assembled(self, snapshot_id: str, parts: Mapping[str, pa.Table]) -> Snapshot:
        """One snapshot of its rows; raises `HistoryFormatError` if they are not all there."""
        for name, part in parts.items():
            self.stored.complete(name, part)
        with tables.faults(self.stored.path, "snapshots", "read", HistoryFormatError):
            snapshot = Snapshot({name: _as_recorded(name, part) for name, part in parts.items()})
        if snapshot.status != "complete":  # an aborted one has what was recorded until then
            return snapshot
        for name, count in COUNTS:
            rows, expected = parts[name].num_rows, getattr(snapshot, count)
            if rows != expected:
                raise self.stored.damaged(
                    snapshot_id,
                    name,
                    f"has {rows} rows of it, but {count} is {expected}: some are missing or doubled",
                )
        return snapshot

    def _snapshot_rows(self, snapshot_ids: list[str]) -> dict[str, pa.Table]:
        """The row of `snapshots` of each id."""
        listed = self.stored.read("snapshots", snapshot_ids=snapshot_ids)
        rows: dict[str, int] = {}
        for row, snapshot_id in enumerate(listed["snapshot_id"].to_pylist()):
            if snapshot_id in rows:
                raise self.stored.damaged(snapshot_id, "snapshots", "lists it twice")
            rows[snapshot_id] = row
        for snapshot_id in snapshot_ids:
            if snapshot_id not in rows:
                raise self.stored.unknown(snapshot_id)
        return {snapshot_id: listed.slice(rows[snapshot_id], 1) for snapshot_id in snapshot_ids}


def _as_recorded(name: str, table: pa.Table) -> pa.Table:
    """Rows as a running system has them: in one order, without the partitions of the history."""
    names = {*table.column_names}
    there = [column for column in TABLES[name].names if column in names]
    return tables.in_order(table, tables.ORDER[name]).select(there).combine_chunks()


def _split(table: pa.Table, snapshot_ids: list[str]) -> dict[str, pa.Table]:
    """The rows of each snapshot, in one pass."""
    codes = pc.index_in(table["snapshot_id"], value_set=pa.array(snapshot_ids, pa.string()))
    numbers = codes.to_numpy() if table.num_rows else np.empty(0, np.int64)
    if np.any(numbers[:-1] > numbers[1:]):
        order = np.argsort(numbers, kind="stable")
        table, numbers = taken(table, pa.array(order)), numbers[order]
    bounds = np.searchsorted(numbers, np.arange(len(snapshot_ids) + 1))
    return {
        snapshot_id: table.slice(bounds[row], bounds[row + 1] - bounds[row])
        for row, snapshot_id in enumerate(snapshot_ids)
    }
