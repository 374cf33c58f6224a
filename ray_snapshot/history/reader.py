"""Reading the history: listings as rows, whole snapshots, the files for Spark; checking, compaction, vacuum.

The ids in `snapshots` are read first, the other tables after: whatever `snapshots` lists was committed whole
before. Rows that it does not list (of a commit that is under way, or of a writer that was killed) are never
returned. No row is unpickled or executed: everything is Arrow and JSON.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.adding import Together, totals_of_each
from ray_snapshot.addresses import StorePath
from ray_snapshot.errors import HistoryFormatError, HistoryNotFoundError, HistoryWriteError
from ray_snapshot.history import (
    at_rest,
    checkpoints,
    compaction,
    leases,
    owners,
    places,
    retention,
    rows_alone,
    tables,
    upkeep,
)
from ray_snapshot.history.records import Records, Row, parsed
from ray_snapshot.history.verification import (
    COUNTS,
    MOST_ENCODED_ROWS,
    MOST_NARROW_ROWS,
    MOST_ROWS,
    row_batches,
    row_count,
    verify,
)
from ray_snapshot.large_columns import taken
from ray_snapshot.names import EDITED
from ray_snapshot.schema import ADDED_LATER, TABLES
from ray_snapshot.snapshot import Absent, Snapshot
from ray_snapshot.verdicts import READY_MADE

_READ_ATTEMPTS = 4
_MANY_ROWS = ("machines", "channels")
"""The tables that have a row for each machine or more."""

_MOST_NAMED = 10
_BACK = re.compile(r"-[0-9]{1,9}")
_NAMED = {"system": ("snapshots", "system"), "run": ("snapshots", "run_id"), "detector": ("verdicts", "detector")}
"""Where a name stands, by what it is of."""


class Retained(NamedTuple):
    """What a retention has removed, or would: the snapshots, and how many rows of them in which table."""

    snapshot_ids: list[str]
    rows: dict[str, int]


class History:
    """The history in the folder `path`; every call sees the latest commit. Cheap to make, and can be pickled.

    Raises `HistoryNotFoundError` if there is none, `HistoryFormatError` if it is damaged, foreign or newer.
    """

    def __init__(self, path: str | os.PathLike[str] | StorePath) -> None:
        self.path = tables.history_path(path, HistoryNotFoundError)
        if error := tables.missing_history(self.path):
            raise error
        present = tables.present(self.path)
        for name in TABLES:
            if name not in present and name not in ADDED_LATER:
                tables.open_table(self.path, name)  # raises
        tables.open_table(self.path, "snapshots")
        self.is_as_stored = False
        """Whether times are handed out that are none, for who looks for what is wrong."""

    def as_stored(self) -> History:
        """The same history for who looks for what is wrong with it, or looks at no time."""
        found = copy(self)
        found.is_as_stored = True
        return found

    def __repr__(self) -> str:
        return f"History({str(self.path)!r})"

    def _repr_html_(self) -> str:
        from ray_snapshot.reports.notebook import history_html

        return history_html(self)

    # Listings

    def snapshots(self, system: str | None = None, *, run_id: str | None = None) -> Records:
        """The rows of `snapshots`, earliest first; the columns of a row are its keys, and its attributes."""
        return self.records("snapshots", self.snapshot_table(system, run_id=run_id))

    def snapshot_table(self, system: str | None = None, *, run_id: str | None = None) -> pa.Table:
        """`snapshots`, as an Arrow table."""
        found = _where(self._read("snapshots", system=system), run_id=run_id)
        return tables.in_order(found, ("started_at", "snapshot_id"))

    def verdicts(
        self,
        detector: str | None = None,
        snapshot_id: str | None = None,
        *,
        system: str | None = None,
        run_id: str | None = None,
        evaluator: str | None = None,
    ) -> Records:
        """The verdicts, in the order of their snapshots; of several with one key the latest counts.

        The key is (snapshot_id, detector, evaluator). Raises `HistoryNotFoundError` for a detector that is none of those
        that come with ray-snapshot, where the history has verdicts of others only.
        """
        found = self.verdict_table(detector, snapshot_id, system=system, run_id=run_id, evaluator=evaluator)
        if detector not in (None, *READY_MADE) and not found.num_rows and self.table("verdicts").num_rows:
            self.check_known("detector", str(detector))
        return self.records("verdicts", found)

    def verdict_table(
        self,
        detector: str | None = None,
        snapshot_id: str | None = None,
        *,
        system: str | None = None,
        run_id: str | None = None,
        evaluator: str | None = None,
    ) -> pa.Table:
        """`verdicts`, as an Arrow table."""
        found = self._listed("verdicts", snapshot_id, system)
        found = _where(found, detector=detector, run_id=run_id, evaluator=evaluator)
        keys = tables.ORDER["verdicts"]
        return _last_of_each(tables.in_order(found, (*keys, "evaluated_at")), keys)

    def machines(self, snapshot_id: str | None = None, *, machine: str | None = None) -> Records:
        """The machines of one snapshot, or of all; or one machine over time, for which most files are skipped.

        States are parsed JSON. Raises `HistoryNotFoundError` for a snapshot that the history has not; so do the others.
        """
        return self._rows("machines", snapshot_id, machine=machine)

    def channels(self, snapshot_id: str | None = None) -> Records:
        """The channels of one snapshot, or of all."""
        return self._rows("channels", snapshot_id)

    def messages(self, snapshot_id: str | None = None) -> Records:
        """The messages in flight in one snapshot, or in all."""
        return self._rows("messages", snapshot_id)

    def calls(self, snapshot_id: str | None = None) -> Records:
        """The unfinished calls of one snapshot, or of all."""
        return self._rows("calls", snapshot_id)

    def waits(self, snapshot_id: str | None = None) -> Records:
        """The waits of one snapshot, or of all."""
        return self._rows("waits", snapshot_id)

    def machine_table(
        self, machine: str, snapshot_ids: Collection[str], columns: Sequence[str] | None = None
    ) -> pa.Table:
        """One machine in some snapshots as an Arrow table, in no order; `columns`: only these, beside `snapshot_id`."""
        wanted = None if columns is None else list(dict.fromkeys(["snapshot_id", *columns]))
        if not snapshot_ids:
            return (
                tables.stored_schema("machines").empty_table().select(wanted or tables.stored_schema("machines").names)
            )
        return self._read("machines", snapshot_ids=snapshot_ids, machine=machine, columns=wanted)

    def actions(self, run_id: str, *, system: str | None = None, machine: str | None = None) -> Records:
        """The trace of one run, machine by machine, or of one machine; empty unless the system had `trace=True`."""
        found = self.action_table(run_id, system=system, machine=machine)
        return self.records("actions", tables.in_order(found, tables.ORDER["actions"]))

    def action_table(self, run_id: str, *, system: str | None = None, machine: str | None = None) -> pa.Table:
        """The same as a table, in no order."""
        return self._complete("actions", self._read("actions", system=system, run_id=run_id, machine=machine))

    def action_count(self, run_id: str) -> int:
        """How many rows the trace of a run has; 0 without one."""
        return int(self._read("actions", run_id=run_id, columns=["run_id"]).num_rows)

    def classes(self, class_name: str | None = None) -> Records:
        """The shapes of the machines' classes, the earliest first; of several rows for one shape the first counts."""
        found = tables.in_order(_where(self._read("classes"), class_name=class_name), ("class_name", "first_seen_at"))
        rows = self.records("classes", found)
        first = {(row.class_name, row.module, row.version): row for row in reversed(rows)}
        kept = [number for number, row in enumerate(rows) if first[row.class_name, row.module, row.version] is row]
        return self.records("classes", found.take(pa.array(kept, pa.int64())))

    def table(self, name: str, snapshot_id: str | None = None, *, system: str | None = None) -> pa.Table:
        """One table as Arrow, JSON columns as text, without a Python object per row."""
        self._check_table(name)
        if name == "snapshots":
            ids = None if snapshot_id is None else [self._known(snapshot_id)]
            return self._read(name, snapshot_ids=ids, system=system)
        return tables.in_order(self._listed(name, snapshot_id, system), tables.ORDER[name])

    def rows_of(
        self,
        name: str,
        snapshot_ids: Iterable[str],
        columns: Sequence[str],
        *,
        where: Mapping[str, str] | None = None,
    ) -> pa.Table:
        """Some columns of one table for some snapshots, in no order; nothing for a snapshot that is not there.

        `where`: only rows in which these columns have these values; of the others nothing is kept in memory.
        """
        self._check_table(name)
        ids = list(snapshot_ids)
        if not ids:
            return tables.stored_schema(name).empty_table().select(columns)
        return self._read(name, snapshot_ids=ids, columns=columns, where=where)

    def listed(self, snapshot_ids: Iterable[str]) -> set[str]:
        """Which of these snapshots the history has: retention may have taken some away."""
        return set(self.rows_of("snapshots", snapshot_ids, ["snapshot_id"])["snapshot_id"].to_pylist())

    # Whole snapshots

    def load(self, snapshot_id: str, *, system: str | None = None) -> Snapshot:
        """One snapshot: an id, or what else `resolve` takes (`latest`, `-2`, the beginning of an id).

        Raises `HistoryNotFoundError`, `HistoryFormatError` if its rows are not all there.
        """
        try:
            (snapshot,) = self.load_many([snapshot_id])
        except HistoryNotFoundError:
            (snapshot,) = self.load_many([self.resolve(snapshot_id, system=system)])
        return snapshot

    def load_many(
        self, snapshot_ids: Iterable[str], *, columns: Mapping[str, Sequence[str]] | None = None
    ) -> Iterator[Snapshot]:
        """Snapshots in the order of `snapshot_ids`; many small ones cost little more than one.

        `columns`: by table those that are read; of tables that are not in it, all. The snapshots have no others.
        """
        for snapshot_id, parts in self.parts(snapshot_ids, columns=columns):
            yield self.assembled(snapshot_id, parts)

    def parts(
        self, snapshot_ids: Iterable[str], *, columns: Mapping[str, Sequence[str]] | None = None
    ) -> Iterator[tuple[str, dict[str, pa.Table]]]:
        """The rows of snapshots as they lie there, table by table, with their partitions; not checked."""
        chosen = columns or {}
        ids = list(snapshot_ids)
        listed = self._snapshot_rows(ids) if ids else {}
        sizes = {snapshot_id: row_count(row) for snapshot_id, row in listed.items()}
        is_narrow = "state" not in chosen.get("machines", ["state"]) and "args" not in chosen.get("messages", ["args"])
        for batch in row_batches(sizes, MOST_NARROW_ROWS if is_narrow else MOST_ROWS):
            details = {
                name: _split(self._read(name, snapshot_ids=batch, columns=chosen.get(name)), batch)
                for name in tables.DETAIL_TABLES
            }
            for snapshot_id in batch:
                parts = {name: found[snapshot_id] for name, found in details.items()}
                yield snapshot_id, {"snapshots": listed[snapshot_id], **parts}

    def load_many_without_rest(
        self, snapshot_ids: Iterable[str], *, columns: Mapping[str, Sequence[str]], adding: Iterable[Any] = ()
    ) -> Iterator[Snapshot]:
        """As `load_many`, but machines at rest are absent (`Snapshot.parted`), and channels with nothing in flight left out.

        Also whole ones, where rows are not as a history is written. `columns`: those of machines and channels at least.
        `adding`: detectors that add up, for which snapshots get their `totals` where these can be had of many at once.
        """
        ids = list(snapshot_ids)
        listed = self._snapshot_rows(ids) if ids else {}
        for batch in row_batches({one: row_count(row) for one, row in listed.items()}, MOST_ENCODED_ROWS):
            try:
                encoded = {name: self._encoded(name, batch, columns[name]) for name in _MANY_ROWS}
                chosen = at_rest.chosen(encoded["machines"], encoded["channels"], batch)
            except (at_rest.UnusualError, pa.ArrowException, ValueError, OSError):
                yield from self.load_many(batch, columns=columns)  # what is wrong is said there
                continue
            rows = {
                name: self._read(name, snapshot_ids=batch, columns=columns.get(name))
                for name in tables.DETAIL_TABLES
                if name not in _MANY_ROWS
            }
            rows |= {"machines": chosen.machines, "channels": chosen.channels}
            together = Together(
                len(batch), encoded["machines"], chosen.machines_of, rows["messages"], _places(rows["messages"], batch)
            )
            totals = totals_of_each(adding, together)
            is_whole = not any(rows_alone.without(name, found) for name, found in rows.items())
            each = {
                name: _split(_as_recorded(name, found) if is_whole else found, batch) for name, found in rows.items()
            }
            for place, snapshot_id in enumerate(batch):
                parts = {name: found[snapshot_id] for name, found in each.items()}
                absent = chosen.absent[place]
                left_out = {
                    "machines": absent.count,
                    "channels": chosen.channel_counts[place] - parts["channels"].num_rows,
                }
                parts = {"snapshots": listed[snapshot_id], **parts}
                snapshot = self.assembled(snapshot_id, parts, absent, left_out, is_recorded=is_whole)
                snapshot.totals |= totals[place]
                yield snapshot

    def _encoded(self, name: str, snapshot_ids: Sequence[str], columns: Sequence[str]) -> pa.Table:
        return tables.scan_encoded(name, self.data_files(name, snapshot_ids=snapshot_ids), snapshot_ids, columns)

    def whole(self, snapshot_id: str) -> dict[str, pa.Table]:
        """All rows of one snapshot, sorted, table by table; raises as `load` does."""
        ((_, parts),) = self.parts([snapshot_id])
        self.assembled(snapshot_id, parts)
        return {name: tables.in_order(part, tables.ORDER[name]) for name, part in parts.items()}

    def resolve(self, text: str, *, system: str | None = None) -> str:
        """The id of the snapshot that `text` means: an id, the beginning of one, `latest`, or `-1`, `-2`, ...

        `-1` is the latest, `-2` the one before; edited ones (`testing.edit`) count with neither. Raises
        `HistoryNotFoundError` if it means none, or several.
        """
        found = self.as_stored()._read("snapshots", system=system, columns=["snapshot_id", "started_at"])
        ids: list[str] = tables.in_order(found, ("started_at", "snapshot_id"))["snapshot_id"].drop_null().to_pylist()
        if text in ids:
            return text
        taken = [snapshot_id for snapshot_id in ids if EDITED not in snapshot_id]
        back = 1 if text == "latest" else int(text[1:]) if _BACK.fullmatch(text) else 0
        if 1 <= back <= len(taken):
            return taken[-back]
        matches = [snapshot_id for snapshot_id in ids if text and snapshot_id.startswith(text)]
        matches = [snapshot_id for snapshot_id in matches if snapshot_id in taken] or matches
        if len(matches) == 1:
            return matches[0]
        if matches:
            raise HistoryNotFoundError(
                f"{text!r} begins {len(matches)} snapshots of {self.path}, {matches[0]} the first: give more",
                path=self.path,
                snapshot_id=text,
            )
        raise self._unknown(text, system)

    def restorable(self, *, system: str | None = None) -> list[str]:
        """The ids of the snapshots that were recorded as restorable, earliest first, without edited ones."""
        found = self.as_stored()._read(
            "snapshots", system=system, columns=["snapshot_id", "started_at", "status", "restorable"]
        )
        found = found.filter(pc.and_(pc.equal(found["status"], "complete"), pc.fill_null(found["restorable"], False)))
        ids: list[str] = tables.in_order(found, ("started_at", "snapshot_id"))["snapshot_id"].to_pylist()
        return [snapshot_id for snapshot_id in ids if EDITED not in snapshot_id]

    # Files and versions, for Spark and others

    def files(self, table: str) -> list[str]:
        """The Parquet files of the table's current version, and no others: what a plain reader must read.

        Read with the folder of the table as base path, they have the columns `system` and `date` too.
        """
        self._check_table(table)
        return tables.checked_paths(self.path, table, self.data_files(table))

    def version(self, table: str) -> int:
        """The number of the table's latest commit; -1 of a table that the history is too old to have."""
        self._check_table(table)
        if self._lacks(table):
            return -1
        return int(tables.open_table(self.path, table).version())

    # Upkeep

    def verify(self, system: str | None = None, unchecked: list[str] | None = None) -> Iterator[tuple[str, list[str]]]:
        """Check every snapshot: (snapshot_id, problems), earliest first; no problems if all is well.

        Checks the counts in `snapshots` against the rows, the equations of every channel, that each row is of its snapshot's
        run and system, the JSON, the verdicts, the checkpoints; then the traces and classes: ("table actions", problems)
        if they have any. `unchecked` gets a sentence for each thing that could not be checked.
        """
        yield from verify(self.as_stored(), system, [] if unchecked is None else unchecked)

    def compact(self) -> dict[str, dict[str, int]]:
        """Rewrite small files into large ones, table by table; writers and readers may go on meanwhile.

        Returns the files added and removed per table. The old ones stay on disk until `vacuum`.
        """
        with self._upkeep() as owner:
            return {name: compaction.compact(self.path, name, owner.owner) for name in upkeep.there(self.path)}

    def vacuum(self, retention_hours: int = 168, *, dry_run: bool = False) -> dict[str, list[str]]:
        """Delete files that left the tables more than `retention_hours` ago, and what writers left that died.

        Returns the files, table by table, and `checkpoints` of no snapshot. A reader that began before, on a version that
        old, fails and must begin again.
        """
        upkeep.refuse_links(self.path)
        moment = None
        if not dry_run:
            self._clean()
            moment = places.at(self.path).now(self.path)
        found = {
            name: upkeep.vacuum(self.path, name, retention_hours, dry_run=dry_run, moment=moment)
            for name in upkeep.there(self.path)
        }
        strays = upkeep.stray_checkpoints(self.path, retention_hours, dry_run=dry_run, moment=moment)
        return found | ({checkpoints.FOLDER: strays} if strays else {})

    def retain(
        self,
        keep: timedelta | None = None,
        keep_every: timedelta | None = None,
        *,
        system: str | None = None,
        now: datetime | None = None,
        dry_run: bool = False,
    ) -> Retained:
        """Remove whole snapshots from all tables: those that started more than `keep` ago, but for one in `keep_every`.

        Their checkpoints go with them. Without `keep` their age does not matter; without `keep_every` none of the old ones
        stays. Returns what went, or with `dry_run` what would. Their rows leave the disk with the files, at the next
        `vacuum`.
        """
        listed = self._complete("snapshots", self.as_stored()._read("snapshots", system=system))
        ids = retention.to_drop(listed, keep, keep_every, now)
        if dry_run:
            with tables.faults(self.path, "snapshots", "read", HistoryFormatError):
                return Retained(ids, retention.count_rows(self.path, ids))
        upkeep.refuse_append_only(self.path)
        with self._upkeep() as owner:
            return Retained(ids, retention.drop(self.path, ids, owner))

    # Inside

    def _clean(self) -> None:
        """Remove what writers have left that died; in a store it takes `leases.LEASE_S` to know that one did."""
        looks = leases.Looks()
        if isinstance(self.path, StorePath):
            leases.wait(self.path, looks)
        upkeep.clean(self.path, None, looks)

    @contextmanager
    def _upkeep(self) -> Iterator[owners.Owner | leases.Lease]:
        """Work that rewrites files, under a record of its own; what others left that died in it is removed first."""
        upkeep.refuse_links(self.path)
        try:
            self._clean()
            owner = owners.owner_of(self.path, upkeep.UPKEEP)
            owner.intend(())
        except OSError as fault:
            raise HistoryWriteError(f"history {self.path} cannot be written: {fault}", path=self.path) from fault
        try:
            yield owner
        finally:
            owner.close()

    def _read(
        self,
        name: str,
        *,
        snapshot_ids: Collection[str] | None = None,
        system: str | None = None,
        run_id: str | None = None,
        machine: str | None = None,
        columns: Sequence[str] | None = None,
        where: Mapping[str, str] | None = None,
    ) -> pa.Table:
        """Rows of the latest version; read again from a later one if a vacuum took a file away meanwhile.

        Raises `HistoryFormatError` if one has a time that Python cannot hold: whoever reads it would fall over it, anywhere.
        """
        for attempt in range(_READ_ATTEMPTS):
            with tables.faults(self.path, name, "read", HistoryFormatError):
                files = self.data_files(name, snapshot_ids=snapshot_ids, system=system, machine=machine)
                try:
                    found = tables.scan(
                        name,
                        files,
                        snapshot_ids=snapshot_ids,
                        equal={**(where or {}), "run_id": run_id, "machine": machine},
                        columns=columns,
                    )
                    return found if self.is_as_stored else self._refused(name, found, rows_alone.untimely(name, found))
                except FileNotFoundError:
                    if attempt == _READ_ATTEMPTS - 1:
                        raise
        raise AssertionError("the loop returns or raises")

    def _lacks(self, name: str) -> bool:
        """Whether the history is older than this table."""
        return name in ADDED_LATER and not tables.has_log(self.path / name)

    def data_files(self, name: str, **filters: Any) -> list[tables.DataFile]:
        """The files of one table that may hold what is asked for: see `tables.data_files`."""
        if self._lacks(name):
            return []
        table = tables.open_table(self.path, name)
        with tables.faults(self.path, name, "read", HistoryFormatError):
            return tables.data_files(self.path, name, table, **filters)

    def _listed(
        self, name: str, snapshot_id: str | None, system: str | None = None, machine: str | None = None
    ) -> pa.Table:
        """The rows of a table whose snapshots exist; an action belongs to no snapshot, but to a run."""
        if name in ("actions", "classes"):
            run_id = None if snapshot_id is None else self._read_run(snapshot_id)
            return self._read(name, system=system, run_id=run_id)
        if snapshot_id is not None:
            return self._read(name, snapshot_ids=[self._known(snapshot_id)], system=system, machine=machine)
        ids = self._read("snapshots", system=system, columns=["snapshot_id"])["snapshot_id"]
        found = self._read(name, system=system, machine=machine)
        return found.filter(pc.is_in(found["snapshot_id"], value_set=ids.combine_chunks()))

    def _rows(self, name: str, snapshot_id: str | None, machine: str | None = None) -> Records:
        found = self._listed(name, snapshot_id, machine=machine)
        return self.records(name, tables.in_order(found, tables.ORDER[name]))

    def records(self, name: str, table: pa.Table) -> Records:
        """Rows of a table of this history; raises `HistoryFormatError` if they cannot be read."""
        with tables.faults(self.path, name, "read", HistoryFormatError):
            return Records(name, table)

    def _complete(self, name: str, rows: pa.Table) -> pa.Table:
        """`rows`; raises `HistoryFormatError` if one lacks a value that every reader needs."""
        return self._refused(name, rows, rows_alone.without(name, rows))

    def _refused(self, name: str, rows: pa.Table, problems: Sequence[str]) -> pa.Table:
        """`rows`; raises `HistoryFormatError` for the first problem, if there is one."""
        if problems:
            raise HistoryFormatError(
                f"history {self.path}: table {name} is damaged: {problems[0]}; put it back from a copy",
                path=self.path,
                table=name,
            )
        return rows

    def each(self, name: str, table: pa.Table) -> Iterator[Row]:
        """The rows of `table`, parsed one by one: all of them at once would take many times the memory."""
        with tables.faults(self.path, name, "read", HistoryFormatError):
            yield from parsed(name, table)

    def _read_run(self, snapshot_id: str) -> str:
        found = self._read("snapshots", snapshot_ids=[self._known(snapshot_id)], columns=["run_id"])
        return str(found["run_id"][0].as_py())

    def _known(self, snapshot_id: str) -> str:
        if not self._read("snapshots", snapshot_ids=[snapshot_id], columns=["snapshot_id"]).num_rows:
            raise self._unknown(snapshot_id)
        return snapshot_id

    def check_known(self, what: str, wanted: str) -> None:
        """Raise `HistoryNotFoundError`, naming what there is, if nothing is of this `system`, `run` or `detector`.

        Of a run the beginning will do.
        """
        table, column = _NAMED[what]
        known = sorted(self.table(table)[column].unique().drop_null().to_pylist())
        if any(item.startswith(wanted) for item in known) if what == "run" else wanted in known:
            return
        close = difflib.get_close_matches(wanted, known, 1)
        more = f" and {len(known) - _MOST_NAMED} more" if len(known) > _MOST_NAMED else ""
        there = f"there are: {', '.join(known[:_MOST_NAMED])}{more}" if known else "there are none yet"
        hint = f"did you mean {close[0]}? " if close else ""
        raise HistoryNotFoundError(
            f"nothing of {what} {wanted!r} in the history {self.path}; {hint}{there}", path=str(self.path)
        )

    def _check_table(self, name: str) -> None:
        if name not in TABLES:
            known = ", ".join(TABLES)
            raise HistoryNotFoundError(f"a history has no table {name!r}; it has {known}", path=self.path)

    def _unknown(self, snapshot_id: str, system: str | None = None) -> HistoryNotFoundError:
        ids = self.as_stored()._read("snapshots", system=system, columns=["snapshot_id", "started_at"])
        latest = tables.in_order(ids, ("started_at", "snapshot_id"))["snapshot_id"].to_pylist()[-1:]
        told = "; say an id, the beginning of one, latest, or -2 for the one before"
        holds = f"it has {ids.num_rows}, the latest is {latest[0]}{told}" if latest else "it has none yet"
        whose = "" if system is None else f" of system {system!r}"
        return HistoryNotFoundError(
            f"no snapshot {snapshot_id!r}{whose} in the history {self.path}: {holds}",
            path=self.path,
            snapshot_id=snapshot_id,
        )

    def _snapshot_rows(self, snapshot_ids: list[str]) -> dict[str, pa.Table]:
        """The row of `snapshots` of each id."""
        listed = self._read("snapshots", snapshot_ids=snapshot_ids)
        rows: dict[str, int] = {}
        for row, snapshot_id in enumerate(listed["snapshot_id"].to_pylist()):
            if snapshot_id in rows:
                raise self._damaged(snapshot_id, "snapshots", "lists it twice")
            rows[snapshot_id] = row
        for snapshot_id in snapshot_ids:
            if snapshot_id not in rows:
                raise self._unknown(snapshot_id)
        return {snapshot_id: listed.slice(rows[snapshot_id], 1) for snapshot_id in snapshot_ids}

    def _damaged(self, snapshot_id: str, name: str, problem: str) -> HistoryFormatError:
        return HistoryFormatError(
            f"history {self.path}: snapshot {snapshot_id} is damaged: table {name} {problem}",
            path=self.path,
            table=name,
            snapshot_id=snapshot_id,
        )

    def assembled(
        self,
        snapshot_id: str,
        parts: Mapping[str, pa.Table],
        absent: Absent | None = None,
        left_out: Mapping[str, int] = MappingProxyType({}),
        *,
        is_recorded: bool = False,
    ) -> Snapshot:
        """One snapshot of its rows; raises `HistoryFormatError` if they are not all there.

        `left_out`: by table, how many of its rows are not in `parts`; of machines, those of `absent`. `is_recorded`: whether
        the rows of all tables but `snapshots` are as `_as_recorded` returns them, and complete.
        """
        as_they_are = parts.keys() - {"snapshots"} if is_recorded else ()
        for name in parts.keys() - as_they_are:
            self._complete(name, parts[name])
        with tables.faults(self.path, "snapshots", "read", HistoryFormatError):
            found = {name: part if name in as_they_are else _as_recorded(name, part) for name, part in parts.items()}
            snapshot = Snapshot(found, absent)
        if snapshot.status != "complete":  # an aborted one has what was recorded until then
            return snapshot
        for name, count in COUNTS:
            rows, expected = parts[name].num_rows + left_out.get(name, 0), getattr(snapshot, count)
            if rows != expected:
                raise self._damaged(
                    snapshot_id,
                    name,
                    f"has {rows} rows of it, but {count} is {expected}: some are missing or doubled",
                )
        return snapshot


def _as_recorded(name: str, table: pa.Table) -> pa.Table:
    there = [column for column in TABLES[name].names if column in table.column_names]
    return tables.in_order(table, tables.ORDER[name]).select(there).combine_chunks()


def _where(table: pa.Table, **values: str | None) -> pa.Table:
    for column, value in values.items():
        if value is not None:
            table = table.filter(pc.equal(table[column], value))
    return table


def _last_of_each(table: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The last row of each run of rows with equal `keys`."""
    if table.num_rows < 2:
        return table
    differs: Any = False
    for key in keys:
        column = table[key].combine_chunks()
        differs = pc.or_(differs, pc.fill_null(pc.not_equal(column[:-1], column[1:]), True))
    return table.filter(pa.concat_arrays([differs, pa.array([True])]))


def _places(table: pa.Table, snapshot_ids: list[str]) -> Any:
    """By row, which of the snapshots it is of."""
    codes = pc.index_in(table["snapshot_id"], value_set=pa.array(snapshot_ids, pa.string()))
    return codes.to_numpy() if table.num_rows else np.empty(0, np.int64)


def _split(table: pa.Table, snapshot_ids: list[str]) -> dict[str, pa.Table]:
    """The rows of each snapshot, in one pass."""
    numbers = _places(table, snapshot_ids)
    if np.any(numbers[:-1] > numbers[1:]):
        order = np.argsort(numbers, kind="stable")
        table, numbers = taken(table, pa.array(order)), numbers[order]
    bounds = np.searchsorted(numbers, np.arange(len(snapshot_ids) + 1))
    return {
        snapshot_id: table.slice(bounds[row], bounds[row + 1] - bounds[row])
        for row, snapshot_id in enumerate(snapshot_ids)
    }
