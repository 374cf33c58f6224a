"""The programs of README.md and docs/howto/witness.md, saved as they stand in `bank.py`: they run, and can be witnessed."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import ray_snapshot as rs
from ray_snapshot import testing

pytestmark = pytest.mark.contract

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/howto/witness.md")
BOUND_S = 300.0


def program(page: str) -> str:
    """The first program of a page."""
    found = re.search(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("page", PAGES)
def test_importing_the_program_starts_nothing(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules["ray_snapshot"].__dict__, "System", None)
    found: dict[str, Any] = {"__name__": "bank"}
    exec(compile(program(page), "bank.py", "exec"), found)
    assert issubclass(found["Account"], rs.SnapshotMixin)
    assert "trace=True" in program(page)
    if page == "README.md":
        assert testing.explore(found["build"], always=[found["money"]], never=["deadlock"]).ok


@pytest.mark.nightly
@pytest.mark.ray
@pytest.mark.parametrize("page", PAGES)
def test_the_program_runs_as_it_stands_and_what_it_did_is_proven(page: str, tmp_path: Path) -> None:
    (tmp_path / "bank.py").write_text(program(page))

    def run(*command: str) -> str:
        """As in a terminal of the user's; Ray's own variables for this computer are none of it."""
        bare = {"HOME": str(tmp_path), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
        done = subprocess.run(
            command, cwd=tmp_path, env=bare, text=True, capture_output=True, timeout=BOUND_S, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    run("python", "bank.py")
    said = run("ray-snapshot", "witness", "history/", "latest", "--module", "bank.py", "--svg", "run.svg")
    assert said.endswith("proven: the snapshot is a state that could have been.\n")
    assert (tmp_path / "run.svg").exists()
