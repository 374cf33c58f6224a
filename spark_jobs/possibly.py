"""Of each traced run: was there a moment at which it could have been looked at, and a predicate would have held?

Or, with `--definitely`: must it have passed one? A run is done again by the witness, in a task of its own, and asked as
`testing.possibly` asks it. What a run answers is a row: true, false, or null with the reason. A task reads the trace of its run
itself, from the table `actions`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import from_arrow_schema

from ray_snapshot.errors import RaySnapshotError, SettingError
from ray_snapshot.questions.shown import View
from ray_snapshot.spark_jobs.engine.output import results, some_rows
from ray_snapshot.spark_jobs.tables import RUN, Selection, Tables
from ray_snapshot.verdicts import told
from ray_snapshot.views.tables import one_line

if TYPE_CHECKING:
    from ray_snapshot.history import History

MOST_CUTS = 100_000
"""So many cuts of a run are looked at (`testing.possibly`)."""

MOST_FAILURES = 10
"""So many runs are named of which the predicate raised."""

ANSWERS = pa.schema(
    [
        ("system", pa.string()),
        ("run_id", pa.string()),
        ("snapshot_id", pa.string()),
        ("question", pa.string()),
        ("predicate", pa.string()),
        ("holds", pa.bool_()),
        ("reason", pa.string()),
        ("cut", pa.map_(pa.string(), pa.int64())),
        ("steps", pa.int64()),
        ("cuts", pa.int64()),
        ("seconds", pa.float64()),
        ("failed", pa.bool_()),
    ]
)
"""`snapshot_id`: the run's last one; `cut`: by machine, how many steps have happened; `steps`: of the run; `cuts`: looked at, 0
where machines were asked each by itself; `failed`: whether the predicate raised."""

VIEWS = (
    View(
        "runs",
        "What could have been",
        ("system", "run_id", "question", "holds", "steps", "cuts", "seconds", "reason"),
        order=("system", "run_id"),
        none="no run is selected",
        minor=("seconds", "cuts", "steps", "question"),
    ),
)


def run(
    spark: SparkSession,
    history: History,
    out: str | None = None,
    *,
    selection: Selection | None = None,
    predicate: str,
    modules: Sequence[str] = (),
    most_cuts: int = MOST_CUTS,
    definitely: bool = False,
    trust: bool = False,
) -> dict[str, DataFrame]:
    """`runs`: one row a selected run (`ANSWERS`), null where it has no trace or cannot be done again.

    `predicate`: module:name; `modules`: those that define machine classes of the runs; `trust`: whether any that a trace names
    may be imported.
    """
    tables = Tables(spark, history, selection or Selection())
    asked = tables.complete.groupBy(*RUN).agg(F.max_by("snapshot_id", "sequence").alias("snapshot_id"))
    ask = partial(
        answer, predicate=predicate, modules=tuple(modules), most_cuts=most_cuts, definitely=definitely, trust=trust
    )
    tasks = max(1, len(set(history.table("snapshots")["run_id"].to_pylist())))  # as many as there are runs
    return results({"runs": answers(asked, history, ask, tasks)}, out)


def answers(runs: DataFrame, history: History, ask: Any, tasks: int) -> DataFrame:
    """One row a run, each asked in one of so many tasks."""
    paths = list(sys.path)

    def task(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        sys.path.extend(path for path in paths if path not in sys.path)  # where the driver finds `module:name`
        os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")  # an action that is done again must not start a cluster
        for batch in batches:
            for row in batch.to_pylist():
                yield pa.RecordBatch.from_pylist([ask(history, row)], ANSWERS)

    # a number that is given is kept: Spark would else join what is small, and do one run after the other
    shared = runs.repartitionByRange(tasks, "run_id")
    return shared.mapInArrow(task, from_arrow_schema(ANSWERS)).select(*ANSWERS.names)


def answer(
    history: History,
    row: Mapping[str, Any],
    *,
    predicate: str,
    modules: Sequence[str],
    most_cuts: int,
    definitely: bool,
    trust: bool,
) -> dict[str, Any]:
    """One row of `ANSWERS`; never raises because of what a run is, or what the predicate does."""
    begin = time.monotonic()
    found: dict[str, Any] = {"question": "definitely" if definitely else "possibly", "predicate": predicate, "cuts": 0}
    try:
        found |= _asked(history, row["run_id"], predicate, [*modules], most_cuts, definitely, trust)
    except RaySnapshotError as error:
        found["reason"] = one_line(str(error))
    except (Exception, SystemExit) as error:  # whatever the user's predicate does
        found |= {"reason": one_line(f"the predicate raised {told(error)}"), "failed": True}
    return {**row, "failed": False, **found, "seconds": time.monotonic() - begin}


def _asked(
    history: History, run_id: str, reference: str, modules: list[str], most_cuts: int, must: bool, trust: bool
) -> dict[str, Any]:
    from ray_snapshot.witness.asking import asked, load_predicate
    from ray_snapshot.witness.proof import foreign_names
    from ray_snapshot.witness.traces import trace_of

    item = load_predicate(reference)
    if trust:
        names = foreign_names(trace_of(history, run_id))
        modules += {name.partition(":")[0].partition(".")[0] for name in names}
    modal = asked(history, run_id, item, must=must, modules=modules, most_cuts=most_cuts)
    reason = None if modal.reason is None else one_line(modal.reason)
    cut = None if modal.cut is None else [*modal.cut.items()]
    return {"holds": modal.holds, "reason": reason, "cut": cut, "steps": len(modal.log.actions), "cuts": modal.cuts}


def troubles(frames: dict[str, DataFrame]) -> list[str]:
    """The runs of which the predicate raised."""
    failed = some_rows(frames["runs"].where(F.col("failed")), MOST_FAILURES)
    return [f"run {row['run_id']}: {row['reason']}" for row in failed]


def options(predicate: str | None = None, **given: Any) -> dict[str, Any]:
    """Check what the command line gave before Spark starts; raises `SettingError` and `DetectorError`.

    A module of the current folder is found, as `python -m` would find it; a Python file by its path.
    """
    from ray_snapshot.witness.asking import load_predicate

    if predicate is None:
        raise SettingError("the job possibly asks for a predicate: --predicate MODULE:NAME")
    if os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    files = [name for name in given.get("modules", ()) if name.endswith(".py")]
    sys.path += [folder for folder in map(os.path.dirname, map(os.path.abspath, files)) if folder not in sys.path]
    load_predicate(predicate)
    modules = [
        os.path.splitext(os.path.basename(name))[0] if name in files else name for name in given.get("modules", ())
    ]
    return {**given, "predicate": predicate, "modules": modules}
