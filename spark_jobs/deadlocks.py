"""Each distinct deadlock once: how it formed edge by edge, its members and where they wait, how long before it was
reported.

A deadlock never ends by itself, so thousands of snapshots show the same one. It is told by its waits: each by machine,
`call_id` and `waiting_since`. The detector `Deadlock` finds the cores in each snapshot that has waits at all (ids are
distributed, each task loads its snapshots whole); all else is in Spark's own expressions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F

from ray_snapshot.detectors import Deadlock
from ray_snapshot.questions.shown import View
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.spark_jobs.engine.distributed import per_snapshot
from ray_snapshot.spark_jobs.engine.output import results
from ray_snapshot.spark_jobs.tables import RUN, Selection, Tables, seconds_between

if TYPE_CHECKING:
    from ray_snapshot.history import History

KEY = (*RUN, "deadlock")
_TIME = pa.timestamp("us", tz="UTC")

EDGE = pa.struct(
    [
        ("machine", pa.string()),
        ("call_id", pa.string()),
        ("on_machine", pa.string()),
        ("method", pa.string()),
        ("call_site", pa.string()),
        ("waiting_since", _TIME),
    ]
)

SEEN = pa.schema(
    [
        ("snapshot_id", pa.string()),
        ("deadlock", pa.string()),
        ("machines", pa.list_(pa.string())),
        ("edges", pa.list_(EDGE)),
        ("stuck_behind", pa.int64()),
        ("advice", pa.list_(pa.string())),
    ]
)
"""A core in one snapshot."""

VIEWS = (
    View(
        "deadlocks",
        "Deadlocks",
        (*KEY, "members", "first_id", "closed_at", "forming_seconds", "seconds_to_report", "snapshots", "stuck_behind"),
        order=(*RUN, "closed_at", "deadlock"),
        minor=("run_id", "snapshots", "stuck_behind", "closed_at", "forming_seconds"),
    ),
    View(
        "edges",
        "How they formed",
        (*KEY, "step", "machine", "on_machine", "method", "call_site", "waiting_since"),
        order=(*KEY, "step"),
        minor=("run_id", "system", "method"),
    ),
)


def run(
    spark: SparkSession, history: History, out: str | None = None, *, selection: Selection | None = None
) -> dict[str, DataFrame]:
    """`deadlocks` (a row a distinct deadlock) and `edges` (a row a wait of its members, in the order in which they began)."""
    tables = Tables(spark, history, selection or Selection())
    waiting = with_waits(tables.complete, tables.rows("waits"), tables.rows("machines"))
    seen = per_snapshot(waiting, history, SEEN, cores)
    known = tables.complete.select("snapshot_id", *RUN, "sequence", "started_at")
    (seen,) = results({"seen": seen.join(known, "snapshot_id", "inner")}, out).values()
    found = deadlocks(seen, reports(known, tables.rows("verdicts")))
    return {**results({"deadlocks": found, "edges": edges(seen)}, out), "seen": seen}


def with_waits(snapshots: DataFrame, waits: DataFrame, machines: DataFrame) -> DataFrame:
    """The ids of the snapshots in which a machine is blocked or has a row of `waits`."""
    blocked = machines.where(F.col("status") == "blocked").select("snapshot_id")
    waiting = waits.select("snapshot_id").unionByName(blocked).distinct()
    return snapshots.select("snapshot_id").join(waiting, "snapshot_id", "left_semi")


def cores(snapshot: Snapshot, _: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """One row of `SEEN` a core that the detector finds."""
    verdict = Deadlock().evaluate(snapshot)
    if not verdict.holds:
        return
    calls = {(row["machine"], row["call_id"]): row for row in snapshot.calls}
    targets = {call_id: machine for machine, call_id in calls}
    waits = snapshot.waits
    for core in verdict.evidence["cores"]:
        members = set(core)
        found = sorted(
            (_edge(row, calls, targets) for row in waits if row["machine"] in members and not row["satisfied"]),
            key=lambda edge: (
                str(edge["waiting_since"]),
                edge["machine"],
                edge["call_id"] or "",
                edge["on_machine"] or "",
            ),
        )
        found = found or [_brief(snapshot, machine) for machine in core]
        yield {
            "snapshot_id": snapshot.snapshot_id,
            "deadlock": _identity(snapshot.run_id, found),
            "machines": core,
            "edges": found,
            "stuck_behind": verdict.evidence["stuck_behind_count"],
            "advice": verdict.evidence["advice"],
        }


def _edge(
    wait: Mapping[str, Any],
    calls: Mapping[tuple[str, str | None], Mapping[str, Any]],
    targets: Mapping[str | None, str],
) -> dict[str, Any]:
    call = calls.get((wait["machine"], wait["call_id"]), {})
    on_machine = wait["on_machine"]
    if on_machine is None and wait["on_call_id"] is not None:
        on_machine = targets.get(wait["on_call_id"])
    return {
        "machine": wait["machine"],
        "call_id": wait["call_id"],
        "on_machine": on_machine,
        "method": call.get("method"),
        "call_site": call.get("call_site"),
        "waiting_since": wait["waiting_since"],
    }


def _brief(snapshot: Snapshot, machine: str) -> dict[str, Any]:
    """The wait of a machine that has no rows of `waits`, only the short form; of one that is not made yet, not even that."""
    recorded = snapshot.machines.get(machine)
    on = recorded.waits_for if recorded else ()
    return {**dict.fromkeys(EDGE.names), "machine": machine, "on_machine": ", ".join(on) or None}


def _identity(run_id: str, edges: Sequence[Mapping[str, Any]]) -> str:
    """A short hash of the run and the waits of a deadlock: equal in every snapshot that shows the same deadlock."""
    waits = sorted({f"{edge['machine']} {edge['call_id']} {edge['waiting_since']}" for edge in edges})
    return hashlib.sha256("\n".join([run_id, *waits]).encode()).hexdigest()[:12]


def reports(snapshots: DataFrame, verdicts: DataFrame) -> DataFrame:
    """The machines that a live verdict of a deadlock named: `run_id, machine, sequence, reported_at, reported_id`."""
    live = verdicts.where((F.col("evaluator") == "live") & F.col("holds"))
    kind = F.coalesce(F.get_json_object("detector_spec", "$.type"), F.col("detector"))
    members = F.from_json("evidence", "members array<struct<machine:string>>")["members"]["machine"]
    named = live.where(kind == "deadlock").select(
        "snapshot_id", F.col("evaluated_at").alias("reported_at"), F.explode(members).alias("machine")
    )
    return named.join(snapshots.select("snapshot_id", "run_id", "sequence"), "snapshot_id", "inner").select(
        "run_id", "machine", "sequence", "reported_at", F.col("snapshot_id").alias("reported_id")
    )


def deadlocks(seen: DataFrame, reports: DataFrame) -> DataFrame:
    """One row a distinct deadlock.

    `opened_at`, `closed_at`: since when the first and the last of its waits last; `forming_seconds` between them.
    `seconds_to_report`: from there to the first live verdict that names it; null if none ever did.
    """
    since = F.transform("edges", lambda edge: edge["waiting_since"])
    one = seen.groupBy(*KEY).agg(
        F.min_by("snapshot_id", "sequence").alias("first_id"),
        F.min("sequence").alias("first_sequence"),
        F.min("started_at").alias("first_seen_at"),
        F.max_by("snapshot_id", "sequence").alias("last_id"),
        F.count(F.lit(1)).alias("snapshots"),
        F.min_by("machines", "sequence").alias("machines"),
        F.min(F.array_min(since)).alias("opened_at"),
        F.max(F.array_max(since)).alias("closed_at"),
        F.max("stuck_behind").alias("stuck_behind"),
        F.max_by("advice", "sequence").alias("advice"),
    )
    named = (
        one.select(*KEY, "first_sequence", F.element_at("machines", 1).alias("machine"))
        .join(reports, ["run_id", "machine"], "inner")
        .where(F.col("sequence") >= F.col("first_sequence"))
        .groupBy(*KEY)
        .agg(F.min("reported_at").alias("reported_at"), F.min_by("reported_id", "reported_at").alias("reported_id"))
    )
    return one.join(named, [*KEY], "left_outer").select(
        *KEY,
        F.array_join("machines", " ").alias("members"),
        "machines",
        "first_id",
        "first_seen_at",
        "last_id",
        "snapshots",
        "opened_at",
        "closed_at",
        seconds_between(F.col("opened_at"), F.col("closed_at")).alias("forming_seconds"),
        "reported_id",
        "reported_at",
        seconds_between(F.col("closed_at"), F.col("reported_at")).alias("seconds_to_report"),
        "stuck_behind",
        "advice",
    )


def edges(seen: DataFrame) -> DataFrame:
    """One row a wait of each deadlock, numbered by `waiting_since`: the last one closed it."""
    latest = seen.groupBy(*KEY).agg(F.min_by("edges", "sequence").alias("edges"))
    rows = latest.select(*KEY, F.posexplode("edges").alias("place", "edge")).select(*KEY, "place", "edge.*")
    by_time = Window.partitionBy(*KEY).orderBy(F.asc_nulls_first("waiting_since"), "place")
    return rows.withColumn("step", F.row_number().over(by_time)).select(
        *KEY, "step", "machine", "call_id", "on_machine", "method", "call_site", "waiting_since"
    )
