"""Parquet files of a table: how rows become one, how it is named, and what the log says of it.

A file is sorted, in groups of rows small enough to skip, with statistics of every column that is no JSON text and a page
index. Its name tells which writer made it (`owners`), and, after a compaction, to which block it belongs. It is written
under a name with `_` in front, which readers skip, and gets its own when it is whole and on the disk. Imports no Ray.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.addresses import AnyPath
from ray_snapshot.history import places
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import check_system_name
from ray_snapshot.schema import TABLES

if TYPE_CHECKING:
    from deltalake.transaction import AddAction


JSON_TEXT = (
    "state",
    "args",
    "coverage",
    "evidence",
    "detector_spec",
    "accepted",
    "sent",
    "waits",
    "fields",
    "json_schema",
)
"""Columns that no reader filters by: they have no statistics and no dictionary."""

_LONGEST_BOUND = 256
_NAME = re.compile(r"(?:part|tile-(?P<block>[0-9a-f]{12}))-(?P<owner>[0-9a-f]{12})-[0-9a-f]{12}\.parquet")


@dataclass(frozen=True, slots=True)
class Partition:
    """Where rows lie: the system, and the UTC date of their snapshot.

    Raises `NameNotAllowedError` for what no system is named: a folder is made by that name.
    """

    system: str
    date: date

    def __post_init__(self) -> None:
        check_system_name(self.system)

    @property
    def folder(self) -> str:
        return f"system={self.system}/date={self.date.isoformat()}"

    @property
    def values(self) -> dict[str, str | None]:
        return {"system": self.system, "date": self.date.isoformat()}


def file_name(owner: str, block: str | None = None) -> str:
    """A new name for a file of a writer; `block`: the compaction block that it is a tile of, if any."""
    kind = "part" if block is None else f"tile-{block}"
    return f"{kind}-{owner}-{uuid.uuid4().hex[:12]}.parquet"


def owner_of(name: str) -> str | None:
    """Which writer made a file, or had begun it; None if no writer of a history did."""
    found = _NAME.fullmatch(name.removeprefix("_"))
    return found["owner"] if found else None


def block_of(name: str) -> str | None:
    """The compaction block in the file's name, or None."""
    found = _NAME.fullmatch(name)
    return found["block"] if found else None


class FileWriter:
    """One Parquet file in the making; use it in a `with` block, which removes what is not finished."""

    def __init__(
        self, table_path: AnyPath, schema: pa.Schema, keys: Sequence[str], partition: Partition, name: str
    ) -> None:
        import pyarrow.parquet as pq

        self.table_path = table_path
        self.relative = f"{partition.folder}/{name}"
        self.partition = partition
        self.bounds = _Bounds(keys)
        self.begun = places.at(table_path).Begun(table_path.parent, table_path / self.relative)
        compared = [field.name for field in schema if field.name not in JSON_TEXT]
        self.parquet = pq.ParquetWriter(
            self.begun.sink,
            schema,
            compression="zstd",
            use_dictionary=compared,
            write_statistics=compared,
            write_page_index=True,
            data_page_size=LIMITS.page_bytes,
        )

    def __enter__(self) -> FileWriter:
        return self

    def __exit__(self, *_: object) -> None:
        if self.parquet is not None:
            self.parquet.close()
            self.begun.abandon()

    def write(self, rows: pa.Table) -> None:
        """One group of rows."""
        self.bounds.take(rows)
        self.parquet.write_table(rows, row_group_size=max(1, rows.num_rows))

    def finish(self, *, data_change: bool) -> AddAction:
        """Bring the file to the disk under its own name; returns what a commit says of it.

        `data_change`: whether its rows are new to the table.
        """
        from deltalake.transaction import AddAction

        self.parquet.close()
        size, written_at = self.begun.finish(self.table_path)
        self.parquet = None
        written_ms, values = int(written_at * 1_000), self.partition.values
        return AddAction(self.relative, size, values, written_ms, data_change, self.bounds.statistics())


def file_schema(name: str, stored: pa.Schema) -> pa.Schema:
    """The columns inside the files of a table: all but those that stand in its folders' names."""
    own = TABLES[name].names
    return pa.schema(
        [field for field in stored if field.name not in ("system", "date") or field.name in own]
    ).remove_metadata()


def write_file(
    table_path: AnyPath, rows: pa.Table, keys: Sequence[str], partition: Partition, file: str, *, data_change: bool
) -> AddAction:
    """Write sorted rows of one partition as one file."""
    with FileWriter(table_path, rows.schema, keys, partition, file) as writer:
        for group in row_groups(rows):
            writer.write(group)
        return writer.finish(data_change=data_change)


def row_groups(rows: pa.Table) -> Iterator[pa.Table]:
    """Sorted rows in groups; a snapshot that fills one begins a new one, so that its groups hold nothing else."""
    begin = 0
    fitting = LIMITS.group_bytes * rows.num_rows // max(1, rows.nbytes)  # fewer, if they are large
    for length in group_lengths(runs_of(rows), max(1, min(LIMITS.group_rows, fitting))):
        group = rows.slice(begin, length)
        yield group if group.column(0).num_chunks == 1 else group.combine_chunks()
        begin += length


def group_lengths(runs: Iterable[int], most: int = LIMITS.group_rows) -> Iterator[int]:
    """How many rows go into each group, given how many rows each snapshot has, in their order."""
    gathered = 0
    for run in runs:
        if gathered and gathered + run > most:
            yield gathered
            gathered = 0
        if run < most:
            gathered += run
            continue
        parts = -(-run // most)
        yield from (run * (part + 1) // parts - run * part // parts for part in range(parts))
    if gathered:
        yield gathered


def runs_of(rows: pa.Table) -> list[int]:
    """How many rows each snapshot has, in the order of sorted rows; rows that belong to none count one by one."""
    if "snapshot_id" not in rows.column_names:
        return [1] * rows.num_rows
    found: list[int] = []
    last = None
    for ids in rows["snapshot_id"].chunks:
        if len(ids) == 0:
            continue
        changes = np.flatnonzero(pc.not_equal(ids[1:], ids[:-1]).to_numpy(zero_copy_only=False)) + 1
        runs = np.diff(np.concatenate([[0], changes, [len(ids)]])).tolist()
        if ids[0].as_py() == last and found:
            found[-1] += runs.pop(0)
        found += runs
        last = ids[-1].as_py()
    return found


class _Bounds:
    """The statistics of a file as the log has them, gathered group by group."""

    def __init__(self, keys: Sequence[str]) -> None:
        self.keys = keys
        self.rows = 0
        self.low: dict[str, Any] = {}
        self.high: dict[str, Any] = {}
        self.nulls = dict.fromkeys(keys, 0)

    def take(self, rows: pa.Table) -> None:
        self.rows += rows.num_rows
        for key in self.keys:
            column = rows[key]
            self.nulls[key] += column.null_count
            found = pc.min_max(column).as_py()
            if found["min"] is not None:
                self.low[key] = min(self.low.get(key, found["min"]), found["min"])
                self.high[key] = max(self.high.get(key, found["max"]), found["max"])

    def statistics(self) -> str:
        """The statistics as JSON text for the log; a long lower bound is shortened, a long upper bound is left out."""
        low = {key: value[:_LONGEST_BOUND] if isinstance(value, str) else value for key, value in self.low.items()}
        high = {
            key: value for key, value in self.high.items() if not isinstance(value, str) or len(value) <= _LONGEST_BOUND
        }
        found = {"numRecords": self.rows, "minValues": low, "maxValues": high, "nullCount": self.nulls}
        return json.dumps(found, ensure_ascii=False)
