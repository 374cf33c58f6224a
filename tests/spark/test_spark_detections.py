"""The job `detections` on the known history."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from small_histories import BANK, BEGIN, live, rows, snapshot, write

pytestmark = pytest.mark.spark

Found = Mapping[Any, Mapping[str, Any]]


@pytest.fixture(scope="module")
def frames(spark: Any, history: Any, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    from ray_snapshot.spark_jobs import detections

    return detections.run(spark, history, str(tmp_path_factory.mktemp("out")))


@pytest.fixture(scope="module")
def found(frames: dict[str, Any]) -> Found:
    return rows(frames["detectors"], "run_id", "detector")


def test_a_deadlock_is_found_at_the_first_snapshot_that_shows_it_and_lasts_to_the_end(found: Found) -> None:
    deadlock = found["table-1", "deadlock"]
    assert (deadlock["evaluated"], deadlock["held"], deadlock["not_held"]) == (7, 3, 4)
    assert deadlock["first_held"] == "table-1-0004"
    assert (deadlock["first_held_at"] - BEGIN).total_seconds() == 4
    assert deadlock["first_held_seconds"] == deadlock["longest_held_seconds"] == 2.0


def test_the_one_doctored_live_verdict_is_the_one_disagreement(found: Found) -> None:
    assert found["table-1", "deadlock"]["disagreement_ids"] == ["table-1-0002"]
    assert {key: row["disagreements"] for key, row in found.items() if row["disagreements"]} == {
        ("table-1", "deadlock"): 1
    }


def test_stored_detectors_are_rebuilt_from_their_data_and_agree_with_the_live_ones(found: Found) -> None:
    conservation = found["bank-1", "conservation"]
    assert (conservation["evaluated"], conservation["live"]) == (7, 7)
    assert (conservation["held"], conservation["not_held"]) == (4, 3)
    assert conservation["longest_held_seconds"] == 4.0  # 0 to 4: the aborted snapshot 3 does not interrupt it
    assert conservation["went_back"] is None  # it does not claim to be stable


def test_termination_and_deadlock_are_evaluated_where_nobody_watched_live(found: Found) -> None:
    assert {name for run, name in found if run == "back-1"} == {"termination", "deadlock"}
    assert found["back-1", "termination"]["live"] == 0


def test_a_stable_predicate_that_went_back_is_told_with_both_snapshots(found: Found) -> None:
    back = found["back-1", "termination"]
    assert back["went_back"] == 1  # snapshot 2 began before snapshot 1 was completed: it may differ
    assert (back["went_back_from"], back["went_back_at"]) == ("back-1-0001", "back-1-0003")


@pytest.mark.parametrize("run", ["sent-1", "woke-1", "restored-1", "restarted-1"])
def test_stability_is_not_held_across_what_reaches_in_from_outside(found: Found, run: str) -> None:
    assert found[run, "termination"]["held"] >= 1
    assert found[run, "termination"]["went_back"] == 0


def test_the_rows_of_verdicts_say_what_the_detector_says(frames: dict[str, Any], history: Any) -> None:
    from ray_snapshot.detectors import Deadlock

    verdicts = rows(frames["verdicts"], "snapshot_id", "detector")
    for listed in history.snapshots(system="table"):
        snapshot_id = listed.snapshot_id
        verdict = Deadlock().evaluate(history.load(snapshot_id))
        row = verdicts[snapshot_id, "deadlock"]
        assert (row["holds"], row["sentence"], row["evaluator"]) == (verdict.holds, verdict.sentence, "spark")
        assert json.loads(row["evidence"]) == json.loads(json.dumps(verdict.evidence))


def test_aborted_snapshots_are_left_out(frames: dict[str, Any]) -> None:
    assert "bank-1-0003" not in {snapshot_id for snapshot_id, _ in rows(frames["verdicts"], "snapshot_id", "detector")}


@pytest.mark.nightly
def test_what_at_least_once_repeats_by_design_makes_answers_unknown_and_is_no_failure(
    spark: Any, tmp_path: Path
) -> None:
    from ray_snapshot.spark_jobs import detections

    channel = {"source": "a", "target": "b", "sent_count": 2, "accepted_count": 7, "duplicate_count": 5}
    given: dict[str, Any] = {"protocol": "at-least-once-barrier", "consistent": False, "channels": [channel]}
    balances = {"a": 100, "b": 205}
    machines = [{"machine": name, "state": {"balance": coins}} for name, coins in balances.items()]
    taken = [snapshot("flow-1", number, machines=machines, **given) for number in range(2)]
    found = detections.run(spark, write(tmp_path, taken, live(taken, BANK)))
    told = rows(found["detectors"], "detector")
    assert set(told) == {"conservation", "deadlock", "termination"}
    for row in told.values():
        names = ("evaluated", "unknown", "alarms", "failed", "disagreements")
        assert [row[name] for name in names] == [2, 2, 0, 0, 0]
    for verdict in rows(found["verdicts"], "detector", "snapshot_id").values():
        assert "by design: 5 messages from outside it are in it" in verdict["sentence"]


MINE = '''
import ray_snapshot as rs

@rs.detector(stable=True)
def many_orders(snapshot):
    return snapshot.in_flight_count > 5

@rs.detector(stable=False)
def broken(snapshot):
    raise ValueError("no such thing")

class Fewer:
    """Holds where less is in flight than in the snapshot before: it needs its run in order."""
    name, stable, alarm_when = "fewer", False, None
    def evaluate(self, snapshot, earlier=None):
        return None if earlier is None else snapshot.in_flight_count < earlier.in_flight_count
'''


def test_a_detector_of_the_users_own_is_evaluated_over_the_past(
    spark: Any, history: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from ray_snapshot.spark_jobs import detections
    from ray_snapshot.spark_jobs.tables import Selection

    (tmp_path / "my_detectors.py").write_text(MINE, encoding="utf-8")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    names = ["my_detectors:many_orders", "my_detectors:broken", "my_detectors:Fewer"]
    chosen = Selection(system="table")
    frames = detections.run(spark, history, selection=chosen, **detections.options(names))
    found = rows(frames["detectors"], "run_id", "detector")
    assert found["table-1", "many_orders"]["first_held"] == "table-1-0005"
    assert found["table-1", "broken"]["failed"] == found["table-1", "broken"]["unknown"] == 7
    assert (found["table-1", "fewer"]["unknown"], found["table-1", "fewer"]["not_held"]) == (1, 6)
    assert found["table-1", "deadlock"]["held"] == 3
    assert {run for run, _ in found} == {"table-1"}


def test_what_cannot_be_evaluated_again_is_reported_and_stops_nothing(spark: Any, tmp_path: Path) -> None:
    from ray_snapshot import Verdict
    from ray_snapshot.spark_jobs import detections

    def verdict(name: str, spec: dict[str, Any] | None) -> Verdict:
        return Verdict(detector=name, holds=True, snapshot_id="odd-1-0000", run_id="odd-1", detector_spec=spec)

    unknown = {"type": "from-the-future", "name": "future"}
    history = write(tmp_path / "odd", [snapshot("odd-1", 0)], [verdict("lambda", None), verdict("future", unknown)])
    found = rows(detections.run(spark, history)["detectors"], "detector")
    assert (found["lambda"]["live"], found["lambda"]["evaluated"]) == (1, 0)
    assert (found["future"]["failed"], found["future"]["disagreements"]) == (1, 1)
    assert found["termination"]["held"] == 1


def test_a_run_watched_for_whatever_total_it_began_with_is_evaluated_in_order(spark: Any, tmp_path: Path) -> None:
    from small_histories import live

    from ray_snapshot.detectors import TokenConservation
    from ray_snapshot.spark_jobs import detections

    sums = [5, 5, 4, 5]
    taken = [snapshot("pot-1", n, machines=[{"machine": "m", "state": {"tokens": sums[n]}}]) for n in range(4)]
    history = write(tmp_path / "pot", taken, live(taken, TokenConservation()))
    row = rows(detections.run(spark, history)["detectors"], "detector")["conservation"]
    assert (row["unknown"], row["held"], row["not_held"], row["disagreements"]) == (1, 2, 1, 0)


@pytest.mark.parametrize(
    "text", ["[" * 100_000 + "]" * 100_000, '{"found":' * 300 + "1" + "}" * 300, "no JSON", "[1]", '{"found":"1"}']
)
def test_data_that_no_writer_stores_compares_with_nothing(text: str) -> None:
    from ray_snapshot.spark_jobs import detections

    assert not detections._may_look_back(text)
