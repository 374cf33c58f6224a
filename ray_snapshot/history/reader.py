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
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.addresses import StorePath
from ray_snapshot.errors import HistoryFormatError, HistoryNotFoundError, HistoryWriteError
from ray_snapshot.history import checkpoints, compaction, leases, owners, places, retention, tables, upkeep
from ray_snapshot.history.records import Records, Row, parsed
from ray_snapshot.history.stored_rows import StoredRows
from ray_snapshot.history.verification import verify
from ray_snapshot.history.whole_snapshots import WholeSnapshots
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import EDITED, listed
from ray_snapshot.schema import ADDED_LATER, TABLES
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import READY_MADE

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
        self._hold(StoredRows(self.path))

    def _hold(self, stored: StoredRows) -> None:
        self.stored = stored
        self.wholes = WholeSnapshots(stored)

    def as_stored(self) -> History:
        """The same history for who looks for what is wrong with it, or looks at no time."""
        found = copy(self)
        found._hold(StoredRows(self.path, is_as_stored=True))
        return found

    def __repr__(self) -> str:
        return f"History({str(self.path)!r})"

    # Listings

    def snapshots(self, system: str | None = None, *, run_id: str | None = None) -> Records:
        """The rows of `snapshots`, earliest first; the columns of a row are its keys, and its attributes."""
        return self.records("snapshots", self.snapshot_table(system, run_id=run_id))

    def snapshot_table(self, system: str | None = None, *, run_id: str | None = None) -> pa.Table:
        """`snapshots`, as an Arrow table."""
        found = _where(self.stored.read("snapshots", system=system), run_id=run_id)
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
        return self.stored.read("machines", snapshot_ids=snapshot_ids, machine=machine, columns=wanted)

    def actions(self, run_id: str, *, system: str | None = None, machine: str | None = None) -> Records:
        """The trace of one run, machine by machine, or of one machine; empty unless the system had `trace=True`."""
        found = self.action_table(run_id, system=system, machine=machine)
        return self.records("actions", tables.in_order(found, tables.ORDER["actions"]))

    def action_table(self, run_id: str, *, system: str | None = None, machine: str | None = None) -> pa.Table:
        """The same as a table, in no order."""
        return self.stored.complete(
            "actions", self.stored.read("actions", system=system, run_id=run_id, machine=machine)
        )

    def action_count(self, run_id: str) -> int:
        """How many rows the trace of a run has; 0 without one."""
        return int(self.stored.read("actions", run_id=run_id, columns=["run_id"]).num_rows)

    def classes(self, class_name: str | None = None) -> Records:
        """The shapes of the machines' classes, the earliest first; of several rows for one shape the first counts."""
        found = tables.in_order(
            _where(self.stored.read("classes"), class_name=class_name), ("class_name", "first_seen_at")
        )
        rows = self.records("classes", found)
        first = {(row.class_name, row.module, row.version): row for row in reversed(rows)}
        kept = [number for number, row in enumerate(rows) if first[row.class_name, row.module, row.version] is row]
        return self.records("classes", found.take(pa.array(kept, pa.int64())))

    def table(self, name: str, snapshot_id: str | None = None, *, system: str | None = None) -> pa.Table:
        """One table as Arrow, JSON columns as text, without a Python object per row."""
        self.stored.check_table(name)
        if name == "snapshots":
            ids = None if snapshot_id is None else [self.stored.known(snapshot_id)]
            return self.stored.read(name, snapshot_ids=ids, system=system)
        return tables.in_order(self._listed(name, snapshot_id, system), tables.ORDER[name])

    def rows_of(
        self, name: str, snapshot_ids: Iterable[str], columns: Sequence[str], *, where: Mapping[str, str] | None = None
    ) -> pa.Table:
        """Some columns of one table for some snapshots, in no order; nothing for a snapshot that is not there.

        `where`: only rows in which these columns have these values; of the others nothing is kept in memory.
        """
        self.stored.check_table(name)
        ids = list(snapshot_ids)
        if not ids:
            return tables.stored_schema(name).empty_table().select(columns)
        machine = (where or {}).get("machine")
        return self.stored.read(name, snapshot_ids=ids, machine=machine, columns=columns, where=where)

    def listed(self, snapshot_ids: Iterable[str]) -> set[str]:
        """Which of these snapshots the history has: retention may have taken some away."""
        return set(self.rows_of("snapshots", snapshot_ids, ["snapshot_id"])["snapshot_id"].to_pylist())

    # Whole snapshots

    def load(self, snapshot_id: str, *, system: str | None = None) -> Snapshot:
        """One snapshot: an id, or what else `resolve` takes (`latest`, `-2`, the beginning of an id).

        Raises `HistoryNotFoundError`, `HistoryFormatError` if its rows are not all there.
        """
        try:
            (snapshot,) = self.wholes.load_many([snapshot_id])
        except HistoryNotFoundError:
            (snapshot,) = self.wholes.load_many([self.resolve(snapshot_id, system=system)])
        return snapshot

    def load_many(
        self, snapshot_ids: Iterable[str], *, columns: Mapping[str, Sequence[str]] | None = None
    ) -> Iterator[Snapshot]:
        """Snapshots in the order of `snapshot_ids`; many small ones cost little more than one.

        `columns`: by table those that are read; of tables that are not in it, all. The snapshots have no others.
        """
        return self.wholes.load_many(snapshot_ids, columns=columns)

    def resolve(self, text: str, *, system: str | None = None) -> str:
        """The id of the snapshot that `text` means: an id, the beginning of one, `latest`, or `-1`, `-2`, ...

        `-1` is the latest, `-2` the one before; edited ones (of earlier versions) count with neither. Raises
        `HistoryNotFoundError` if it means none, or several.
        """
        found = self.as_stored().stored.read("snapshots", system=system, columns=["snapshot_id", "started_at"])
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
        raise self.stored.unknown(text, system)

    def restorable(self, *, system: str | None = None) -> list[str]:
        """The ids of the snapshots that were recorded as restorable, earliest first, without edited ones."""
        found = self.as_stored().stored.read(
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
        self.stored.check_table(table)
        return tables.checked_paths(self.path, table, self.stored.data_files(table))

    def version(self, table: str) -> int:
        """The number of the table's latest commit; -1 of a table that the history is too old to have."""
        self.stored.check_table(table)
        if self.stored.lacks(table):
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
        listed = self.stored.complete("snapshots", self.as_stored().stored.read("snapshots", system=system))
        ids = retention.to_drop(listed, keep, keep_every, now)
        if dry_run:
            with tables.faults(self.path, "snapshots", "read", HistoryFormatError):
                return Retained(ids, retention.count_rows(self.path, ids))
        upkeep.refuse_append_only(self.path)
        with self._upkeep() as owner:
            return Retained(ids, retention.drop(self.path, ids, owner))

    # Inside

    def _clean(self) -> None:
        """Remove what writers have left that died; in a store it takes `LIMITS.lease_s` to know that one did."""
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

    def _listed(
        self, name: str, snapshot_id: str | None, system: str | None = None, machine: str | None = None
    ) -> pa.Table:
        """The rows of a table whose snapshots exist; an action belongs to no snapshot, but to a run."""
        if name in ("actions", "classes"):
            run_id = None if snapshot_id is None else self._read_run(snapshot_id)
            return self.stored.read(name, system=system, run_id=run_id)
        if snapshot_id is not None:
            return self.stored.read(name, snapshot_ids=[self.stored.known(snapshot_id)], system=system, machine=machine)
        ids = self.stored.read("snapshots", system=system, columns=["snapshot_id"])["snapshot_id"]
        found = self.stored.read(name, system=system, machine=machine)
        return found.filter(pc.is_in(found["snapshot_id"], value_set=ids.combine_chunks()))

    def _rows(self, name: str, snapshot_id: str | None, machine: str | None = None) -> Records:
        found = self._listed(name, snapshot_id, machine=machine)
        return self.records(name, tables.in_order(found, tables.ORDER[name]))

    def records(self, name: str, table: pa.Table) -> Records:
        """Rows of a table of this history; raises `HistoryFormatError` if they cannot be read."""
        with tables.faults(self.path, name, "read", HistoryFormatError):
            return Records(name, table)

    def each(self, name: str, table: pa.Table) -> Iterator[Row]:
        """The rows of `table`, parsed one by one: all of them at once would take many times the memory."""
        with tables.faults(self.path, name, "read", HistoryFormatError):
            yield from parsed(name, table)

    def _read_run(self, snapshot_id: str) -> str:
        found = self.stored.read("snapshots", snapshot_ids=[self.stored.known(snapshot_id)], columns=["run_id"])
        return str(found["run_id"][0].as_py())

    def check_known(self, what: str, wanted: str) -> None:
        """Raise `HistoryNotFoundError`, naming what there is, if nothing is of this `system`, `run` or `detector`.

        Of a run the beginning will do.
        """
        table, column = _NAMED[what]
        known = sorted(self.table(table)[column].unique().drop_null().to_pylist())
        if any(item.startswith(wanted) for item in known) if what == "run" else wanted in known:
            return
        close = difflib.get_close_matches(wanted, known, 1)
        there = f"there are: {listed(known, most=LIMITS.named_systems)}" if known else "there are none yet"
        hint = f"did you mean {close[0]}? " if close else ""
        raise HistoryNotFoundError(
            f"nothing of {what} {wanted!r} in the history {self.path}; {hint}{there}", path=str(self.path)
        )


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
