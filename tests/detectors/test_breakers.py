"""Who may break a deadlock from outside: only what can move, and has a handle or a ref of what is stuck."""

from typing import Any

import pytest
from calls_by_hand import App

from ray_snapshot import Verdict

pytestmark = pytest.mark.contract


def judged(ended_by: Any, *, watchdog: str = "active", uncovered: tuple[str, ...] = ()) -> Verdict:
    """A-0 and A-1 wait for each other; `W-0` does what its status says."""
    app = App().actor("A-0").actor("A-1").actor("W-0", status=watchdog)
    both, ask = app.runs("A-0", "driver", "both"), app.runs("A-1", "A-0", "ask")
    app.waits_for(both, ask).waits_for(ask, app.queues("A-0", "A-1", "answer"))
    app.coverage = {"uncovered": list(uncovered), "ended_by": ended_by}
    found = app.verdict()
    assert found.holds is True
    return found


@pytest.mark.parametrize(
    ("ended_by", "watchdog", "by"),
    [
        ({"A-0": ["W-0"], "A-1": []}, "active", ["W-0"]),
        ({"A-0": ["driver"], "A-1": ["W-0"]}, "active", ["W-0"]),
        ({"A-0": ["W-0"], "A-1": ["W-0"]}, "passive", []),
        ({"A-0": ["driver"], "A-1": ["A-0"]}, "active", []),
        ({"A-0": None, "A-1": []}, "active", ["W-0"]),
        ({"A-0": None, "A-1": []}, "passive", []),
        ({"A-0": ["driver/0/W-0/7"], "A-1": []}, "active", ["W-0"]),
        ({}, "active", ["W-0"]),
        ({"A-0": [], "A-1": []}, "active", []),
    ],
    ids=["it acts and has a handle", "of either", "it rests, and nothing wakes it", "only those that are stuck themselves",
         "anything may have one", "anything, and nothing acts", "by a task that is to begin", "nothing is told of it",
         "nobody"],
)  # fmt: skip
def test_who_acts_and_has_a_handle_may_break_it(ended_by: Any, watchdog: str, by: list[str]) -> None:
    assert judged(ended_by, watchdog=watchdog).evidence["may_be_broken_by"] == by


def test_what_is_not_observed_may_always_break_it() -> None:
    found = judged({"A-0": [], "A-1": []}, uncovered=("thread Thread-1 of driver",))
    assert found.evidence["may_be_broken_by"] == ["thread Thread-1 of driver"]


def test_calls_have_their_ids_and_their_times_only_where_deadlocks_are_to_be_broken() -> None:
    calls = [one["call"] for one in judged({}).evidence["members"]]
    assert calls == ["driver/0/A-0/1", "A-0/0/A-1/2"]
    without = judged("what a stranger wrote")
    assert "may_be_broken_by" not in without.evidence
