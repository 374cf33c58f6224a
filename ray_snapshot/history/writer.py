"""Writing the history: snapshots are buffered and committed many at a time (`background` does that off the snapshot's path).

A snapshot is rows in several tables, and only a single table can be committed at once; so the row of
`snapshots` is committed last, and only what it lists exists. If a commit fails, `flush` raises, and the next
`flush` goes on with exactly the commit that failed: nothing is lost and nothing is written twice. What a
killed writer left behind is never listed, hence never seen; it is removed when the next writer of that system starts (see
`owners`), or if the same snapshot is added again.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.addresses import AnyPath, StorePath
from ray_snapshot.encoding import to_json
from ray_snapshot.errors import HistoryNotFoundError, HistoryWriteError, SettingError
from ray_snapshot.history import commits, compaction, leases, owners, tables, upkeep
from ray_snapshot.history.records import purged
from ray_snapshot.history.stores import StoreFault
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import check_system_name
from ray_snapshot.schema import TABLES
from ray_snapshot.shapes import Shape, shape_of_json
from ray_snapshot.snapshot import Brought, Snapshot
from ray_snapshot.verdicts import Verdict

if TYPE_CHECKING:
    from types import TracebackType

    from deltalake import DeltaTable

_LONGEST_STATE = 100_000

_BYTES_PER_ROW = 100
"""What a row of `machines` takes beside its state, about."""


class _Place(NamedTuple):
    """What every row of a snapshot has: its partition, and its run."""

    system: str
    date: date
    run_id: str


class _Packed(NamedTuple):
    """Rows of machines that have come with a snapshot, and are read when it is committed."""

    place: _Place
    brought: Brought

    def rows(self) -> pa.Table:
        return _stored("machines", self.brought.rows(), self.place.system, self.place.date)


class _Stage(NamedTuple):
    """A commit to come."""

    name: str
    rows: pa.Table
    also: Sequence[pa.Table] = ()
    """Rows that get files of their own: so they need not be put in order among `rows`."""

    @property
    def bytes(self) -> int:
        """What it takes in memory, about."""
        return sum(one.nbytes for one in (self.rows, *self.also))

    def purged(self) -> _Stage:
        """The same without what is redacted here."""
        also = [purged(self.name, one) for one in self.also]
        return self._replace(rows=purged(self.name, self.rows), also=also)


@dataclass(slots=True)
class _Batch:
    """What has left the buffer together."""

    snapshots: dict[str, dict[str, pa.Table]]
    packed: dict[str, _Packed]
    verdicts: list[dict[str, Any]]
    actions: list[pa.Table]
    classes: list[pa.Table]
    bytes: int


class HistoryWriter:
    """Writes snapshots and verdicts into the history at `path`; safe to use from several threads.

    Other writers, in other processes too, may write into the same history. `system`: refuse snapshots of
    others. Raises `HistoryWriteError` at once if the folder cannot be written, `HistoryFormatError` if it
    holds something else.
    """

    def __init__(self, path: str | os.PathLike[str] | StorePath, *, system: str | None = None) -> None:
        self.path = tables.history_path(path, HistoryWriteError)
        self.system = None if system is None else check_system_name(system)
        self._tables = tables.create_tables(self.path)
        key = f"system:{system or ''}"
        self._owner = owners.owner_of(self.path, key)
        self._key, self._looks = key, leases.Looks()
        upkeep.clean(self.path, key, self._looks)
        self._newest_before = max((_newest(table) for table in self._tables.values()), default="")
        self._lock = threading.Lock()
        self._commit_lock = threading.Lock()
        self._snapshots: dict[str, dict[str, pa.Table]] = {}
        self._verdicts: list[dict[str, Any]] = []
        self._actions: list[pa.Table] = []
        self._classes: list[pa.Table] = []
        self._shapes: set[tuple[str, str, str]] = set()
        self._runs_known: set[str] = set()
        self._stages: deque[_Stage] = deque()
        self._packed: dict[str, _Packed] = {}
        """By snapshot in the buffer: rows that are to be read."""
        self._batch: _Batch | None = None
        """What has left the buffer, and is not staged, for packed rows of it could not be read."""
        self._places: dict[str, _Place] = {}
        self._closed = False
        self._turn = 1
        """The number of the next commit."""
        self._bytes_buffered = self._bytes_staged = 0

    def __enter__(self) -> HistoryWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def add(self, snapshot: Snapshot) -> None:
        """Take a completed or aborted snapshot into the buffer; raises `SettingError` if its id is taken."""
        snapshot_id, system = snapshot.snapshot_id, check_system_name(snapshot.system)
        if self.system not in (None, system):
            raise SettingError(
                f"snapshot {snapshot_id} is of system {system!r}, this history writer of {self.system!r}"
            )
        day = _day(snapshot)
        found, absent = snapshot.apart()
        brought = None if absent is None else absent.brought
        if brought is None:
            found = snapshot.tables
        place = _Place(system, day, snapshot.run_id)
        prepared = {name: _stored(name, table, system, day) for name, table in found.items()}
        with self._lock:
            self._check_open()
            if snapshot_id in self._places or self._is_stored(snapshot_id):
                raise SettingError(f"snapshot {snapshot_id} is in the history {self.path} already: ids must differ")
            self._snapshots[snapshot_id] = prepared
            self._bytes_buffered += sum(table.nbytes for table in prepared.values() if table.num_rows)
            if absent is not None and brought is not None:
                self._packed[snapshot_id] = _Packed(place, brought)
                self._bytes_buffered += absent.state_bytes + absent.count * _BYTES_PER_ROW
            self._remember(snapshot_id, place)
        self._add_shapes(snapshot)

    def add_verdicts(self, verdicts: Iterable[Verdict]) -> None:
        """Take verdicts into the buffer, each on a snapshot added before.

        A later one with the same (snapshot_id, detector, evaluator) replaces the earlier. Raises
        `HistoryNotFoundError` for an unknown snapshot.
        """
        rows = [self._verdict_row(verdict) for verdict in verdicts]
        pa.Table.from_pylist(rows, schema=tables.stored_schema("verdicts"))  # fails here, not in `flush`
        with self._lock:
            self._check_open()
            self._verdicts += rows

    def add_both(self, snapshot: Snapshot, verdicts: Iterable[Verdict]) -> None:
        """Take a snapshot and the verdicts on it."""
        self.add(snapshot)
        self.add_verdicts(verdicts)

    def add_again(self, snapshot: Snapshot, verdicts: Iterable[Verdict]) -> None:
        """Take what may be in the history already, for a writer of this run has died: only what is missing is added."""
        self._remember_shapes(snapshot.run_id)
        with self._lock:
            is_known = snapshot.snapshot_id in self._places or self._is_stored(snapshot.snapshot_id)
        if is_known:
            self._add_shapes(snapshot)
        else:
            self.add(snapshot)
        there = self._judged(snapshot.snapshot_id)
        self.add_verdicts(found for found in verdicts if (found.detector, found.evaluator) not in there)

    def _judged(self, snapshot_id: str) -> set[tuple[str, str]]:
        """(detector, evaluator) of the verdicts on a snapshot that the history holds."""
        rows = _rows_of(self.path, "verdicts", snapshot_id, ["detector", "evaluator"]).to_pylist()
        return {(row["detector"], row["evaluator"]) for row in rows}

    def _remember_shapes(self, run_id: str) -> None:
        """Know which rows of `classes` the history has of this run, once."""
        if run_id in self._runs_known:
            return
        self._runs_known.add(run_id)
        with tables.faults(self.path, "classes", "read", HistoryWriteError):
            files = tables.data_files(self.path, "classes", tables.open_table(self.path, "classes"))
            rows = tables.scan("classes", files, equal={"run_id": run_id}, columns=["class_name", "version"])
        self._shapes.update((run_id, row["class_name"], row["version"]) for row in rows.to_pylist())

    def add_actions(self, rows: pa.Table, *, system: str) -> None:
        """Take rows of the trace into the buffer; their date is that of the action."""
        days = rows["acted_at"].cast(pa.timestamp("us")).cast(pa.date32())
        columns = [*(rows[name] for name in TABLES["actions"].names), pa.repeat(pa.scalar(system), rows.num_rows), days]
        with self._lock:
            self._check_open()
            self._actions.append(pa.table(columns, schema=tables.stored_schema("actions")))
            self._bytes_buffered += rows.nbytes

    def add_classes(self, rows: Iterable[Mapping[str, Any]], *, system: str) -> None:
        """Take rows of `classes` into the buffer; the date is that of `first_seen_at`."""
        found = pa.Table.from_pylist(list(rows), schema=TABLES["classes"])
        days = found["first_seen_at"].cast(pa.timestamp("us")).cast(pa.date32())
        columns = [*found.columns, pa.repeat(pa.scalar(system), found.num_rows), days]
        with self._lock:
            self._check_open()
            self._classes.append(pa.table(columns, schema=tables.stored_schema("classes")))
            self._bytes_buffered += found.nbytes

    def _add_shapes(self, snapshot: Snapshot) -> None:
        """Rows of `classes` for the states of a shape that this run has not had before."""
        run, new = snapshot.run_id, []
        described = {shape.class_name for shape in snapshot.shapes}
        for shape in (*snapshot.shapes, *_told_by_states(self._machines(snapshot, described), described)):
            key = run, shape.class_name, shape.version
            if key not in self._shapes and len(self._shapes) < LIMITS.remembered_shapes:
                self._shapes.add(key)
                new.append({**shape._asdict(), "run_id": run, "first_seen_at": snapshot.started_at})
        if new:
            self.add_classes(new, system=snapshot.system)

    def _machines(self, snapshot: Snapshot, described: set[str]) -> pa.Table:
        """Rows of all classes that are not among `described`."""
        here, absent = snapshot.parted
        if absent is not None and absent.brought is not None and absent.classes.keys() <= described:
            return here
        return snapshot.tables["machines"]

    def flush(self) -> None:
        """Commit what is buffered: a commit per table, `snapshots` after its details and its run's trace, then the verdicts.

        Raises `HistoryWriteError`; calling it again goes on where it stopped.
        """
        with self._commit_lock, self._store_faults():
            self._stage()
            if self._stages:
                self._intend()
            while self._stages:
                stage = self._stages[0]
                self._commit(stage.name, stage.rows, *stage.also)
                self._stages.popleft()
                self._turn += 1
                self._bytes_staged -= stage.bytes
            self._owner.close()
            if self._looks.first:
                upkeep.clean(self.path, self._key, self._looks)

    def close(self) -> None:
        """Flush, and take nothing more."""
        self.flush()
        with self._lock:
            self._closed = True

    def merge_small(self) -> None:
        """Make large files of the small ones that many commits have left; only of this writer's system, if it has one."""
        with self._commit_lock, self._store_faults():
            self._intend()
            for name in self._tables:
                compaction.merge_small(self.path, name, self.system, self._owner.owner)
            if not self._stages:
                self._owner.close()

    @property
    def buffered_bytes(self) -> int:
        """How much memory the rows take that are not committed yet, about."""
        return self._bytes_buffered + self._bytes_staged + (0 if self._batch is None else self._batch.bytes)

    def _intend(self) -> None:
        self._owner.intend({found for stage in self._stages for found in _snapshots_in(stage.rows)})

    def _commit(self, name: str, rows: pa.Table, *also: pa.Table) -> None:
        self._owner.check()
        turn = commits.Turn(self._owner.owner, self._turn) if isinstance(self.path, StorePath) else None
        try:
            commits.append(self.path, name, self._tables[name], rows, self._owner.owner, turn, also)
        except commits.WriterOverError:
            assert isinstance(self._owner, leases.Lease)
            self._owner.lose()
            self._owner.check()

    @contextmanager
    def _store_faults(self) -> Iterator[None]:
        """What goes wrong at the record of a writer in a store is an error of the history."""
        try:
            yield
        except StoreFault as fault:
            raise HistoryWriteError(f"history {self.path} cannot be written: {fault}", path=self.path) from fault

    def _stage(self) -> None:
        """Turn the buffer into commits, in the order in which they must happen.

        Where packed rows cannot be read this time, what left the buffer before goes first the next time.
        """
        if self._batch is not None:
            self._stage_batch(self._batch)
        self._batch = self._taken()
        self._stage_batch(self._batch)

    def _taken(self) -> _Batch:
        """All that is in the buffer, which is empty then."""
        with self._lock:
            found = _Batch(
                self._snapshots, self._packed, self._verdicts, self._actions, self._classes, self._bytes_buffered
            )
            self._snapshots, self._packed = {}, {}
            self._verdicts, self._actions, self._classes = [], [], []
            self._bytes_buffered = 0
        return found

    def _stage_batch(self, batch: _Batch) -> None:
        unpacked = _unpacked(batch)  # if it fails, nothing is staged: it is all tried again
        stages = [_Stage("actions", tables.in_order(one, tables.ORDER["actions"])) for one in _batches(batch.actions)]
        for name in (*tables.DETAIL_TABLES, "snapshots"):
            rows = [batch.snapshots[snapshot_id][name] for snapshot_id in sorted(batch.snapshots)]
            also = unpacked if name == "machines" else ()
            stages += [_Stage(name, part, also) for part in _batches(rows, is_empty_too=bool(also))]
        stages += [_Stage("classes", tables.in_order(one, tables.ORDER["classes"])) for one in _batches(batch.classes)]
        if batch.verdicts:
            latest = {(row["snapshot_id"], row["detector"], row["evaluator"]): row for row in batch.verdicts}
            judged = pa.Table.from_pylist(list(latest.values()), schema=tables.stored_schema("verdicts"))
            stages.append(_Stage("verdicts", tables.in_order(judged, tables.ORDER["verdicts"])))
        self._stages.extend(stage.purged() for stage in stages)
        self._batch = None
        self._bytes_staged = sum(stage.bytes for stage in self._stages)

    def _check_open(self) -> None:
        if self._closed:
            raise HistoryWriteError(f"history {self.path}: this writer is closed", path=self.path)

    def _remember(self, snapshot_id: str, place: _Place) -> None:
        self._places[snapshot_id] = place
        if len(self._places) > LIMITS.remembered_shapes:
            del self._places[next(iter(self._places))]

    def _is_stored(self, snapshot_id: str) -> bool:
        """Whether the history lists the snapshot; rows of it that a killed writer left are removed."""
        if snapshot_id > self._newest_before:  # ids sort by time, so nearly always
            return False
        if _rows_of(self.path, "snapshots", snapshot_id).num_rows:
            return True
        for name in tables.DETAIL_TABLES:
            if _rows_of(self.path, name, snapshot_id).num_rows:
                upkeep.drop(self.path, name, [snapshot_id], self._owner.owner)
        return False

    def _place(self, snapshot_id: str) -> _Place:
        found = self._places.get(snapshot_id)
        if found is None:
            rows = _rows_of(self.path, "snapshots", snapshot_id).to_pylist()
            if not rows:
                raise HistoryNotFoundError(
                    f"snapshot {snapshot_id} is not in the history {self.path}: add it before verdicts on it",
                    path=self.path,
                    snapshot_id=snapshot_id,
                )
            found = _Place(**{name: rows[0][name] for name in _Place._fields})
            with self._lock:
                self._remember(snapshot_id, found)
        return found

    def _verdict_row(self, verdict: Verdict) -> dict[str, Any]:
        place = self._place(verdict.snapshot_id)
        row = {name: getattr(verdict, name) for name in TABLES["verdicts"].names}
        row["evidence"] = to_json(verdict.evidence).text
        row["detector_spec"] = None if verdict.detector_spec is None else to_json(verdict.detector_spec).text
        row["sentence"] = verdict.sentence.encode("utf-8", "backslashreplace").decode()
        return {**row, **place._asdict()}


def _day(snapshot: Snapshot) -> date:
    if snapshot.started_at is None:
        raise SettingError(f"snapshot {snapshot.snapshot_id} has no started_at, which gives its date")
    return snapshot.started_at.astimezone(UTC).date()


def _stored(name: str, table: pa.Table, system: str, day: date) -> pa.Table:
    """`table` with its partition columns, sorted as files are."""
    if not table.num_rows:
        return _nothing(name)
    # Arrow cannot rearrange more than 2 GB of text in one column. (Whole buffers are counted faster than what is used of them.)
    if table.get_total_buffer_size() < LIMITS.sorted_bytes or table.nbytes < LIMITS.sorted_bytes:
        table = tables.in_order(table, tables.ORDER[name][1:] or ("snapshot_id",))
    schema = tables.stored_schema(name)
    added = {"system": pa.scalar(system), "date": pa.scalar(day, pa.date32())}
    there = dict(zip(table.column_names, table.columns, strict=True))
    columns = [
        there[field.name] if field.name in there else pa.repeat(added[field.name], table.num_rows) for field in schema
    ]
    return pa.table(columns, schema=schema)


@cache
def _nothing(name: str) -> pa.Table:
    return tables.stored_schema(name).empty_table()


def _batches(rows: list[pa.Table], *, is_empty_too: bool = False) -> Iterable[pa.Table]:
    """The rows of many snapshots in one commit; they stay where they are in memory."""
    whole = pa.concat_tables(rows) if rows else None
    return [whole] if whole is not None and (whole.num_rows or is_empty_too) else []


def _unpacked(batch: _Batch) -> list[pa.Table]:
    """Rows of machines that have come packed, in one table, if there are any."""
    return [*_batches([packed.rows() for _, packed in sorted(batch.packed.items())])]


def _told_by_states(machines: pa.Table, described: set[str]) -> Iterable[Shape]:
    """The shape of one recorded state of each class that is not among `described`."""
    names = machines["class_name"].combine_chunks().dictionary_encode()
    _, first = np.unique(names.indices.to_numpy(zero_copy_only=False), return_index=True)
    for row in first.tolist():
        class_name, state = machines["class_name"][row].as_py(), machines["state"][row].as_py()
        if (
            class_name is not None
            and class_name not in described
            and state is not None
            and len(state) <= _LONGEST_STATE
        ):
            shape = shape_of_json(class_name, state)
            if shape is not None:
                yield shape


def _snapshots_in(rows: pa.Table) -> list[str]:
    """The snapshots that rows belong to; none for a table whose rows belong to no snapshot."""
    if "snapshot_id" not in rows.column_names:
        return []
    found: list[str] = rows["snapshot_id"].unique().to_pylist()
    return found


def _newest(table: DeltaTable) -> str:
    """The largest snapshot id of a table, by its statistics."""
    actions = pa.RecordBatchReader.from_stream(table.get_add_actions(flatten=True)).read_all()
    if "max.snapshot_id" not in actions.column_names:
        return ""
    return pc.max(actions["max.snapshot_id"]).as_py() or ""


def _rows_of(path: AnyPath, name: str, snapshot_id: str, columns: Sequence[str] = _Place._fields) -> pa.Table:
    table = tables.open_table(path, name)
    with tables.faults(path, name, "read", HistoryWriteError):
        files = tables.data_files(path, name, table, snapshot_ids=[snapshot_id])
        return tables.scan(name, files, snapshot_ids=[snapshot_id], columns=list(columns))
