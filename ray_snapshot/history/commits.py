"""Commits to one table: new files in, or old files out and what replaces them in, as one version of the log.

Adding never conflicts with another writer. Replacing is committed only on the very version of the table in which the
files that go were still there; if another writer commits in between, the new version is read, and the commit is tried
again. Either returns when the log's new entry is on the disk (Delta writes it, and does not wait for that). Imports no
Ray.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ray_snapshot.errors import HistoryWriteError
from ray_snapshot.history import files, inside, tables

if TYPE_CHECKING:
    from deltalake import DeltaTable
    from deltalake.transaction import AddAction, RemoveAction

_ADD_RETRIES = 100
_REPLACE_ATTEMPTS = 1_000


def append(path: Path, name: str, table: DeltaTable, rows: pa.Table, owner: str) -> None:
    """Commit `rows` (of `stored_schema`, sorted) as new files, one per partition."""
    with tables.faults(path, name, "written", HistoryWriteError):
        added = [write(path, name, part, partition, files.file_name(owner)) for partition, part in partitions(rows)]
        table.update_incremental()
        before = table.version()
        _widen(table, rows.schema)
        _commit(table, added, _ADD_RETRIES)
        inside.sync_log(path, path / name / tables.LOG, before)


def write(
    path: Path, name: str, rows: pa.Table, partition: files.Partition, file: str, *, data_change: bool = True
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
    path: Path, name: str, removed: Sequence[tables.DataFile], added: Sequence[AddAction], *, data_change: bool
) -> bool:
    """Commit that `added` take the place of `removed`; False if one of those has left the table meanwhile.

    `data_change`: whether rows are gone with them; those that are left are no news to the table in any case.
    """
    from deltalake.exceptions import CommitFailedError

    with tables.faults(path, name, "rewritten", HistoryWriteError):
        for _ in range(_REPLACE_ATTEMPTS):
            table = tables.open_table(path, name)
            there = {file.relative for file in tables.data_files(path, name, table)}
            if not there.issuperset(file.relative for file in removed):
                return False
            try:
                _commit(table, [*(_removal(file, data_change) for file in removed), *added], 0)
                inside.sync_log(path, path / name / tables.LOG, table.version())
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


def _commit(table: DeltaTable, actions: Sequence[Any], retries: int) -> None:
    from deltalake import CommitProperties

    properties = CommitProperties(max_commit_retries=retries)
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
