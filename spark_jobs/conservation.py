"""Was the sum of what machines hold and what is in flight ever another than it has to be, and since which snapshot?

`ray_snapshot.questions.ledger`, whose counting is done by Spark's tasks: each loads its share of the snapshots. Counted and
judged as the detector `TokenConservation` does, with the settings that are stored with the live verdicts, or given by
`--state`, `--message` and `--total`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from ray_snapshot.detectors import TokenConservation
from ray_snapshot.errors import SettingError
from ray_snapshot.questions import ledger as questions
from ray_snapshot.questions.broken import CHANGED_CHANNELS, CHANGED_MACHINES
from ray_snapshot.questions.reading import data_of
from ray_snapshot.questions.shown import CONSERVATION
from ray_snapshot.spark_jobs.detections import assignments
from ray_snapshot.spark_jobs.engine.distributed import in_tasks
from ray_snapshot.spark_jobs.engine.output import results
from ray_snapshot.spark_jobs.tables import Selection, Tables, read_table

if TYPE_CHECKING:
    from ray_snapshot.history import History

Given = tuple[str | None, Mapping[str, str], float | None]
"""What takes the place of stored settings: the path into states, paths by method, the total."""

VIEWS = CONSERVATION


def run(
    spark: SparkSession,
    history: History,
    out: str | None = None,
    *,
    selection: Selection | None = None,
    state: str | None = None,
    messages: dict[str, str] | None = None,
    total: float | None = None,
) -> dict[str, DataFrame]:
    """`ledger` (one row a snapshot and ledger), `breaks` (one row a run and ledger); and of each break, `changed_machines` and
    `changed_channels`: what is different from the last snapshot that was right.

    `state`, `messages` (path by method) and `total` take the place of what is stored, each of itself only; a run that has no
    ledger stored gets one with default settings, see `own_ledgers`.
    """
    tables = Tables(spark, history, selection or Selection())
    work = assignments(tables.complete, read_table(spark, history, "verdicts"))
    ledgers = own_ledgers(work.snapshots["run_id"].to_pylist(), work.specs, (state, messages or {}, total))
    rows = questions.ledger_rows(counted(spark, history, work.snapshots, ledgers).toArrow().to_pylist(), ledgers)
    broken = pa.Table.from_pylist(questions.breaks(rows), questions.BREAKS)
    frames = {"ledger": spark.createDataFrame(pa.Table.from_pylist(rows, questions.LEDGER))}
    frames["breaks"] = spark.createDataFrame(broken)
    wrong = frames["breaks"].where(F.col("first_broken").isNotNull() & F.col("last_right").isNotNull())
    for place, (name, schema) in enumerate(
        (("changed_machines", CHANGED_MACHINES), ("changed_channels", CHANGED_CHANNELS))
    ):

        def changed(rows: list[dict[str, Any]], place: int = place) -> Iterator[dict[str, Any]]:
            for row in rows:
                yield from questions.changed_at(history, row, ledgers)[place]

        frames[name] = in_tasks(wrong, "first_broken", schema, changed)
    return results(frames, out)


def counted(spark: SparkSession, history: History, snapshots: pa.Table, ledgers: questions.Ledgers) -> DataFrame:
    """The rows of `questions.ledger.COUNTED` of these snapshots (`snapshot_id`, `run_id`)."""
    watched = pa.array({run for run, _ in ledgers}, pa.string())
    ids = spark.createDataFrame(
        snapshots.filter(pc.is_in(snapshots["run_id"], value_set=watched)).select(["snapshot_id"])
    )

    def count(rows: list[dict[str, Any]]) -> Iterable[dict[str, Any]]:
        return questions.counted(history, [row["snapshot_id"] for row in rows], ledgers)

    return in_tasks(ids, "snapshot_id", questions.COUNTED, count)


def options(state: str | None = None, messages: Sequence[str] = (), total: float | None = None) -> dict[str, Any]:
    """Check what the command line gave before Spark starts; raises `SettingError`."""
    wrong = [text for text in messages if "=" not in text]
    if wrong:
        raise SettingError(f"--message {wrong[0]!r} is not METHOD=PATH, such as 'deposit=$[0]'")
    paths = dict(text.split("=", 1) for text in messages)
    number = int(total) if total is not None and total == int(total) else total
    TokenConservation(number, state or "$.tokens", paths)
    return {"state": state, "messages": paths, "total": number}


def own_ledgers(runs: Collection[str], specs: Mapping[str, Mapping[str, str]], given: Given) -> questions.Ledgers:
    """The ledgers of these runs (data of all detectors by run and name), each setting replaced by what was given of it.

    Where something was given, a run without a ledger gets one with default settings: any such run if a path into the states
    was given, else only where no run has one, for what is said of the ledgers that there are says nothing of other runs.
    """
    state, messages, total = given
    data = {(run, name): data_of(spec) or {} for run, of in specs.items() for name, spec in of.items()}
    stored = {key: one for key, one in data.items() if questions.is_ledger(one) and key[0] in runs}
    if given != (None, {}, None) and (state is not None or not stored):
        default = TokenConservation()
        stored |= {(run, default.name): default.spec for run in {*runs} - {run for run, _ in stored}}
    for key, one in stored.items():
        replaced = {"state": state, "messages": {**one.get("messages", {}), **messages} or None, "total": total}
        stored[key] = {**one, **{name: value for name, value in replaced.items() if value is not None}}
    return questions.ledgers_of(stored, runs)
