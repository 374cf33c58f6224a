"""Waits that have lasted for long for an object that no watched call gives: nobody can tell whether it comes."""

from datetime import UTC, datetime
from typing import Any

import pytest

from ray_snapshot import Snapshot, Verdict
from ray_snapshot.detectors import Deadlock, Termination
from ray_snapshot.instrument.diagnosis import UNKNOWN, diagnosis

BEGAN = "2026-03-01T10:00:00+00:00"
TAKEN = datetime(2026, 3, 1, 10, 0, 42, tzinfo=UTC)
OBJECT = {"machine": "reader", "call_site": "app.py:7", "since": BEGAN}
READER = {"machine": "reader", "status": "active"}


def taken(*machines: dict[str, Any], waits: Any = (), objects: Any = (OBJECT,)) -> Snapshot:
    coverage = {"uncovered": [], "unexplained": list(objects)}
    return Snapshot.from_rows(machines=machines, waits=waits, coverage=coverage, started_at=TAKEN)


def judged(*machines: dict[str, Any], **rows: Any) -> Verdict:
    return Deadlock().evaluate(taken(*machines, **rows))


@pytest.mark.contract
def test_while_nothing_else_is_stuck_it_is_not_known_whether_anything_is() -> None:
    verdict = judged(READER)
    assert (verdict.holds, verdict.alarm) == (None, False)
    assert verdict.sentence == (
        "Deadlock cannot be told: reader (app.py:7) has waited for 42 s for an object that no watched call gives."
    )
    assert verdict.evidence["depends_on"] == ["what ends the wait of reader for an object that no watched call gives"]
    assert judged(READER, objects=()).holds is False


@pytest.mark.contract
def test_nor_of_those_that_wait_for_who_waits_so() -> None:
    caller = {"machine": "caller", "status": "blocked"}
    verdict = judged(READER, caller, waits=[{"machine": "caller", "on_machine": "reader", "k": 1, "satisfied": False}])
    assert verdict.holds is None


@pytest.mark.contract
def test_a_deadlock_of_others_is_one_all_the_same() -> None:
    pair = ("a", "b"), ("b", "a")
    stuck = [{"machine": name, "status": "blocked"} for name, _ in pair]
    waits = [{"machine": name, "on_machine": on, "k": 1, "satisfied": False} for name, on in pair]
    assert judged(READER, *stuck, waits=waits).holds is True


@pytest.mark.contract
def test_one_without_a_place_is_told_without_it() -> None:
    assert "reader has waited for 42 s" in judged(READER, objects=[{**OBJECT, "call_site": ""}]).sentence


def test_the_diagnosis_draws_it_says_what_to_do_and_is_not_healthy() -> None:
    found = diagnosis(taken(READER))
    assert found.exit_code == UNKNOWN
    assert "      waits for an object that no watched call gives (app.py:7) for 42 s" in found.lines
    assert any(line.startswith("  to do: No watched call gives what was made before") for line in found.lines)
    opening = diagnosis(taken(READER, objects=[{**OBJECT, "what": "for the opening of /pipe"}])).lines
    assert any(line.startswith("  to do: Open its other end, too, if that is a named pipe") for line in opening)


@pytest.mark.parametrize(
    ("what", "line"),
    [
        ("in queue.Queue.get", "waits in queue.Queue.get (app.py:7) for 42 s"),
        (
            "in subprocess.Popen.wait, for child process 17 (sleep), which is alive",
            "waits in subprocess.Popen.wait (app.py:7), for child process 17 (sleep), which is alive, for 42 s",
        ),
    ],
)
def test_the_tree_says_what_a_wait_outside_of_ray_is_in(what: str, line: str) -> None:
    lines = diagnosis(taken(READER, objects=[{**OBJECT, "what": what}])).lines
    assert f"      {line}" in lines
    assert not any("not recorded" in one for one in lines)


@pytest.mark.parametrize(
    "told",
    [
        5,
        "abc",
        [5],
        [{}],
        {"a": 1},
        [{**OBJECT, "since": "junk"}],
        [{**OBJECT, "since": 5}],
        [{**OBJECT, "machine": None}],
    ],
)
def test_a_strangers_list_of_another_form_is_none(told: Any) -> None:
    snapshot = Snapshot.from_rows(machines=[READER], coverage={"uncovered": [], "unexplained": told}, started_at=TAKEN)
    found = diagnosis(snapshot)
    assert found.verdicts[0].holds is False
    assert "  nothing waits for anything" in found.lines


@pytest.mark.contract
def test_a_time_without_a_zone_is_universal_time() -> None:
    assert "has waited for 42 s" in judged(READER, objects=[{**OBJECT, "since": BEGAN.partition("+")[0]}]).sentence


@pytest.mark.contract
@pytest.mark.parametrize("machines", [[READER], [{"machine": "reader", "status": "passive"}]])
def test_termination_goes_by_statuses_alone(machines: list[dict[str, Any]]) -> None:
    assert Termination().evaluate(taken(*machines)).holds is (machines[0]["status"] == "passive")
