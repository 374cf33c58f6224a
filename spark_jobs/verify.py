"""Is each snapshot consistent by its rows alone, and does what each verdict says follow from them?

The rows are checked in Spark's own expressions, which share nothing with `Snapshot.verify`; the verdicts by `evidence.py`,
which shares nothing with the detectors. What neither confirms nor refutes is counted as unchecked. Not looked at, and left
to `ray-snapshot history verify`: the JSON of every column, values that no reader can do without, checkpoints, traces, classes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

from ray_snapshot.snapshot import Snapshot
from ray_snapshot.spark_jobs.engine import evidence
from ray_snapshot.spark_jobs.engine.distributed import per_snapshot
from ray_snapshot.spark_jobs.engine.output import View, results, some_rows
from ray_snapshot.spark_jobs.tables import CHANNEL, RUN, Selection, Tables

if TYPE_CHECKING:
    from ray_snapshot.history import History

MOST_TOLD = 10

CHECKED = pa.schema([(name, pa.string()) for name in ("snapshot_id", "detector", "evaluator", "outcome", "reason")])
"""A verdict, and what the second opinion says of it."""

VIEWS = (
    View(
        "runs",
        "Runs",
        (*RUN, "snapshots", "failed", "verdicts", "confirmed", "wrong", "unchecked"),
        order=("-failed", "-wrong", *RUN),
        minor=("run_id",),
    ),
    View(
        "problems",
        "What is not so",
        (*RUN, "snapshot_id", "what", "problem"),
        order=(*RUN, "sequence", "what", "problem"),
        minor=("run_id",),
        none="all snapshots are consistent, and no verdict is wrong (JSON, checkpoints, traces: ray-snapshot history verify)",
    ),
)


def run(
    spark: SparkSession, history: History, out: str | None = None, *, selection: Selection | None = None
) -> dict[str, DataFrame]:
    """`runs` (a row a run), `problems` (a row a thing that is not so), `verdicts` (a row a verdict and its outcome)."""
    tables = Tables(spark, history, selection or Selection())
    verdicts = checked(tables.complete, tables.rows("verdicts"), history)
    (verdicts,) = results({"verdicts": verdicts}, out).values()
    rows = {name: tables.rows(name) for name in ("machines", "channels", "messages", "calls")}
    found = problems(tables.complete, rows, verdicts)
    (found,) = results({"problems": found}, out).values()
    return {**results({"runs": runs(tables.complete, found, verdicts)}, out), "problems": found, "verdicts": verdicts}


def checked(snapshots: DataFrame, verdicts: DataFrame, history: History) -> DataFrame:
    """Each verdict with the outcome of the second opinion."""
    columns = ("detector", "evaluator", "detector_spec", "holds", "evidence")
    by_snapshot = verdicts.groupBy("snapshot_id").agg(F.collect_list(F.struct(*columns)).alias("verdicts"))
    return per_snapshot(by_snapshot, history, CHECKED, second_opinions).join(
        snapshots.select("snapshot_id", *RUN, "sequence"), "snapshot_id", "inner"
    )


def second_opinions(snapshot: Snapshot, work: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One row of `CHECKED` a verdict."""
    for verdict in work["verdicts"]:
        outcome, reason = evidence.check(snapshot, verdict)
        yield {
            "snapshot_id": snapshot.snapshot_id,
            "detector": verdict["detector"],
            "evaluator": verdict["evaluator"],
            "outcome": outcome,
            "reason": reason or None,
        }


def problems(snapshots: DataFrame, rows: Mapping[str, DataFrame], verdicts: DataFrame) -> DataFrame:
    """One row a thing that is not so: a count, a channel, a message, a verdict."""
    known = snapshots.select("snapshot_id", *RUN, "sequence")
    # This protocol breaks both rules by design, and its snapshots say so.
    by_design = (F.col("protocol") == "at-least-once-barrier") & ~F.col("consistent")
    strict = snapshots.where(~F.coalesce(by_design, F.lit(False)))
    wrong = verdicts.where(F.col("outcome") == evidence.WRONG)
    found = [
        *counts(strict, rows),
        _said(
            strict.where(~F.coalesce("consistent", F.lit(False))), "snapshot", F.lit("is recorded as not consistent")
        ),
        twice(rows["machines"], "machine", ("machine",)),
        twice(rows["channels"], "channel", CHANNEL),
        twice(rows["calls"], "call", ("machine", "call_id")),
        *channels(rows["channels"].join(strict.select("snapshot_id"), "snapshot_id", "left_semi"), rows["messages"]),
        _said(wrong, F.concat_ws(" ", F.lit("verdict"), "detector", "evaluator"), F.col("reason")),
    ]
    whole = found[0]
    for part in found[1:]:
        whole = whole.unionByName(part)
    return whole.join(known, "snapshot_id", "inner").select(*RUN, "snapshot_id", "sequence", "what", "problem")


def _said(frame: DataFrame, what: str | Column, problem: Column) -> DataFrame:
    name = F.lit(what) if isinstance(what, str) else what
    return frame.select("snapshot_id", name.alias("what"), problem.alias("problem"))


def counts(snapshots: DataFrame, rows: Mapping[str, DataFrame]) -> Iterator[DataFrame]:
    """Where `snapshots` says another number of rows than there are."""
    for table, column in (
        ("machines", "machine_count"),
        ("channels", "channel_count"),
        ("messages", "in_flight_count"),
    ):
        there = rows[table].groupBy("snapshot_id").agg(F.count(F.lit(1)).alias("rows"))
        joined = snapshots.select("snapshot_id", column).join(there, "snapshot_id", "left_outer").na.fill(0, ["rows"])
        differs = joined.where(~F.col(column).eqNullSafe(F.col("rows")))
        yield _said(differs, table, _text(f"{column} is ", F.col(column), ", and there are ", F.col("rows"), " rows"))


def twice(rows: DataFrame, what: str, key: Sequence[str]) -> DataFrame:
    """What is recorded more than once in a snapshot."""
    found = rows.groupBy("snapshot_id", *key).agg(F.count(F.lit(1)).alias("rows")).where(F.col("rows") > 1)
    named = F.concat_ws(" ", F.lit(what), *key)
    return _said(found, named, _text("is recorded ", F.col("rows"), " times"))


def channels(channels: DataFrame, messages: DataFrame) -> Iterator[DataFrame]:
    """Where the counts of a channel do not add up, or are not those of its messages.

    Creations (mail of number 0) are counted with hosts, not with channels.
    """
    numbered = messages.where((F.col("number") != 0) | (F.col("kind") == "call"))
    in_flight = numbered.groupBy("snapshot_id", *CHANNEL).agg(
        F.count(F.lit(1)).alias("messages"),
        F.count_distinct("number").alias("numbers"),
        F.min("number").alias("lowest"),
        F.max("number").alias("highest"),
    )
    joined = channels.join(in_flight, ["snapshot_id", *CHANNEL], "left_outer").na.fill(0, ["messages", "numbers"])
    sent, accepted, settled = F.col("sent_count"), F.col("accepted_count"), F.col("settled_count")
    waiting, repeated = F.col("in_flight_count"), F.col("duplicate_count")
    in_order = (F.col("kind") == "mail") & (settled == 0) & (repeated == 0) & (F.col("messages") > 0)
    gap = in_order & ((F.col("lowest") != accepted + 1) | (F.col("highest") != sent))
    problem = (
        F.when(accepted > sent + repeated, _text("accepted ", accepted, " messages, and only ", sent, " were sent"))
        .when(
            sent + repeated != accepted + settled + waiting,
            _text("sent ", sent, " are not accepted ", accepted, " + in flight ", waiting, " + settled ", settled),
        )
        .when(
            waiting != F.col("messages"),
            _text("says ", waiting, " in flight, and ", F.col("messages"), " are recorded"),
        )
        .when(F.col("numbers") != F.col("messages"), F.lit("records a message number twice"))
        .when(gap, _text("records ", F.col("lowest"), " to ", F.col("highest"), " in flight, accepted ", accepted))
        .when(repeated != 0, _text("accepted ", repeated, " messages that were sent outside the cut"))
    )
    named = F.concat_ws(" ", F.lit("channel"), *CHANNEL)
    yield _said(joined.where(problem.isNotNull()), named, problem)
    strays = in_flight.join(channels.select("snapshot_id", *CHANNEL), ["snapshot_id", *CHANNEL], "left_anti")
    checked = strays.join(channels.select("snapshot_id").distinct(), "snapshot_id", "left_semi")
    yield _said(checked, named, _text("has no row, and ", F.col("messages"), " messages in flight"))


def _text(*parts: str | Column) -> Column:
    return F.concat(*(F.lit(part) if isinstance(part, str) else part.cast("string") for part in parts))


def runs(snapshots: DataFrame, problems: DataFrame, verdicts: DataFrame) -> DataFrame:
    """One row a run: how many of its snapshots did not pass, and what became of its verdicts."""
    bad = problems.where(~F.col("what").startswith("verdict ")).select("snapshot_id").distinct()
    passed = (
        snapshots.join(bad.withColumn("bad", F.lit(1)), "snapshot_id", "left_outer")
        .groupBy(*RUN)
        .agg(F.count(F.lit(1)).alias("snapshots"), F.count("bad").alias("failed"))
    )
    outcomes = (evidence.CONFIRMED, evidence.WRONG, evidence.UNCHECKED)
    judged = verdicts.groupBy(*RUN).agg(
        F.count(F.lit(1)).alias("verdicts"), *(F.count_if(F.col("outcome") == word).alias(word) for word in outcomes)
    )
    counts = ("verdicts", *outcomes)
    return (
        passed.join(judged, [*RUN], "left_outer").na.fill(0, list(counts)).select(*RUN, "snapshots", "failed", *counts)
    )


def troubles(frames: Mapping[str, DataFrame]) -> list[str]:
    """What a person must be told beside the answer: that something is not so."""
    rows = some_rows(frames["runs"].where("failed > 0 or wrong > 0").orderBy(*RUN), MOST_TOLD)
    return [
        f"run {row['run_id']} of {row['system']}: {row['failed']} of {row['snapshots']} snapshots are not consistent,"
        f" {row['wrong']} of {row['verdicts']} verdicts are wrong"
        for row in rows
    ]


def main(argv: Sequence[str] | None = None) -> int:
    """The job as a program: `spark-submit verify.py HISTORY`."""
    from ray_snapshot.spark_jobs.engine.command import main as run_job

    return run_job("verify", argv)


if __name__ == "__main__":
    sys.exit(main())
