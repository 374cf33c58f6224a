"""Since when does each predicate hold, for how long, did a stable one ever go back, and was it told the same live?

Every detector is evaluated again on every completed snapshot: termination and deadlock, those whose data is
stored with the live verdicts, and the user's own by `--detector module:name`. Read `evaluating` for how snapshots get to
their detectors.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from ray_snapshot.questions import standing
from ray_snapshot.questions.reading import data_of
from ray_snapshot.questions.shown import View
from ray_snapshot.questions.standing import DETECTORS, Judgement
from ray_snapshot.schema import SNAPSHOTS
from ray_snapshot.spark_jobs.engine.evaluating import Work, evaluated, expects_the_same, own_name
from ray_snapshot.spark_jobs.engine.output import results, some_rows
from ray_snapshot.spark_jobs.tables import Selection, Tables, read_table
from ray_snapshot.verdicts import compares, load_detector
from ray_snapshot.views.tables import one_line

if TYPE_CHECKING:
    from ray_snapshot.history import History

MOST_FAILURES = 10
"""So many detectors that failed are named."""

DETECTOR = ("system", "run_id", "detector")

VIEWS = (
    View(
        "detectors",
        "Detectors over the history",
        (
            *DETECTOR,
            "evaluated",
            "held",
            "unknown",
            "alarms",
            "first_held",
            "first_held_at",
            "first_held_seconds",
            "longest_held_seconds",
            "went_back",
            "live",
            "disagreements",
        ),
        order=("-rank", "first_started_at", *DETECTOR),
        minor=(
            *("run_id", "first_held_at", "first_held_seconds", "longest_held_seconds", "live", "unknown", "evaluated"),
            *("disagreements", "went_back", "alarms"),
        ),
        notes=(
            (
                *("evaluated", 0, "detector"),
                "for only the running program knew the function; --detector module:name evaluates it again",
            ),
        ),
    ),
)


def run(
    spark: SparkSession,
    history: History,
    out: str | None = None,
    *,
    selection: Selection | None = None,
    detectors: Sequence[str] = (),
    trust: bool = False,
) -> dict[str, DataFrame]:
    """`detectors` (one row a detector of a run) and `verdicts` (one row a snapshot and detector, evaluator `spark`).

    `trust`: whether a detector that the history alone names (`module:name`) is imported and run.
    """
    tables = Tables(spark, history, selection or Selection())
    extra = [_spec_of(reference) for reference in detectors]
    work = assignments(
        tables.complete,
        read_table(spark, history, "verdicts"),
        in_order=any(compares(load_detector(one)) for one in detectors),
    )
    (verdicts,) = results({"verdicts": evaluated(spark, work, history, extra, trust=trust)}, out).values()
    live = live_verdicts(tables.complete, tables.unlisted("verdicts"))
    return {**results({"detectors": summary(verdicts, live)}, out), "verdicts": verdicts}


def options(detectors: Sequence[str] = (), trust: bool = False) -> dict[str, Any]:
    """Check the detectors named on the command line before Spark starts; raises `DetectorError`.

    A module of the current folder is found, as `python -m` would find it.
    """
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    for reference in detectors:
        load_detector(reference)
    return {"detectors": list(detectors), **({"trust": True} if trust else {})}


def named_code(history: History) -> set[str]:
    """The detectors that the history names as `module:name`: code that is imported only with the user's consent."""
    specs = set(history.table("verdicts")["detector_spec"].to_pylist()) - {None}
    return {name for spec in specs if (name := own_name(spec)) is not None}


_ASSIGNED = pa.schema([SNAPSHOTS.field(name) for name in ("snapshot_id", "run_id", "sequence")])


def assignments(snapshots: DataFrame, verdicts: DataFrame, *, in_order: bool = False) -> Work:
    """The snapshots to evaluate, with the data of the detectors that their runs were watched with; it comes to the driver.

    `in_order`: whether a detector that is given may look at the snapshot before.
    """
    latest = (
        verdicts.where(F.col("detector_spec").isNotNull())
        .groupBy("run_id", "detector")
        .agg(F.max_by("detector_spec", "evaluated_at").alias("spec"))
    )
    with ThreadPoolExecutor(2) as pool:
        listed = pool.submit(snapshots.select(*_ASSIGNED.names).toArrow)
        specs: dict[str, dict[str, str]] = {}
        for row in latest.where(F.col("run_id").isNotNull() & F.col("spec").isNotNull()).toArrow().to_pylist():
            specs.setdefault(row["run_id"], {})[row["detector"]] = row["spec"]
    looks_back = {run for run, found in specs.items() if any(map(_may_look_back, found.values()))}
    runs = listed.result()["run_id"].unique().drop_null().to_pylist()
    return Work(listed.result(), specs, frozenset(run for run in runs if in_order or run in looks_back))


def _may_look_back(spec: str) -> bool:
    data = data_of(spec) or {}  # what is wrong with it is said where it is evaluated
    return data.get("type") == "callable" or expects_the_same(data)


def live_verdicts(snapshots: DataFrame, verdicts: DataFrame) -> DataFrame:
    """What the detectors answered while the system ran: one row a live verdict on a selected snapshot."""
    known = snapshots.select("snapshot_id", "system", "run_id", "sequence", "started_at")
    live = verdicts.where(F.col("evaluator") == "live").select("snapshot_id", "detector", "holds", "evaluated_at")
    return live.join(known, "snapshot_id", "inner").select(
        "snapshot_id",
        *DETECTOR,
        "sequence",
        "started_at",
        F.col("holds").alias("live_holds"),
        F.col("evaluated_at").alias("live_at"),
    )


def summary(verdicts: DataFrame, live: DataFrame) -> DataFrame:
    """One row a detector of a run: `questions.standing.summary` of the answers of now, beside the live ones."""
    answers = verdicts.select(
        "snapshot_id", *DETECTOR, *_ANSWER, F.get_json_object("evidence", "$.error").alias("failure")
    )
    both = answers.withColumn("is_known", F.lit(True)).unionByName(live, allowMissingColumns=True)
    return both.groupBy(*DETECTOR).applyInArrow(_summed_up, from_arrow_schema(DETECTORS))


_ANSWER = (
    "sequence",
    "started_at",
    "completed_at",
    "restored_from",
    "incarnation",
    "driver_status",
    "driver_sent_count",
    "stable",
    "alarm_when",
    "alarm",
    "holds",
)


def _summed_up(rows: pa.Table) -> pa.Table:
    """A row of `DETECTORS` of the rows of one detector of a run."""
    known: dict[str, dict[str, Any]] = {}
    live: dict[str, dict[str, Any]] = {}
    for row in rows.sort_by("live_at").to_pylist():
        (known if row["is_known"] else live)[row["snapshot_id"]] = row
    first = next(iter(known.values() or live.values()))
    judged = [
        Judgement(
            **{name: row[name] for name in _OF_JUDGEMENT},
            alarm=bool(row["alarm"]),
            is_known=bool(row["is_known"]),
            is_live=snapshot_id in live,
            live_holds=live[snapshot_id]["live_holds"] if snapshot_id in live else None,
        )
        for snapshot_id, row in {**live, **known}.items()
    ]
    key = first["system"], first["run_id"], first["detector"]
    return pa.Table.from_pylist([standing.summary(key, (first["stable"], first["alarm_when"]), judged)], DETECTORS)


_OF_JUDGEMENT = ("snapshot_id", *(name for name in _ANSWER if name not in ("stable", "alarm_when", "alarm")), "failure")


def troubles(frames: Mapping[str, DataFrame]) -> list[str]:
    """What a person must be told beside the answer: which detectors failed, how often, and why."""
    rows = some_rows(frames["detectors"].where("failed > 0").orderBy(*DETECTOR), MOST_FAILURES)
    return [
        f"detector {row['detector']} of {row['system']} failed on {row['failed']} of {row['evaluated']} snapshots:"
        f" {one_line(row['failure'] or 'it does not say why')}"
        for row in rows
    ]


def _spec_of(reference: str) -> dict[str, Any]:
    """The data from which a task builds the detector that `--detector` names."""
    detector = load_detector(reference)
    return {"type": "callable", "name": reference} if ":" in reference else dict(detector.spec)  # type: ignore[attr-defined]
