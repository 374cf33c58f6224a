"""`detections --follow --once` of one new snapshot, over `detections` of the whole history again; session start excluded.

The history is made up: `SNAPSHOTS` snapshots of `MACHINES` machines, and one more of a run of its own before each look.
`RAY_SNAPSHOT_BENCHMARK_SNAPSHOTS` makes it smaller.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from benchmarks.measure import Result, alternate
from ray_snapshot.history import History
from ray_snapshot.synth import Settings, synthesise

NEEDS_RAY = False

SNAPSHOTS = int(os.environ.get("RAY_SNAPSHOT_BENCHMARK_SNAPSHOTS", "1000"))
MACHINES = 1_000
PAIRS = 3


def run(names: set[str]) -> Iterator[Result]:
    """Yield the figure `detections-follow`."""
    if "detections-follow" not in names:
        return
    from ray_snapshot.spark_jobs.session import spark_session

    folder = Path(tempfile.mkdtemp(prefix="rs-", dir="/tmp"))
    spark = spark_session()
    try:
        yield _over_all_again(spark, folder)
    finally:
        spark.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _over_all_again(spark: Any, folder: Path) -> Result:
    path, seeds = folder / "history", count(1)
    synthesise(path, Settings(MACHINES, SNAPSHOTS))
    history = History(path)
    history.compact()
    _look(spark, history, folder)  # all that is there

    def one_more() -> float:
        synthesise(path, Settings(MACHINES, 1, seed=next(seeds)))
        began = time.perf_counter()
        rows = _look(spark, history, folder)
        seconds = time.perf_counter() - began
        if not rows:
            raise ValueError("the new snapshot was not judged")
        return seconds

    def all_again() -> float:
        from ray_snapshot.spark_jobs import detections

        began = time.perf_counter()
        detections.run(spark, history, str(folder / "again"))
        return time.perf_counter() - began

    arms = ("one_new_s", one_more), (f"all_{SNAPSHOTS}_s", all_again)
    return alternate("detections-follow", "<= 0.02", *arms, pairs=PAIRS)


def _look(spark: Any, history: History, folder: Path) -> int:
    """What `--follow --once` does behind the start of Spark; how many verdicts it gave."""
    from ray_snapshot.spark_jobs import detections
    from ray_snapshot.spark_jobs.engine.following import Follower, follow
    from ray_snapshot.spark_jobs.tables import Selection

    found: list[int] = []
    table = detections.FOLLOWED.name
    with Follower(spark, history, folder / "followed", table, detections.fresh, Selection(), {}) as follower:
        follow(follower, lambda rows: found.append(rows.num_rows), 0.0, once=True)
    return sum(found)
