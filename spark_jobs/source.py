"""`spark.read.format("ray_snapshot")`: a table of a history as a Spark data source.

    spark.read.format("ray_snapshot").option("table", "machines").load("history")

A task reads whole files, or groups of rows of a large one, and hands Arrow batches on. Only what `snapshots` lists exists:
a task takes the ids that its files may hold from there, and leaves all other rows out. Columns are an option, for Spark does
not push them down into Python sources; nor are filters, for Spark 4.3 keeps what a frame's first query has filtered for every
later query of the same frame that filters by nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import date
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from ray_snapshot.addresses import AnyPath, given
from ray_snapshot.errors import HistoryFormatError, HistoryNotFoundError, SettingError
from ray_snapshot.history import History, bounds, places, tables
from ray_snapshot.schema import TABLES

if TYPE_CHECKING:
    from deltalake import DeltaTable

OPTIONS = ("path", "table", "columns")
BYTES_PER_TASK = 32 << 20
"""Compressed bytes that a task reads, about: small files are put together, large ones are split at groups of rows."""


@dataclass(frozen=True, slots=True)
class Options:
    """What was asked for, checked."""

    path: str
    table: str
    columns: tuple[str, ...]

    @property
    def schema(self) -> pa.Schema:
        """The chosen columns with their types."""
        stored = tables.stored_schema(self.table)
        return pa.schema([stored.field(name) for name in self.columns])


def options_of(given: Mapping[str, str]) -> Options:
    """Check the options; raises `SettingError`, naming the option and what it may be."""
    known = {name.lower() for name in OPTIONS}
    if strange := sorted(name for name in given if name.lower() not in known):
        raise SettingError(f"ray_snapshot has no option {strange[0]!r}; it has {', '.join(OPTIONS)}")
    path, table = given.get("path"), given.get("table", "snapshots")
    if not path:
        raise SettingError("ray_snapshot needs the folder of a history: .load(folder)")
    if table not in TABLES:
        raise SettingError(f"option table: a history has no table {table!r}; it has {', '.join(TABLES)}")
    return Options(path=path, table=table, columns=_columns(given.get("columns"), table))


def _columns(text: str | None, table: str) -> tuple[str, ...]:
    known = tables.stored_schema(table).names
    if text is None:
        return tuple(known)
    chosen = tuple(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    if strange := [name for name in chosen if name not in known]:
        raise SettingError(f"option columns: {table} has no column {strange[0]!r}; it has {', '.join(known)}")
    return chosen or tuple(known)


class HistorySource(DataSource):  # type: ignore[misc]
    """The Spark data source that reads a table of a history. Options: `OPTIONS`."""

    @classmethod
    def name(cls) -> str:
        """The name of the format."""
        return "ray_snapshot"

    def schema(self) -> StructType:
        """The chosen columns of the table."""
        return from_arrow_schema(options_of(self.options).schema)

    def reader(self, schema: StructType) -> DataSourceReader:  # noqa: ARG002 - it is that of the options
        """For `spark.read`."""
        return HistoryReader(options_of(self.options))


# ---- which files -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Piece:
    """One file, or every `of`-th group of its rows beginning with group `part`."""

    path: str
    system: str
    date: date
    part: int = 0
    of: int = 1


@dataclass
class Task(InputPartition):  # type: ignore[misc]
    """What one task reads: rows of `pieces` whose snapshot is listed in one of `listings` (None: all of them)."""

    pieces: tuple[Piece, ...]
    listings: tuple[str, ...] | None = None


def tasks_of(pieces: Iterable[tuple[Piece, int]], listings: tuple[str, ...] | None) -> list[Task]:
    """Pieces (with their bytes) put together, and split, to tasks of about the same size."""
    found: list[Task] = []
    gathered: list[Piece] = []
    size = 0
    for piece, size_bytes in pieces:
        if size_bytes > BYTES_PER_TASK:
            of = -(-size_bytes // BYTES_PER_TASK)
            found += [Task((replace(piece, part=part, of=of),), listings) for part in range(of)]
            continue
        if gathered and size + size_bytes > BYTES_PER_TASK:
            found.append(Task(tuple(gathered), listings))
            gathered, size = [], 0
        gathered.append(piece)
        size += size_bytes
    return [*found, Task(tuple(gathered), listings)] if gathered else found


def pieces_of(path: AnyPath, name: str, table: DeltaTable) -> list[tuple[Piece, int]]:
    """The files of a table with their bytes."""
    found = tables.data_files(path, name, table)
    return [(Piece(str(one.path), one.system, one.date), one.size) for one in found]


# ---- batch ---------------------------------------------------------------------------------------------------------------


class HistoryReader(DataSourceReader):  # type: ignore[misc]
    """One read of one table."""

    def __init__(self, options: Options) -> None:
        self.options = options

    def partitions(self) -> list[Task]:
        """The tasks of this read; the files are those of one version."""
        options, path = self.options, History(self.options.path).path
        listed = tables.open_table(path, "snapshots")  # before the other table: what it lists, that one has
        pieces = pieces_of(path, options.table, tables.open_table(path, options.table))
        listings: tuple[str, ...] | None = None
        if options.table != "snapshots" and "snapshot_id" in TABLES[options.table].names:
            listings = tuple(piece.path for piece, _ in pieces_of(path, "snapshots", listed))
        return tasks_of(pieces, listings) or [Task(())]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        assert isinstance(partition, Task)
        return rows_of(self.options, partition)


# ---- in a task -----------------------------------------------------------------------------------------------------------


def rows_of(options: Options, task: Task) -> Iterator[pa.RecordBatch]:
    """The rows of `task` in Arrow batches of the chosen columns."""
    for piece in task.pieces:
        with _there(options.path, options.table, piece):
            fragment = _fragment(options.path, piece, options.schema.names)
            exists = None
            if task.listings is not None:
                exists = _is_one_of(listed(options.path, task.listings, _extent(fragment)))
            yield from _batches(fragment, options.table, options.schema, exists)


def listed(history: str, listings: tuple[str, ...], extent: tuple[str, str] | None = None) -> pa.Array:
    """The ids that these files of `snapshots` list, those within `extent` alone if it is given."""
    schema = pa.schema([tables.stored_schema("snapshots").field("snapshot_id")])
    wanted = None
    if extent is not None:
        wanted = (pc.field("snapshot_id") >= extent[0]) & (pc.field("snapshot_id") <= extent[1])
    found: list[pa.Array] = [pa.array([], pa.string())]
    for path in listings:
        piece = Piece(path, "", date.min)
        with _there(history, "snapshots", piece):
            found += [
                batch.column(0)
                for batch in _batches(_fragment(history, piece, schema.names), "snapshots", schema, wanted)
            ]
    return pa.concat_arrays(found)


def extent_of(ids: pa.Array) -> tuple[str, str] | None:
    """The first and the last of some ids; None if there are none."""
    found = pc.min_max(ids).as_py()
    return None if found["min"] is None else (found["min"], found["max"])


def _is_one_of(ids: pa.Array) -> pc.Expression:
    """Rows of these snapshots; between the first and the last, so that groups of rows can be skipped."""
    column, extent = pc.field("snapshot_id"), extent_of(ids)
    if extent is None:
        return pc.scalar(False)
    return (column >= extent[0]) & (column <= extent[1]) & column.isin(ids)


def _extent(fragment: Any) -> tuple[str, str] | None:
    """The ids between which all rows lie, by the statistics of the file; None if a group has none."""
    found = [one["snapshot_id"] for group in fragment.row_groups if "snapshot_id" in (one := group.statistics or {})]
    if not found or len(found) < fragment.num_row_groups:
        return None
    return min(one["min"] for one in found), max(one["max"] for one in found)


def _batches(fragment: Any, name: str, schema: pa.Schema, wanted: pc.Expression | None) -> Iterator[pa.RecordBatch]:
    scanner = ds.Scanner.from_fragment(fragment, schema=tables.stored_schema(name), columns=schema.names, filter=wanted)
    for batch in scanner.to_batches():
        if batch.num_rows:
            yield batch.cast(schema)


@contextmanager
def _there(history: str, name: str, piece: Piece) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as fault:
        raise HistoryFormatError(
            f"history {history}: {piece.path} is gone: a vacuum took it away; read again", path=history, table=name
        ) from fault


def _fragment(history: str, piece: Piece, columns: list[str]) -> Any:
    """The groups of rows that a piece is, when it is known that they take no more memory than they may."""
    top, path = tables.history_path(history, HistoryNotFoundError), given(piece.path, HistoryNotFoundError)
    files = places.at(top)
    file = files.native_file(top, path)
    allowance = bounds.Allowance(file.size())
    partition = (pc.field("system") == piece.system) & (pc.field("date") == pa.scalar(piece.date))
    fragment = ds.ParquetFileFormat().make_fragment(file, partition_expression=partition)
    groups = [group.id for group in fragment.row_groups][piece.part :: piece.of]
    with tables.faults(top, "files", "read", HistoryFormatError):
        bounds.check_groups(allowance, path, fragment.metadata, groups, columns, partial(files.opened, top, path))
    return fragment if piece.of == 1 else fragment.subset(row_group_ids=groups)
