"""How much moves: which machines are active, passive or blocked, what is in flight, in which phases, and when did it
stop?

A run moves between two snapshots if any machine sent or accepted anything in between. Everything is in Spark's own
expressions over `snapshots` and `machines`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ray_snapshot.names import DRIVER
from ray_snapshot.questions.shown import View
from ray_snapshot.spark_jobs.engine.output import results
from ray_snapshot.spark_jobs.tables import RUN, Selection, Tables, generations, moved, per_second, seconds_between

if TYPE_CHECKING:
    from ray_snapshot.history import History

STILL_AFTER = 3
"""So many snapshots in a row without movement at the end of a run mean that it stopped."""

STATUSES = ("active", "passive", "blocked", "stopped")

VIEWS = (
    View(
        "runs",
        "Runs",
        (*RUN, "snapshots", "seconds", "accepted_per_s", "ended", "last_moved_id", "last_moved_at", "still_seconds"),
        order=("-stopped", *RUN),
        minor=("run_id", "last_moved_at", "seconds", "snapshots"),
    ),
    View(
        "phases",
        "Phases",
        (*RUN, "phase", "first_id", "started_at", "snapshots", "seconds", "accepted"),
        order=(*RUN, "first_sequence"),
        minor=("run_id", "started_at", "accepted"),
    ),
)


def run(
    spark: SparkSession, history: History, out: str | None = None, *, selection: Selection | None = None
) -> dict[str, DataFrame]:
    """`runs` (a row a run), `phases` (a row a stretch of equal snapshots), `snapshots` (a row a snapshot)."""
    tables = Tables(spark, history, selection or Selection())
    found = snapshots(tables.complete, tables.rows("machines"), proven(tables.rows("verdicts")))
    (found,) = results({"snapshots": found}, out).values()
    return {**results({"runs": runs(found), "phases": phases(found)}, out), "snapshots": found}


def snapshots(snapshots: DataFrame, machines: DataFrame, judged: DataFrame) -> DataFrame:
    """One row a snapshot: machines by status, messages in flight, what moved since the one before, and the phase.

    `busy`: something was sent or accepted. Else `computing`: machines are active (the driver does not count); `stuck`: some
    are blocked, none is active, and a live verdict has found a deadlock, or none was asked for and nothing is in flight;
    `waiting`: some are blocked and may go on, or messages are in flight that no machine accepts; `quiet`: none of these.
    `standing` is the phase if nothing had moved.
    """
    counts = machines.groupBy("snapshot_id").agg(
        *(F.count_if(F.col("status") == status).alias(status) for status in STATUSES),
        F.count_if((F.col("status") == "active") & (F.col("machine") != DRIVER)).alias("working"),
    )
    frame = moved(generations(snapshots, "in_flight_count"), machines)
    for of_snapshot in (counts, judged):
        frame = frame.join(of_snapshot, "snapshot_id", "left_outer")
    frame = frame.na.fill(0, [*STATUSES, "working"])
    has_moved = F.coalesce((F.col("sent") != 0) | (F.col("accepted") != 0), F.lit(True))
    standing = (
        F.when(F.col("working") > 0, "computing")
        .when((F.col("blocked") > 0) & F.coalesce("deadlocked", F.col("in_flight_count") == 0), "stuck")
        .when((F.col("blocked") > 0) | (F.col("in_flight_count") > 0), "waiting")
        .otherwise("quiet")
    )
    phase = F.when(has_moved, "busy").otherwise(standing)
    return frame.select(
        *RUN,
        "generation",
        "snapshot_id",
        "sequence",
        "started_at",
        "seconds",
        *STATUSES,
        F.col("in_flight_count").alias("in_flight"),
        "sent",
        "accepted",
        per_second(F.col("accepted")).alias("accepted_per_s"),
        has_moved.alias("moved"),
        phase.alias("phase"),
        standing.alias("standing"),
        "terminated",
        "deadlocked",
    )


def proven(verdicts: DataFrame) -> DataFrame:
    """One row a snapshot with live verdicts: whether it is proven that the whole system had `terminated`, and that some are
    `deadlocked`; null where no such detector was asked."""
    kind, part = (F.get_json_object("detector_spec", path) for path in ("$.type", "$.machines"))
    holds = F.coalesce("holds", F.lit(False))
    return (
        verdicts.where(F.col("evaluator") == "live")
        .groupBy("snapshot_id")
        .agg(
            F.max(F.when((kind == "termination") & part.isNull(), holds)).alias("terminated"),
            F.max(F.when(kind == "deadlock", holds)).alias("deadlocked"),
        )
    )


def phases(snapshots: DataFrame) -> DataFrame:
    """One row a stretch of successive snapshots with one phase."""
    by_time = Window.partitionBy(*RUN).orderBy("sequence")
    begins = ~F.col("phase").eqNullSafe(F.lag("phase").over(by_time))
    numbered = snapshots.withColumn("begins", begins.cast("int")).withColumn("stretch", F.sum("begins").over(by_time))
    return (
        numbered.groupBy(*RUN, "stretch", "phase")
        .agg(
            F.min("sequence").alias("first_sequence"),
            F.min_by("snapshot_id", "sequence").alias("first_id"),
            F.max_by("snapshot_id", "sequence").alias("last_id"),
            F.min("started_at").alias("started_at"),
            F.max("started_at").alias("ended_at"),
            F.count(F.lit(1)).alias("snapshots"),
            F.sum("accepted").alias("accepted"),
            F.max("in_flight").alias("most_in_flight"),
            F.max("blocked").alias("most_blocked"),
        )
        .select(
            *RUN,
            "phase",
            "first_sequence",
            "first_id",
            "last_id",
            "started_at",
            "ended_at",
            seconds_between(F.col("started_at"), F.col("ended_at")).alias("seconds"),
            "snapshots",
            "accepted",
            "most_in_flight",
            "most_blocked",
        )
    )


def runs(snapshots: DataFrame) -> DataFrame:
    """One row a run: how fast it was, the last snapshot before which it moved, and how it ended.

    `ended`, by its last snapshot: `terminated` or `deadlocked` if a live verdict on it says so (and, of a deadlock, no
    machine is active); else its phase if nothing moved for `STILL_AFTER` snapshots or more; else `quiet` or `stuck` if
    nothing is active and nothing in flight; else `busy`. `stopped`: true unless `ended` is `busy`, `quiet` or
    `terminated`: a machine should have moved on.
    """
    when_moved = F.when(F.col("moved"), F.col("sequence"))
    nothing_comes = F.col("last_standing").isin("quiet", "stuck") & (F.col("last_in_flight") == 0)
    ended = (
        F.when(F.col("terminated"), "terminated")
        .when(F.col("deadlocked") & (F.col("last_standing") != "computing"), "deadlocked")
        .when(F.col("still_snapshots") >= STILL_AFTER, F.col("last_phase"))
        .when(nothing_comes, F.col("last_standing"))
        .otherwise("busy")
    )
    last_moved = Window.partitionBy(*RUN)
    return (
        snapshots.withColumn("last_moved", F.max(when_moved).over(last_moved))
        .groupBy(*RUN)
        .agg(
            F.count(F.lit(1)).alias("snapshots"),
            F.min("started_at").alias("started_at"),
            F.max("started_at").alias("ended_at"),
            F.sum("accepted").alias("accepted"),
            F.sum("seconds").alias("seconds"),
            F.max_by("snapshot_id", when_moved).alias("last_moved_id"),
            F.max_by("started_at", when_moved).alias("last_moved_at"),
            F.max_by("phase", "sequence").alias("last_phase"),
            F.max_by("standing", "sequence").alias("last_standing"),
            F.max_by("in_flight", "sequence").alias("last_in_flight"),
            *(F.max_by(name, "sequence").alias(name) for name in ("terminated", "deadlocked")),
            F.count_if(F.col("sequence") > F.col("last_moved")).alias("still_snapshots"),
        )
        .withColumn("ended", ended)
        .select(
            *RUN,
            "snapshots",
            "started_at",
            "ended_at",
            "seconds",
            per_second(F.col("accepted")).alias("accepted_per_s"),
            "ended",
            (~F.col("ended").isin("busy", "quiet", "terminated")).alias("stopped"),
            "last_moved_id",
            "last_moved_at",
            "still_snapshots",
            seconds_between(F.col("last_moved_at"), F.col("ended_at")).alias("still_seconds"),
        )
    )
