"""Work on whole snapshots: their ids are distributed, and each task loads its own.

The rows of one snapshot span many Arrow batches, so grouping rows would move all of them; ids sort by time, so a range of
them lies together in few files. Imports no job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import from_arrow_schema

from ray_snapshot.snapshot import Snapshot

if TYPE_CHECKING:
    from ray_snapshot.history import History

SNAPSHOTS_AT_ONCE = 256
"""A task asks for so many snapshots together; the history reads large ones in smaller batches."""

Row = dict[str, Any]


def in_tasks(
    work: DataFrame, order: str, schema: pa.Schema, function: Callable[[list[Row]], Iterable[Row]]
) -> DataFrame:
    """The rows that `function` makes of those of `work`, many at a time; a task has a range of them, by the ids in `order`."""

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        left = (row for batch in batches for row in batch.to_pylist())
        while chunk := list(islice(left, SNAPSHOTS_AT_ONCE)):
            yield from pa.Table.from_pylist(list(function(chunk)), schema).to_batches()

    tasks = 2 * work.sparkSession.sparkContext.defaultParallelism
    shared = work.repartitionByRange(tasks, order).sortWithinPartitions(order)
    return shared.mapInArrow(task, from_arrow_schema(schema)).select(*schema.names)


def per_snapshot(
    work: DataFrame, history: History, schema: pa.Schema, function: Callable[[Snapshot, Row], Iterable[Row]]
) -> DataFrame:
    """The rows that `function` makes of each snapshot of `work` (`snapshot_id` and what else it needs to know)."""

    def of_each(rows: list[Row]) -> Iterator[Row]:
        known = {row["snapshot_id"]: row for row in rows}
        for taken in history.load_many(known):
            yield from function(taken, known[taken.snapshot_id])

    return in_tasks(work, "snapshot_id", schema, of_each)
