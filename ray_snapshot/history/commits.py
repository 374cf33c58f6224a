"""Commits to one table: new files in, or old files out and what replaces them in, as one version of the log.

Adding never conflicts with another writer. Replacing is committed only on the very version of the table in which the
files that go were still there; if another writer commits in between, the new version is read, and the commit is tried
again. Either returns when the log's new entry is on the disk (Delta writes it, and does not wait for that). Imports no
Ray.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ray_snapshot.addresses import AnyPath
from ray_snapshot.errors import HistoryWriteError
from ray_snapshot.history import files, places, tables
from ray_snapshot.limits import LIMITS

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction


@dataclass(frozen=True, slots=True)
class Turn:
    """One commit of a writer to a table in a store: whether it was made is in the log, whatever was heard of it."""

    owner: str
    number: int
    """1 or more, and higher than those of the writer's earlier commits to the table."""


OVER = 2**60
"""The number by which another process has said that a writer is over: see `leases`."""


class WriterOverError(Exception):
    """A writer was taken for dead, and may not commit any more."""


def append(
    path: AnyPath,
    name: str,
    table: DeltaTable,
    rows: pa.Table,
    owner: str,
    turn: Turn | None = None,
    also: Sequence[pa.Table] = (),
) -> None:
    """Commit `rows` (of `stored_schema`, sorted) as new files, one per partition; `also`: more of them, for files of their own.

    With a `turn`, not twice: nothing is done if it was committed already. Raises `WriterOverError` if its writer is over.
    """
    from deltalake.exceptions import CommitFailedError

    with tables.faults(path, name, "written", HistoryWriteError):
        if turn is not None:
            table.update_incremental()
            if _is_done(table, turn):
                return
        parts = [found for one in (rows, *also) for found in partitions(one)]
        added = [write(path, name, part, partition, files.file_name(owner)) for partition, part in parts]
        table.update_incremental()
        before = table.version()
        _widen(table, rows.schema)
        # The log was read anew: what it says since is no conflict to Delta.
        if turn is not None and _is_done(table, turn):
            return
        try:
            _commit(table, added, LIMITS.commit_attempts, turn)
        except CommitFailedError:
            table.update_incremental()
            if turn is None or not _is_done(table, turn):
                raise
        places.at(path).sync_log(path, path / name / tables.LOG, before)


def _is_done(table: DeltaTable, turn: Turn) -> bool:
    found = table.transaction_version(turn.owner) or 0
    if found >= OVER:
        raise WriterOverError
    return found >= turn.number


def end(path: AnyPath, name: str, owner: str) -> None:
    """Say in the log of a table that a writer is over: none of its commits to it comes behind this."""
    from deltalake.exceptions import CommitFailedError

    with tables.faults(path, name, "written", HistoryWriteError):
        for _ in range(LIMITS.commit_attempts):
            table = tables.open_table(path, name)
            if (table.transaction_version(owner) or 0) >= OVER:
                return
            with suppress(CommitFailedError):  # by its last commit, this moment
                _commit(table, [], LIMITS.commit_attempts, Turn(owner, OVER))
    raise HistoryWriteError(
        f"history {path}: it cannot be said that the writer {owner} is over: it commits all the time; try again later",
        path=path,
        table=name,
    )


def write(
    path: AnyPath, name: str, rows: pa.Table, partition: files.Partition, file: str, *, data_change: bool = True
) -> AddAction:
    """One file of a table, not committed yet."""
    inside = rows.select(files.file_schema(name, rows.schema).names)
    keys = tables.ORDER[name]
    return files.write_file(path / name, inside, keys, partition, file, data_change=data_change)


def partitions(rows: pa.Table) -> list[tuple[files.Partition, pa.Table]]:
    """The rows of each partition, in their order."""
    found = rows.group_by(["system", "date"], use_threads=False).aggregate([]).to_pylist()
    if len(found) == 1:
        return [(files.Partition(**found[0]), rows)]
    parts = []
    for values in found:
        inside = pa.compute.and_(
            pa.compute.equal(rows["system"], values["system"]), pa.compute.equal(rows["date"], values["date"])
        )
        parts.append((files.Partition(**values), rows.filter(inside)))
    return parts


def replace(
    path: AnyPath, name: str, removed: Sequence[tables.DataFile], added: Sequence[AddAction], *, data_change: bool
) -> bool:
    """Commit that `added` take the place of `removed`; False if one of those has left the table meanwhile.

    `data_change`: whether rows are gone with them; those that are left are no news to the table in any case.
    """
    from deltalake.exceptions import CommitFailedError

    with tables.faults(path, name, "rewritten", HistoryWriteError):
        for _ in range(LIMITS.replace_attempts):
            table = tables.open_table(path, name)
            there = {file.relative for file in tables.data_files(path, name, table)}
            if not there.issuperset(file.relative for file in removed):
                return False
            try:
                _commit(table, [*(_removal(file, data_change) for file in removed), *added], 0)
                places.at(path).sync_log(path, path / name / tables.LOG, table.version())
                return True
            except CommitFailedError:  # another writer was faster: look again
                continue
    raise HistoryWriteError(
        f"history {path}: table {name} cannot be rewritten: others commit to it all the time; try again later",
        path=path,
        table=name,
    )


def _removal(file: tables.DataFile, data_change: bool) -> RemoveAction:
    from deltalake.transaction import RemoveAction

    return RemoveAction(
        path=file.relative,
        data_change=data_change,
        deletion_timestamp=int(time.time() * 1_000),
        size=file.size,
        partition_values=file.partition.values,
    )


def _commit(table: DeltaTable, actions: Sequence[Any], retries: int, turn: Turn | None = None) -> None:
    from deltalake import CommitProperties, Transaction

    known = None if turn is None else [Transaction(turn.owner, turn.number, int(time.time() * 1_000))]
    properties = CommitProperties(max_commit_retries=retries, app_transactions=known)
    table.create_write_transaction(
        list(actions), "append", table.schema(), list(tables.PARTITIONS), commit_properties=properties
    )


def _widen(table: DeltaTable, schema: pa.Schema) -> None:
    """Add the columns that the table lacks because it is older than they are."""
    from deltalake import Schema

    known = {field.name for field in table.schema().fields}
    lacking = pa.schema([field for field in schema if field.name not in known])
    if lacking.names:
        table.alter.add_columns(Schema.from_arrow(lacking).fields)
        table.update_incremental()
