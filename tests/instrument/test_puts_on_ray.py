"""What was put into the store is there: it hides no deadlock, and makes no healthy program one that cannot be told."""

from __future__ import annotations

from pathlib import Path

import pytest
from app_runner import Runner

import ray_snapshot as rs

pytestmark = [pytest.mark.ray, pytest.mark.contract]

DEADLOCKED = 3


@pytest.mark.nightly
def test_a_program_that_waits_among_what_was_put_is_told_to_be_healthy(runner: Runner, tmp_path: Path) -> None:
    history = tmp_path / "h"
    options = ("--every", "0.25", "--detect", "deadlock", "--history", str(history), "--name", "puts")
    done = runner.command("run", *options, "puts.py", "healthy")
    assert done.output == "[1, 1] 1\n['mine', \"the keeper's\", 1] 3\n[3, 3]\n", done.errors
    found = rs.History(history).verdicts()
    assert len(found) >= 5, "hardly looked at"
    assert [one.sentence for one in found if one.holds is not False] == []


@pytest.mark.nightly
@pytest.mark.parametrize("scenario", ["deadlock", "deadlock_behind_another"])
def test_a_deadlock_is_found_though_each_has_something_that_was_put(
    runner: Runner, tmp_path: Path, scenario: str
) -> None:
    options = ("--every", "0.5", "--exit-on", "deadlock", "--name", scenario, "--history", str(tmp_path / "h"))
    done = runner.command("run", *options, "puts.py", scenario)
    assert done.exit_code == DEADLOCKED, done.errors
    assert "prepare-0 in prepare (puts.py:" in done.errors
    assert "Trainer-0 in Trainer.go (puts.py:" in done.errors
    assert ("waits for slow" in done.errors) is (scenario == "deadlock_behind_another")
