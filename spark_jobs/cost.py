"""What did the snapshots cost: time, control messages, bytes; which were given up, and which host made the slow ones
slow?

A snapshot takes as long as its last machine needs to record. So of each slow one the host is named whose machines recorded
last, and by how much it was later than all others. In Spark's own expressions over `snapshots` and `machines`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ray_snapshot.questions.shown import View
from ray_snapshot.spark_jobs.engine.output import results
from ray_snapshot.spark_jobs.tables import RUN, Selection, Tables

if TYPE_CHECKING:
    from ray_snapshot.history import History

SLOW_TIMES, SLOW_MS = 3.0, 50.0
"""A snapshot is slow if it took so many times the median of its run, and so much longer."""

VIEWS = (
    View(
        "runs",
        "What snapshots cost",
        (
            *RUN,
            "snapshots",
            "aborted",
            "slow",
            "median_ms",
            "p95_ms",
            "longest_ms",
            "median_delay_ms",
            "control_messages",
            "bytes",
        ),
        order=RUN,
        minor=("run_id", "median_delay_ms", "p95_ms", "control_messages", "bytes"),
    ),
    View(
        "slow",
        "Slow snapshots, and who recorded last",
        (*RUN, "snapshot_id", "duration_ms", "times_median", "host", "machine", "delay_ms", "later_than_others_ms"),
        order=("-duration_ms", *RUN, "snapshot_id"),
        minor=("run_id", "times_median", "delay_ms"),
    ),
    View(
        "hosts",
        "Hosts, those that made snapshots slow first",
        (*RUN, "host", "machines", "slow_last", "last", "mean_delay_ms", "slow_delay_ms"),
        order=("-slow_last", "-last", *RUN, "host"),
        minor=("run_id", "machines"),
    ),
    View(
        "aborts",
        "Snapshots that were given up",
        (*RUN, "abort_machine", "abort_call_site", "snapshots", "first_id", "abort_reason"),
        order=("-snapshots", *RUN, "abort_machine"),
        minor=("run_id", "first_id"),
    ),
)


def run(
    spark: SparkSession, history: History, out: str | None = None, *, selection: Selection | None = None
) -> dict[str, DataFrame]:
    """`runs`, `slow`, `hosts`, `aborts`, and `delays` (a row a snapshot and host)."""
    tables = Tables(spark, history, selection or Selection())
    (late,) = results({"delays": delays(tables.complete, tables.rows("machines"))}, out).values()
    marked = with_slow(tables.complete)
    found = {
        "runs": runs(tables.snapshots, marked, late),
        "slow": slow(marked, late),
        "hosts": hosts(marked, late),
        "aborts": aborts(tables.snapshots),
    }
    return {**results(found, out), "delays": late}


def delays(snapshots: DataFrame, machines: DataFrame) -> DataFrame:
    """One row a snapshot and host: how late its machines recorded, and which was the last."""
    by_host = machines.groupBy("snapshot_id", "host").agg(
        F.count(F.lit(1)).alias("machines"),
        F.avg("record_delay_ms").alias("mean_delay_ms"),
        F.max("record_delay_ms").alias("delay_ms"),
        F.max_by("machine", "record_delay_ms").alias("machine"),
    )
    return (
        snapshots.select("snapshot_id", *RUN, "sequence", "started_at")
        .join(by_host, "snapshot_id", "inner")
        .select(
            *RUN, "snapshot_id", "sequence", "started_at", "host", "machines", "mean_delay_ms", "delay_ms", "machine"
        )
    )


def with_slow(snapshots: DataFrame) -> DataFrame:
    """The snapshots with the median duration of their run, and whether they are slow."""
    run = Window.partitionBy(*RUN)
    median = F.median("duration_ms").over(run)
    is_slow = (F.col("duration_ms") > SLOW_TIMES * F.col("median_ms")) & (
        F.col("duration_ms") > F.col("median_ms") + SLOW_MS
    )
    return snapshots.withColumn("median_ms", median).withColumn("is_slow", is_slow)


def slow(snapshots: DataFrame, delays: DataFrame) -> DataFrame:
    """One row a slow snapshot: the host and machine that recorded last, and how much later than any other host."""
    by_delay = Window.partitionBy("snapshot_id").orderBy(F.desc("delay_ms"), "host")
    last = (
        delays.withColumn("rank", F.row_number().over(by_delay))
        .withColumn("others_ms", F.lead("delay_ms").over(by_delay))
        .where(F.col("rank") == 1)
        .select("snapshot_id", "host", "machine", "delay_ms", "others_ms")
    )
    return (
        snapshots.where("is_slow")
        .join(last, "snapshot_id", "left_outer")
        .select(
            *RUN,
            "snapshot_id",
            "sequence",
            "started_at",
            "duration_ms",
            (F.col("duration_ms") / F.col("median_ms")).alias("times_median"),
            "host",
            "machine",
            "delay_ms",
            (F.col("delay_ms") - F.col("others_ms")).alias("later_than_others_ms"),
        )
    )


def hosts(snapshots: DataFrame, delays: DataFrame) -> DataFrame:
    """One row a host of a run: on how many (slow) snapshots it was the last, and how late it was on average."""
    last = F.col("delay_ms") == F.max("delay_ms").over(Window.partitionBy("snapshot_id"))
    known = delays.withColumn("is_last", last).join(snapshots.select("snapshot_id", "is_slow"), "snapshot_id", "inner")
    return (
        known.groupBy(*RUN, "host")
        .agg(
            F.max("machines").alias("machines"),
            F.count(F.lit(1)).alias("snapshots"),
            F.count_if("is_last").alias("last"),
            F.count_if(F.col("is_last") & F.col("is_slow")).alias("slow_last"),
            F.avg("mean_delay_ms").alias("mean_delay_ms"),
            F.avg(F.when(F.col("is_slow"), F.col("mean_delay_ms"))).alias("slow_delay_ms"),
        )
        .select(*RUN, "host", "machines", "snapshots", "last", "slow_last", "mean_delay_ms", "slow_delay_ms")
    )


def aborts(snapshots: DataFrame) -> DataFrame:
    """One row a machine and reason (numbers left out) for which snapshots were given up."""
    reason = F.regexp_replace("abort_reason", r"\d+(\.\d+)?(?= ?(s|ms|seconds)\b)", "N")
    return (
        snapshots.where(F.col("status") == "aborted")
        .groupBy(*RUN, "abort_machine", "abort_call_site", reason.alias("abort_reason"))
        .agg(
            F.count(F.lit(1)).alias("snapshots"),
            F.min_by("snapshot_id", "sequence").alias("first_id"),
            F.max_by("snapshot_id", "sequence").alias("last_id"),
            F.sum("duration_ms").alias("lost_ms"),
        )
        .select(*RUN, "abort_machine", "abort_call_site", "abort_reason", "snapshots", "first_id", "last_id", "lost_ms")
    )


def runs(snapshots: DataFrame, marked: DataFrame, delays: DataFrame) -> DataFrame:
    """One row a run: counts, durations, and what a completed snapshot costs on average."""
    aborted = snapshots.groupBy(*RUN).agg(F.count_if(F.col("status") == "aborted").alias("aborted"))
    late = delays.groupBy("snapshot_id", *RUN).agg(F.max("delay_ms").alias("delay_ms"))
    late = late.groupBy(*RUN).agg(F.median("delay_ms").alias("median_delay_ms"))
    complete = marked.groupBy(*RUN).agg(
        F.count(F.lit(1)).alias("snapshots"),
        F.count_if("is_slow").alias("slow"),
        F.median("duration_ms").alias("median_ms"),
        F.percentile("duration_ms", 0.95).alias("p95_ms"),
        F.max("duration_ms").alias("longest_ms"),
        F.avg("machine_count").alias("machines"),
        F.avg("control_message_count").alias("control_messages"),
        F.avg("channel_marker_count").alias("channel_markers"),
        F.avg("bytes").alias("bytes"),
    )
    joined = aborted.join(complete, [*RUN], "left_outer").join(late, [*RUN], "left_outer")
    return joined.na.fill(0, ["snapshots", "slow"]).select(
        *RUN,
        "snapshots",
        "aborted",
        "slow",
        "median_ms",
        "p95_ms",
        "longest_ms",
        "median_delay_ms",
        "machines",
        "control_messages",
        "channel_markers",
        "bytes",
    )
