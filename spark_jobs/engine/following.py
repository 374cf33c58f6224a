"""`--follow`: a job on every snapshot as it comes into the history, each exactly once, whatever kills it in between.

A turn takes the versions of `snapshots` that came since the last one, lets the job answer for their snapshots, and
commits the answers to a Delta table under OUT, with the number of the turn as the transaction of this follower. What
the next turn must know (the last version, the snapshots still waiting, what the job carries over) was written before,
under that number. So a follower that was killed at any point begins again with the turn that was not committed, from
the same state, and nothing is there twice.

A snapshot waits for its first live verdict, which says with which detectors its run is watched, but not longer than
`PATIENCE_S` behind its completion; and none is taken before an earlier one of its run.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from ray_snapshot.errors import HistoryFormatError, HistoryWriteError, RaySnapshotError, SettingError
from ray_snapshot.history import inside, tables
from ray_snapshot.json_text import LONGEST_JSON, parsed_json
from ray_snapshot.spark_jobs.engine.stream import BEGINNING, added_between
from ray_snapshot.spark_jobs.source import Options, Task, rows_of
from ray_snapshot.spark_jobs.tables import Selection

if TYPE_CHECKING:
    from deltalake import DeltaTable

    from ray_snapshot.history import History

SNAPSHOTS_PER_STEP = 500
"""So many snapshots are given to the job at once; a turn may have many steps."""

PATIENCE_S = 60.0

_READ_ATTEMPTS = 10
"""A vacuum may take files away while they are read."""

FOLLOWER = "ray-snapshot-follow"
LISTED = ("snapshot_id", "system", "run_id", "sequence", "status", "started_at", "completed_at")

Fresh = Callable[..., tuple[pa.Table, dict[str, Any]]]
"""A job's `fresh(spark, history, snapshots, specs, carried, **options)`: its rows, and what to carry over to the next."""


@dataclass
class State:
    """What a turn leaves to the next."""

    turn: int = 0
    version: int = BEGINNING
    """The version of the table `snapshots` up to which all has been seen."""
    waiting: list[dict[str, Any]] = field(default_factory=list)
    """Snapshots that were seen and not taken yet: `LISTED`."""
    seen: dict[str, int] = field(default_factory=dict)
    """By run: the highest number of a snapshot that was seen."""
    specs: dict[str, dict[str, str]] = field(default_factory=dict)
    """By run and detector: the data of the detectors that it is watched with."""
    carried: dict[str, Any] = field(default_factory=dict)
    """What the job itself carries over from step to step."""


@dataclass
class Follower:
    """One job that follows one history into one folder; use it in a `with` block."""

    spark: SparkSession
    history: History
    out: Path
    table: str
    fresh: Fresh
    selection: Selection
    options: Mapping[str, Any]
    patience_s: float = PATIENCE_S
    source: str = ""
    """Where the history is, if this is a copy of it."""
    refresh: Callable[[], None] | None = None
    """Brings what has come into the history since, if this is a copy of it."""

    def __post_init__(self) -> None:
        self.results = self.out / self.table
        self.lock: Any = None
        self.state = State()

    def __enter__(self) -> Follower:
        from filelock import FileLock, Timeout

        self.out.mkdir(parents=True, exist_ok=True)
        self.lock = FileLock(self.out / "_follow.lock", timeout=0)
        try:
            self.lock.acquire()
        except Timeout:
            raise HistoryWriteError(
                f"{self.out} is followed into by another process: stop that one, or name another folder with --out",
                path=str(self.out),
            ) from None
        try:
            self._check_settings()
            self.state = self._left()
        except BaseException:
            self.lock.release()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.lock.release()

    # ---- what was left ------------------------------------------------------------------------------------------------

    def _check_settings(self) -> None:
        """What was answered so far must have been asked in the same way."""
        path = self.out / "_follow.json"
        asked = {
            "history": self.source or str(self.history.path),
            "selection": repr(self.selection),
            "options": dict(self.options),
        }
        text = json.dumps(asked, sort_keys=True, default=str)
        if not path.exists():
            _write(path, text)
        elif inside.read_bytes(self.out, path, LONGEST_JSON).decode("utf-8", "replace") != text:
            raise SettingError(f"{self.out} was followed into with other options: give the same, or another --out")

    def _opened(self) -> DeltaTable | None:
        from deltalake import DeltaTable

        if not os.path.lexists(self.results / tables.LOG):
            return None
        with tables.faults(self.out, self.table, "opened", HistoryFormatError):
            tables.check_log(self.out, self.table)  # a history that came with results is a stranger's, like its tables
            return DeltaTable(str(self.results)) if DeltaTable.is_deltatable(str(self.results)) else None

    def _left(self) -> State:
        """The state behind the last turn that was committed."""
        table = self._opened()
        turn = None if table is None else table.transaction_version(FOLLOWER)
        if turn is None:
            return State()
        path = self._state_path(turn)
        try:
            return State(**parsed_json(inside.read_bytes(self.out, path, LONGEST_JSON).decode()))
        except (OSError, ValueError, TypeError) as fault:
            raise HistoryFormatError(
                f"{path} does not say how far the results beside it go ({fault}): follow into another folder with --out",
                path=str(self.out),
            ) from fault

    def _state_path(self, turn: int) -> Path:
        return self.out / "_state" / f"{turn:012}.json"

    # ---- one turn -----------------------------------------------------------------------------------------------------

    def turn(self) -> pa.Table | None:
        """Answer for what is new; returns the rows, committed by then, or None if there is nothing to answer for."""
        version, new = self._new()
        seen = [*self.state.waiting, *self._chosen(new)]
        ready, waiting = self._parted(sorted(seen, key=lambda row: (row["run_id"], row["sequence"])))
        if version == self.state.version and not ready:
            return None
        last = self.state
        state = State(last.turn + 1, version, waiting, _highest(last.seen, new), dict(last.specs), dict(last.carried))
        found = [answers for rows in _steps(ready) if (answers := self._step(rows, state)) is not None]
        answers = pa.concat_tables(found) if found else None
        self._commit(state, answers)
        self.state = state
        return answers

    def _new(self) -> tuple[int, list[dict[str, Any]]]:
        """The version of `snapshots` as of now, and the rows that came since the last turn.

        If a compaction and a vacuum have taken away the files in which these rows came, every row counts as new whose
        number is higher than that of any snapshot of its run that was seen.
        """
        if self.refresh is not None:
            self.refresh()
        start, seen = self.state.version, dict[str, int]()
        for attempt in range(_READ_ATTEMPTS):
            version = self.history.version("snapshots")
            try:
                rows = [
                    row for row in _added(self.history, start, version) if row["sequence"] > seen.get(row["run_id"], -1)
                ]
                return version, rows
            except HistoryFormatError as fault:
                if not isinstance(fault.__cause__, FileNotFoundError) or attempt == _READ_ATTEMPTS - 1:
                    raise
                start, seen = BEGINNING, self.state.seen
        raise AssertionError("the loop returns or raises")

    def _chosen(self, rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
        one = self.selection
        return [
            row
            for row in rows
            if row["status"] == "complete"
            and one.system in (None, row["system"])
            and one.run in (None, row["run_id"])
            and (one.since is None or row["started_at"] >= one.since.isoformat())
            and (one.until is None or row["started_at"] < one.until.isoformat())
        ]

    def _parted(self, rows: list[dict[str, Any]]) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """The rows to answer for now: their detectors are known, or were waited for long enough. And those that wait
        for that, or come after one of their run that waits."""
        judged = _judged(self.history, [row["snapshot_id"] for row in rows])
        patience = (datetime.now(UTC) - timedelta(seconds=self.patience_s)).isoformat()
        ready: list[dict[str, Any]] = []
        waiting: list[dict[str, Any]] = []
        for row in rows:
            is_ready = row["snapshot_id"] in judged or row["completed_at"] < patience
            follows = bool(waiting) and waiting[-1]["run_id"] == row["run_id"]
            (ready if is_ready and not follows else waiting).append(row)
        return ready, waiting

    def _step(self, rows: Sequence[Mapping[str, Any]], state: State) -> pa.Table | None:
        """The answers for those snapshots that retention has not taken away, before it begins or while it lasts."""
        ids = {row["snapshot_id"] for row in rows}
        while ids := self.history.listed(ids):
            try:
                return self._answers([row for row in rows if row["snapshot_id"] in ids], state)
            except (RaySnapshotError, PySparkException):
                if self.history.listed(ids) == ids:
                    raise
        return None

    def _answers(self, rows: Sequence[Mapping[str, Any]], state: State) -> pa.Table:
        ids = [row["snapshot_id"] for row in rows]
        for run, detector, spec in _specs(self.history, ids):
            state.specs.setdefault(run, {})[detector] = spec
        runs = {row["run_id"] for row in rows}
        specs = {run: found for run, found in state.specs.items() if run in runs}
        answers, state.carried = self.fresh(self.spark, self.history, rows, specs, state.carried, **self.options)
        return answers

    def _commit(self, state: State, answers: pa.Table | None) -> None:
        from deltalake import CommitProperties, Transaction, write_deltalake

        table = self._opened()
        if answers is None:
            if table is None:
                return  # nothing was ever answered: the next start begins at the beginning
            answers = pa.schema(table.schema().to_arrow()).empty_table()
        self._state_path(0).parent.mkdir(exist_ok=True)
        _write(self._state_path(state.turn), json.dumps(vars(state)))
        with tables.faults(self.out, self.table, "written", HistoryWriteError):
            done = CommitProperties(app_transactions=[Transaction(FOLLOWER, state.turn)])
            write_deltalake(str(self.results), answers, mode="append", commit_properties=done)
        for path in self._state_path(0).parent.glob("*.json"):
            if path != self._state_path(state.turn):
                path.unlink(missing_ok=True)


def follow(follower: Follower, told: Callable[[pa.Table], None], every_s: float, *, once: bool = False) -> None:
    """Turn after turn, `every_s` seconds apart, until interrupted; `once`: what is there now, and no more.

    `told` gets the rows after their commit: a kill in between costs a line on the terminal, never one in the results.
    """
    while True:
        found = follower.turn()
        if found is not None and found.num_rows:
            told(found)
        if once:
            return
        time.sleep(every_s)


def _added(history: History, start: int, end: int) -> Iterator[dict[str, Any]]:
    """The rows (`LISTED`, times as ISO text) that came into `snapshots` behind version `start`, up to `end`."""
    options = Options(str(history.path), "snapshots", LISTED)
    for piece, _ in added_between(history.path, "snapshots", start, end):
        for batch in rows_of(options, Task((piece,))):
            for row in batch.to_pylist():
                yield {name: value.isoformat() if isinstance(value, datetime) else value for name, value in row.items()}


def _highest(seen: Mapping[str, int], rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    """`seen`, brought up to date."""
    found = dict(seen)
    for row in rows:
        found[row["run_id"]] = max(row["sequence"], found.get(row["run_id"], -1))
    return found


def _steps(rows: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    left = iter(rows)
    while some := list(islice(left, SNAPSHOTS_PER_STEP)):
        yield some


def _judged(history: History, ids: Sequence[str]) -> set[str]:
    """Which of these snapshots have a live verdict."""
    found = history.rows_of("verdicts", ids, ["snapshot_id", "evaluator"])
    return set(found.filter(pc.equal(found["evaluator"], "live"))["snapshot_id"].to_pylist())


def _specs(history: History, ids: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    """(run, detector, its data) of the verdicts on these snapshots, the latest last."""
    columns = ["run_id", "detector", "detector_spec", "evaluated_at"]
    found = history.rows_of("verdicts", ids, columns).sort_by("evaluated_at")
    for row in found.filter(pc.is_valid(found["detector_spec"])).to_pylist():
        yield row["run_id"], row["detector"], row["detector_spec"]


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    draft = path.with_suffix(".draft")
    with draft.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
