"""Reads the tables of a history in Spark: exactly the files that the Delta log names, with the declared columns.

A plain read of a table's folder would count twice after a compaction, and would guess the types of the partition
columns (`system=007` is no number). Only what `snapshots` lists exists, so every other table is read through it.
Imports nothing of the jobs; read `traffic.py` next for the simplest of them.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from ray_snapshot.errors import SettingError
from ray_snapshot.history import tables
from ray_snapshot.schema import TABLES

if TYPE_CHECKING:
    from ray_snapshot.history import History

MOST_NAMED = 10
"""So many systems or runs are named in an error."""

RUN = ("system", "run_id")
CHANNEL = ("source", "target", "kind")
"""What names a run, and within a snapshot a channel."""

MOVED = ("sent", "accepted")

PARTITIONS = pa.schema([("system", pa.string()), ("date", pa.date32())])
"""The columns that stand in the folder names and not in the files."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which snapshots a job looks at: of one system, of one run, started at or after `since` and before `until`."""

    system: str | None = None
    run: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    ids: tuple[str, ...] = ()
    """Only these snapshots, if there are some."""


@dataclass
class Tables:
    """The tables of one history as of the moment each is first asked for, `snapshots` before all others."""

    spark: SparkSession
    history: History
    selection: Selection = field(default_factory=Selection)

    @cached_property
    def snapshots(self) -> DataFrame:
        """The selected snapshots, aborted ones included."""
        frame = self._selected_partitions(read_table(self.spark, self.history, "snapshots", self.selection.ids))
        return frame.where(_selects(self.selection))

    @cached_property
    def complete(self) -> DataFrame:
        """The selected snapshots that were completed."""
        return self.snapshots.where(F.col("status") == "complete")

    def rows(self, table: str) -> DataFrame:
        """The rows of another table that belong to the completed ones of the selected snapshots."""
        ids = self.complete.select("snapshot_id")
        frame = self._selected_partitions(read_table(self.spark, self.history, table, self.selection.ids))
        return frame.join(ids, "snapshot_id", "left_semi").select(*TABLES[table].names)

    def unlisted(self, table: str) -> DataFrame:
        """The rows of another table as they lie there, those too that belong to no selected snapshot.

        For a job that adds up by snapshot and joins the sums, which are few, with the selected snapshots; `rows` joins
        every row.
        """
        selection = self.selection
        frame = self._selected_partitions(read_table(self.spark, self.history, table, selection.ids))
        return frame if selection.run is None else frame.where(F.col("run_id") == selection.run)

    def _selected_partitions(self, frame: DataFrame) -> DataFrame:
        """Leave out whole folders; rows carry the date on which their snapshot started."""
        selection = self.selection
        if selection.system is not None:
            frame = frame.where(F.col("system") == selection.system)
        if selection.since is not None:
            frame = frame.where(F.col("date") >= F.lit(selection.since.date()))
        if selection.until is not None:
            frame = frame.where(F.col("date") <= F.lit(selection.until.date()))
        return frame


def read_table(spark: SparkSession, history: History, table: str, ids: Sequence[str] = ()) -> DataFrame:
    """One table whole: the columns of `ray_snapshot.schema`, then `system` and `date` where it has them not.

    With `ids`: only rows between the first and the last of these snapshots, and only files that may hold such.
    """
    schema = from_arrow_schema(with_partitions(TABLES[table]))
    files = _files_of(history, table, ids) if ids else list(history.files(table))
    if not files:
        return spark.createDataFrame([], schema)
    root = os.path.join(str(history.path), table)
    # The names are exact: a bracket in a folder's name is no pattern.
    reader = spark.read.schema(schema).option("basePath", root).option("__globPaths__", "false")
    frame = reader.parquet(*files).select(*schema.names)
    return frame.where(F.col("snapshot_id").between(min(ids), max(ids))) if ids else frame


def _files_of(history: History, table: str, ids: Sequence[str]) -> list[str]:
    found = tables.data_files(history.path, table, tables.open_table(history.path, table), snapshot_ids=ids)
    return tables.checked_paths(history.path, table, found)


def with_partitions(schema: pa.Schema) -> pa.Schema:
    """A table's columns and those that stand in its folder names."""
    return pa.schema([*schema, *(column for column in PARTITIONS if column.name not in schema.names)])


def seconds_between(first: Column, last: Column) -> Column:
    """The seconds from one time to another, as a double."""
    return (F.unix_micros(last) - F.unix_micros(first)) / 1e6


def per_second(count: Column) -> Column:
    """A count over the column `seconds`; null where no time passed."""
    return F.try_divide(count.cast("double"), F.col("seconds"))


def is_restored(by_time: WindowSpec) -> Column:
    """Whether a restore lies between a snapshot and the one before it."""
    before = F.lag("restored_from").over(by_time)
    return F.col("restored_from").isNotNull() & ~F.col("restored_from").eqNullSafe(before)


def generations(snapshots: DataFrame, *kept: str) -> DataFrame:
    """Snapshots with `generation`, which a restore begins, and with the one before: `previous_id`, `seconds` since it."""
    by_run = Window.partitionBy("system", "run_id").orderBy("sequence")
    numbered = snapshots.withColumn("restored", is_restored(by_run).cast("int")).withColumn(
        "generation", F.sum("restored").over(by_run)
    )
    within = Window.partitionBy("system", "run_id", "generation").orderBy("sequence")
    began = F.lag("started_at").over(within)
    return numbered.select(
        "snapshot_id",
        "system",
        "run_id",
        "sequence",
        "started_at",
        "completed_at",
        "generation",
        *kept,
        F.lag("snapshot_id").over(within).alias("previous_id"),
        seconds_between(began, F.col("started_at")).alias("seconds"),
    )


def numbered(known: DataFrame) -> DataFrame:
    """Snapshots of `generations` with a number each, `at`, and the first of their generation, `span`: less to move than names.

    All snapshots are numbered in one task; they are as nothing beside what lies in them.
    """
    at = F.row_number().over(Window.orderBy(*RUN, "sequence", "snapshot_id"))
    span = F.min("at").over(Window.partitionBy(*RUN, "generation"))
    return known.withColumn("at", at).withColumn("span", span)


def moved(known: DataFrame, machines: DataFrame) -> DataFrame:
    """Snapshots of `generations` with what all machines `sent` and `accepted` since the one before; null for a first one.

    A machine that was not there before began at nought, and so did one that was restarted.
    """
    near = F.broadcast(numbered(known).select("snapshot_id", "span", "at"))
    by_time = Window.partitionBy("span", "machine", "incarnation").orderBy("at")
    counts = {name: F.col(f"{name}_count") for name in MOVED}
    since = {name: count - F.lag(count, 1, 0).over(by_time) for name, count in counts.items()}
    rows = machines.join(near, "snapshot_id", "inner").withColumns(since)
    sums = rows.groupBy("snapshot_id").agg(*(F.sum(name).alias(name) for name in MOVED))
    has_previous = F.col("previous_id").isNotNull()
    return known.join(sums, "snapshot_id", "left_outer").withColumns(
        {name: F.when(has_previous, F.coalesce(name, F.lit(0))) for name in MOVED}
    )


def whole_run_id(history: History, given: str | None) -> str | None:
    """The run id that begins with what was given, if only one does, for sixteen digits are much to type. Raises
    `SettingError`."""
    if given is None:
        return None
    known = set(history.table("snapshots")["run_id"].drop_null().to_pylist())
    found = sorted(one for one in known if one.startswith(given))
    if given in known or not found:
        return given
    if len(found) > 1:
        raise SettingError(f"--run: {given!r} may be any of {', '.join(found[:MOST_NAMED])}: write more of it")
    return str(found[0])


def parse_time(text: str | None, option: str) -> datetime | None:
    """An ISO 8601 time given on the command line, UTC unless it says otherwise; raises `SettingError`."""
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise SettingError(f"{option} {text!r} is no time: write it like 2026-01-31 or 2026-01-31T12:30:00") from error
    return found.replace(tzinfo=UTC) if found.tzinfo is None else found.astimezone(UTC)


def _selects(selection: Selection) -> Column:
    chosen = F.lit(True)
    if selection.run is not None:
        chosen &= F.col("run_id") == selection.run
    if selection.ids:
        chosen &= F.col("snapshot_id").isin(*selection.ids)
    if selection.since is not None:
        chosen &= F.col("started_at") >= F.lit(selection.since)
    if selection.until is not None:
        chosen &= F.col("started_at") < F.lit(selection.until)
    return chosen
