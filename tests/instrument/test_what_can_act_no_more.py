"""Two couriers hang at full queues: told where nothing else can act any more, and never told where something can."""

from __future__ import annotations

from pathlib import Path

import pytest
from app_runner import Runner

import ray_snapshot as rs

pytestmark = [pytest.mark.ray, pytest.mark.contract]

BY_NIGHT = ("named_queue", "running_task")
MAY_ACT = ("handle_in_a_file", "woken_thread")
"""The other ways are tried without Ray, in `test_verdicts_from_ledgers` and beside it."""


@pytest.mark.nightly
@pytest.mark.parametrize(
    "scenario", ["all_of_these", *(pytest.param(name, marks=pytest.mark.nightly) for name in BY_NIGHT)]
)
def test_what_can_act_no_more_does_not_hide_a_deadlock(runner: Runner, scenario: str) -> None:
    done = runner.command("run", "--every", "0.5", "--exit-on", "deadlock", "couriers.py", scenario)
    assert done.exit_code == 3, done.errors
    report = done.errors[done.errors.index("ray-snapshot: deadlock in ") :]
    assert "Courier-0 in Courier.deliver" in report
    assert "in _QueueActor.put" in report


@pytest.mark.parametrize(
    ("scenario", "answer"),
    [
        pytest.param("task_with_a_handle", False, marks=pytest.mark.nightly),
        *(pytest.param(name, None, marks=pytest.mark.nightly) for name in MAY_ACT),
    ],
)
def test_what_may_still_act_is_never_taken_for_a_deadlock(
    runner: Runner, tmp_path: Path, scenario: str, answer: bool | None
) -> None:
    """What a task may do is known, for it is a machine; what a thread, or a handle in a file may, is not."""
    options = ["--every", "0.25", "--exit-on", "deadlock", "--history", str(tmp_path / "history")]
    done = runner.command("run", *options, "couriers.py", scenario)
    assert done.exit_code == 0, done.errors
    answers = [row["holds"] for row in rs.History(tmp_path / "history").verdicts() if row["detector"] == "deadlock"]
    assert answers.count(answer) >= 3, "hardly looked at while they hang"
    assert True not in answers
