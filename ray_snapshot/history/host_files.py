"""Rows that are still with hosts when their snapshot is to be committed: hosts write them as files of their own, or send them.

A snapshot whose machines rest may come without their rows (`Snapshot.apart`). When a writer commits it, it asks each host that
has such rows, once for all snapshots of the commit: `Wanted`. A host that has many writes them as one file of the table
(`write`) and says what it has written; one that has few, or that does not see the history, sends them. The writer
looks at the file (`checked`) before a commit names it: one that is not whole would make the table unreadable, and wrong
bounds would lose rows without a word. So a file that differs from what was said of it is removed, and the rows are asked for.

Rows of a host that has died are lost. Snapshots that have such rows are `given_up`: they are listed as aborted, with that
reason, and have no rows; verdicts on them were made of all rows, and stay. Imports no Ray.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa

from ray_snapshot.addresses import AnyPath
from ray_snapshot.columns import unpacked
from ray_snapshot.encoding import to_json
from ray_snapshot.errors import RaySnapshotError
from ray_snapshot.history import files, leases, places, tables
from ray_snapshot.history.stores import StoreFault

if TYPE_CHECKING:
    from deltalake.transaction import AddAction

TABLE = "machines"
"""The table whose rows may be with hosts."""

ASK_S = 25.0
"""How long a host may take to write or to send its rows; then it is asked once more, and its rows are lost."""

MOST_ASKED = 2

FILES_PER_S = 20.0
"""Hosts write no more files than that, over `BURST` files; those with the fewest rows send them."""

BURST = 100


@dataclass(frozen=True, slots=True)
class Owed:
    """One snapshot of which rows are with hosts."""

    number: int
    """Of the run: so hosts know it."""
    snapshot_id: str
    run_id: str
    started_us: int
    """When it was started, in microseconds since 1970."""
    partition: files.Partition
    hosts: Mapping[str, int] = field(hash=False)
    """By host: how many rows."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What one host is asked for: its rows of these snapshots, all of one day."""

    host: str
    path: AnyPath
    owner: str
    """The writer that asks."""
    snapshots: tuple[Owed, ...]
    may_write: bool
    """Whether as a file."""

    @property
    def partition(self) -> files.Partition:
        return self.snapshots[0].partition

    @property
    def rows(self) -> int:
        """How many there are."""
        return sum(one.hosts[self.host] for one in self.snapshots)

    @property
    def name(self) -> str:
        """Of the file. A host that is asked again has written it already, or goes on with it.

        The rows are in the memory of one process: none of another incarnation or generation can be asked for the same.
        """
        ids = [one.snapshot_id for one in self.snapshots]
        return files.agreed_name(self.owner, TABLE, self.snapshots[0].run_id, self.host, ids)


@dataclass(frozen=True, slots=True)
class Given:
    """What a host answers."""

    file: files.Finished | None = None
    rows: Mapping[str, pa.Buffer] = field(default_factory=dict)
    """By snapshot, if there is no file: a packed table, with the columns of `TABLES`."""
    lost: str = ""
    """Why there are no rows of the other snapshots."""
    is_late: bool = False
    """It has not answered yet."""


class Hosts(Protocol):
    """The hosts of a system, as a writer asks them."""

    def ask(self, wanted: Sequence[Wanted], seconds: float) -> list[Given]:
        """What they answer, all at the same time; raises nothing for a host that is gone."""
        ...

    def release(self, settled: Mapping[str, Sequence[int]]) -> None:
        """By host: the numbers of snapshots whose rows need not be kept for the history any more."""
        ...


# ---- where a host is -------------------------------------------------------------------------------------------------------


def is_seen(path: AnyPath, owner: str) -> bool:
    """Whether this process sees the history that a writer writes: its record lies there. It may be another computer."""
    try:
        return places.at(path).exists(path, path / leases.FOLDER / f"{owner}.json")
    except (OSError, RaySnapshotError):
        return False


def write(wanted: Wanted, snapshots: Iterable[pa.Table]) -> files.Finished:
    """Write the rows of some snapshots, each sorted, in the order of their ids, as the file that is wanted.

    Raises `OSError` and what Arrow raises; then no file is there.
    """
    schema = files.file_schema(TABLE, tables.stored_schema(TABLE))
    keys = tables.ORDER[TABLE]
    with files.FileWriter(wanted.path / TABLE, schema, keys, wanted.partition, wanted.name) as writer:
        for rows in _gathered(snapshots):
            for group in files.row_groups(rows.select(schema.names).cast(schema)):
                writer.write(group)
        return writer.finished()


def _gathered(snapshots: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Small snapshots together, large ones each by itself: so memory is bounded."""
    waiting: list[pa.Table] = []
    for rows in snapshots:
        waiting.append(rows)
        if sum(one.num_rows for one in waiting) >= files.ROWS_PER_GROUP:
            yield pa.concat_tables(waiting).combine_chunks()
            waiting = []
    if waiting:
        yield pa.concat_tables(waiting).combine_chunks()


# ---- where the writer is ---------------------------------------------------------------------------------------------------


class Pace:
    """How many files hosts may write: `FILES_PER_S`, and `BURST` at once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.left, self.last = float(BURST), clock()

    def take(self, most: int) -> int:
        """So many of `most` files may be written now."""
        now = self.clock()
        self.left, self.last = min(float(BURST), self.left + (now - self.last) * FILES_PER_S), now
        found = min(most, int(self.left))
        self.left -= found
        return found

    def give_back(self, count: int) -> None:
        """So many were not written after all."""
        self.left += count


class WrongFileError(ValueError):
    """A file is not what a host has said of it."""


def checked(wanted: Wanted, told: files.Finished) -> files.Finished:
    """What a commit may say of a file, after a look at it. Raises `WrongFileError`, `OSError` and what Arrow raises.

    A bound that the file itself does not confirm is left out: then no reader skips the file by it.
    """
    import pyarrow.parquet as pq

    if told.relative != f"{wanted.partition.folder}/{wanted.name}":
        raise WrongFileError(f"it is called {told.relative[:200]!r}")
    path = _path(wanted)
    (size,) = places.at(wanted.path).sizes(wanted.path, [path])
    if size != told.size:
        raise WrongFileError(f"it has {size} bytes, and {told.size} were written")
    with places.at(wanted.path).opened(wanted.path, path) as opened, pq.ParquetFile(opened) as parquet:
        footer, schema = parquet.metadata, parquet.schema_arrow.remove_metadata()
    if not footer.num_rows == told.rows == wanted.rows:
        raise WrongFileError(f"it has {footer.num_rows} rows, {told.rows} were written and {wanted.rows} are wanted")
    if not schema.equals(files.file_schema(TABLE, tables.stored_schema(TABLE))):
        raise WrongFileError("it has other columns than the table")
    return replace(told, statistics=_confirmed(wanted, told, footer))


def _confirmed(wanted: Wanted, told: files.Finished, footer: Any) -> str:
    """The statistics that were told, as far as those in the file itself agree."""
    said = json.loads(told.statistics)
    lows, highs, nulls = (dict(said.get(key) or {}) for key in ("minValues", "maxValues", "nullCount"))
    found: dict[str, Any] = {"numRecords": footer.num_rows, "minValues": {}, "maxValues": {}, "nullCount": {}}
    for column in tables.ORDER[TABLE]:
        low, high, empty = _bounds(footer, column)
        if low is not None and column in lows and lows[column] <= low:
            found["minValues"][column] = lows[column]
        if high is not None and column in highs and highs[column] >= high:
            found["maxValues"][column] = highs[column]
        if empty is not None and nulls.get(column) == empty:
            found["nullCount"][column] = empty
        if column == "snapshot_id":
            ids = [one.snapshot_id for one in wanted.snapshots]
            if (low, high, empty) != (min(ids), max(ids), 0):
                raise WrongFileError(f"it has rows of snapshots from {low} to {high}")
    return json.dumps(found, ensure_ascii=False)


def _bounds(footer: Any, column: str) -> tuple[Any, Any, int | None]:
    """(lowest, highest, how many nulls) of a column by a file's own statistics; None: they do not say."""
    place = next(at for at in range(len(footer.schema)) if footer.schema.column(at).path == column)
    groups = [footer.row_group(number).column(place).statistics for number in range(footer.num_row_groups)]
    if not groups or any(one is None for one in groups):
        return None, None, None
    nulls = sum(one.null_count for one in groups) if all(one.has_null_count for one in groups) else None
    if not all(one.has_min_max for one in groups):
        return None, None, nulls
    return min(one.min for one in groups), max(one.max for one in groups), nulls


def _path(wanted: Wanted) -> Any:
    return tables.file_path(wanted.path, TABLE, f"{wanted.partition.folder}/{wanted.name}")


def discard(wanted: Wanted) -> None:
    """Remove the file that is wanted, whole or begun; no commit names it."""
    path = _path(wanted)
    for file in (path, path.with_name(f"_{path.name}")):
        with suppress(OSError, RaySnapshotError):
            places.at(wanted.path).unlink(wanted.path, file)


class Gathering:
    """The rows of one commit that are with hosts, on their way.

    `run` may be called again where it has raised: what was answered is not asked for again.
    """

    def __init__(
        self, path: AnyPath, owner: str, owed: Iterable[Owed], hosts: Hosts, refused: set[str], files_left: int
    ) -> None:
        """`refused`: hosts that are to send their rows, for a file of theirs was wrong; `files_left`: how many there may be."""
        self.path, self.owner = path, owner
        self.owed = {one.snapshot_id: one for one in owed}
        self.hosts, self.refused, self.files_left = hosts, refused, files_left
        self.files: dict[Wanted, files.Finished] = {}
        """Files that were looked at, and that are right."""
        self.rows: dict[str, list[pa.Table]] = {}
        """By snapshot: rows that were sent."""
        self.lost: dict[str, str] = {}
        """By snapshot: why it is given up."""
        self._asked: dict[Wanted, int] = {}
        self._left = self._split(self.owed.values())

    def run(self) -> None:
        """Ask until there is nothing left to be asked for. Raises `OSError` of a store that cannot be reached."""
        while self._left:
            asked = self._left
            self._left = []
            answers = self.hosts.ask(asked, ASK_S)
            for number, (wanted, given) in enumerate(zip(asked, answers, strict=True)):
                try:
                    self._take(wanted, given)
                except BaseException:
                    self._left += asked[number:]
                    raise
                if self._has_lost(wanted) and wanted not in self.files:
                    discard(wanted)  # whole or begun: its host may be gone
            self._leave_out_lost()

    def actions(self) -> list[AddAction]:
        """What a commit says of the files."""
        return [file.action(wanted.partition, data_change=True) for wanted, file in self.files.items()]

    def by_reason(self) -> dict[str, list[str]]:
        """What is given up, in order, by the reason why."""
        found: dict[str, list[str]] = {}
        for snapshot_id, reason in sorted(self.lost.items()):
            found.setdefault(reason, []).append(snapshot_id)
        return found

    def settled(self) -> dict[str, list[int]]:
        """By host: the snapshots whose rows it need not keep, once they are committed."""
        found: dict[str, list[int]] = {}
        for one in self.owed.values():
            for host in one.hosts:
                found.setdefault(host, []).append(one.number)
        return found

    def _split(self, owed: Iterable[Owed]) -> list[Wanted]:
        """What each host is asked for: a day at a time, and a file of one day only; of those with most rows first."""
        days: dict[tuple[str, date], list[Owed]] = {}
        for one in sorted(owed, key=lambda one: one.snapshot_id):
            for host in one.hosts:
                days.setdefault((host, one.partition.date), []).append(one)
        found = [Wanted(host, self.path, self.owner, tuple(part), False) for (host, _), part in days.items()]
        chosen: dict[str, Wanted] = {}
        for wanted in sorted(found, key=lambda wanted: -wanted.rows):
            if len(chosen) < self.files_left and wanted.host not in self.refused:
                chosen.setdefault(wanted.host, wanted)
        return [replace(wanted, may_write=chosen.get(wanted.host) is wanted) for wanted in found]

    def _take(self, wanted: Wanted, given: Given) -> None:
        if given.is_late and self._asked.setdefault(wanted, 1) < MOST_ASKED:
            self._asked[wanted] += 1
            self._left.append(wanted)
        elif given.is_late:
            late = f"{wanted.host} did not give its rows to the history for {ASK_S * MOST_ASKED:g} s"
            self.lost |= {one.snapshot_id: late for one in wanted.snapshots if one.snapshot_id not in self.lost}
        elif given.file is not None:
            self._take_file(wanted, given.file)
        else:
            for one in wanted.snapshots:
                self._take_rows(wanted.host, one, given)

    def _take_rows(self, host: str, owed: Owed, given: Given) -> None:
        found = given.rows.get(owed.snapshot_id)
        rows = None if found is None else unpacked(found)
        if rows is None:
            self.lost.setdefault(owed.snapshot_id, given.lost or f"{host} has not given its rows to the history")
        elif rows.num_rows != owed.hosts[host]:
            reason = f"{host} has given {rows.num_rows} rows to the history, and {owed.hosts[host]} are in the snapshot"
            self.lost.setdefault(owed.snapshot_id, reason)
        else:
            self.rows.setdefault(owed.snapshot_id, []).append(rows)

    def _take_file(self, wanted: Wanted, told: files.Finished) -> None:
        try:
            self.files[wanted] = checked(wanted, told)
        except StoreFault:
            raise
        except (ValueError, OSError, pa.ArrowException, RaySnapshotError):
            discard(wanted)
            self.refused.add(wanted.host)
            self._left.append(replace(wanted, may_write=False))

    def _leave_out_lost(self) -> None:
        """No file with rows of a snapshot that is given up is committed: its host is asked once more, without these."""
        for wanted in [one for one in self.files if self._has_lost(one)]:
            del self.files[wanted]
            discard(wanted)
            self._left.append(wanted)
        self._left = [less for wanted in self._left if (less := self._without_lost(wanted)).snapshots]
        for snapshot_id in self.lost:
            self.rows.pop(snapshot_id, None)

    def _has_lost(self, wanted: Wanted) -> bool:
        return any(one.snapshot_id in self.lost for one in wanted.snapshots)

    def _without_lost(self, wanted: Wanted) -> Wanted:
        if not self._has_lost(wanted):
            return wanted
        return replace(wanted, snapshots=tuple(one for one in wanted.snapshots if one.snapshot_id not in self.lost))


def given_up(found: Mapping[str, pa.Table], reason: str) -> dict[str, pa.Table]:
    """The tables of a snapshot that is listed as aborted: a row of `snapshots`, and no others."""
    row = found["snapshots"]
    coverage = json.loads(row["coverage"][0].as_py() or "{}")
    left = {name: coverage[name] for name in ("uncovered", "versions") if name in coverage}
    zeros = ("machine_count", "channel_count", "in_flight_count", "channel_marker_count", "bytes")
    changed = {
        **dict.fromkeys(zeros, 0),
        "status": "aborted",
        "abort_reason": reason,
        "consistent": False,
        "restorable": False,
        "obstacles": [],
        "coverage": to_json({"hosts": 0, **left}).text,
    }
    for name, value in changed.items():
        place = row.schema.get_field_index(name)
        row = row.set_column(place, row.schema.field(place), pa.array([value], row.schema.field(place).type))
    return {name: row if name == "snapshots" else table[:0] for name, table in found.items()}
