"""Tasks, actors and placement groups that wait for room on a node: who can never get any is found, who may is not reported."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from app_runner import Done, Runner

import ray_snapshot as rs

pytestmark = [pytest.mark.ray, pytest.mark.contract]

DEADLOCKED = 3
by_night = pytest.mark.nightly


def _run(runner: Runner, scenario: str, history: Path, *more: str) -> Done:
    options = ("--every", "0.5", "--history", str(history), "--detect", "deadlock", "--name", scenario, *more)
    done = runner.command("run", *options, "rooms.py", scenario)
    assert "fault of ours" not in done.errors
    return done


FOUND = {
    "last_cpu": ["Trainer-0 in Trainer.go", "prepare(), not begun, needs CPU 1, and Trainer-0 holds CPU "],
    "own_seat": ["prepare(), not begun, needs CPU 1, ", "Trainer-0 holds node:__internal_head__ 1 of 1"],
    "creation": ["Trainer-0 in Trainer.make", "Trainer-1 (ping), not begun, needs CPU 1, "],
    "two_groups": [
        "Owner-0 in Owner.take",
        "Owner-1 in Owner.take",
        "Owner-0 holds node:__internal_head__ 0.5 of 1 by",
    ],
    "nested": ["outer-0 in outer", "and outer-0 holds node:__internal_head__ 1 of 1"],
    "nowhere": ["prepare(), not begun, needs CPU 1, nowhere 1, and no node has more than nowhere 0"],
    "at_rest": ["prepare(), not begun, needs CPU 1, ", "Trainer-0 holds node:__internal_head__ 1 of 1"],
}


@pytest.mark.parametrize("scenario", [one if one == "last_cpu" else pytest.param(one, marks=by_night) for one in FOUND])
def test_who_can_never_get_room_is_found_with_what_it_needs_and_who_holds_it(
    runner: Runner, tmp_path: Path, scenario: str
) -> None:
    done = _run(runner, scenario, tmp_path / "h", "--exit-on", "deadlock")
    assert done.exit_code == DEADLOCKED, done.errors
    for text in FOUND[scenario]:
        assert text in done.errors
    assert "to do: " in done.errors


@pytest.mark.nightly
@pytest.mark.parametrize(
    "scenario",
    [
        "given_up",
        *(
            pytest.param(one, marks=by_night)
            for one in (
                "freed_by_collection",
                "taken_back",
                "freed_by_a_task",
                "freed_by_a_watchdog",
                "freed_by_another",
                "freed_by_itself",
                "freed_by_who_is_to_come",
                "groups_in_turn",
            )
        ),
    ],
)
def test_who_may_yet_get_room_is_not_reported(runner: Runner, tmp_path: Path, scenario: str) -> None:
    done = _run(runner, scenario, tmp_path / "h")
    history = rs.History(tmp_path / "h")
    assert (done.exit_code, done.output.splitlines()[-1]) == (0, "the end"), done.errors
    assert [one.sentence for one in history.verdicts() if one.holds] == []
    waited = [row for row in history.snapshots() if "demands" in json.dumps(row["coverage"])]
    assert waited, "no snapshot was taken while anything waited for room"
