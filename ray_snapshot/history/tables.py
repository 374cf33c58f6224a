"""The Delta tables on disk: their columns, how one is created and opened, which files it consists of.

Every use of `deltalake` that can fail stands inside `faults`, which turns what it raises into an error that
names the history and the table. Nothing here knows what a snapshot means: see `writer` and `reader` for that.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot import large_columns
from ray_snapshot.addresses import AnyPath, StorePath, given
from ray_snapshot.errors import (
    HistoryFormatError,
    HistoryNotFoundError,
    HistoryWriteError,
    NameNotAllowedError,
    RaySnapshotError,
)
from ray_snapshot.history import bounds, inside, objects, places, stores
from ray_snapshot.history.files import Partition
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import check_system_name
from ray_snapshot.schema import FORMAT_VERSION, SNAPSHOT_TABLES, TABLES

if TYPE_CHECKING:
    from deltalake import DeltaTable

ORDER: dict[str, tuple[str, ...]] = {
    "snapshots": ("snapshot_id",),
    "machines": ("snapshot_id", "machine"),
    "channels": ("snapshot_id", "source", "target", "kind"),
    "messages": ("snapshot_id", "source", "target", "kind", "number"),
    "calls": ("snapshot_id", "machine", "call_id"),
    "waits": ("snapshot_id", "machine", "call_id", "alternative", "on_machine"),
    "verdicts": ("snapshot_id", "detector", "evaluator"),
    "actions": ("run_id", "machine", "number"),
    "classes": ("class_name", "version"),
}
"""How the rows of each table are sorted within a file, and which columns have statistics to skip files by."""

DETAIL_TABLES = tuple(name for name in SNAPSHOT_TABLES if name != "snapshots")
"""What is committed before the row of `snapshots`, and read after it."""

PARTITIONS = ("system", "date")

LOG = "_delta_log"
"""Where in the folder of a table its commits are."""

_DESCRIPTION = "ray-snapshot history, format {}"
_HARMLESS_FEATURES = {"timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
_IMPOSSIBLE_PATH = re.compile(r"[\[\]|^\\]|%[0-9A-Fa-f]{2}")
_REMEDIES = {
    "opened": "; its log is damaged: put back the folder from a copy",
    "read": "; a file of it is damaged or gone: put it back from a copy; `ray-snapshot history verify` says what is whole",
}
_FIRST_DAY, _LAST_DAY = (day.toordinal() - date(1970, 1, 1).toordinal() for day in (date.min, date.max))


@cache
def stored_schema(name: str) -> pa.Schema:
    """The columns of a table on disk: those of `schema.TABLES`, then `system` and `date`, the partitions."""
    schema = TABLES[name]
    if "system" not in schema.names:
        schema = schema.append(pa.field("system", pa.string()))
    return schema.append(pa.field("date", pa.date32()))


@contextmanager
def faults(path: AnyPath, name: str, doing: str, error: type[RaySnapshotError]) -> Iterator[None]:
    """Turn what `deltalake`, Arrow or the file system raise into `error`, naming history and table."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except RaySnapshotError:
        raise
    except BaseException as fault:
        damage = (DeltaError, OSError, ValueError, OverflowError, RecursionError, MemoryError, pa.ArrowException)
        expected = isinstance(fault, damage)
        if not expected and type(fault).__name__ != "PanicException":  # deltalake's Rust code gave up
            raise
        reason, remedy = " ".join(str(fault).split())[:300] or type(fault).__name__, _REMEDIES.get(doing, "")
        if isinstance(path, StorePath):
            is_known = isinstance(fault, stores.StoreFault) or stores.known_meaning(path, reason) is not None
            reason, remedy = stores.meaning(path, str(fault)), "" if is_known else remedy
        message = f"history {path}: table {name} cannot be {doing}: {reason}{remedy}"
        raise error(message, path=path, table=name) from fault


def history_path(path: str | os.PathLike[str] | StorePath, error: type[RaySnapshotError]) -> AnyPath:
    """The absolute path of a history, or its place in a store; raises `error` if it has characters that `deltalake` cannot
    handle, or is the address of no store that is known.

    The history's own folder may be a link: that is resolved here, once. Nothing below it is: see `inside`.
    """
    path = given(path, error)
    if isinstance(path, StorePath):
        return path
    try:
        absolute = Path(path).expanduser().resolve()
        os.lstat(absolute)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, RuntimeError, ValueError) as fault:
        reason = getattr(fault, "strerror", None) or str(fault)
        raise error(f"history {str(path)[:200]}: no path that can be used: {reason}", path=str(path)) from None
    if found := _IMPOSSIBLE_PATH.search(str(absolute)):
        raise error(
            f"history {absolute}: the path contains {found[0]!r}, which Delta tables cannot: use another", path=absolute
        )
    return absolute


# Creating and opening


def create_tables(path: AnyPath) -> dict[str, DeltaTable]:
    """Open all tables for writing, creating those that do not exist; `snapshots` last.

    Raises `HistoryWriteError` if the folder cannot be written, `HistoryFormatError` if it holds other things.
    """
    try:
        places.at(path).check_writable(path)
        if isinstance(path, Path):
            _probe_tables(path)
    except OSError as fault:
        raise HistoryWriteError(
            f"history {path} cannot be written: {fault.strerror or fault}: name a folder that can be written", path=path
        ) from fault
    return {name: _create(path, name) for name in (*DETAIL_TABLES, "actions", "classes", "verdicts", "snapshots")}


def _probe_tables(path: Path) -> None:
    for name in TABLES:
        if os.path.lexists(path / name):
            inside.probe(path, path / name)


def _create(path: AnyPath, name: str) -> DeltaTable:
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    folder = path / name
    if not _has_commit(folder):
        if _is_foreign(folder):
            raise HistoryFormatError(
                f"history {path}: {folder} exists and is no Delta table: name another folder", path=path, table=name
            )
        places.at(path).refuse_links(path, folder)
        try:
            DeltaTable.create(
                str(folder),
                storage_options=stores.delta_options(path),
                schema=stored_schema(name),
                mode="ignore",
                partition_by=list(PARTITIONS),
                name=name,
                description=_DESCRIPTION.format(FORMAT_VERSION),
                configuration={"delta.dataSkippingStatsColumns": ",".join(ORDER[name])},
            )
            places.at(path).sync_log(path, folder / LOG, -1)
            if isinstance(path, Path):
                inside.sync_names(path, path / name / LOG, path)
        except (DeltaError, OSError) as fault:  # another writer was faster, or it cannot be done
            if not has_log(folder):
                with faults(path, name, "created", HistoryWriteError):
                    raise fault
    return open_table(path, name)


def _has_commit(folder: AnyPath) -> bool:
    """Whether the log of a table has been begun: another writer may be just creating it."""
    if isinstance(folder, StorePath):
        return has_log(folder)
    return has_log(folder) and any((folder / LOG).iterdir())


def _is_foreign(folder: AnyPath) -> bool:
    """Whether a folder holds something that no writer of a history puts there before the first commit."""
    if isinstance(folder, StorePath):
        return any(name[0] != "_" for name in objects.names(folder))
    return folder.exists() and not has_log(folder) and any(item.name[0] != "_" for item in folder.iterdir())


def has_log(folder: AnyPath) -> bool:
    """Whether a folder is a Delta table, whole or damaged."""
    log = folder / LOG
    return objects.is_any_below(log) if isinstance(log, StorePath) else log.is_dir()


def present(path: AnyPath) -> list[str]:
    """The tables that a history has, whole or damaged: an old one may lack those that came later."""
    if isinstance(path, StorePath):
        names = set(objects.names(path))
        return [name for name in TABLES if name in names]
    return [name for name in TABLES if has_log(path / name)]


def open_table(path: AnyPath, name: str) -> DeltaTable:
    """Open one table as of now; raises `HistoryFormatError` if it is missing, damaged, foreign or newer."""
    from deltalake import DeltaTable

    if isinstance(path, Path) and not has_log(path / name):
        raise _missing(path, name)
    with faults(path, name, "opened", HistoryFormatError):
        if not check_log(path, name):
            raise _missing(path, name)
        table = DeltaTable(str(path / name), storage_options=stores.delta_options(path))
        _check_format(path, name, table)
    return table


def _missing(path: AnyPath, name: str) -> HistoryFormatError:
    return HistoryFormatError(
        f"history {path}: table {name} is missing; the history is damaged, or being created this moment",
        path=path,
        table=name,
    )


def check_log(path: AnyPath, name: str) -> int:
    """How many files a log has; raises if it holds anything but files, or would exhaust memory: a stranger may have made
    it so.

    `deltalake` takes as much memory as it is told to.
    """
    count = 0
    for entry, size, key in places.at(path).log_entries(path, path / name / LOG):
        if entry.name.endswith(".parquet"):
            _check_rows_of_log(path, entry, size, key)
        elif size > LIMITS.log_bytes:
            raise ValueError(f"{entry} has {size} bytes, more than any commit of a history")
        count += 1
    return count


@lru_cache(maxsize=10_000)
def _check_rows_of_log(path: AnyPath, entry: AnyPath, size: int, key: object) -> None:  # noqa: ARG001 - which file it was
    """Refuse a checkpoint of a log that is small and stands for much."""
    with suppress(FileNotFoundError):  # the log has just been cleaned up
        bounds.check_file(size, entry, partial(places.at(path).opened, path, entry))


def _check_format(path: AnyPath, name: str, table: DeltaTable) -> None:
    found = re.fullmatch(_DESCRIPTION.format(r"(\d+)"), table.metadata().description or "")
    columns = {field.name for field in table.schema().fields}
    lacks = [column for column in (ORDER[name][0], *PARTITIONS) if column not in columns]
    kinds = [
        str(getattr(field.type, "type", field.type)) for field in table.schema().fields if field.name in PARTITIONS
    ]
    is_ours = table.metadata().partition_columns == list(PARTITIONS) and sorted(kinds) == ["date", "string"]
    if not found or lacks or not is_ours:
        problem = "is a Delta table, but none of a ray-snapshot history"
    elif int(found[1]) > FORMAT_VERSION:
        problem = f"is of format {found[1]}, newer than format {FORMAT_VERSION}: upgrade ray-snapshot to read it"
    elif strange := set(table.protocol().reader_features or ()) - _HARMLESS_FEATURES:
        problem = f"uses {', '.join(sorted(strange))}, which ray-snapshot does not read: rewrite it without"
    else:
        return
    raise HistoryFormatError(f"history {path}: table {name} {problem}", path=path, table=name)


# Reading


@dataclass(frozen=True, slots=True)
class DataFile:
    """One Parquet file of the current version of a table."""

    top: AnyPath
    """The folder of the history."""
    path: AnyPath
    system: str
    date: date
    relative: str = ""
    """The file's name in the log."""
    size: int = 0
    """The file's size in bytes."""
    rows: int | None = None
    low: str = ""
    """The smallest snapshot id in it."""

    @property
    def partition(self) -> Partition:
        return Partition(self.system, self.date)


def data_files(
    path: AnyPath,
    name: str,
    table: DeltaTable,
    *,
    snapshot_ids: Collection[str] | None = None,
    system: str | None = None,
    machine: str | None = None,
) -> list[DataFile]:
    """The files of the version `table` was opened at; only those that may hold rows of `snapshot_ids`, of `machine`."""
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    if system is not None:
        actions = actions.filter(pc.equal(actions["partition.system"], system))
    _check_dates(actions["partition.date"])
    if snapshot_ids:
        actions = _overlapping(actions, "snapshot_id", min(snapshot_ids), max(snapshot_ids))
    if machine is not None:
        actions = _overlapping(actions, "machine", machine, machine)
    nothing = pa.nulls(actions.num_rows, pa.string())
    lows = actions["min.snapshot_id"] if "min.snapshot_id" in actions.column_names else nothing
    names = ("partition.date", "partition.system", "path", "size_bytes", "num_records")
    columns = (actions[column].to_pylist() for column in names)
    return [
        DataFile(path, file_path(path, name, relative), _checked_system(owner), day, relative, size, rows, low or "")
        for day, owner, relative, size, rows, low in sorted(
            zip(*columns, lows.to_pylist(), strict=True), key=lambda row: (row[0], row[1], row[2])
        )
    ]


def _checked_system(name: object) -> str:
    """The system of a partition; raises `ValueError` for what no system is named: folders are made by that name."""
    try:
        return check_system_name(name)
    except NameNotAllowedError:
        raise ValueError(
            f"its log names a partition of the system {str(name)[:200]!r}, which no system is named"
        ) from None


def _check_dates(dates: pa.Array) -> None:
    """Raise `ValueError` for a partition of no date, or of one that is none in Python."""
    ends = pc.min_max(dates.cast(pa.int32())).as_py()
    if dates.null_count or (len(dates) and not (_FIRST_DAY <= ends["min"] <= ends["max"] <= _LAST_DAY)):
        raise ValueError("its log names a partition without a date, or of a date that is none")


def _overlapping(actions: pa.Table, column: str, low: str, high: str) -> pa.Table:
    """The files whose statistics do not rule out a value from `low` to `high`."""
    if f"min.{column}" not in actions.column_names or f"max.{column}" not in actions.column_names:
        return actions
    begins_after = pc.fill_null(pc.greater(actions[f"min.{column}"], high), False)
    ends_before = pc.fill_null(pc.less(actions[f"max.{column}"], low), False)
    return actions.filter(pc.invert(pc.or_(begins_after, ends_before)))


def file_path(path: AnyPath, name: str, relative: str) -> AnyPath:
    """Where a file of a table lies, by its name in the log; raises `ValueError` if that is outside of the table."""
    parts = unquote(relative).split("/")
    if ":" in parts[0] or not parts[0] or ".." in parts or "\0" in relative:
        raise ValueError(f"its log names {relative[:200]!r}, which is no file of the table")
    return (path / name).joinpath(*parts)


def scan(
    name: str,
    files: Sequence[DataFile],
    *,
    snapshot_ids: Collection[str] | None = None,
    equal: Mapping[str, str | None] | None = None,
    columns: Sequence[str] | None = None,
) -> pa.Table:
    """The rows of `files`: of `snapshot_ids` if given, and with these values in their columns (None: any).

    Groups of rows are skipped by their statistics.
    """
    return _table(name, files, _wanted(snapshot_ids, equal or {}), list(columns or stored_schema(name).names))


def scan_range(name: str, files: Sequence[DataFile], column: str, low: str, high: str) -> pa.Table:
    """The rows of `files` in which `column` is from `low` to `high`, both included."""
    import pyarrow.dataset as ds

    wanted = (ds.field(column) >= low) & (ds.field(column) <= high)
    return _table(name, files, wanted, stored_schema(name).names)


def _table(name: str, files: Sequence[DataFile], wanted: Any, columns: list[str]) -> pa.Table:
    """The rows of files that are `wanted` (None: all); a bounded number of files is open at a time."""
    allowance = bounds.Allowance(sum(check_files(files)))
    parts = []
    for begin in range(0, len(files), LIMITS.files_at_once):
        some = files[begin : begin + LIMITS.files_at_once]
        try:
            found = dataset(name, some, allowance, wanted, columns)
            parts.append(found.to_table(columns=columns, filter=wanted))
        except pa.ArrowNotImplementedError:  # rewritten by another writer, with text types that cannot be compared
            whole = dataset(name, some, allowance, None, stored_schema(name).names).to_table()
            parts.append(whole.filter(wanted).select(columns))
    empty = stored_schema(name).empty_table().select(columns)
    return pa.concat_tables(parts) if parts else empty


def _wanted(snapshot_ids: Collection[str] | None, equal: Mapping[str, str | None]) -> Any:
    """The rows asked for, as a filter; None for all."""
    import pyarrow.dataset as ds

    wanted = None if snapshot_ids is None else ds.field("snapshot_id").isin(list(snapshot_ids))
    if snapshot_ids:  # of more than a few values, Arrow does not look whether any is between the bounds of a group
        field = ds.field("snapshot_id")
        wanted = (field >= min(snapshot_ids)) & (field <= max(snapshot_ids)) & wanted
    for column, value in equal.items():
        if value is not None:
            is_equal = ds.field(column) == value
            wanted = is_equal if wanted is None else wanted & is_equal
    return wanted


def dataset(
    name: str, files: Sequence[DataFile], allowance: bounds.Allowance, wanted: Any, columns: Collection[str]
) -> Any:
    """The files as one Arrow dataset, without groups of rows that hold nothing that is `wanted`.

    Raises `ValueError` for what is no file of its table, and for files that would take too much memory (see `bounds`).
    """
    import pyarrow.dataset as ds

    schema, parquet = stored_schema(name), ds.ParquetFileFormat()
    fragments = []
    for file in files:
        partition = (ds.field("system") == file.system) & (ds.field("date") == file.date)
        opened = places.at(file.top).native_file(file.top, file.path)
        whole = parquet.make_fragment(opened, partition_expression=partition)
        _check_names(file, whole.physical_schema.names)
        part = chosen_groups(whole, wanted, schema)
        source = partial(places.at(file.top).opened, file.top, file.path)
        groups = [group.id for group in part.row_groups]
        bounds.check_groups(allowance, file.path, whole.metadata, groups, columns, source)
        fragments += [part] if groups else []
    return ds.FileSystemDataset(fragments, schema, parquet)


def _check_names(file: DataFile, names: Sequence[str]) -> None:
    """Raise `ValueError` if a column is there twice: some reads would take one of the two, and others none."""
    if len(set(names)) < len(names):
        raise ValueError(f"{file.path} has two columns of one name")


@contextmanager
def opened(file: DataFile) -> Iterator[Any]:
    """One file as a `pyarrow.parquet.ParquetFile`, when it is known that it takes no more memory than it may."""
    import pyarrow.parquet as pq

    source = partial(places.at(file.top).opened, file.top, file.path)
    bounds.check_file(check_file(file), file.path, source)
    with source() as found, pq.ParquetFile(found) as parquet:
        yield parquet


def chosen_groups(fragment: Any, wanted: Any, schema: pa.Schema) -> Any:
    """A Parquet fragment without the groups of rows that, by their statistics, hold nothing that is wanted."""
    if wanted is None:
        return fragment
    try:
        return fragment.subset(wanted, schema=schema)
    except pa.ArrowNotImplementedError:  # rewritten by another writer, with text types that cannot be compared
        return fragment


def check_file(file: DataFile) -> int:
    """The size of a data file; refuses a link or a pipe in its place, raises `FileNotFoundError` if there is nothing."""
    return sum(check_files([file]))


def check_files(files: Sequence[DataFile]) -> list[int]:
    """The same of several files of one table."""
    if not files:
        return []
    try:
        return places.at(files[0].top).sizes(files[0].top, [file.path for file in files])
    except HistoryFormatError as fault:
        raise ValueError(getattr(fault, "problem", str(fault))) from fault


def checked_paths(path: AnyPath, name: str, files: Sequence[DataFile]) -> list[str]:
    """The paths of the files of a table, for another reader; raises `HistoryFormatError` if a link is among them."""
    with faults(path, name, "read", HistoryFormatError):
        check_files(files)
    return [str(file.path) for file in files]


def in_order(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """`table` sorted by `keys`; itself if it is sorted already (nulls last)."""
    if table.num_rows < 2 or _is_sorted(table, keys):
        return table
    return large_columns.in_order(table, keys)


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


def missing_history(path: AnyPath) -> HistoryNotFoundError | None:
    """The error for a path at which there is no history at all; None if there is one."""
    if isinstance(path, StorePath):
        try:
            if present(path):
                return None
            reason = "there is nothing at this address that is one"
        except OSError as fault:
            reason = str(fault)
    elif not path.exists():
        reason = "there is no such folder"
    elif not path.is_dir():
        reason = "it is a file, not a folder"
    elif not present(path):
        reason = "the folder holds no history"
    else:
        return None
    return HistoryNotFoundError(f"no history at {path}: {reason}", path=path)
