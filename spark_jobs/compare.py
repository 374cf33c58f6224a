"""Two runs side by side: how large, how fast, how costly, and what the detectors said of each.

Say which by `--run A --against B`; without, the last run is compared with the one before it of the same system (if there is
none, of any). Everything is in Spark's own expressions over `snapshots`, `machines` and `verdicts`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ray_snapshot.errors import SettingError
from ray_snapshot.spark_jobs.engine.output import View, results, some_rows
from ray_snapshot.spark_jobs.tables import MOVED, Selection, Tables, generations, moved, whole_run_id

if TYPE_CHECKING:
    from ray_snapshot.history import History

DIFFERS_FROM = 1.5
"""A figure differs if one is so many times the other, or if only one is zero."""

METRICS = (
    "snapshots",
    "seconds",
    "aborted",
    "median_ms",
    "p95_ms",
    "control_messages",
    "bytes",
    "machines",
    "active",
    "blocked",
    "sent_per_s",
    "accepted_per_s",
    "in_flight",
    "most_in_flight",
    "alarms",
    "deadlocked",
    "not_conserved",
)

VIEWS = (
    View(
        "metrics",
        "Two runs side by side",
        ("metric", "one_run", "one", "other_run", "other", "difference", "ratio", "differs"),
        order=("place",),
        minor=("one_run", "other_run", "ratio"),
        none="there is nothing to compare: name two runs with --run and --against",
    ),
)


def run(
    spark: SparkSession,
    history: History,
    out: str | None = None,
    *,
    selection: Selection | None = None,
    against: str | None = None,
) -> dict[str, DataFrame]:
    """`metrics`: a row a figure, for the run that is selected (`one`) and the run `against` (`other`)."""
    selection = selection or Selection()
    one, other = pair(history, selection, against)
    tables = Tables(spark, history, replace(selection, run=None, runs=(one, other)))
    figures = runs(tables.snapshots, tables.rows("machines"), tables.rows("verdicts"))
    return results({"metrics": side_by_side(figures, one, other)}, out)


def prepare(history: History, selection: Selection, **given: Any) -> dict[str, Any]:
    """Find the runs to compare; raises `SettingError` if there are no two."""
    if not history.table("snapshots").num_rows:
        return given
    one, other = pair(history, selection, given.get("against"))
    if one == other:
        raise SettingError(f"--against: both runs are {one}; name another")
    return {**given, "against": other}


def pair(history: History, selection: Selection, against: str | None) -> tuple[str, str]:
    """The run that is selected, and the other; by default the last two of the latest system, the earlier one first."""
    listed = history.snapshots(selection.system)
    began = {row.run_id: row.started_at for row in reversed(listed)}
    runs = sorted(began, key=lambda run: began[run])
    other = whole_run_id(history, against, "--against")
    if other is not None and other not in runs:
        raise SettingError(f"--against: no snapshots of {other!r}; there are: {', '.join(runs[-10:]) or 'none'}")
    if not runs:
        return "", ""
    if other is None:
        if len(runs) < 2:
            raise SettingError(f"there is only one run, {runs[0]}: nothing to compare it with")
        system = {row.run_id: row.system for row in listed}
        last = selection.run or runs[-1]
        others = [run for run in runs if run != last]
        same = [run for run in others if system[run] == system[last]]
        found = (same or others)[-1]
        return (last, found) if selection.run else (found, last)
    return selection.run or next((run for run in reversed(runs) if run != other), other), other


def runs(snapshots: DataFrame, machines: DataFrame, verdicts: DataFrame) -> DataFrame:
    """One row a run: its figures, as doubles, by the names in `METRICS`."""
    complete = F.col("status") == "complete"
    span = (F.unix_micros(F.max("started_at")) - F.unix_micros(F.min("started_at"))) / 1e6
    header = snapshots.groupBy("run_id").agg(
        F.count(F.lit(1)).alias("snapshots"),
        span.alias("seconds"),
        F.count_if(~complete).alias("aborted"),
        F.median(F.when(complete, F.col("duration_ms"))).alias("median_ms"),
        F.percentile(F.when(complete, F.col("duration_ms")), 0.95).alias("p95_ms"),
        *(
            F.avg(F.when(complete, F.col(column))).alias(name)
            for name, column in (
                ("control_messages", "control_message_count"),
                ("bytes", "bytes"),
                ("machines", "machine_count"),
                ("in_flight", "in_flight_count"),
            )
        ),
        F.max("in_flight_count").alias("most_in_flight"),
    )
    frame = header.join(_movement(snapshots, machines), "run_id", "left_outer")
    return frame.join(_alarms(verdicts), "run_id", "left_outer").select(
        "run_id", *(F.coalesce(F.col(name).cast("double"), F.lit(0.0)).alias(name) for name in METRICS)
    )


def _movement(snapshots: DataFrame, machines: DataFrame) -> DataFrame:
    """Machines by status, and how many messages went in a second between successive snapshots."""
    by_snapshot = machines.groupBy("snapshot_id").agg(
        F.count_if(F.col("status") == "active").alias("active"),
        F.count_if(F.col("status") == "blocked").alias("blocked"),
    )
    known = generations(snapshots.where(F.col("status") == "complete"))
    return (
        moved(known, machines)
        .join(by_snapshot, "snapshot_id", "inner")
        .groupBy("run_id")
        .agg(
            F.avg("active").alias("active"),
            F.avg("blocked").alias("blocked"),
            *(F.try_divide(F.sum(name).cast("double"), F.sum("seconds")).alias(f"{name}_per_s") for name in MOVED),
        )
    )


def _alarms(verdicts: DataFrame) -> DataFrame:
    live = verdicts.where(F.col("evaluator") == "live")
    kind = F.get_json_object("detector_spec", "$.type")
    return live.groupBy("run_id").agg(
        F.count_if(F.coalesce("alarm", F.lit(False))).alias("alarms"),
        F.count_if((kind == "deadlock") & F.col("holds")).alias("deadlocked"),
        F.count_if((kind == "token-conservation") & ~F.col("holds")).alias("not_conserved"),
    )


def side_by_side(figures: DataFrame, one: str, other: str) -> DataFrame:
    """One row a figure: of run `one`, of run `other`, and whether they differ."""
    pairs = ", ".join(f"{place}, '{name}', {name}" for place, name in enumerate(METRICS))
    long = figures.select("run_id", F.expr(f"stack({len(METRICS)}, {pairs}) as (place, metric, value)"))
    both = long.groupBy("place", "metric").agg(
        F.max(F.when(F.col("run_id") == one, F.col("value"))).alias("one"),
        F.max(F.when(F.col("run_id") == other, F.col("value"))).alias("other"),
    )
    ratio = F.try_divide(F.col("other"), F.col("one"))
    larger = F.greatest("one", "other") > DIFFERS_FROM * F.least("one", "other")
    return both.select(
        "place",
        "metric",
        F.lit(one).alias("one_run"),
        F.lit(other).alias("other_run"),
        "one",
        "other",
        (F.col("other") - F.col("one")).alias("difference"),
        ratio.alias("ratio"),
        larger.alias("differs"),
    )


def draw(frames: dict[str, DataFrame], path: str) -> None:
    """Each figure of the two runs as a pair of bars."""
    from ray_snapshot.spark_jobs.engine import pictures

    rows = some_rows(frames["metrics"].orderBy("place"), len(METRICS))
    values = {
        row["metric"]: {f"one {row['one_run'][:6]}": row["one"], f"other {row['other_run'][:6]}": row["other"]}
        for row in rows
    }
    pictures.bars(path, "Two runs side by side", values)


def main(argv: Sequence[str] | None = None) -> int:
    """The job as a program: `spark-submit compare.py HISTORY`."""
    from ray_snapshot.spark_jobs.engine.command import main as run_job

    return run_job("compare", argv)


if __name__ == "__main__":
    sys.exit(main())
