"""Passive machines of which it is known who can wake them: at rest they are nobody's deadlock, between others they count."""

from typing import Any

import pytest

from ray_snapshot import Snapshot, Verdict
from ray_snapshot.detectors import Deadlock, Termination

pytestmark = pytest.mark.contract


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


# ---- half a join of which nobody has said who sends the rest -----------------------------------------------------------


def half(*names: str, **more: Any) -> dict[str, Any]:
    """Philosophers with a left fork each."""
    return {
        "messages": [{"source": "driver", "target": name, "method": "left"} for name in names],
        "coverage": {"uncovered": [], "undeclared": dict.fromkeys(names, "eat (lacks right)"), **more},
    }


def passive(*names: str) -> list[dict[str, Any]]:
    return [{"machine": name, "status": "passive"} for name in names]


def test_where_nobody_can_act_half_a_join_may_be_a_wait_for_it_is_not_known_and_the_remedy_is_told() -> None:
    names_ = [f"p{at}" for at in range(6)]
    verdict = judged(*passive(*names_, "driver"), **half(*names_))
    assert (verdict.holds, verdict.alarm) == (None, False)
    assert verdict.sentence == (
        "Deadlock cannot be told: p0, p1, p2, p3, p4 and 1 more hold a part of a join and lack the rest (the first has begun"
        " eat (lacks right)), and it is not known from whom: declare who sends to each port by system.connect(source, target,"
        " port=...)."
    )
    assert names(verdict.evidence["members"]) == names_
    assert verdict.evidence["depends_on"][0] == "who sends to p0, which has begun eat (lacks right)"


def test_while_somebody_can_act_the_rest_may_still_come() -> None:
    verdict = judged(*passive("p0"), {"machine": "driver", "status": "active"}, **half("p0"))
    assert verdict.holds is False
    assert "p0 holds a part of a join and lacks the rest, and driver can act and may still send it" in verdict.sentence
    one_more = half("p0")
    one_more["messages"].append({"source": "driver", "target": "q"})
    assert judged(*passive("p0", "q"), **one_more).holds is False


def test_a_deadlock_of_others_is_one_whoever_holds_half_a_join() -> None:
    verdict = judged(*passive("p0"), blocked("a", "b"), blocked("b", "a"), **half("p0"))
    assert verdict.holds is True
    assert names(verdict.evidence["members"]) == ["a", "b"]


def test_who_waits_for_one_that_holds_half_a_join_is_not_known_to_be_stuck() -> None:
    verdict = judged(*passive("p0"), blocked("a", "p0"), **half("p0"))
    assert verdict.holds is None
    assert "; a can move only by what was not observed: what these will do." in verdict.sentence
    unseen = half("p0", uncovered=["plain tasks"])
    assert judged(*passive("p0"), blocked("a", "p0"), **unseen).holds is None
    assert judged(*passive("p0"), **unseen).holds is None


def test_half_a_join_is_no_end_of_a_group_and_not_termination() -> None:
    for detector in (Termination(), Termination(machines=["p0"])):
        assert judged(*passive("p0"), detector=detector, **half("p0")).holds is False
    assert judged(*passive("p0", "x"), detector=Termination(machines=["x"]), **half("p0")).holds is None
