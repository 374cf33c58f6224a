"""Detectors on snapshots of a history, in Spark's tasks.

The rows of one snapshot span many Arrow batches, so tasks get ids, and each loads its snapshots, many at a time. A run with a
detector that compares with earlier snapshots goes to one task, in order. Imports no job; read `detections` for which snapshots
and detectors are assigned.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain, islice, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from ray_snapshot.detectors import Deadlock, Termination, from_spec
from ray_snapshot.encoding import to_json
from ray_snapshot.errors import DetectorError, RaySnapshotError
from ray_snapshot.names import DRIVER
from ray_snapshot.questions.needed import needed_columns
from ray_snapshot.schema import SNAPSHOTS, VERDICTS
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.spark_jobs.engine.distributed import SNAPSHOTS_AT_ONCE
from ray_snapshot.verdicts import Detector, Standards, Verdict, evaluate
from ray_snapshot.views.tables import one_line

if TYPE_CHECKING:
    from ray_snapshot.history import History

EVALUATED = pa.schema(
    [
        *VERDICTS,
        *(SNAPSHOTS.field(name) for name in ("system", "sequence", "restored_from", "started_at", "completed_at")),
        pa.field("stable", pa.bool_()),
        pa.field("alarm_when", pa.bool_()),
        pa.field("incarnation", pa.int64()),
        pa.field("driver_status", pa.string()),
        pa.field("driver_sent_count", pa.int64()),
    ]
)
"""A verdict, and what must be known of its snapshot to hold a stable predicate against the later ones."""


@dataclass(frozen=True, slots=True)
class Work:
    """Which snapshots are evaluated, and by which detectors."""

    snapshots: pa.Table
    """`snapshot_id, run_id, sequence`: a row a snapshot."""
    specs: Mapping[str, Mapping[str, str]]
    """By run and detector its data, as stored."""
    in_order: frozenset[str]
    """Runs whose snapshots are evaluated one after the other."""

    def shared(self, most: int) -> list[Work]:
        """At most so many parts of about one size; each run that is evaluated in order is in one.

        Ids sort by time: a range of them lies together in few files.
        """
        ids, runs = (self.snapshots[name].combine_chunks() for name in ("snapshot_id", "run_id"))
        is_in_order = pc.is_in(runs, value_set=pa.array(list(self.in_order), pa.string()))
        key = pc.if_else(is_in_order, runs, ids)
        order = pc.sort_indices(key)
        rows, sorted_key = self.snapshots.take(order), key.take(order)
        begins = pc.fill_null(pc.not_equal(sorted_key[1:], sorted_key[:-1]), True).to_numpy(zero_copy_only=False)
        places = np.append(np.flatnonzero(np.append(True, begins)), len(order))
        cuts = np.unique(places[np.searchsorted(places, np.arange(most + 1) * len(order) / most)])
        parts = (rows.slice(begin, end - begin) for begin, end in pairwise(cuts.tolist()))
        return [
            replace(self, snapshots=part.sort_by([("run_id", "ascending"), ("sequence", "ascending")]))
            for part in parts
        ]

    def rows(self) -> Iterator[dict[str, Any]]:
        """As `evaluate_assignments` takes them."""
        for batch in self.snapshots.to_batches():
            for row in batch.to_pylist():
                run = row["run_id"]
                yield {**row, "specs": self.specs.get(run, {}), "in_order": run in self.in_order}


def evaluated(
    spark: SparkSession, work: Work, history: History, extra: Sequence[Mapping[str, Any]], *, trust: bool = False
) -> DataFrame:
    """The verdicts on the assigned snapshots (columns `EVALUATED`). `trust`: whether stored detectors may be imported."""
    paths = list(sys.path)
    cores = spark.sparkContext.defaultParallelism
    is_long = work.snapshots.num_rows >= 2 * cores * SNAPSHOTS_AT_ONCE  # a task has its own price: it opens every table
    parts = work.shared(2 * cores if is_long else cores)

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sys.path.extend(path for path in paths if path not in sys.path)  # where the driver finds `module:name`
        numbers = chain.from_iterable(batch["id"].to_pylist() for batch in batches)
        rows = chain.from_iterable(parts[number].rows() for number in numbers)
        return evaluate_assignments(rows, history, extra, trust=trust)

    shared = spark.range(0, len(parts), 1, max(1, len(parts)))
    return shared.mapInArrow(task, from_arrow_schema(EVALUATED)).select(*EVALUATED.names)


def evaluate_assignments(
    rows: Iterable[Mapping[str, Any]], history: History, extra: Sequence[Mapping[str, Any]], *, trust: bool = False
) -> Iterator[pa.RecordBatch]:
    """Load the snapshots of `rows`, many at a time, as far as it needs, and evaluate their detectors."""
    compared = partial(Standards().evaluate, evaluator="spark")
    left = iter(rows)
    while chunk := list(islice(left, SNAPSHOTS_AT_ONCE)):
        by_run = {row["run_id"]: detectors_of(dict(row["specs"] or ()), extra, trust=trust) for row in chunk}
        whole = {row["snapshot_id"]: row for row in chunk}
        judged: list[dict[str, Any]] = []
        for snapshot in history.load_many(whole, columns=needed_columns(chain.from_iterable(by_run.values()))):
            row = whole[snapshot.snapshot_id]
            detectors = by_run[row["run_id"]]
            judged += verdict_rows(snapshot, detectors, compared if row["in_order"] else _alone)
        yield from pa.Table.from_pylist(judged, EVALUATED).to_batches()


def _alone(detector: Detector, snapshot: Snapshot) -> Verdict:
    return evaluate(detector, snapshot, evaluator="spark")


def expects_the_same(spec: Mapping[str, Any]) -> bool:
    """Whether it is the data of a detector that expects the total of the snapshot before."""
    return spec.get("type") == "token-conservation" and spec.get("total") is None


def detectors_of(
    specs: Mapping[str, str], extra: Sequence[Mapping[str, Any]], *, trust: bool = False
) -> list[Detector]:
    """The detectors to evaluate, each name once: the user's go before those stored, these before the ready-made.

    A stored `module:name` is imported only with `trust`, or if the user has named the same; else it says so.
    """
    named = {spec.get("name") for spec in extra}
    stored = [
        _rebuilt(spec, name)
        if trust or (own := own_name(spec)) is None or own in named
        else _Unreadable(name, _unasked(own))
        for name, spec in specs.items()
    ]
    given = [_rebuilt(json.dumps(spec), spec["name"]) for spec in extra]
    found: dict[str, Detector] = {}
    for detector in [*given, *stored, Termination(), Deadlock()]:
        found.setdefault(detector.name, detector)
    return list(found.values())


def own_name(spec: str) -> str | None:
    """The `module:name` of a detector that is the user's own code, by its stored data; None if it is ready-made."""
    try:
        data = json.loads(spec)
    except (ValueError, RecursionError):  # said where it is rebuilt
        return None
    return str(data.get("name")) if isinstance(data, dict) and data.get("type") == "callable" else None


def _unasked(name: str) -> DetectorError:
    return DetectorError(
        f"it is the code {one_line(name)}, which the history alone names, and nothing that a history names is imported: say"
        " --trust if you trust whoever wrote it, or name it with --detector",
        detector=name,
    )


class _Unreadable:
    """Stands for a detector whose stored data cannot be used here: each of its verdicts says why."""

    def __init__(self, name: str, error: Exception) -> None:
        self.name = name
        self.stable = False
        self.alarm_when: bool | None = None
        self.error = error

    def evaluate(self, _: Snapshot) -> Verdict:
        raise self.error


@lru_cache(maxsize=1_000)
def _rebuilt(spec: str, name: str) -> Detector:
    try:
        return from_spec(json.loads(spec))
    except (RaySnapshotError, ValueError, RecursionError) as error:
        return _Unreadable(name, error)


def verdict_rows(
    snapshot: Snapshot, detectors: Iterable[Detector], judged: Callable[[Detector, Snapshot], Verdict]
) -> Iterator[dict[str, Any]]:
    """One row of `EVALUATED` a detector, of what `judged` says."""
    incarnation = pc.max(snapshot.parted[0]["incarnation"]).as_py()  # the greatest is there, whatever is absent
    known = {**_row(snapshot), **_driver(snapshot), "incarnation": incarnation}
    for detector in detectors:
        about = {"stable": detector.stable, "alarm_when": detector.alarm_when}
        yield {**known, **_verdict_row(judged(detector, snapshot)), **about}


def _verdict_row(verdict: Verdict) -> dict[str, Any]:
    row = verdict.model_dump(include=set(VERDICTS.names))
    spec = row["detector_spec"]
    return {
        **row,
        "evidence": to_json(row["evidence"]).text,
        "detector_spec": None if spec is None else to_json(spec).text,
    }


def _row(snapshot: Snapshot) -> dict[str, Any]:
    names = ("system", "sequence", "restored_from", "started_at", "completed_at")
    return {name: getattr(snapshot, name) for name in names}


def _driver(snapshot: Snapshot) -> dict[str, Any]:
    """What the driver did, as far as it takes part in the system."""
    machines, _ = snapshot.parted
    rows = machines.filter(pc.equal(machines["machine"], DRIVER)).select(["status", "sent_count"]).to_pylist()
    driver = rows[0] if rows else {"status": None, "sent_count": None}
    return {"driver_status": driver["status"], "driver_sent_count": driver["sent_count"]}
