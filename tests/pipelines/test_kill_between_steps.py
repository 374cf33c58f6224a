"""A process ends at any change that a sink makes to its output: nothing shows twice, nothing too early, and nothing is lost.

The moments are found, not listed: see `kill_steps`.
"""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from clean import ran

SCRIPT = str(Path(__file__).with_name("kill_steps.py"))
ROWS = list(range(20))


def steps(scenario: str, kind: str, folder: Path) -> list[dict[str, Any]]:
    command = [sys.executable, SCRIPT, scenario, kind, str(folder)]
    done = ran(*command, seconds=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.mark.parametrize("kind", ["folder", pytest.param("delta", marks=pytest.mark.nightly)])
def test_a_sink_that_is_killed_between_any_two_steps_of_its_commits_shows_everything_once(
    kind: str, tmp_path: Path
) -> None:
    found = steps("commits", kind, tmp_path)
    assert len(found) >= 18
    for step in found:
        assert step["code"] == 9, step
        left = step["left"]
        assert left["rows"] == ROWS[: len(left["rows"])], step
        assert len(left["rows"]) <= left["kept"], f"something shows that no snapshot held: {step}"
        assert step["restarted"]["rows"] == ROWS, step
        if left["kept"]:  # else it began anew, under another name: what it had staged is left lying
            assert step["restarted"]["waiting"] == [], step


@pytest.mark.parametrize(
    "kind", [pytest.param("folder", marks=pytest.mark.nightly), pytest.param("delta", marks=pytest.mark.nightly)]
)
def test_a_sink_that_is_killed_while_it_takes_back_what_a_later_past_had_shown_shows_everything_once(
    kind: str, tmp_path: Path
) -> None:
    found = steps("goes-back", kind, tmp_path)
    assert len(found) >= {"folder": 18, "delta": 13}[kind]  # a Delta log takes back and shows in one commit
    for step in found:
        assert step["code"] == 9, step
        rows = step["left"]["rows"]
        assert sorted(set(rows)) == rows, step
        assert step["restarted"] == {"rows": ROWS, "waiting": []}, step
