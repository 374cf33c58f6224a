"""The process that answers a query: DuckDB over the tables of one history, bounded in memory, unable to write or read else.

`query` starts it, and writes what is asked to its standard input as JSON; the answer goes to its standard output, as an Arrow
stream, or as JSON that says why there is none. Four walls stand one behind the other: only a single statement that reads is
taken; DuckDB has no file system, no extensions and no settings that a query could change; the process can write no file; and
it is ended by who has started it.
"""

from __future__ import annotations

import json
import os
import re
import resource
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from ray_snapshot.errors import HistoryFormatError, QueryError, RaySnapshotError
from ray_snapshot.first_array import warm_up_without_pandas
from ray_snapshot.history import History, listed, tables
from ray_snapshot.questions.query import IS_CUT, REFUSED
from ray_snapshot.schema import TABLES

MEMORY = 1_000_000_000
"""Bytes that DuckDB may take for what it sorts, groups and joins."""

ROOM = 2_000_000_000
"""Bytes that the whole process may take beside what it had before the query."""

MOST_BYTES = 256_000_000
"""Bytes of an answer."""

_SPARE_S = 10
_ROWS_AT_ONCE = 2_048
_MOST_THREADS = 4
_SETTINGS: dict[str, Any] = {
    "enable_external_access": False,
    "python_enable_replacements": False,
    "autoload_known_extensions": False,
    "autoinstall_known_extensions": False,
    "temp_directory": "",
}
_LONGEST = 300
_PLACE = re.compile(r"\n\nLINE (\d+): (.*)\n( *)(\^+)\s*$", re.DOTALL)
_UNNAMED = "is not named by the query"
_UNREAD = re.compile(r"registered as '(\w+)' failed: (.*?)(?:\. Detail: Python exception.*)?$", re.DOTALL)
_NO_TABLE = re.compile(r"Table with name (.+?) does not exist")
_KIND = re.compile(r"^[A-Z][A-Za-z ]* Error: ")


def main() -> int:
    """Answer what stands on standard input."""
    warm_up_without_pandas()
    request = json.load(sys.stdin)
    out = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    try:
        rows = answered(request)
    except RaySnapshotError as error:
        with out:
            out.write(json.dumps({"error": type(error).__name__, "text": str(error)}).encode())
        return REFUSED
    with out, pa.ipc.new_stream(out, rows.schema) as stream:
        stream.write_table(rows)
    return 0


def answered(request: dict[str, Any]) -> pa.Table:
    """The rows of a query; raises `QueryError`, `HistoryFormatError`."""
    query, threads = request["query"], min(_MOST_THREADS, os.cpu_count() or 1)
    settings = {**_SETTINGS, "memory_limit": f"{MEMORY}B", "threads": threads}
    with duckdb.connect(":memory:", config=settings) as database:
        database.execute("SET TimeZone = 'UTC'")
        database.execute("SET enable_progress_bar = false")
        _bound(request["seconds"] * threads)
        _check(database, query)
        history = History(request["history"])
        _register(database, history, query)
        database.execute("SET lock_configuration = true")
        try:
            return _rows(database.sql(query).to_arrow_reader(_ROWS_AT_ONCE), request["limit"])
        except (duckdb.Error, pa.ArrowException, OSError) as error:
            raise _told(database, history, query, error) from error


def _check(database: Any, query: str) -> None:
    """Raise `QueryError` unless it is one statement that reads."""
    try:
        statements = database.extract_statements(query)
    except duckdb.Error as error:
        raise QueryError(_with_place(error)) from error
    if len(statements) != 1:
        raise QueryError(f"one query at a time, and these are {len(statements)} statements")
    (statement,) = statements
    if statement.type != duckdb.StatementType.SELECT:
        raise QueryError(
            f"{statement.type.name} is refused: only what reads tables of the history is answered (SELECT, WITH, FROM, VALUES,"
            " DESCRIBE, SUMMARIZE, SHOW TABLES)"
        )


def _register(database: Any, history: History, query: str) -> None:
    """Make each table of the history one of the database; those that the query does not name are not opened."""
    ids = history.as_stored().table("snapshots")["snapshot_id"].combine_chunks()
    words = query.casefold()
    for name in TABLES:
        if name in words:
            database.register(name, listed.dataset(history, name, ids))
        else:
            schema = tables.stored_schema(name)
            database.register(name, pa.RecordBatchReader.from_batches(schema, _unopened(name)))


def _unopened(name: str) -> Iterator[pa.RecordBatch]:
    """The rows of a table that was not opened; it is listed and described without them."""
    yield from _refuse(name)


def _refuse(name: str) -> list[pa.RecordBatch]:
    raise ValueError(f"{name} {_UNNAMED}")


def _bound(cpu_seconds: float) -> None:
    """From here on the process can write no file, and takes no more memory and processor time than a query may."""
    limits = {resource.RLIMIT_FSIZE: 0, resource.RLIMIT_CPU: int(cpu_seconds) + _SPARE_S}
    with suppress(OSError):  # only Linux tells what the process has now
        held = re.search(r"^VmData:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
        if held is not None:
            limits[resource.RLIMIT_DATA] = int(held[1]) * 1_024 + ROOM
    for limit, value in limits.items():
        with suppress(ValueError, OSError):  # there is a lower one already
            resource.setrlimit(limit, (value, value + _SPARE_S if limit == resource.RLIMIT_CPU else value))


def _rows(reader: pa.RecordBatchReader, limit: int) -> pa.Table:
    """The first `limit` rows; the metadata say whether there are more."""
    batches, count, size = [], 0, 0
    for batch in reader:
        batches.append(batch)
        count += batch.num_rows
        size += batch.nbytes
        if size > MOST_BYTES:
            raise QueryError(f"the answer has more than {MOST_BYTES // 10**6} MB: ask for fewer rows or columns")
        if count > limit:
            break
    rows = pa.Table.from_batches(batches, reader.schema).slice(0, limit)
    rows = rows.rename_columns(_distinct(rows.column_names))
    plain = [_plain(column) for column in rows.columns]
    return pa.table(plain, rows.column_names).replace_schema_metadata({IS_CUT: b"1" if count > limit else b"0"})


def _distinct(names: list[str]) -> list[str]:
    """The names, those numbered that were there before."""
    found: list[str] = []
    for name in names:
        number, new = 1, name
        while new in found:
            number += 1
            new = f"{name}_{number}"
        found.append(new)
    return found


def _plain(column: Any) -> Any:
    """A column as Python has it: decimals as whole numbers where they are some (as sums are), else as floats; times by the
    microsecond."""
    kind = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "ns":
        return column.cast(pa.timestamp("us", kind.tz), safe=False)
    if not pa.types.is_decimal(kind):
        return column
    with suppress(pa.ArrowInvalid):
        return column.cast(pa.int64())
    return column.cast(pa.float64())


def _told(database: Any, history: History, query: str, error: Exception) -> RaySnapshotError:
    """What DuckDB says of a query, in a line that names the place."""
    if unread := _UNREAD.search(str(error)):
        return _unread(history, *unread.groups())
    if isinstance(error, duckdb.PermissionException):
        return QueryError(
            f"the query reaches out of the history, which is refused: it can name the tables {', '.join(TABLES)}"
        )
    if isinstance(error, duckdb.OutOfMemoryException | pa.ArrowMemoryError):
        return _too_large()
    if isinstance(error, duckdb.BinderException | duckdb.CatalogException) and not _PLACE.search(str(error)):
        return QueryError(_with_place(*_again(database, query, error)))
    return QueryError(_with_place(error))


def _too_large() -> QueryError:
    return QueryError(f"the query needs more than {MEMORY // 10**6} MB of memory: ask for less")


def _unread(history: History, table: str, reason: str) -> RaySnapshotError:
    """Why a table could not be read."""
    if _UNNAMED in reason:
        return QueryError(f"the table {table} is read, but the query does not name it: write its name out")
    if reason.startswith("Out of memory"):
        return _too_large()
    text = " ".join(reason.split())[:_LONGEST]
    return HistoryFormatError(
        f"history {history.path}: table {table} cannot be read: {text}; see `ray-snapshot history verify` for what is whole"
    )


def _again(database: Any, query: str, error: Exception) -> tuple[Exception, int]:
    """The same error with its place, which is told of a statement only; and how many lines stand before the query."""
    try:
        database.execute(f"EXPLAIN\n{query}")
    except duckdb.Error as found:
        return found, 1
    return error, 0


def _with_place(error: Exception, skipped: int = 0) -> str:
    """An error of DuckDB's in one line, with line and column of the query, and what stands there."""
    text = str(error)
    place = _PLACE.search(text)
    said = " ".join(_KIND.sub("", text[: place.start()] if place else text).split())[:_LONGEST]
    if found := _NO_TABLE.search(said):
        said = f"there is no table {found[1]}; a history has {', '.join(TABLES)}"
    if place is None:
        return f"the query cannot be answered: {said}"
    line, shown, spaces, marks = place.groups()
    begin = len(spaces) - len(f"LINE {line}: ")
    column = "" if shown.startswith("...") else f", column {begin + 1}"
    at = shown[begin : begin + len(marks)]
    return f"the query cannot be answered: line {int(line) - skipped}{column}, at {at}: {said}"
