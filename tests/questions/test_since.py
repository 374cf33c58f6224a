"""`questions.since`: live verdicts over a run."""

from pathlib import Path
from typing import Any

import pytest
from asked_histories import BEGIN, column, judged, snapshot, write

from ray_snapshot import Snapshot, Verdict
from ray_snapshot.detectors import Termination
from ray_snapshot.errors import HistoryNotFoundError
from ray_snapshot.history import History
from ray_snapshot.questions import since


def quiet(sequence: int, *, done: bool, **more: Any) -> Snapshot:
    """A snapshot on which termination holds iff `done`; its driver waits."""
    machines = [
        {"machine": "worker", "status": "passive" if done else "active"},
        {"machine": "driver", "status": "passive", "state": None, "sent_count": 1},
    ]
    return snapshot("work-1", sequence, machines=machines, **more)


def found(history: History) -> dict[str, dict[str, Any]]:
    return {row["detector"]: row for row in since(history)["detectors"].to_pylist()}


def test_the_present_answer_is_told_with_the_snapshot_since_which_it_stands(tmp_path: Path) -> None:
    taken = [quiet(n, done=n in (1, 4, 5, 6)) for n in range(7)]
    row = found(write(tmp_path / "h", taken, judged(taken, Termination())))["termination"]
    assert (row["holds"], row["since_id"], row["since_seconds"], row["last_id"]) == (
        *(True, "work-1-0004", 2.0),
        "work-1-0006",
    )
    assert (row["first_held"], row["first_held_seconds"], row["longest_held_seconds"]) == ("work-1-0001", 0.0, 2.0)
    assert (row["since_at"] - BEGIN).total_seconds() == 4
    assert (row["evaluated"], row["held"], row["not_held"], row["unknown"]) == (7, 4, 3, 0)


def test_a_stable_predicate_that_went_back_is_told_unless_something_reached_in(tmp_path: Path) -> None:
    taken = [quiet(0, done=True), quiet(1, done=False)]
    row = found(write(tmp_path / "back", taken, judged(taken, Termination())))["termination"]
    assert (row["went_back"], row["went_back_from"], row["went_back_at"]) == (1, "work-1-0000", "work-1-0001")
    taken = [quiet(0, done=True), quiet(1, done=False, restored_from="work-1-0000")]
    row = found(write(tmp_path / "restored", taken, judged(taken, Termination())))["termination"]
    assert (row["went_back"], row["went_back_from"]) == (0, None)


def test_an_answer_does_not_stand_across_a_restore(tmp_path: Path) -> None:
    taken = [quiet(0, done=True), quiet(1, done=True, restored_from="work-1-0000")]
    row = found(write(tmp_path / "h", taken, judged(taken, Termination())))["termination"]
    assert (row["since_id"], row["longest_held_seconds"]) == ("work-1-0001", 0.0)


def said(sequence: int, detector: str, holds: bool | None, **more: Any) -> Verdict:
    return Verdict(detector=detector, snapshot_id=f"work-1-{sequence:04d}", run_id="work-1", holds=holds, **more)


@pytest.mark.contract
def test_of_code_that_the_history_names_nothing_is_imported_and_its_answers_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "imported"
    (tmp_path / "named_by_a_history.py").write_text(f"open({str(mark)!r}, 'w')\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    spec = {"type": "callable", "name": "named_by_a_history:detector"}
    verdicts = [said(n, "own", n == 1, alarm=n == 1, detector_spec=spec) for n in range(2)]
    row = found(write(tmp_path / "h", [quiet(n, done=False) for n in range(2)], verdicts))["own"]
    assert not mark.exists()
    assert (row["stable"], row["alarm_when"], row["went_back"]) == (None, None, None)
    assert (row["alarms"], row["alarm"], row["rank"]) == (1, True, 2)


@pytest.mark.contract
def test_what_alarms_comes_first_and_the_latest_of_two_verdicts_counts(tmp_path: Path) -> None:
    verdicts = [said(0, "a", True), said(0, "b", False, alarm=True), said(0, "c", None), said(0, "c", False)]
    verdicts += [said(0, "d", True, evaluator="spark")]
    detectors = since(write(tmp_path / "h", [quiet(0, done=False)], verdicts))["detectors"]
    assert column(detectors, "detector") == ["b", "a", "c"], "only what was said live"
    assert column(detectors, "holds") == [False, True, False]
    assert column(detectors, "disagreements") == [None] * 3


@pytest.mark.contract
def test_a_detector_that_raised_is_told_with_what_it_raised_first(tmp_path: Path) -> None:
    verdicts = [said(n, "own", None, evidence={"error": f"KeyError: {n}"}) for n in range(2)]
    row = found(write(tmp_path / "h", [quiet(n, done=False) for n in range(2)], verdicts))["own"]
    assert (row["failed"], row["failure"], row["unknown"]) == (2, "KeyError: 0", 2)


@pytest.mark.contract
def test_one_detector_alone_can_be_asked_for(tmp_path: Path) -> None:
    history = write(tmp_path / "h", [quiet(0, done=False)], [said(0, "a", True), said(0, "b", True)])
    assert column(since(history, detector="b", run="work")["detectors"], "detector") == ["b"]
    with pytest.raises(HistoryNotFoundError, match="detector 'z'"):
        since(history, detector="z")
