"""`analyze HISTORY possibly`: each traced run asked in a task of its own, with the answers of `testing.possibly`."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from small_histories import rows, snapshot
from traced_purses import both_rich, trace

from ray_snapshot import testing
from ray_snapshot.cli import main
from ray_snapshot.history import History, HistoryWriter
from ray_snapshot.schema import ACTIONS

pytestmark = pytest.mark.spark

UP_AND_DOWN = [("take", 5), ("take", -5)]
RUNS: dict[str, list[dict[str, Any]]] = {
    "purse-1": trace("purse-1", a=UP_AND_DOWN, b=UP_AND_DOWN),
    "purse-2": trace("purse-2", a=UP_AND_DOWN, b=[("take", -5)]),
    "purse-3": trace("purse-3", a=[("take", 5)], b=[("take", 5)]),
    "purse-4": trace("purse-4", a=[("age", 0)], b=[]),
    "purse-5": [],
}
"""Rich at once: in one order of things; never; in the end; not to be done again; not traced."""


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    folder = tmp_path_factory.mktemp("possibly") / "h"
    with HistoryWriter(folder) as writer:
        for at, (run, actions) in enumerate(RUNS.items()):
            if actions:
                writer.add_actions(pa.Table.from_pylist(actions, schema=ACTIONS), system="purse")
            for sequence in range(2):
                writer.add(snapshot(run, sequence, at_s=10 * at + sequence))
    return History(folder)


@pytest.mark.by_day(1)
@pytest.mark.parametrize("definitely", [False, True])
def test_it_answers_as_testing_does_and_says_why_it_cannot(spark: Any, history: History, definitely: bool) -> None:
    from ray_snapshot.spark_jobs import possibly

    asked = {"predicate": "traced_purses:both_rich", "modules": ["traced_purses"], "definitely": definitely}
    found = rows(possibly.run(spark, history, **asked)["runs"], "run_id")
    assert {*found} == {*RUNS}
    ask = testing.definitely if definitely else testing.possibly
    for run in ("purse-1", "purse-2", "purse-3"):
        modal = ask(history.path, found[run]["snapshot_id"], both_rich, modules=["traced_purses"])
        assert found[run]["snapshot_id"] == f"{run}-0001"
        assert (found[run]["holds"], found[run]["cuts"]) == (modal.holds, modal.cuts)
        assert dict(found[run]["cut"] or ()) == (modal.cut or {})
        assert found[run]["steps"] == len(modal.log.actions)
    assert [found[f"purse-{n}"]["holds"] for n in (1, 2, 3)] == (
        [False, False, True] if definitely else [True, False, True]
    )
    assert found["purse-4"]["holds"] is None
    assert "action 2 of a (age) asks for the time" in found["purse-4"]["reason"]
    assert "holds no trace of run purse-5" in found["purse-5"]["reason"]


def test_each_run_has_a_task_of_its_own(spark: Any, history: History) -> None:
    from ray_snapshot.spark_jobs import possibly

    runs = spark.createDataFrame(
        [("purse", run, f"{run}-0001") for run in RUNS], "system string, run_id string, snapshot_id string"
    )
    found = possibly.answers(runs, history, _task_of, len(RUNS)).toArrow().to_pylist()
    assert len({row["reason"] for row in found}) == len(RUNS)


def _task_of(history: History, row: Any) -> dict[str, Any]:
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    return {**row, "reason": str(context.partitionId())}


@pytest.mark.by_day(1)
@pytest.mark.parametrize("predicate", ["EACH", "Quiet"])
def test_predicates_of_every_kind_are_taken(spark: Any, history: History, predicate: str) -> None:
    from ray_snapshot.spark_jobs import possibly
    from ray_snapshot.spark_jobs.tables import Selection

    only = Selection(run="purse-1")
    found = possibly.run(
        spark, history, selection=only, predicate=f"traced_purses:{predicate}", modules=["traced_purses"]
    )
    (row,) = found["runs"].toArrow().to_pylist()
    assert row["holds"] is True


def test_too_many_cuts_and_what_the_predicate_raises_are_told(spark: Any, history: History) -> None:
    from ray_snapshot.spark_jobs import possibly
    from ray_snapshot.spark_jobs.tables import Selection

    only, common = Selection(run="purse-1"), {"modules": ["traced_purses"]}
    few = possibly.run(spark, history, selection=only, predicate="traced_purses:never", most_cuts=3, **common)
    (row,) = few["runs"].toArrow().to_pylist()
    assert (row["holds"], row["reason"], row["cuts"]) == (None, "not within 3 cuts", 3)
    raised = possibly.run(spark, history, selection=only, predicate="traced_purses:broken", **common)
    (trouble,) = possibly.troubles(raised)
    assert trouble.startswith("run purse-1: the predicate raised KeyError: 'nobody' (at ")
    assert "traced_purses.py:" in trouble


def test_a_predicate_that_ends_its_process_is_told_like_any_other(history: History) -> None:
    from ray_snapshot.spark_jobs import possibly

    row = {"system": "purse", "run_id": "purse-1", "snapshot_id": "latest"}
    asked: Any = {"modules": ["traced_purses"], "most_cuts": 9, "definitely": False, "trust": False}
    found = possibly.answer(history, row, predicate="traced_purses:leaving", **asked)
    assert (found["failed"], found.get("holds")) == (True, None)
    assert found["reason"].startswith("the predicate raised SystemExit: it leaves (at ")


def test_the_command_answers_a_line_a_run(
    spark: Any, history: History, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    asked = ["--predicate", "traced_purses:both_rich", "--module", "traced_purses", "--out", str(tmp_path / "out")]
    assert main(["analyze", str(history.path), "possibly", *asked, "--json"]) == 0
    told = [json.loads(line) for line in capfd.readouterr().out.splitlines() if line.startswith("{")]
    assert [(row["run_id"], row["holds"]) for row in told] == [
        ("purse-1", True), ("purse-2", False), ("purse-3", True), ("purse-4", None), ("purse-5", None)
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ([], "the job possibly asks for a predicate: --predicate MODULE:NAME"),
        (
            ["--predicate", "traced_purses:nothing"],
            "predicate 'traced_purses:nothing' cannot be loaded: AttributeError",
        ),
        (["--predicate", "traced_purses:BEGIN"], "predicate 'traced_purses:BEGIN' is none"),
        (["--predicate", "nobody"], "nobody"),
    ],
)
def test_what_is_asked_wrongly_is_one_line(
    history: History, asked: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["analyze", str(history.path), "possibly", *asked]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
