"""How much went over each channel between two snapshots, where does it pile up, and which head of line does not move?

Everything is in Spark's own expressions over `snapshots`, `channels` and `messages`. A channel's counts only ever grow
within one generation (a restore begins the next), so a difference between two snapshots is what happened in between.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ray_snapshot.spark_jobs.output import View, results
from ray_snapshot.spark_jobs.tables import Selection, Tables, seconds_between

if TYPE_CHECKING:
    from ray_snapshot.history import History

STUCK_AFTER = 3
"""So many snapshots in a row must see the same message at the head of a channel before it counts as stuck."""

CHANNEL = ("source", "target", "kind")

VIEWS = (
    View(
        "channels",
        "Busiest channels",
        (
            "system",
            "run_id",
            *CHANNEL,
            "sent",
            "accepted",
            "sent_per_s",
            "peak_per_s",
            "most_in_flight",
            "backlog_growth",
            "head_snapshots",
        ),
        order=("-sent", "system", "run_id", *CHANNEL),
        minor=("run_id", "peak_per_s", "head_snapshots", "backlog_growth", "most_in_flight", "sent_per_s", "accepted"),
    ),
    View(
        "stuck",
        f"Heads of line that did not move for {STUCK_AFTER} snapshots or more",
        ("system", "run_id", *CHANNEL, "number", "method", "snapshots", "seconds", "behind", "target_accepted"),
        order=("-snapshots", "-behind", "system", "run_id", *CHANNEL, "number"),
        minor=("run_id", "number", "behind", "target_accepted", "seconds"),
    ),
)


def run(
    spark: SparkSession, history: History, out: str | None = None, *, selection: Selection | None = None
) -> dict[str, DataFrame]:
    """`channels` (a row a channel), `stuck` (a row a head that stood still), `intervals` (a row a channel and interval)."""
    tables = Tables(spark, history, selection or Selection())
    messages = tables.rows("messages")
    traffic = intervals(tables.complete, tables.rows("channels"), heads(messages))
    (traffic,) = results({"intervals": traffic}, out).values()
    return {**results({"channels": channels(traffic), "stuck": stuck(traffic, messages)}, out), "intervals": traffic}


def generations(snapshots: DataFrame) -> DataFrame:
    """Snapshots with `generation`, which a restore begins, and with the one before: `previous_id`, `seconds` since it."""
    by_run = Window.partitionBy("system", "run_id").orderBy("sequence")
    restored = F.col("restored_from").isNotNull() & ~F.col("restored_from").eqNullSafe(
        F.lag("restored_from").over(by_run)
    )
    numbered = snapshots.withColumn("restored", restored.cast("int")).withColumn(
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
        F.lag("snapshot_id").over(within).alias("previous_id"),
        seconds_between(began, F.col("started_at")).alias("seconds"),
    )


def heads(messages: DataFrame) -> DataFrame:
    """The lowest message number in flight on each channel of each snapshot."""
    return messages.groupBy("snapshot_id", *CHANNEL).agg(F.min("number").alias("head_number"))


def intervals(snapshots: DataFrame, channels: DataFrame, heads: DataFrame) -> DataFrame:
    """One row a channel and snapshot: what was sent and accepted since the snapshot before (null for a run's first).

    `head_snapshots`: how many snapshots in a row have seen this message at the head, the first of them `head_since_id`
    at `head_since`; 0 and null where none waits.
    """
    frame = (
        channels.drop("run_id")
        .join(generations(snapshots), "snapshot_id", "inner")
        .join(heads, ["snapshot_id", *CHANNEL], "left_outer")
    )
    # One order for all windows: the rows are sorted once, by the column that differs most first.
    channel = Window.partitionBy(*CHANNEL, "run_id", "generation").orderBy("sequence")
    until_here = channel.rowsBetween(Window.unboundedPreceding, Window.currentRow)

    def since_before(name: str) -> Column:
        # A channel that no earlier snapshot has seen began at nought.
        grown = F.col(name) - F.coalesce(F.lag(name).over(channel), F.lit(0))
        return F.when(F.col("previous_id").isNotNull(), grown)

    def at_first(name: str) -> Column:
        return F.last(F.when(~F.col("same_head"), F.col(name)), True).over(until_here)

    same_head = F.coalesce(F.col("head_number") == F.lag("head_number").over(channel), F.lit(False))
    frame = frame.withColumn("same_head", same_head).withColumn("row", F.row_number().over(channel))
    has_head = F.col("head_number").isNotNull()
    streak = F.when(has_head, F.col("row") - at_first("row") + 1).otherwise(0)
    return frame.select(
        "system",
        "run_id",
        "generation",
        "snapshot_id",
        "sequence",
        "started_at",
        "seconds",
        *CHANNEL,
        "sent_count",
        "accepted_count",
        since_before("sent_count").alias("sent"),
        since_before("accepted_count").alias("accepted"),
        per_second(since_before("sent_count")).alias("sent_per_s"),
        per_second(since_before("accepted_count")).alias("accepted_per_s"),
        "in_flight_count",
        since_before("in_flight_count").alias("backlog_growth"),
        "head_number",
        streak.cast("long").alias("head_snapshots"),
        F.when(has_head, at_first("snapshot_id")).alias("head_since_id"),
        F.when(has_head, at_first("started_at")).alias("head_since"),
    )


def channels(traffic: DataFrame) -> DataFrame:
    """One row a channel of a run: rates are over the intervals between its snapshots."""
    return (
        traffic.groupBy("system", "run_id", *CHANNEL)
        .agg(
            F.sum("sent").alias("sent"),
            F.sum("accepted").alias("accepted"),
            F.sum(F.when(F.col("sent").isNotNull(), F.col("seconds"))).alias("seconds"),
            F.max("sent_per_s").alias("peak_per_s"),
            F.max("in_flight_count").alias("most_in_flight"),
            F.sum("backlog_growth").alias("backlog_growth"),
            F.max("head_snapshots").alias("head_snapshots"),
        )
        .select(
            "system",
            "run_id",
            *CHANNEL,
            "sent",
            "accepted",
            "seconds",
            per_second(F.col("sent")).alias("sent_per_s"),
            "peak_per_s",
            "most_in_flight",
            "backlog_growth",
            "head_snapshots",
        )
    )


def stuck(traffic: DataFrame, messages: DataFrame) -> DataFrame:
    """One row a message that stayed at the head of its channel for `STUCK_AFTER` snapshots in a row.

    `behind`: the most messages that waited on the channel, it included. `target_accepted`: how many messages the target
    accepted on all its channels meanwhile; 0 means that it stood still. Timers are left out: they wait for their time.
    """
    keys = ("system", "run_id", *CHANNEL)
    streaks = (
        traffic.where((F.col("head_snapshots") >= STUCK_AFTER) & (F.col("kind") != "timer"))
        .groupBy(*keys, "head_since_id", F.col("head_since").alias("since"), F.col("head_number").alias("number"))
        .agg(
            F.max("head_snapshots").alias("snapshots"),
            F.max("started_at").alias("until"),
            F.max_by("snapshot_id", "sequence").alias("last_id"),
            F.max("in_flight_count").alias("behind"),
        )
    )
    accepted = traffic.groupBy("snapshot_id", "target").agg(F.sum("accepted_count").alias("accepted"))
    at_first = accepted.withColumnsRenamed({"snapshot_id": "head_since_id", "accepted": "accepted_then"})
    at_last = accepted.withColumnRenamed("snapshot_id", "last_id")
    heads = messages.select(F.col("snapshot_id").alias("last_id"), *CHANNEL, "number", "method")
    return (
        streaks.join(at_first, ["head_since_id", "target"], "inner")
        .join(at_last, ["last_id", "target"], "inner")
        .join(heads, ["last_id", *CHANNEL, "number"], "inner")
        .select(
            *keys,
            "number",
            "method",
            "snapshots",
            "since",
            "until",
            seconds_between(F.col("since"), F.col("until")).alias("seconds"),
            "behind",
            (F.col("accepted") - F.col("accepted_then")).alias("target_accepted"),
        )
    )


def per_second(count: Column) -> Column:
    """A count over the column `seconds`; null where no time passed."""
    return F.try_divide(count.cast("double"), F.col("seconds"))


def main(argv: Sequence[str] | None = None) -> int:
    """The job as a program: `spark-submit traffic.py HISTORY`."""
    from ray_snapshot.spark_jobs.command import main as run_job

    return run_job("traffic", argv)


if __name__ == "__main__":
    sys.exit(main())
