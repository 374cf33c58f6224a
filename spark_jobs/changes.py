"""Which machines appeared, vanished or were replaced, and which fields of their states changed, where and from what to what?

With `--machine`, `--field` and `--value` it is blame: in which snapshot did this field of this machine get this value? Each
snapshot is held against the one before it in its run, as `questions.differing` holds any two against each other: here by
Spark's tasks, each of which has a share of the snapshots.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from ray_snapshot.errors import SettingError
from ray_snapshot.questions import differing
from ray_snapshot.questions.shown import CHANGES
from ray_snapshot.spark_jobs.engine.output import results, some_rows
from ray_snapshot.spark_jobs.tables import Selection, Tables

if TYPE_CHECKING:
    from ray_snapshot.history import History

VIEWS = CHANGES


def run(
    spark: SparkSession,
    history: History,
    out: str | None = None,
    *,
    selection: Selection | None = None,
    machine: str | None = None,
    field: str | None = None,
    value: str | None = None,
) -> dict[str, DataFrame]:
    """`machines`, `fields` (a row a field of a class) and `changes` (a row a machine, snapshot and field).

    `value`: as text, what the field became. Raises `SettingError` for a machine that none of the snapshots has.
    """
    tables = Tables(spark, history, selection or Selection())
    if machine is not None:
        _check_machine(tables.rows("machines"), machine)
    found = changes(spark, history, tables.complete.toArrow(), machine, field)
    if value is not None:
        found = found.where(F.col("after") == value)
    (found,) = results({"changes": found}, out).values()
    machines = found.mapInArrow(_machines, from_arrow_schema(differing.MACHINES))
    fields = found.groupBy("system", "run_id").applyInArrow(differing.fields_in, from_arrow_schema(differing.FIELDS))
    return {**results({"machines": machines, "fields": fields}, out), "changes": found}


def changes(
    spark: SparkSession, history: History, snapshots: pa.Table, machine: str | None = None, field: str | None = None
) -> DataFrame:
    """One row a machine, snapshot and field whose value is another than in the snapshot before (null: it had none)."""
    ordered = snapshots.sort_by([(name, "ascending") for name in ("run_id", "started_at", "snapshot_id")])
    count = min(2 * spark.sparkContext.defaultParallelism, max(1, ordered.num_rows))
    bounds = np.linspace(0, ordered.num_rows, count + 1).astype(int).tolist()
    # A part begins with the last snapshot of the one before, which its first is held against.
    parts = [ordered.slice(max(0, begin - 1), end - max(0, begin - 1)) for begin, end in pairwise(bounds)]

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for number in (number for batch in batches for number in batch["id"].to_pylist()):
            for found in differing.changes(history, parts[number], machine, field):
                yield from found.to_batches()

    return spark.range(0, count, 1, count).mapInArrow(task, from_arrow_schema(differing.CHANGES))


def _machines(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        yield from differing.machines_in(pa.Table.from_batches([batch])).to_batches()


def options(machine: str | None = None, field: str | None = None, value: str | None = None) -> dict[str, Any]:
    """Check what the command line gave before Spark starts; raises `SettingError`."""
    if value is not None and field is None:
        raise SettingError("--value: say of which field, with --field NAME")
    return {"machine": machine, "field": field, "value": value}


def _check_machine(rows: DataFrame, machine: str) -> None:
    """Raise `SettingError`, naming some that there are, if these rows have none of a machine."""
    if not some_rows(rows.where(F.col("machine") == machine).select("machine"), 1):
        some = ", ".join(row["machine"] for row in some_rows(rows.select("machine"), 3))
        raise SettingError(f"--machine: no machine {machine!r} in these snapshots; they have {some or 'none'}, ...")
