"""Compaction: many small files of a day into few, laid out so that one snapshot and one machine over time skip most of them.

The rows of a day form a block. With R rows in it and G rows in a group, they go into about twice the square root of R/G
files (tiles), each with a range of machines of its own and sorted by (snapshot_id, machine): one machine over time is in one
of them, one snapshot in one or two groups of each. (Twice, as a whole tile is read for a machine, of a snapshot a group.)
Readers skip files by the log's statistics and groups by Parquet's; nothing else has to be known. Rows pass through in the
order of their snapshots, a bounded number at a time. Imports no Ray.
"""

from __future__ import annotations

import math
import uuid
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from ray_snapshot.addresses import AnyPath
from ray_snapshot.errors import HistoryWriteError
from ray_snapshot.history import commits, files, places, tables, upkeep
from ray_snapshot.large_columns import taken
from ray_snapshot.limits import LIMITS

if TYPE_CHECKING:
    from deltalake.transaction import AddAction


SPREAD_BY = {"machines": "machine", "channels": "source", "messages": "source", "calls": "machine", "waits": "machine"}
"""By table: the column by which the rows of a block are spread over tiles."""


def compact(path: AnyPath, name: str, owner: str) -> dict[str, int]:
    """Compact one table; returns how many files came and went."""
    counts = {"files_added": 0, "files_removed": 0}
    for _ in range(LIMITS.compaction_attempts):
        with tables.faults(path, name, "rewritten", HistoryWriteError):
            done = [_rewrite(path, name, block, owner, counts) for block in plan(path, name)]
        if all(done):
            break
    return counts  # if others compact all the time, they do it


def _rewrite(path: AnyPath, name: str, block: list[tables.DataFile], owner: str, counts: dict[str, int]) -> bool:
    """Turn the files of one block into tiles; False if another writer has replaced one of them meanwhile."""
    added: list[AddAction] = []
    done = False
    try:
        tile(path, name, block, owner, added)
        done = commits.replace(path, name, block, added, data_change=False)
    except FileNotFoundError:  # compacted and vacuumed meanwhile
        pass
    finally:
        if not done:
            upkeep.discard(path, name, added)
    if not done:
        return False
    counts["files_added"] += len(added)
    counts["files_removed"] += len(block)
    return True


def merge_small(path: AnyPath, name: str, system: str | None, owner: str) -> dict[str, int]:
    """Make one file of many small ones, for a writer that writes all the time; merged files are left to `compact`."""
    counts = {"files_added": 0, "files_removed": 0}
    with tables.faults(path, name, "rewritten", HistoryWriteError):
        found = tables.data_files(path, name, tables.open_table(path, name), system=system)
        small = [
            file
            for file in found
            if files.block_of(file.path.name) is None and (file.rows or 0) < LIMITS.small_file_rows
        ]
        for _, part in groupby(small, lambda file: (file.system, file.date)):
            block = list(part)
            if len(block) >= LIMITS.merged_files:
                _rewrite(path, name, block, owner, counts)
    return counts


def plan(path: AnyPath, name: str) -> Iterator[list[tables.DataFile]]:
    """The blocks to make: for each day, the files that are not of a finished block, unless they are a block already."""
    table = tables.open_table(path, name)
    most = LIMITS.block_rows if name in SPREAD_BY else LIMITS.unordered_block_rows
    for _, part in groupby(tables.data_files(path, name, table), lambda file: (file.system, file.date)):
        yield from blocks(list(part), most)


def blocks(found: Sequence[tables.DataFile], most: int) -> Iterator[list[tables.DataFile]]:
    """The files of one partition in blocks of at most about so many rows, earliest first."""
    sizes: Counter[str | None] = Counter()
    for file in found:
        sizes[files.block_of(file.path.name)] += file.rows or 0
    full = min(LIMITS.full_block_rows, most // 2)
    finished = {block for block, size in sizes.items() if block is not None and size >= full}
    block: list[tables.DataFile] = []
    for file in sorted(found, key=lambda file: (file.low, file.relative)):
        if files.block_of(file.path.name) in finished:
            continue
        if block and sum(item.rows or 0 for item in block) + (file.rows or 0) > most:
            yield from [block] if _is_worth_it(block) else []
            block = []
        block.append(file)
    if _is_worth_it(block):
        yield block


def _is_worth_it(block: Sequence[tables.DataFile]) -> bool:
    """Whether the files are more than one, and not the tiles of one block."""
    names = {files.block_of(file.path.name) for file in block}
    return len(block) > 1 and (len(names) > 1 or None in names)


def tile(path: AnyPath, name: str, block: Sequence[tables.DataFile], owner: str, added: list[AddAction]) -> None:
    """Write the rows of some files of one partition as tiles; `added` gets what a commit says of each."""
    counts = _rows_of_each(name, block)
    schema = files.file_schema(name, tables.stored_schema(name))
    bounds = _bounds(name, block, counts)
    block_name = uuid.uuid4().hex[:12]
    with ExitStack() as stack:
        tiles = [
            _Tile(
                stack.enter_context(
                    files.FileWriter(
                        path / name, schema, tables.ORDER[name], block[0].partition, files.file_name(owner, block_name)
                    )
                )
            )
            for _ in range(len(bounds) + 1)
        ]
        for ids in _chunks(counts, _bytes_per_row(block)):
            rows = tables.in_order(_rows(name, block, ids).select(schema.names), tables.ORDER[name]).combine_chunks()
            _spread(rows, SPREAD_BY.get(name), bounds, tiles)
        written = sum(item.finish(added) for item in tiles)
    if written != sum(counts.values()):
        raise ValueError(
            f"{sum(counts.values())} rows went into a compaction, and {written} came out: it was not committed"
        )


class _Tile:
    """A file in the making, and the rows that wait until they are a group."""

    def __init__(self, writer: files.FileWriter) -> None:
        self.writer = writer
        self.waiting: list[pa.Table] = []
        self.count = 0

    def add(self, rows: pa.Table) -> None:
        self.waiting.append(rows)
        self.count += rows.num_rows
        if self.count >= LIMITS.group_rows:
            self._write(keep_last=True)

    def finish(self, added: list[AddAction]) -> int:
        """Write what waits; returns how many rows the file has. One without rows is not made."""
        if self.count:
            self._write(keep_last=False)
        if self.writer.bounds.rows:
            added.append(self.writer.finish(data_change=False))
        return self.writer.bounds.rows

    def _write(self, *, keep_last: bool) -> None:
        groups = list(files.row_groups(pa.concat_tables(self.waiting).combine_chunks()))
        last = groups.pop() if keep_last else None
        for group in groups:
            self.writer.write(group)
        self.waiting = [] if last is None else [last]
        self.count = 0 if last is None else last.num_rows


def _spread(rows: pa.Table, column: str | None, bounds: Sequence[str], tiles: Sequence[_Tile]) -> None:
    """Give each tile its rows, in their order."""
    if column is None or not bounds:
        tiles[0].add(rows)
        return
    keys = rows[column].combine_chunks().dictionary_encode(null_encoding="encode")
    place = np.array([bisect_right(bounds, key or "") for key in keys.dictionary.to_pylist()])
    places = place[keys.indices.to_numpy()]
    order = np.argsort(places, kind="stable")
    rows = taken(rows, pa.array(order))
    edges = np.searchsorted(places[order], np.arange(len(tiles) + 1))
    for item, begin, end in zip(tiles, edges[:-1], edges[1:], strict=True):
        if end > begin:
            item.add(rows.slice(begin, end - begin))


def _sequence(name: str) -> str:
    """The column in whose order rows pass through."""
    return tables.ORDER[name][0]


def _rows_of_each(name: str, block: Sequence[tables.DataFile]) -> dict[str, int]:
    """How many rows each snapshot (run, class) has, in their order."""
    counts: Counter[Any] = Counter()
    for file in block:
        found = tables.scan(name, [file], columns=[_sequence(name)])[0].value_counts()
        counts.update({item["values"]: item["counts"] for item in found.to_pylist()})
    if None in counts:
        raise ValueError(f"it has {counts[None]} rows without {_sequence(name)}; see `ray-snapshot history verify`")
    return dict(sorted(counts.items()))


def _bounds(name: str, block: Sequence[tables.DataFile], counts: dict[str, int]) -> list[str]:
    """Where the ranges of machines begin, the first left out, so that tiles have about as many rows each."""
    tiles = tile_count(sum(counts.values()))
    if name not in SPREAD_BY or tiles < 2:
        return []
    ids = list(counts)[:: max(1, len(counts) // 8)]
    column = SPREAD_BY[name]
    keys = tables.scan(name, block, snapshot_ids=ids, columns=[column])[column].drop_null().to_pylist()
    keys.sort()
    found = {keys[len(keys) * number // tiles] for number in range(1, tiles)} if keys else set()
    return sorted(found - set(keys[:1]))


def tile_count(rows: int) -> int:
    """Into how many files so many rows go."""
    return max(1, min(LIMITS.tiles, rows // LIMITS.tile_rows, 2 * math.isqrt(rows // LIMITS.group_rows)))


def _bytes_per_row(block: Sequence[tables.DataFile]) -> int:
    """About how much memory a row takes, by what the files say of themselves."""
    import pyarrow.parquet as pq

    rows = size = 0
    for file in block:
        with places.at(file.top).opened(file.top, file.path) as opened:
            about = pq.read_metadata(opened)
        rows += about.num_rows
        size += sum(about.row_group(number).total_byte_size for number in range(about.num_row_groups))
    return 1 + size // max(1, rows)


def _chunks(counts: dict[str, int], bytes_per_row: int) -> Iterator[list[str]]:
    """Runs of snapshots that are rewritten together."""
    most = min(LIMITS.chunk_rows, LIMITS.chunk_bytes // bytes_per_row)
    chunk: list[str] = []
    rows = 0
    for snapshot_id, count in counts.items():
        if chunk and rows + count > most:
            yield chunk
            chunk, rows = [], 0
        chunk.append(snapshot_id)
        rows += count
    if chunk:
        yield chunk


def _rows(name: str, block: Sequence[tables.DataFile], ids: list[str]) -> pa.Table:
    return tables.scan_range(name, block, _sequence(name), ids[0], ids[-1])
