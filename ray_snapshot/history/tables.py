"""The Delta tables on disk: their columns, how one is created and opened, which files it consists of.

Every use of `deltalake` that can fail stands inside `faults`, which turns what it raises into an error that
names the history and the table. Nothing here knows what a snapshot means: see `writer` and `reader` for that.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.errors import HistoryFormatError, HistoryNotFoundError, HistoryWriteError, RaySnapshotError
from ray_snapshot.schema import FORMAT_VERSION, SNAPSHOT_TABLES, TABLES

if TYPE_CHECKING:
    from deltalake import DeltaTable, WriterProperties

ORDER: dict[str, tuple[str, ...]] = {
    "snapshots": ("snapshot_id",),
    "machines": ("snapshot_id", "machine"),
    "channels": ("snapshot_id", "source", "target", "kind"),
    "messages": ("snapshot_id", "source", "target", "kind", "number"),
    "calls": ("snapshot_id", "machine", "call_id"),
    "waits": ("snapshot_id", "machine", "call_id", "alternative", "on_machine"),
    "verdicts": ("snapshot_id", "detector", "evaluator"),
    "actions": ("run_id", "machine", "number"),
}
"""How the rows of each table are sorted within a file, and which columns have statistics to skip files by."""

DETAIL_TABLES = tuple(name for name in SNAPSHOT_TABLES if name != "snapshots")
"""What is committed before the row of `snapshots`, and read after it."""

PARTITIONS = ("system", "date")
JSON_TEXT = ("state", "args", "coverage", "evidence", "detector_spec", "accepted", "sent")
ROWS_PER_GROUP = 32_768

_DESCRIPTION = "ray-snapshot history, format {}"
_HARMLESS_FEATURES = {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
_IMPOSSIBLE_PATH = re.compile(r"[\[\]|^\\]|%[0-9A-Fa-f]{2}")
_COMMIT_RETRIES = 100
_CONFLICT_RETRIES = 5


def stored_schema(name: str) -> pa.Schema:
    """The columns of a table on disk: those of `schema.TABLES`, then `system` and `date`, the partitions."""
    schema = TABLES[name]
    if "system" not in schema.names:
        schema = schema.append(pa.field("system", pa.string()))
    return schema.append(pa.field("date", pa.date32()))


@contextmanager
def faults(path: Path, name: str, doing: str, error: type[RaySnapshotError]) -> Iterator[None]:
    """Turn what `deltalake`, Arrow or the file system raise into `error`, naming history and table."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except RaySnapshotError:
        raise
    except BaseException as fault:
        expected = isinstance(fault, (DeltaError, OSError, ValueError, pa.ArrowException))
        if not expected and type(fault).__name__ != "PanicException":  # deltalake's Rust code gave up
            raise
        reason = " ".join(str(fault).split())[:300] or type(fault).__name__
        message = f"history {path}: table {name} cannot be {doing}: {reason}"
        raise error(message, path=path, table=name) from fault


def history_path(path: str | Path, error: type[RaySnapshotError]) -> Path:
    """The absolute path of a history; raises `error` if it has characters that `deltalake` cannot handle."""
    absolute = Path(path).expanduser().absolute()
    if found := _IMPOSSIBLE_PATH.search(str(absolute)):
        raise error(
            f"history {absolute}: the path contains {found[0]!r}, which Delta tables cannot: use another",
            path=absolute,
        )
    return absolute


# Creating and opening


def create_tables(path: Path) -> dict[str, DeltaTable]:
    """Open all tables for writing, creating those that do not exist; `snapshots` last.

    Raises `HistoryWriteError` if the folder cannot be written, `HistoryFormatError` if it holds other things.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
        for folder in (path, *(path / name for name in TABLES if (path / name).exists())):
            with tempfile.TemporaryFile(dir=folder, prefix="_probe-"):
                pass
    except OSError as fault:
        raise HistoryWriteError(
            f"history {path} cannot be written: {fault.strerror or fault}: name a folder that can be written",
            path=path,
        ) from fault
    return {name: _create(path, name) for name in (*DETAIL_TABLES, "actions", "verdicts", "snapshots")}


def _create(path: Path, name: str) -> DeltaTable:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    folder = path / name
    if not _has_commit(folder):
        if _is_foreign(folder):
            raise HistoryFormatError(
                f"history {path}: {folder} exists and is no Delta table: name another folder",
                path=path,
                table=name,
            )
        try:
            DeltaTable.create(
                str(folder),
                schema=stored_schema(name),
                mode="ignore",
                partition_by=list(PARTITIONS),
                name=name,
                description=_DESCRIPTION.format(FORMAT_VERSION),
                configuration={"delta.dataSkippingStatsColumns": ",".join(ORDER[name])},
            )
        except (DeltaError, OSError) as fault:  # another writer was faster, or it cannot be done
            if not has_log(folder):
                with faults(path, name, "created", HistoryWriteError):
                    raise fault
    return open_table(path, name)


def _has_commit(folder: Path) -> bool:
    """Whether the log of a table has been begun: another writer may be just creating it."""
    return has_log(folder) and any((folder / "_delta_log").iterdir())


def _is_foreign(folder: Path) -> bool:
    """Whether a folder holds something that no writer of a history puts there before the first commit."""
    return folder.exists() and not has_log(folder) and any(item.name[0] != "_" for item in folder.iterdir())


def has_log(folder: Path) -> bool:
    """Whether a folder is a Delta table, whole or damaged."""
    return (folder / "_delta_log").is_dir()


def open_table(path: Path, name: str) -> DeltaTable:
    """Open one table as of now; raises `HistoryFormatError` if it is missing, damaged, foreign or newer."""
    from deltalake import DeltaTable

    if not has_log(path / name):
        raise HistoryFormatError(
            f"history {path}: table {name} is missing; the history is damaged, or being created this moment",
            path=path,
            table=name,
        )
    with faults(path, name, "opened", HistoryFormatError):
        table = DeltaTable(str(path / name))
        _check_format(path, name, table)
    return table


def _check_format(path: Path, name: str, table: DeltaTable) -> None:
    found = re.fullmatch(_DESCRIPTION.format(r"(\d+)"), table.metadata().description or "")
    columns = {field.name for field in table.schema().fields}
    lacks = [column for column in (ORDER[name][0], *PARTITIONS) if column not in columns]
    if not found or lacks or table.metadata().partition_columns != list(PARTITIONS):
        problem = "is a Delta table, but none of a ray-snapshot history"
    elif int(found[1]) > FORMAT_VERSION:
        problem = f"is of format {found[1]}, newer than format {FORMAT_VERSION}: upgrade ray-snapshot to read it"
    elif strange := set(table.protocol().reader_features or ()) - _HARMLESS_FEATURES:
        problem = f"uses {', '.join(sorted(strange))}, which ray-snapshot does not read: rewrite it without"
    else:
        return
    raise HistoryFormatError(f"history {path}: table {name} {problem}", path=path, table=name)


# Writing


def append(path: Path, name: str, table: DeltaTable, rows: pa.Table) -> None:
    """Commit `rows` (of `stored_schema`) in one commit; other writers may commit at the same time."""
    from deltalake import CommitProperties, write_deltalake
    from deltalake.exceptions import CommitFailedError

    known = {field.name for field in table.schema().fields}
    for attempt in range(_CONFLICT_RETRIES):
        with faults(path, name, "written", HistoryWriteError):
            try:
                write_deltalake(
                    table,
                    rows,
                    mode="append",
                    schema_mode=None if known.issuperset(rows.column_names) else "merge",
                    writer_properties=writer_properties(name),
                    commit_properties=CommitProperties(max_commit_retries=_COMMIT_RETRIES),
                )
                return
            except CommitFailedError:
                if attempt == _CONFLICT_RETRIES - 1:
                    raise
                table.update_incremental()


def delete(path: Path, name: str, snapshot_id: str) -> None:
    """Remove the rows of one snapshot from one table."""
    from deltalake.exceptions import CommitFailedError

    predicate = "snapshot_id = '{}'".format(snapshot_id.replace("'", "''"))
    for attempt in range(_CONFLICT_RETRIES):
        table = open_table(path, name)
        with faults(path, name, "written", HistoryWriteError):
            try:
                table.delete(predicate, writer_properties=writer_properties(name))
                return
            except CommitFailedError:
                if attempt == _CONFLICT_RETRIES - 1:
                    raise


def writer_properties(name: str) -> WriterProperties:
    """Zstd, groups of rows small enough to skip, statistics per page; none of JSON text, which nobody
    compares.
    """
    from deltalake import ColumnProperties, WriterProperties

    texts = [column for column in JSON_TEXT if column in TABLES[name].names]
    return WriterProperties(
        compression="ZSTD",
        max_row_group_size=ROWS_PER_GROUP,
        default_column_properties=ColumnProperties(statistics_enabled="PAGE"),
        column_properties={
            column: ColumnProperties(statistics_enabled="NONE", dictionary_enabled=False) for column in texts
        },
    )


# Reading


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of the current version of a table."""

    path: Path
    system: str
    date: date


def data_files(
    path: Path,
    name: str,
    table: DeltaTable,
    *,
    snapshot_ids: Collection[str] | None = None,
    system: str | None = None,
) -> list[DataFile]:
    """The files of the version `table` was opened at; only those that may hold rows of `snapshot_ids`."""
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    if system is not None:
        actions = actions.filter(pc.equal(actions["partition.system"], system))
    if snapshot_ids is not None and "min.snapshot_id" in actions.column_names and snapshot_ids:
        low, high = min(snapshot_ids), max(snapshot_ids)
        begins_after = pc.greater(actions["min.snapshot_id"], high)
        ends_before = pc.less(actions["max.snapshot_id"], low)
        actions = actions.filter(pc.invert(pc.fill_null(pc.or_(begins_after, ends_before), False)))
    columns = (actions[column].to_pylist() for column in ("path", "partition.system", "partition.date"))
    rows = sorted(zip(*columns, strict=True), key=lambda row: (row[2], row[1], row[0]))
    return [DataFile(file_path(path, name, relative), owner, day) for relative, owner, day in rows]


def file_path(path: Path, name: str, relative: str) -> Path:
    """Where a file of a table lies, by its name in the log."""
    return path / name / unquote(relative)


def scan(
    name: str,
    files: Sequence[DataFile],
    *,
    snapshot_ids: Collection[str] | None = None,
    run_id: str | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """The rows of `files`, of `snapshot_ids` or of one run alone if given; groups of rows are skipped by their
    statistics.
    """
    import pyarrow.dataset as ds
    from pyarrow.fs import LocalFileSystem

    schema = stored_schema(name)
    dataset = ds.FileSystemDataset.from_paths(
        [str(file.path) for file in files],
        schema=schema,
        format=ds.ParquetFileFormat(),
        filesystem=LocalFileSystem(),
        partitions=[(ds.field("system") == file.system) & (ds.field("date") == file.date) for file in files],
    )
    names = list(columns or schema.names)
    if snapshot_ids is None and run_id is None:
        return dataset.to_table(columns=names)
    wanted = ds.field("run_id") == run_id if snapshot_ids is None else ds.field("snapshot_id").isin(list(snapshot_ids))
    try:
        return dataset.to_table(columns=names, filter=wanted)
    except pa.ArrowNotImplementedError:  # rewritten by another writer, with text types that cannot be compared
        return dataset.to_table().filter(wanted).select(names)


def in_order(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """`table` sorted by `keys`; itself if it is sorted already (nulls last)."""
    if table.num_rows < 2 or _is_sorted(table, keys):
        return table
    return table.take(pc.sort_indices(table, sort_keys=[(key, "ascending") for key in keys]))


def _is_sorted(table: pa.Table, keys: Sequence[str]) -> bool:
    sorted_so_far: Any = True
    for key in reversed(keys):
        column = table[key]
        if column.null_count:
            return False
        before, after = column.slice(0, len(column) - 1), column.slice(1)
        tied = pc.and_(pc.equal(before, after), sorted_so_far)
        sorted_so_far = pc.or_(pc.less(before, after), tied)
    return bool(pc.all(sorted_so_far).as_py())


def missing_history(path: Path) -> HistoryNotFoundError | None:
    """The error for a path at which there is no history at all; None if there is one."""
    if not path.exists():
        reason = "there is no such folder"
    elif not path.is_dir():
        reason = "it is a file, not a folder"
    elif not any(has_log(path / name) for name in TABLES):
        reason = "the folder holds no history"
    else:
        return None
    return HistoryNotFoundError(f"no history at {path}: {reason}", path=path)
