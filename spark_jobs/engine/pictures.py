"""Pictures of results, as PNG files: what is drawn is gathered here, in Spark, and drawn by `views.charts`.

A line has at most `MOST_POINTS` points, so that a picture of a month costs no more memory than one of a minute. Where several
snapshots are one point, its value is the last one's, with the range of them all around it. Imports no job.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from ray_snapshot.spark_jobs.engine.output import some_rows
from ray_snapshot.views import charts
from ray_snapshot.views.charts import Points, Quantity, Span

MOST_POINTS = 400
"""So many points a line."""

MOST_RUNS = 6
"""So many runs (or ledgers, ...) are drawn, the first ones."""

Series = dict[str, dict[str, Points]]
"""By column, by line (a run, or one ledger of a run)."""


def line_name(row: Mapping[str, Any], by: Sequence[str] = ()) -> str:
    """What a line is called: the system, the beginning of the run's id, and what tells it apart from others of that run."""
    return " ".join([row["system"], row["run_id"][:6], *(str(row[name]) for name in by)])


def _buckets(frame: DataFrame) -> tuple[Column, float] | None:
    """The span of time in which each row lies, of at most `MOST_POINTS`, and their width in seconds; None without rows."""
    bounds = some_rows(frame.agg(F.min("started_at").alias("low"), F.max("started_at").alias("high")), 1)[0]
    if bounds["low"] is None:
        return None
    width = max((bounds["high"] - bounds["low"]).total_seconds() / MOST_POINTS, 1e-6)
    low_us = int(bounds["low"].timestamp() * 1e6)
    return F.floor((F.unix_micros("started_at") - low_us) / (width * 1e6)), width


def series(frame: DataFrame, columns: Sequence[str], *, by: Sequence[str] = ()) -> Series:
    """`columns` over time, a line a run; `frame` has `system`, `run_id`, `started_at`.

    `by`: the columns that tell the lines of one run apart, where a snapshot has several rows.
    """
    found: Series = {column: {} for column in columns}
    if (buckets := _buckets(frame)) is None:
        return found
    key = ("system", "run_id", *by)
    wanted = [
        item
        for name in columns
        for item in (
            F.max_by(name, F.when(F.col(name).isNotNull(), F.col("started_at"))).alias(name),
            F.min(name).alias(f"{name} low"),
            F.max(name).alias(f"{name} high"),
        )
    ]
    points = frame.groupBy(*key, buckets[0].alias("bucket")).agg(F.max("started_at").alias("at"), *wanted)
    for row in some_rows(points.orderBy(*key, "bucket"), MOST_RUNS * (MOST_POINTS + 1)):
        line = line_name(row, by)
        for column in columns:
            if row[column] is not None and (line in found[column] or len(found[column]) < MOST_RUNS):
                ends = row[f"{column} low"], row[f"{column} high"]
                found[column].setdefault(line, Points()).add(row["at"], row[column], *ends)
    return found


def lines(
    path: str, title: str, quantities: Mapping[str, Quantity], found: Series, marks: Sequence[tuple[datetime, str]] = ()
) -> None:
    """One chart for each quantity, by its column; `marks` are named moments."""
    panels = [(quantity, found.get(column, {})) for column, quantity in quantities.items()]
    _save(charts.line_chart(panels, title, marks), path)


def spans(answers: DataFrame, by: Sequence[str]) -> dict[str, list[Span]]:
    """What was answered over time, a band for each run and what `by` tells apart; `answers` has the column `answer`.

    Where several snapshots are one span, the gravest answer counts: an alarm, then that it cannot be told.
    """
    if (buckets := _buckets(answers)) is None:
        return {}
    key = ("system", "run_id", *by)
    grave = F.array(*(F.lit(name) for name in charts.GRAVEST))
    rank = F.array_position(grave, F.col("answer"))
    rows = some_rows(
        answers.groupBy(*key, buckets[0].alias("bucket"))
        .agg(F.min("started_at").alias("at"), F.max("started_at").alias("until"), F.min(rank).alias("rank"))
        .orderBy(*key, "bucket"),
        4 * MOST_RUNS * (MOST_POINTS + 1),
    )
    moments: dict[str, list[datetime]] = {}
    said: dict[str, list[str]] = {}
    for row in rows:
        name, answer = line_name(row, by), charts.GRAVEST[row["rank"] - 1]
        ends = [row["at"], *([row["until"]] if row["until"] > row["at"] else [])]
        moments.setdefault(name, []).extend(ends)
        said.setdefault(name, []).extend(answer for _ in ends)
    return {name: charts.spans(moments[name], said[name]) for name in moments}


def bands(path: str, title: str, found: Mapping[str, Sequence[Span]]) -> None:
    """Bands over time."""
    _save(charts.band_chart(found, title), path)


def bars(path: str, title: str, values: Mapping[str, Mapping[str, float | None]]) -> None:
    """By group, by name: bars side by side."""
    _save(charts.bar_chart(values, title), path)


def _save(figure: Any, path: str) -> None:
    figure.savefig(path, dpi=110)
