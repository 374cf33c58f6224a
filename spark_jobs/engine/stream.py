"""`spark.readStream.format("ray_snapshot")`: what comes into a history from some version on, each row once.

An offset is a version of the log that says what exists: that of `snapshots`, for the rows of a snapshot exist from its row
there on (verdicts and actions are committed on their own, and have logs of their own). A compaction is a commit that changes
no data, and one that removes rows brings no new ones: neither is replayed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import date
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxFiles, SupportsTriggerAvailableNow

from ray_snapshot.addresses import AnyPath
from ray_snapshot.errors import HistoryFormatError
from ray_snapshot.history import History, places, tables
from ray_snapshot.limits import LIMITS
from ray_snapshot.spark_jobs.source import Options, Piece, Task, extent_of, listed, pieces_of, rows_of, tasks_of

BEGINNING = -1
OWN_LOG = ("snapshots", "verdicts", "actions", "classes")
"""Tables whose rows exist as soon as they are committed; those of the others, with the row of their snapshot."""


class HistoryStream(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """One stream over one table. `startingVersion`: the last version that is not wanted; without it all rows are."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.last: int | None = None
        """With the trigger `availableNow`: the version where it ends."""

    @property
    def log(self) -> str:
        """The table whose versions are the offsets."""
        return self.options.table if self.options.table in OWN_LOG else "snapshots"

    def initialOffset(self) -> dict[str, int]:
        """Before the first commit, or at `startingVersion`."""
        return {"version": BEGINNING if self.options.starting is None else self.options.starting}

    def getDefaultReadLimit(self) -> ReadLimit:
        """The number of commits in a batch, by the option; all if it is not given."""
        most = self.options.most_commits
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:
        """The version that the next batch ends with."""
        latest = self._version() if self.last is None else self.last
        if isinstance(limit, ReadMaxFiles) and start["version"] != BEGINNING:
            latest = min(latest, start["version"] + limit.max_files)
        return {"version": max(latest, start["version"])}

    def reportLatestOffset(self) -> dict[str, int]:
        """The latest version there is."""
        return {"version": self._version()}

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the end of this run of the stream: what comes from now on is for the next run."""
        self.last = self._version()

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[Task]:
        """The tasks for what came after version `start`, up to `end`; the same for the same versions."""
        path = History(self.options.path).path
        new = added_between(path, self.log, start["version"], end["version"])
        if not new or self.log == self.options.table:
            return tasks_of(new, None)
        listings = tuple(piece.path for piece, _ in new)
        selected: dict[str, Any] = {}
        if start["version"] != BEGINNING and (extent := extent_of(listed(self.options.path, listings))):
            selected["snapshot_ids"] = extent
        table = tables.open_table(path, self.options.table)
        return tasks_of(pieces_of(path, self.options.table, table, **selected), listings)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        assert isinstance(partition, Task)
        return rows_of(self.options, partition)

    def _version(self) -> int:
        return History(self.options.path).version(self.log)


def added_between(path: AnyPath, name: str, start: int, end: int) -> list[tuple[Piece, int]]:
    """The files with new rows that a table took in behind version `start`, up to `end`; with their bytes."""
    if start >= end:
        return []
    if start != BEGINNING:
        return [added for version in range(start + 1, end + 1) for added in added_in(path, name, version)]
    table = tables.open_table(path, name)
    with tables.faults(path, name, f"read as of version {end}", HistoryFormatError):
        table.load_as_version(end)
    return pieces_of(path, name, table)


def added_in(path: AnyPath, name: str, version: int) -> list[tuple[Piece, int]]:
    """The files with new rows that one commit has brought, by the Delta protocol; with their bytes."""
    commit = path / name / tables.LOG / f"{version:020}.json"
    try:
        text = places.at(path).read_bytes(path, commit, LIMITS.log_bytes).decode("utf-8", "replace")
        actions = [json.loads(line) for line in text.splitlines() if line.strip()]
    except FileNotFoundError as fault:
        raise HistoryFormatError(
            f"history {path}: the log of table {name} has no version {version} any more; begin again with an empty checkpoint",
            path=path,
            table=name,
        ) from fault
    removed = [one["remove"] for one in actions if "remove" in one]
    if any(one.get("dataChange", True) for one in removed):
        return []
    added = [one["add"] for one in actions if "add" in one]
    with tables.faults(path, name, f"read: version {version} of its log is damaged", HistoryFormatError):
        return [_piece(path, name, one) for one in added if one.get("dataChange", True)]


def _piece(path: AnyPath, name: str, added: dict[str, Any]) -> tuple[Piece, int]:
    values = added["partitionValues"]
    file = str(tables.file_path(path, name, added["path"]))
    return Piece(file, values.get("system") or "", date.fromisoformat(values["date"])), int(added["size"])
