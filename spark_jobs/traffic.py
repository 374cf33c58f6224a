"""How much went over each channel between two snapshots, where does it pile up, and which head of line does not move?

Everything is in Spark's own expressions over `snapshots`, `channels` and `messages`. A channel's counts only ever grow
within one generation (a restore begins the next), so a difference between two snapshots is what happened in between.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Column, DataFrame, SparkSession, Window, WindowSpec
from pyspark.sql import functions as F

from ray_snapshot.questions.shown import View
from ray_snapshot.spark_jobs.engine.output import results
from ray_snapshot.spark_jobs.tables import (
    CHANNEL,
    Selection,
    Tables,
    generations,
    numbered,
    per_second,
    seconds_between,
)

if TYPE_CHECKING:
    from ray_snapshot.history import History

COUNTS = ("sent_count", "accepted_count", "in_flight_count")

STUCK_AFTER = 3
"""So many snapshots in a row must see the same message at the head of a channel before it counts as stuck."""

GROWING_AFTER = 5
"""So many snapshots in a row must see more in flight on a channel than the one before."""

HOT_TIMES, HOT_LEAST = 10, 10
"""A machine is hot if it accepted so many times the mean of its run, and at least so many messages."""

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
    View(
        "deaf",
        "Machines that accept nothing though messages wait for them",
        ("system", "run_id", "machine", "channels", "waiting", "since", "snapshots", "seconds"),
        order=("-snapshots", "system", "run_id", "machine"),
        minor=("run_id", "since", "channels"),
    ),
    View(
        "growing",
        f"Backlogs that grew for {GROWING_AFTER} snapshots in a row or more",
        ("system", "run_id", *CHANNEL, "snapshots", "since", "in_flight", "grown_per_s"),
        order=("-in_flight", "system", "run_id", *CHANNEL),
        minor=("run_id", "since"),
    ),
    View(
        "machines",
        "Busiest machines",
        ("system", "run_id", "machine", "accepted", "sent", "accepted_per_s", "times_mean", "hot"),
        order=("-hot", "-accepted", "system", "run_id", "machine"),
        minor=("run_id", "sent"),
    ),
)


def run(
    spark: SparkSession, history: History, out: str | None = None, *, selection: Selection | None = None
) -> dict[str, DataFrame]:
    """`channels`, `machines` (a row each), `stuck` (a row a head that stood still), `deaf`, `growing`, and `intervals` (a row a
    channel and interval).
    """
    tables = Tables(spark, history, selection or Selection())
    messages = tables.rows("messages")
    traffic = intervals(tables.complete, tables.rows("channels"), messages)
    (traffic,) = results({"intervals": traffic}, out).values()
    found = results(
        {"channels": channels(traffic), "stuck": stuck(traffic, messages), "growing": growing(traffic)}, out
    )
    rest = results({"deaf": deaf(found["stuck"]), "machines": machines(found["channels"])}, out)
    return {**found, **rest, "intervals": traffic}


def intervals(snapshots: DataFrame, channels: DataFrame, messages: DataFrame) -> DataFrame:
    """One row a channel and snapshot: what was sent and accepted since the snapshot before (null for a run's first).

    `head_snapshots`: how many snapshots in a row have seen this message at the head, the first of them `head_since_id`
    at `head_since`; 0 and null where none waits.
    """
    known = numbered(generations(snapshots))
    rows = _with_streaks(_with_differences(_narrow(known, channels, messages)))
    has_head = F.col("head_number").isNotNull()
    rows = rows.withColumn("since_at", F.when(has_head, F.col("since_at")))
    about = known.select("system", "run_id", "generation", "snapshot_id", "sequence", "started_at", "seconds", "at")
    since = known.select(
        F.col("at").alias("since_at"),
        F.col("snapshot_id").alias("head_since_id"),
        F.col("started_at").alias("head_since"),
    )
    return (
        rows.join(F.broadcast(about), "at", "inner")
        .join(F.broadcast(since), "since_at", "left_outer")
        .select(
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
            "sent",
            "accepted",
            per_second(F.col("sent")).alias("sent_per_s"),
            per_second(F.col("accepted")).alias("accepted_per_s"),
            "in_flight_count",
            "backlog_growth",
            "head_number",
            F.when(has_head, F.col("row") - F.col("since_row") + 1).otherwise(0).cast("long").alias("head_snapshots"),
            "head_since_id",
            "head_since",
            (F.col("row") - F.coalesce("still_row", F.lit(0))).cast("long").alias("growing_snapshots"),
        )
    )


def _narrow(known: DataFrame, channels: DataFrame, messages: DataFrame) -> DataFrame:
    """The rows of channels with their heads, and of their snapshots only what tells their order.

    The rows of a channel are brought to one partition here, and all that follows happens there: they are moved once.
    """
    has_previous = F.col("previous_id").isNotNull().alias("has_previous")
    near = F.broadcast(known.select("snapshot_id", "span", "at", has_previous))
    rows = channels.select("snapshot_id", *CHANNEL, *COUNTS).join(near, "snapshot_id", "inner").drop("snapshot_id")
    waiting = messages.select("snapshot_id", *CHANNEL, "number").join(near, "snapshot_id", "inner")
    first = waiting.repartition(*CHANNEL).groupBy("at", *CHANNEL).agg(F.min("number").alias("head_number"))
    return rows.repartition(*CHANNEL).join(first.hint("shuffle_hash"), ["at", *CHANNEL], "left_outer")


def _by_channel() -> WindowSpec:
    """One order for all windows: the rows are sorted once, first by a number, which tells two apart without a look at them."""
    return Window.partitionBy("key", *CHANNEL, "span").orderBy("at")


def _with_differences(rows: DataFrame) -> DataFrame:
    """Each row of a channel with what is other than in the row before."""
    channel = _by_channel()
    before = {name: F.lag(name).over(channel) for name in (*COUNTS, "head_number")}
    rows = rows.withColumn("key", F.xxhash64(*CHANNEL)).withColumns(
        {f"{name}_before": column for name, column in before.items()} | {"row": F.row_number().over(channel)}
    )

    def since_before(name: str) -> Column:
        # A channel that no earlier snapshot has seen began at nought.
        return F.when(F.col("has_previous"), F.col(name) - F.coalesce(f"{name}_before", F.lit(0)))

    return rows.select(
        "key",
        *CHANNEL,
        "span",
        "at",
        *COUNTS,
        "head_number",
        "row",
        since_before("sent_count").alias("sent"),
        since_before("accepted_count").alias("accepted"),
        since_before("in_flight_count").alias("backlog_growth"),
        F.coalesce(F.col("head_number") == F.col("head_number_before"), F.lit(False)).alias("same_head"),
    )


def _with_streaks(rows: DataFrame) -> DataFrame:
    """Where the head of each row was first seen (`since_row`, `since_at`), and the last row that did not grow."""
    until_here = _by_channel().rowsBetween(Window.unboundedPreceding, Window.currentRow)
    grows = F.coalesce(F.col("backlog_growth") > 0, F.lit(False))

    def last(condition: Column, name: str) -> Column:
        return F.last(F.when(condition, F.col(name)), True).over(until_here)

    return rows.withColumns(
        {
            "since_row": last(~F.col("same_head"), "row"),
            "since_at": last(~F.col("same_head"), "at"),
            "still_row": last(~grows, "row"),
        }
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
    asked = streaks.select(F.explode(F.array("head_since_id", "last_id")).alias("snapshot_id"), "target").distinct()
    few = traffic.join(F.broadcast(asked), ["snapshot_id", "target"], "left_semi")
    accepted = few.groupBy("snapshot_id", "target").agg(F.sum("accepted_count").alias("accepted"))
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


def deaf(stuck: DataFrame) -> DataFrame:
    """One row a machine that accepted nothing on any channel while a message stood at the head of one."""
    return (
        stuck.where(F.col("target_accepted") == 0)
        .groupBy("system", "run_id", F.col("target").alias("machine"))
        .agg(
            F.count(F.lit(1)).alias("channels"),
            F.sum("behind").alias("waiting"),
            F.min("since").alias("since"),
            F.max("until").alias("until"),
            F.max("snapshots").alias("snapshots"),
        )
        .select(
            "system",
            "run_id",
            "machine",
            "channels",
            "waiting",
            "since",
            "until",
            "snapshots",
            seconds_between(F.col("since"), F.col("until")).alias("seconds"),
        )
    )


def growing(traffic: DataFrame) -> DataFrame:
    """One row a channel whose messages in flight grew from snapshot to snapshot: the longest time that they did."""
    keys = ("system", "run_id", *CHANNEL)
    longest = F.struct("growing_snapshots", "sequence")
    found = (
        traffic.where((F.col("growing_snapshots") >= GROWING_AFTER) & (F.col("kind") != "timer"))
        .groupBy(*keys)
        .agg(
            F.max("growing_snapshots").alias("snapshots"),
            F.max_by("started_at", longest).alias("until"),
            F.max_by("in_flight_count", longest).alias("in_flight"),
            F.max_by("backlog_growth", longest).alias("last_growth"),
            F.max_by("seconds", longest).alias("seconds"),
        )
    )
    since = F.timestamp_micros(F.unix_micros("until") - (F.col("snapshots") * F.col("seconds") * 1e6).cast("long"))
    return found.select(
        *keys,
        "snapshots",
        since.alias("since"),
        "until",
        "in_flight",
        per_second(F.col("last_growth")).alias("grown_per_s"),
    )


def machines(channels: DataFrame) -> DataFrame:
    """One row a machine of a run: what it sent and accepted on all its channels, and whether it is hot."""
    keys = ("system", "run_id", "machine")
    accepted = channels.groupBy("system", "run_id", F.col("target").alias("machine")).agg(
        F.sum("accepted").alias("accepted"), F.max("seconds").alias("seconds")
    )
    sent = channels.groupBy("system", "run_id", F.col("source").alias("machine")).agg(F.sum("sent").alias("sent"))
    both = accepted.join(sent, list(keys), "full_outer").na.fill(0, ["accepted", "sent"])
    mean = F.avg("accepted").over(Window.partitionBy("system", "run_id"))
    return both.withColumn("times_mean", F.try_divide(F.col("accepted"), mean)).select(
        *keys,
        "accepted",
        "sent",
        per_second(F.col("accepted")).alias("accepted_per_s"),
        "times_mean",
        ((F.col("times_mean") >= HOT_TIMES) & (F.col("accepted") >= HOT_LEAST)).alias("hot"),
    )
