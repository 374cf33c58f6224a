"""`ray_snapshot.questions` side by side with the Spark jobs that answer the same: every row and column of every result."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from small_histories import BANK, bank, live, relapses, table, write

from ray_snapshot import questions
from ray_snapshot.cli import main
from ray_snapshot.detectors import Deadlock, Termination
from ray_snapshot.history import History

pytestmark = pytest.mark.spark

ANOMALIES = "deadlock,leak,appear,vanish,field,abort"


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> History:
    """A made-up history of two systems with something to find in one of them."""
    folder = str(tmp_path_factory.mktemp("planted") / "h")
    size = ["--machines", "120", "--snapshots", "24", "--seed", "3", "--out", folder]
    assert main(["synth", *size, "--system", "planted", "--anomalies", ANOMALIES]) == 0
    assert main(["synth", *size, "--system", "clean"]) == 0
    return History(folder)


def rows(found: Any) -> list[str]:
    """Every row of a result as text, in an order that does not matter to who asks."""
    arrow = found if isinstance(found, pa.Table) else found.toArrow()
    return sorted(json.dumps(row, default=str, sort_keys=True) for row in arrow.to_pylist())


def columns(found: Any) -> list[tuple[str, str]]:
    """The names and types of a result's columns."""
    arrow = found if isinstance(found, pa.Table) else found.toArrow()
    return [(field.name, str(field.type).replace(" not null", "")) for field in arrow.schema]


def assert_same(ours: dict[str, pa.Table], theirs: dict[str, Any], *names: str) -> None:
    for name in names or theirs:
        assert columns(ours[name]) == columns(theirs[name]), name
        assert rows(ours[name]) == rows(theirs[name]), name


# ---- conservation ------------------------------------------------------------------------------------------------------


def test_the_ledgers_of_the_job_are_those_of_the_quick_question(spark: Any, planted: History) -> None:
    from ray_snapshot.spark_jobs import conservation

    ours = questions.conservation(planted)
    assert {name: found.num_rows > 0 for name, found in ours.items()} == dict.fromkeys(ours, True)
    assert_same(ours, conservation.run(spark, planted))


# ---- since -------------------------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_what_is_said_of_detectors_is_what_the_job_says_where_it_agrees_with_what_was_said_live(
    spark: Any, tmp_path: Path
) -> None:
    from ray_snapshot.spark_jobs import detections

    taken = [*bank(), *table(), *relapses()]
    verdicts = live(taken, Deadlock(), Termination())
    verdicts += live((one for one in taken if one.system == "bank"), BANK)
    history = write(tmp_path / "h", taken, verdicts)
    theirs = detections.run(spark, history)["detectors"].toArrow()
    ours = questions.since(history)["detectors"]
    assert columns(ours)[: theirs.num_columns] == columns(theirs)
    compared = [name for name in theirs.column_names if not name.startswith("disagreement")]
    assert rows(ours.select(compared)) == rows(theirs.select(compared))
    assert max(theirs["disagreements"].to_pylist()) == 0
    assert ours["disagreements"].null_count == ours.num_rows, "nothing was evaluated again"
    assert max(row["went_back"] or 0 for row in ours.to_pylist()) == 1


# ---- diff --------------------------------------------------------------------------------------------------------------


def between(spark: Any, history: History, first: str, second: str, **more: str) -> dict[str, Any]:
    from ray_snapshot.spark_jobs import changes
    from ray_snapshot.spark_jobs.tables import Selection

    return changes.run(spark, history, selection=Selection(ids=(first, second)), **more)


def test_two_snapshots_differ_as_the_job_says(spark: Any, planted: History) -> None:
    ids = [row.snapshot_id for row in planted.snapshots("planted") if row.status == "complete"]
    ours = questions.diff(planted, ids[1], ids[-1])
    assert {row["event"] for row in ours["machines"].to_pylist()} == {"appeared", "vanished"}
    assert_same(ours, between(spark, planted, ids[1], ids[-1]))
    assert_same(questions.diff(planted, ids[-1], ids[1]), between(spark, planted, ids[-1], ids[1]))
