"""Passive machines of which it is known who can wake them: at rest they are nobody's deadlock, between others they count."""

from __future__ import annotations

from typing import Any

from ray_snapshot import Snapshot, Verdict
from ray_snapshot.detectors import Deadlock, Termination


def at_rest(name: str, *sources: str) -> dict[str, Any]:
    return {"machine": name, "status": "passive", "sources": sources}


def blocked(name: str, *on: str) -> dict[str, Any]:
    return {"machine": name, "status": "blocked", "sources": on}


def judged(*machines: dict[str, Any], messages: Any = (), detector: Any = None, **snapshot: Any) -> Verdict:
    waits = [
        {"machine": row["machine"], "on_machine": name, "k": 1, "satisfied": False}
        for row in machines
        for name in row.pop("sources", ())
    ]
    taken = Snapshot.from_rows(machines=machines, waits=waits, messages=messages, **snapshot)
    return (detector or Deadlock()).evaluate(taken)


def names(records: list[dict[str, Any]]) -> list[str]:
    return [record["machine"] for record in records]


def test_machines_at_rest_that_only_wait_for_each_other_are_done_and_not_stuck() -> None:
    ring = at_rest("a", "b"), at_rest("b", "a")
    assert judged(*map(dict, ring)).holds is False
    assert judged(*map(dict, ring), detector=Termination()).holds is True


def test_who_waits_for_one_at_rest_that_nobody_can_wake_is_stuck_whatever_others_do() -> None:
    verdict = judged(blocked("a", "b"), at_rest("b", "a"), {"machine": "busy", "status": "active"})
    assert verdict.holds is True
    assert names(verdict.evidence["members"]) == ["a", "b"]
    assert verdict.evidence["cycle"] == ["a", "b"]
    assert verdict.sentence == "Deadlock: a waits for b, b waits for a; 2 machines can never move again."


def test_one_at_rest_is_woken_by_its_sources_only() -> None:
    busy = {"machine": "busy", "status": "active"}
    assert judged(blocked("a", "b"), at_rest("b", "busy"), dict(busy)).holds is False
    assert judged(blocked("a", "b"), {"machine": "b", "status": "passive"}, dict(busy)).holds is False
    assert judged(blocked("a", "b"), at_rest("b", "c"), at_rest("c", "b"), dict(busy)).holds is True


def test_one_at_rest_for_whom_nobody_stuck_waits_is_no_part_of_the_deadlock() -> None:
    verdict = judged(blocked("a", "b"), blocked("b", "a"), at_rest("c", "a"), at_rest("d", "c"))
    assert names(verdict.evidence["members"]) == ["a", "b"]
    assert verdict.evidence["stuck_behind"] == []


def test_the_core_may_be_one_at_rest_behind_which_others_are_stuck() -> None:
    verdict = judged(blocked("a", "b"), at_rest("b", "c"), {"machine": "c", "status": "stopped"})
    assert verdict.holds is True
    assert names(verdict.evidence["members"]) == ["b"]
    assert names(verdict.evidence["stuck_behind"]) == ["a"]
    assert "b waits for c (c is stopped)" in verdict.sentence


def test_a_message_in_flight_to_one_at_rest_lets_it_move() -> None:
    message = {"source": "x", "target": "b"}
    assert judged(blocked("a", "b"), at_rest("b", "a"), messages=[message]).holds is False


def test_what_was_not_observed_wakes_only_those_whose_sources_are_not_declared() -> None:
    unseen = {"coverage": {"uncovered": ["plain tasks"]}}
    assert judged(blocked("a", "b"), at_rest("b", "a"), **unseen).holds is True
    assert judged(blocked("a", "b"), {"machine": "b", "status": "passive"}, **unseen).holds is None
