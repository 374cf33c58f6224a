"""The stack of a child process that a wait is on, or why there is none. No Ray."""

import re
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from clean import clean_environment
from started import started

from ray_snapshot import Snapshot
from ray_snapshot.instrument.diagnosis import stack_lines
from ray_snapshot.instrument.process.kernel_waits import described_child
from ray_snapshot.unprepared.children import stacks_of_children

TAKEN = datetime(2026, 3, 1, 10, 0, 42, tzinfo=UTC)

PROGRAM = """
def generate():
    print("ready", flush=True)
    input()

def main():
    generate()

main()
"""


@pytest.fixture
def child(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    (tmp_path / "engine.py").write_text(PROGRAM)
    with started([sys.executable, tmp_path / "engine.py"], env=clean_environment(), takes_input=True) as found:
        assert found.stdout is not None
        found.stdout.readline()
        yield found
        found.communicate("")


def _lines(about: str) -> list[str]:
    wait = {
        "machine": "Rank-0",
        "call_site": "app.py:7",
        "since": TAKEN.isoformat(),
        "what": f"in subprocess.Popen.wait, for {about}",
    }
    coverage = {"uncovered": [], "unexplained": [wait]}
    snapshot = Snapshot.from_rows(
        machines=[{"machine": "Rank-0", "status": "active"}], coverage=coverage, started_at=TAKEN
    )
    told = stacks_of_children(snapshot)
    return stack_lines({machine: [one] for machine, one in told}, with_locals=False)


def test_the_lines_of_a_child_stand_with_its_parent_or_why_they_cannot_be_read(child: subprocess.Popen[str]) -> None:
    line = _lines(described_child(child.pid))[1]
    is_read = re.search(r"generate \(\S*engine\.py:[34]\) < main \(", line)
    assert line.startswith(f"    Rank-0, child process {child.pid} (")
    assert is_read or "whose stack py-spy does not show: " in line


def test_a_process_of_another_name_is_not_looked_at(child: subprocess.Popen[str]) -> None:
    told = _lines(
        f"child process {child.pid} (another), which is alive: begun at 10:00:00 UTC, 0.0 s of processor time"
    )
    why = "whose stack py-spy does not show: it is not on this machine, or has ended"
    assert told == ["  called from:", f"    Rank-0, child process {child.pid} (another), {why}"]
