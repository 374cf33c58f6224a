"""What a job leaves behind: Parquet results, a table for people, JSON lines for programs.

The only place of the jobs that brings rows to the driver, and only as many as are shown; but for the ids of `detections`.
Imports no other part of `spark_jobs`.
"""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ray_snapshot.errors import HistoryWriteError
from ray_snapshot.questions.shown import View
from ray_snapshot.views.results import print_result
from ray_snapshot.views.tables import print_json
from ray_snapshot.wrapping import print_text

_JSON_BATCH_ROWS = 10_000

MOST_AT_ONCE = 2


def results(frames: Mapping[str, DataFrame], out: str | None) -> dict[str, DataFrame]:
    """The frames, each computed once: read back from Parquet files under `out`, or kept by Spark if there is no `out`."""
    with ThreadPoolExecutor(MOST_AT_ONCE) as pool:  # small results are mostly planning: two at a time keep Spark busy
        found = {name: pool.submit(_kept, name, frame, out) for name, frame in frames.items()}
        return {name: one.result() for name, one in found.items()}


def _kept(name: str, frame: DataFrame, out: str | None) -> DataFrame:
    if out is None:
        return frame.persist()
    path = f"{out.rstrip('/')}/{name}"
    check_replaceable(path)
    frame.write.mode("overwrite").parquet(path)
    return frame.sparkSession.read.schema(frame.schema).parquet(path)


def check_replaceable(path: str) -> None:
    """Raise `HistoryWriteError` if a folder has contents that no job wrote: a result replaces what is there."""
    folder = Path(path)
    if "://" in path or not folder.exists():
        return
    entries = {entry.name for entry in folder.iterdir()} if folder.is_dir() else {folder.name}
    if entries and not entries & {"_SUCCESS", "_temporary"}:
        raise HistoryWriteError(
            f"{path} exists and is no result of a Spark job: name another folder with --out", path=path
        )


def print_view(view: View, frame: DataFrame, top: int) -> None:
    """Print the first `top` rows of a result: a table on a terminal, plain lines elsewhere."""
    table = _sorted(view, frame).select(*view.columns).limit(top + 1).toArrow()
    if not table.num_rows:
        print_text(f"{view.title}: {view.none}")
        return
    more = f" (the first {top}; --top shows more)" if table.num_rows > top else ""
    print_result(table.slice(0, top), view.title + more, view.columns, view.minor)
    for name, value, naming, meaning in view.notes:
        named = dict.fromkeys(str(row[naming]) for row in table.slice(0, top).to_pylist() if row[name] == value)
        if named:
            print_text(f"{', '.join(named)}: {name.replace('_', ' ')} {value}, {meaning}")


def some_rows(frame: DataFrame, most: int) -> list[dict[str, Any]]:
    """The first rows of a frame, for a message."""
    rows: list[dict[str, Any]] = frame.limit(most).toArrow().to_pylist()
    return rows


def print_json_lines(view: View, frame: DataFrame) -> None:
    """Print every row of a result, with all of its columns, as one JSON object a line."""
    for batch in _sorted(view, frame).toArrow().to_batches(max_chunksize=_JSON_BATCH_ROWS):
        for row in batch.to_pylist():
            print_json(row)


def _sorted(view: View, frame: DataFrame) -> DataFrame:
    columns = (F.desc_nulls_last(name[1:]) if name.startswith("-") else F.asc_nulls_last(name) for name in view.order)
    return frame.orderBy(*columns)
