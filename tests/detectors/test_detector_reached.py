"""Reached, by hand: numbers and names of phases, who is behind, and what makes it unknown."""

from typing import Any

import pytest

from ray_snapshot import SettingError, Snapshot, Verdict
from ray_snapshot.detectors import Reached, from_spec

pytestmark = pytest.mark.contract

ROUND = Reached("$.round", 3)
NAMED = Reached("$.phase", "sorted", phases=["read", "sorted", "written"])


def judged(detector: Reached, *states: Any, **snapshot: Any) -> Verdict:
    machines = [{"machine": f"m{at}", "state": state} for at, state in enumerate(states)]
    snapshot.setdefault("coverage", {"uncovered": []})
    return detector.evaluate(Snapshot.from_rows(machines=[*machines, *snapshot.pop("machines", ())], **snapshot))


@pytest.mark.parametrize("phase", [3, 3.5, 10, {"$int": "100000000000000000000"}])
def test_a_number_is_reached_by_any_that_is_not_less(phase: Any) -> None:
    assert judged(ROUND, {"round": 3}, {"round": phase}).holds is True


def test_who_is_behind_is_named_with_its_phase() -> None:
    verdict = judged(ROUND, {"round": 4}, {"round": 1}, {"round": 2})
    assert verdict.holds is False
    assert verdict.evidence["behind"] == [{"machine": "m1", "phase": 1}, {"machine": "m2", "phase": 2}]
    assert verdict.sentence == "3 is not reached: m1, m2 are behind (m1 is at 1)."


def test_names_of_phases_are_compared_by_their_order_and_the_last_is_the_default() -> None:
    assert judged(NAMED, {"phase": "written"}, {"phase": "sorted"}).holds is True
    assert judged(NAMED, {"phase": "read"}).holds is False
    assert Reached("$.phase", phases=["a", "b"]).value == "b"


@pytest.mark.parametrize("state", [{}, {"phase": None}, {"phase": "lost"}, {"phase": 1}, None])
def test_a_phase_that_is_none_makes_it_unknown_unless_somebody_is_behind(state: Any) -> None:
    verdict = judged(NAMED, {"phase": "written"}, state)
    assert verdict.holds is None
    assert verdict.evidence["unknown"][0].startswith("m1: ")
    assert judged(NAMED, {"phase": "read"}, state).holds is False


def test_a_state_that_was_cut_off_makes_it_unknown() -> None:
    large = {"round": 5, "text": "x" * 9_000_000}
    assert judged(ROUND, large).holds is None


def test_only_those_count_that_are_named_or_are_of_the_class() -> None:
    others = [{"machine": "x", "class_name": "Other", "state": {"round": 0}}]
    assert judged(Reached("$.round", 3, machines="m*"), {"round": 3}, machines=others).holds is True
    assert judged(Reached({"Machine": "$.round"}, 3), {"round": 3}, machines=others).holds is True
    assert judged(ROUND, {"round": 3}, machines=others).holds is False


def test_the_driver_has_no_phase() -> None:
    assert judged(ROUND, {"round": 3}, machines=[{"machine": "driver", "state": None}]).holds is True


def test_of_nobody_and_of_those_not_there_nothing_is_known() -> None:
    assert judged(ROUND).holds is None
    assert judged(Reached("$.round", 3, machines=["m0", "m7"]), {"round": 3}).evidence["unknown"] == [
        "m7 is not recorded"
    ]
    coming = [{"source": "m0", "target": "m1", "method": "__init__", "number": 0}]
    assert judged(ROUND, {"round": 3}, messages=coming).evidence["unknown"] == ["m1 is being created"]


def test_what_was_not_observed_makes_it_unknown_unless_exact_names_are_given() -> None:
    unseen = {"coverage": {"uncovered": ["plain tasks"]}}
    assert judged(ROUND, {"round": 3}, **unseen).holds is None
    assert judged(Reached("$.round", 3, machines=["m0"]), {"round": 3}, **unseen).holds is True


@pytest.mark.parametrize(
    "settings",
    [
        {"value": None},
        {"value": "done"},
        {"value": "c", "phases": ["a", "b"]},
        {"phases": []},
        {"phases": "ab"},
        {"phases": ["a", "a"]},
        {"value": 1, "machines": []},
    ],
)
def test_settings_that_say_nothing_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(SettingError):
        Reached("$.phase", **settings)


def test_it_is_named_by_what_it_was_given_unless_it_is_given_a_name() -> None:
    assert [Reached("$.round", goal).name for goal in (1, 2)] == ["reached($.round,1)", "reached($.round,2)"]
    assert Reached({"Worker": "$.round"}, 2, machines="w-*").name == "reached(Worker:$.round,2,w-*)"
    assert Reached("$.phase", phases=["a", "b"]).name == "reached($.phase,b)"
    assert Reached("$.round", 2, name="mine").name == from_spec(Reached("$.round", 2, name="mine").spec).name == "mine"
    stored = {"type": "reached", "name": "reached", "state": "$.round", "value": 2, "phases": None, "machines": None}
    assert from_spec(stored).name == "reached"
    assert from_spec(ROUND.spec).spec == ROUND.spec
