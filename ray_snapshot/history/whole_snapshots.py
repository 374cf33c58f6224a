"""Whole snapshots of a history, put together of their rows: few or many at once, all rows or those that one needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.adding import Together, totals_of_each
from ray_snapshot.errors import HistoryFormatError
from ray_snapshot.history import at_rest, rows_alone, tables
from ray_snapshot.history.stored_rows import StoredRows
from ray_snapshot.history.verification import COUNTS, row_batches, row_count
from ray_snapshot.large_columns import taken
from ray_snapshot.limits import LIMITS
from ray_snapshot.schema import TABLES
from ray_snapshot.snapshot import Absent, Snapshot

_MANY_ROWS = ("machines", "channels")
"""The tables that have a row for each machine or more."""


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

    def load_many_without_rest(
        self, snapshot_ids: Iterable[str], *, columns: Mapping[str, Sequence[str]], adding: Iterable[Any] = ()
    ) -> Iterator[Snapshot]:
        """As `load_many`, but machines at rest are absent (`Snapshot.parted`), and channels with nothing in flight left out.

        Also whole ones, where rows are not as a history is written. `columns`: those of machines and channels at least.
        `adding`: detectors that add up, for which snapshots get their `totals` where these can be had of many at once.
        """
        ids = list(snapshot_ids)
        listed = self._snapshot_rows(ids) if ids else {}
        for batch in row_batches({one: row_count(row) for one, row in listed.items()}, LIMITS.verified_encoded_rows):
            try:
                encoded = {name: self._encoded(name, batch, columns[name]) for name in _MANY_ROWS}
                chosen = at_rest.chosen(encoded["machines"], encoded["channels"], batch)
            except (at_rest.UnusualError, pa.ArrowException, ValueError, OSError):
                yield from self.load_many(batch, columns=columns)  # what is wrong is said there
                continue
            rows = {
                name: self.stored.read(name, snapshot_ids=batch, columns=columns.get(name))
                for name in tables.DETAIL_TABLES
                if name not in _MANY_ROWS
            }
            rows |= {"machines": chosen.machines, "channels": chosen.channels}
            together = Together(
                len(batch), encoded["machines"], chosen.machines_of, rows["messages"], _places(rows["messages"], batch)
            )
            totals = totals_of_each(adding, together)
            is_whole = not any(rows_alone.without(name, found) for name, found in rows.items())
            each = {
                name: _split(_as_recorded(name, found) if is_whole else found, batch) for name, found in rows.items()
            }
            for place, snapshot_id in enumerate(batch):
                parts = {name: found[snapshot_id] for name, found in each.items()}
                absent = chosen.absent[place]
                left_out = {
                    "machines": absent.count,
                    "channels": chosen.channel_counts[place] - parts["channels"].num_rows,
                }
                parts = {"snapshots": listed[snapshot_id], **parts}
                snapshot = self.assembled(snapshot_id, parts, absent, left_out, is_recorded=is_whole)
                snapshot.totals |= totals[place]
                yield snapshot

    def whole(self, snapshot_id: str) -> dict[str, pa.Table]:
        """All rows of one snapshot, sorted, table by table; raises as `load` does."""
        ((_, parts),) = self.parts([snapshot_id])
        self.assembled(snapshot_id, parts)
        return {name: tables.in_order(part, tables.ORDER[name]) for name, part in parts.items()}

    def assembled(
        self,
        snapshot_id: str,
        parts: Mapping[str, pa.Table],
        absent: Absent | None = None,
        left_out: Mapping[str, int] = MappingProxyType({}),
        *,
        is_recorded: bool = False,
    ) -> Snapshot:
        """One snapshot of its rows; raises `HistoryFormatError` if they are not all there.

        `left_out`: by table, how many of its rows are not in `parts`; of machines, those of `absent`. `is_recorded`: whether
        the rows of all tables but `snapshots` are as `_as_recorded` returns them, and complete.
        """
        as_they_are = parts.keys() - {"snapshots"} if is_recorded else ()
        for name in parts.keys() - as_they_are:
            self.stored.complete(name, parts[name])
        with tables.faults(self.stored.path, "snapshots", "read", HistoryFormatError):
            found = {name: part if name in as_they_are else _as_recorded(name, part) for name, part in parts.items()}
            snapshot = Snapshot(found, absent)
        if snapshot.status != "complete":  # an aborted one has what was recorded until then
            return snapshot
        for name, count in COUNTS:
            rows, expected = parts[name].num_rows + left_out.get(name, 0), getattr(snapshot, count)
            if rows != expected:
                raise self.stored.damaged(
                    snapshot_id,
                    name,
                    f"has {rows} rows of it, but {count} is {expected}: some are missing or doubled",
                )
        return snapshot

    def _encoded(self, name: str, snapshot_ids: Sequence[str], columns: Sequence[str]) -> pa.Table:
        return tables.scan_encoded(name, self.stored.data_files(name, snapshot_ids=snapshot_ids), snapshot_ids, columns)

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
    there = [column for column in TABLES[name].names if column in table.column_names]
    return tables.in_order(table, tables.ORDER[name]).select(there).combine_chunks()


def _places(table: pa.Table, snapshot_ids: list[str]) -> Any:
    """By row, which of the snapshots it is of."""
    codes = pc.index_in(table["snapshot_id"], value_set=pa.array(snapshot_ids, pa.string()))
    return codes.to_numpy() if table.num_rows else np.empty(0, np.int64)


def _split(table: pa.Table, snapshot_ids: list[str]) -> dict[str, pa.Table]:
    """The rows of each snapshot, in one pass."""
    numbers = _places(table, snapshot_ids)
    if np.any(numbers[:-1] > numbers[1:]):
        order = np.argsort(numbers, kind="stable")
        table, numbers = taken(table, pa.array(order)), numbers[order]
    bounds = np.searchsorted(numbers, np.arange(len(snapshot_ids) + 1))
    return {
        snapshot_id: table.slice(bounds[row], bounds[row + 1] - bounds[row])
        for row, snapshot_id in enumerate(snapshot_ids)
    }
