"""Upkeep that removes: rows of snapshots that are to go, what a writer that died has left, files that nothing needs.

Everything here may happen while writers write and readers read. Imports no Ray.
"""

from __future__ import annotations

import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.addresses import AnyPath, StorePath
from ray_snapshot.errors import HistoryFormatError, HistoryWriteError
from ray_snapshot.history import checkpoints, commits, files, leases, objects, owners, places, tables
from ray_snapshot.limits import LIMITS
from ray_snapshot.schema import TABLES

if TYPE_CHECKING:
    from deltalake.transaction import AddAction

UPKEEP = "upkeep"
"""The key in the record of a writer that compacts the history or drops snapshots."""


Gone = tuple[str, list[str]]
"""Which rows are to go: a column, and its sorted values."""


def refuse_links(path: AnyPath) -> None:
    """Raise `HistoryFormatError` if there is a link anywhere in what upkeep looks at, before it changes anything."""
    for name in (*TABLES, checkpoints.FOLDER, leases.FOLDER):
        places.at(path).refuse_links(path, path / name)


def refuse_append_only(path: AnyPath) -> None:
    """Raise `HistoryWriteError` if rows of a table may not be removed, before those of another are."""
    for name in there(path):
        settings = tables.open_table(path, name).metadata().configuration
        if str(settings.get("delta.appendOnly")).lower() == "true":
            raise HistoryWriteError(
                f"history {path}: table {name} is append-only (delta.appendOnly): nothing was removed; set that to false"
                " to remove snapshots",
                path=path,
                table=name,
            )


def there(path: AnyPath) -> list[str]:
    """The tables that a history has: an old one may lack those that came later."""
    return tables.present(path)


# Dropping rows


def drop(
    path: AnyPath,
    name: str,
    values: Collection[str],
    owner: str,
    *,
    column: str = "snapshot_id",
    spared: Callable[[], Collection[str]] = tuple,
) -> int:
    """Remove the rows of some snapshots (or runs) from one table; returns how many rows there were.

    `spared` says, once it is known which files there are, which of the snapshots must stay after all.
    """
    ids = sorted(values)
    bounds = ids if column == "snapshot_id" else None
    for _ in range(100 if ids else 0):
        with tables.faults(path, name, "rewritten", HistoryWriteError):
            affected = tables.data_files(path, name, tables.open_table(path, name), snapshot_ids=bounds)
            gone = column, sorted(set(ids) - set(spared())) if affected else ids
            dropped = [_drop_in(path, name, list(part), gone, owner) for _, part in groupby(affected, _partition)]
        if None not in dropped:
            return sum(count for count in dropped if count is not None)
    if ids:
        raise HistoryWriteError(
            f"history {path}: table {name} cannot be rewritten: others rewrite it all the time; try again later",
            path=path,
            table=name,
        )
    return 0


def _partition(file: tables.DataFile) -> tuple[str, object]:
    return file.system, file.date


def _drop_in(path: AnyPath, name: str, affected: Sequence[tables.DataFile], gone: Gone, owner: str) -> int | None:
    """Remove rows from the files of one partition in one commit; None if another writer has replaced a file
    meanwhile."""
    removed: list[tables.DataFile] = []
    added: list[AddAction] = []
    count = 0
    done = False
    try:
        for file in affected:
            found = doomed(file, gone)
            if found:
                count += found
                removed.append(file)
                added += _without(path, name, file, gone, owner)
        done = not removed or commits.replace(path, name, removed, added, data_change=True)
    except FileNotFoundError:  # compacted and vacuumed meanwhile
        pass
    finally:
        if not done:
            discard(path, name, added)
    return count if done else None


def discard(path: AnyPath, name: str, added: Sequence[AddAction]) -> None:
    """Remove files that were not committed."""
    for file in added:
        places.at(path).unlink(path, tables.file_path(path, name, file.path))


def _among(column: pa.ChunkedArray, ids: list[str]) -> pa.ChunkedArray:
    """Which rows are of one of the sorted `ids`."""
    found = pc.min_max(column).as_py()
    if found["min"] is None:
        return pa.chunked_array([pa.repeat(pa.scalar(False), len(column))])
    near = ids[bisect_left(ids, found["min"]) : bisect_right(ids, found["max"])]
    return pc.is_in(column, value_set=pa.array(near, pa.string()))


def doomed(file: tables.DataFile, gone: Gone) -> int:
    """How many rows of a file are to go."""
    with tables.opened(file) as parquet:
        if gone[0] not in parquet.schema_arrow.names:
            raise ValueError(f"its file {file.path.name[:200]!r} has no column {gone[0]}")
        column = parquet.read(columns=[gone[0]])[gone[0]]
    return pc.sum(_among(column, gone[1])).as_py() or 0


def _without(path: AnyPath, name: str, file: tables.DataFile, gone: Gone, owner: str) -> Iterator[AddAction]:
    """The file that takes the place of one, without the rows that are to go; none if nothing is left."""
    with tables.opened(file) as parquet:
        schema = parquet.schema_arrow.remove_metadata()
        new = files.file_name(owner, files.block_of(file.path.name))
        with files.FileWriter(path / name, schema, tables.ORDER[name], file.partition, new) as writer:
            for batch in parquet.iter_batches(131_072):
                rows = pa.Table.from_batches([batch]).replace_schema_metadata()
                for group in files.row_groups(rows.filter(pc.invert(_among(rows[gone[0]], gone[1])))):
                    writer.write(group)
            if writer.bounds.rows:
                yield writer.finish(data_change=False)


# After a writer that died


def clean(path: AnyPath, key: str | None = None, looks: leases.Looks | None = None) -> list[str]:
    """Remove what writers of `key` (None: any) left that died; returns whose leftovers they were.

    In a folder, those of this computer. In a store, those that `looks` have shown to be dead.
    """
    cleaned = []
    for dead in owners.dead_writers(path, key, looks):
        try:
            _clean_after(path, dead)
        except BaseException:
            dead.leave()
            raise
        dead.done()
        cleaned.append(dead.owner)
    return cleaned


def _clean_after(path: AnyPath, dead: owners.Dead | leases.Dead) -> None:
    """Remove a dead writer's rows of snapshots that are not listed, and its files that no commit names."""
    if isinstance(path, StorePath) and dead.snapshot_ids:
        commits.end(path, "snapshots", dead.owner)
    unlisted = set(dead.snapshot_ids) - listed(path, dead.snapshot_ids)
    for name in (*tables.DETAIL_TABLES, "verdicts") if unlisted else ():
        if isinstance(path, StorePath):  # else rows of it may come behind their removal
            commits.end(path, name, dead.owner)
        drop(path, name, unlisted, dead.owner, spared=partial(_written_again, path, dead.owner, unlisted))
    if dead.key == UPKEEP:  # it dropped them; one that a writer meant to list may yet be listed by another
        checkpoints.remove(path, unlisted)
    if isinstance(path, StorePath):  # a lease that is over is no proof that a writer does nothing more: see `_strays`
        return
    for name in there(path):
        named = _named(path, name)
        for file, _ in written(path, name):
            if files.owner_of(file.name) == dead.owner and file not in named:
                places.at(path).unlink(path, file)


def _written_again(path: AnyPath, dead: str, snapshot_ids: Collection[str]) -> set[str]:
    """Which snapshots of a dead writer another one is writing, or has written meanwhile: its record is there until they
    are listed.

    In a folder a writer cleans up before it writes; in a store it may be later known that another has died.
    """
    if not isinstance(path, StorePath):
        return set()
    return leases.intended(path, but=dead) | listed(path, snapshot_ids)


def listed(path: AnyPath, snapshot_ids: Collection[str]) -> set[str]:
    """The ids among these whose snapshots the history lists."""
    if not snapshot_ids or not tables.has_log(path / "snapshots"):
        return set()
    table = tables.open_table(path, "snapshots")
    with tables.faults(path, "snapshots", "read", HistoryFormatError):
        found = tables.data_files(path, "snapshots", table, snapshot_ids=snapshot_ids)
        rows = tables.scan("snapshots", found, snapshot_ids=snapshot_ids, columns=["snapshot_id"])
    return set(rows["snapshot_id"].to_pylist())


def _named(path: AnyPath, name: str) -> set[Any]:
    """The files that the log of a table names, those that have left the table included: a reader may still read
    them."""
    table = tables.open_table(path, name)
    current = {file.path for file in tables.data_files(path, name, table)}
    return current | {tables.file_path(path, name, file) for file in _replaced(table, 0)}


def written(path: AnyPath, name: str) -> Iterator[tuple[Any, Any]]:
    """The files below a table that writers of a history have made, or begun."""
    return ((file, about) for file, about in places.at(path).below(path, path / name) if files.owner_of(file.name))


def _replaced(table: object, retention_hours: float) -> list[str]:
    found: list[str] = table.vacuum(  # type: ignore[attr-defined]
        retention_hours=retention_hours, dry_run=True, enforce_retention_duration=False
    )
    return found


# Vacuum


def vacuum(path: AnyPath, name: str, retention_hours: int, *, dry_run: bool, moment: float | None = None) -> list[str]:
    """Delete the files that left a table so long ago, and strays; returns their names. `moment`: the time, by the clock
    that dates the files.

    The log remembers what was deleted, so Delta lists it again and again: only what is there counts.
    """
    with tables.faults(path, name, "rewritten", HistoryWriteError):
        table = tables.open_table(path, name)
        left = [tables.file_path(path, name, file) for file in _replaced(table, retention_hours)]
        left = _existing(path, name, left)
        strays = _strays(path, name, (moment or time.time()) - 3_600 * max(retention_hours, LIMITS.stray_file_hours))
        found = dict.fromkeys([*left, *strays])
        for file in () if dry_run else found:
            places.at(path).unlink(path, file)
    return [str(file.relative_to(path / name)) for file in found]


def _existing(path: AnyPath, name: str, files: list[Any]) -> list[Any]:
    if not isinstance(path, StorePath):
        return [file for file in files if places.at(path).exists(path, file)]
    there = {file for file, _ in objects.below(path, path / name)} if files else set()
    return [file for file in files if file in there]


def stray_checkpoints(
    path: AnyPath, retention_hours: float, *, dry_run: bool, moment: float | None = None
) -> list[str]:
    """Delete checkpoints of snapshots that are not listed, and such as were begun only, once they are old; their names.

    What is old is looked up before what is listed, so that no snapshot can come to be in between.
    """
    old = checkpoints.older_than(path, (moment or time.time()) - 3_600 * max(retention_hours, LIMITS.stray_file_hours))
    kept = listed(path, {snapshot_id for snapshot_id in old.values() if snapshot_id})
    strays = [file for file, snapshot_id in old.items() if snapshot_id not in kept]
    for file in () if dry_run else strays:
        checkpoints.discard(path, file)
    return [file.name for file in strays]


def _strays(path: AnyPath, name: str, oldest: float) -> list[Any]:
    """Files that a writer of a history made before `oldest` and no commit names: none is going to.

    In a store, a writer that has a record may live, and be about to.
    """
    old = [file for file, about in written(path, name) if about.st_mtime < oldest]
    alive = leases.owners_there(path) if old and isinstance(path, StorePath) else set()
    named = _named(path, name) if old else set()  # behind the records: one is removed behind the commit of its writer
    return [file for file in old if file not in named and files.owner_of(file.name) not in alive]
