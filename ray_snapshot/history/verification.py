"""Checking a history: is each snapshot all there, is its cut consistent, is its JSON strict?"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ray_snapshot.errors import HistoryFormatError
from ray_snapshot.history.records import JSON_COLUMNS
from ray_snapshot.snapshot import Snapshot

if TYPE_CHECKING:
    from ray_snapshot.history.reader import History

COUNTS = (("machines", "machine_count"), ("channels", "channel_count"), ("messages", "in_flight_count"))
"""Which column of `snapshots` says how many rows a snapshot has in which table."""

_ROWS_AT_ONCE = 200_000
_SNAPSHOTS_AT_ONCE = 500
_MOST_PROBLEMS = 20


def verify(history: History, system: str | None) -> Iterator[tuple[str, list[str]]]:
    """(snapshot_id, problems) of every snapshot, those that are listed more than once last."""
    listed = history.table("snapshots", system=system)
    times = Counter(listed["snapshot_id"].to_pylist())
    sizes = {
        listed["snapshot_id"][row].as_py(): row_count(listed.slice(row, 1))
        for row in range(listed.num_rows)
        if times[listed["snapshot_id"][row].as_py()] == 1
    }
    for batch in row_batches(dict(sorted(sizes.items()))):
        yield from _verify_batch(history, batch)
    for snapshot_id, count in sorted(times.items()):
        if count > 1:
            yield snapshot_id, [f"the table snapshots lists it {count} times"]


def row_count(row: pa.Table) -> int:
    """How many rows the snapshot of one row of `snapshots` has elsewhere, as far as it says."""
    return sum(row[count][0].as_py() or 0 for _, count in COUNTS)


def row_batches(sizes: Mapping[str, int]) -> Iterator[list[str]]:
    """Runs of snapshots, given with their sizes, that can be read at once within a bounded number of rows."""
    batch: list[str] = []
    rows = 0
    for snapshot_id, size in sizes.items():
        if batch and (rows + size > _ROWS_AT_ONCE or len(batch) == _SNAPSHOTS_AT_ONCE):
            yield batch
            batch, rows = [], 0
        batch.append(snapshot_id)
        rows += size
    if batch:
        yield batch


def _verify_batch(history: History, batch: list[str]) -> Iterator[tuple[str, list[str]]]:
    try:
        found = [(snapshot.snapshot_id, _problems(snapshot)) for snapshot in history.load_many(batch)]
    except HistoryFormatError as error:  # which of them is it?
        found = [(batch[0], [str(error)])] if len(batch) == 1 else []
        for snapshot_id in batch if len(batch) > 1 else ():
            found += _verify_batch(history, [snapshot_id])
    yield from found


def _problems(snapshot: Snapshot) -> list[str]:
    found = _json_problems(snapshot)
    if snapshot.status != "complete":
        return found
    found += snapshot.faults()
    if not snapshot.consistent and not snapshot.repeats_by_design:
        found.append("it is recorded as not consistent")
    return found


def _json_problems(snapshot: Snapshot) -> list[str]:
    found = [
        f"{column} in row {row} of {name} is no strict JSON"
        for name, columns in JSON_COLUMNS.items()
        if name in snapshot.tables
        for column in columns
        for row, text in enumerate(snapshot.tables[name][column].to_pylist())
        if text is not None and not _is_strict(text)
    ]
    return found[:_MOST_PROBLEMS]


def _is_strict(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_refuse, object_pairs_hook=_unique)
    except (ValueError, RecursionError):
        return False
    return True


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _unique(pairs: list[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("a key occurs twice")
