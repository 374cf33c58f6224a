"""Deaths, restarts and errors of the coverage in words, and what they do to a verdict."""

from typing import Any

import pytest

import ray_snapshot as rs
from ray_snapshot import detectors
from ray_snapshot.detectors.happened import happened

AT = {"at": "2026-11-29T12:03:11+00:00", "class": "Model"}
RAISED = {"kind": "raised", "machine": "painter-1", "method": "paint", "error": "ZeroDivisionError", **AT}
DIED = {"kind": "died", "machine": "Embedder-0", "cause": "killed by ray.kill", **AT}
LOOP = {
    "kind": "restarting",
    "machine": "Model-0",
    "began": "2026-11-29T12:01:41+00:00",
    "count": 41,
    "method": "load",
    "call_site": "b10.py:10",
    "is_awaited": True,
    "is_seen": True,
    "is_each": True,
    "cause": "exit code 3",
    **AT,
}


def snapshot(*told: Any) -> rs.Snapshot:
    machines = [{"machine": "a", "status": "active"}, {"machine": "Model-0", "status": "passive"}]
    return rs.Snapshot.from_rows(machines=machines, coverage={"uncovered": [], "happened": list(told)})


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


def test_each_is_a_sentence() -> None:
    through = {"passed_through": [{"machine": "Pool-0", "method": "Pool.acquire"}]}
    assert happened(snapshot(RAISED | {"call_site": "paint.py:14"}, DIED | through, DIED, LOOP)) == [
        "painter-1.paint raised ZeroDivisionError at 12:03:11 (paint.py:14); nobody has read it",
        "Embedder-0, which had got through Pool.acquire of Pool-0, died at 12:03:11 (killed by ray.kill)",
        "Embedder-0 died at 12:03:11 (killed by ray.kill)",
        "Model-0 has been restarted 41 times in 90 s, each time inside Model.load (b10.py:10), exit code 3",
    ]
    last = LOOP | {"is_each": False}
    most = last | {"of_ends": [4, 5]}
    unseen = LOOP | {"is_seen": False, "call_site": ""}
    for one, words in (
        (last, "the last time inside Model.load (b10.py:10)"),
        (most, "4 of the last 5 times inside Model.load (b10.py:10)"),
        (unseen, "with Model.load to do"),
    ):
        assert happened(snapshot(one)) == [f"Model-0 has been restarted 41 times in 90 s, {words}, exit code 3"]


def test_a_restart_that_lost_no_call_is_told_where_something_hangs_alone() -> None:
    died = {"kind": "restarted", "machine": "Model-0", "cause": "exit code 70", "count": 2, **AT}
    lost = [{"method": "run", "caller": "driver"}]
    told = snapshot(died | {"lost": []}, died | {"lost": lost})
    again = "Model-0 died at 12:03:11 (exit code 70), and was restarted, 2 times so far"
    seen = f"{again}; it was last seen in Model.run, called by driver, for which nobody waits"
    assert happened(told) == [again, seen]
    assert detectors.Deadlock().evaluate(told).evidence["happened"] == [seen]


@pytest.mark.parametrize(
    "told", [None, 7, {}, {"kind": "died"}, DIED | {"at": "soon"}, DIED | {"kind": "new"}, LOOP | {"count": "x"}]
)
def test_what_is_of_another_form_is_left_out(told: Any) -> None:
    assert happened(snapshot(told, DIED)) == ["Embedder-0 died at 12:03:11 (killed by ray.kill)"]
    assert detectors.Deadlock().evaluate(snapshot(told)).holds is False


@pytest.mark.contract
def test_while_an_actor_is_started_again_and_again_it_cannot_be_told() -> None:
    found = detectors.Deadlock().evaluate(snapshot(LOOP, RAISED))
    assert (found.holds, found.evidence["depends_on"]) == (None, ["whether Model-0 stays alive"])
    assert found.sentence.startswith(
        "Deadlock cannot be told: Model-0 has been restarted 41 times in 90 s, each time in"
    )
    machines = [{"machine": "a", "status": "blocked"}]
    waits = [{"machine": "a", "alternative": 0, "k": 1, "on_machine": None, "satisfied": None}]
    unseen = rs.Snapshot.from_rows(
        machines=machines, waits=waits, coverage={"uncovered": ["Model-0"], "happened": [LOOP]}
    )
    doubted = detectors.Deadlock().evaluate(unseen)
    assert (doubted.holds, doubted.sentence) == (None, found.sentence), "not that Model-0 does not report"
    assert doubted.evidence["depends_on"][-1] == "whether Model-0 stays alive"
    assert detectors.Deadlock().evaluate(snapshot(RAISED, DIED, LOOP | {"is_awaited": False})).holds is False
