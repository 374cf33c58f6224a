"""Where the watching cannot start, the program runs as it does without us, and one line on stderr says why."""

from __future__ import annotations

from pathlib import Path

import pytest
from app_runner import Runner

import ray_snapshot as rs

pytestmark = pytest.mark.contract

APP = """
import ray

@ray.remote(num_cpus=0)
class Counter:
    def add(self, number):
        self.sum = getattr(self, "sum", 0) + number
        return self.sum

ray.init()
counter = Counter.remote()
print(ray.get([counter.add.remote(number) for number in (1, 2)]))
"""

INSTALLED = "import sys; import ray_snapshot as rs; rs.install(history=sys.argv[1])\n" + APP


def broken_history(folder: Path) -> str:
    """A folder that may be written to, in which the watcher cannot open a history."""
    log = folder / "history" / "snapshots" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("no commit\n")
    return str(folder / "history")


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize("way", ["run", "install"])
def test_a_program_whose_watching_cannot_start_runs_unwatched_and_one_line_says_why(
    runner: Runner, tmp_path: Path, way: str
) -> None:
    history, program = broken_history(tmp_path), tmp_path / "app.py"
    program.write_text(APP if way == "run" else INSTALLED)
    watched = ("run", "--history", history, str(program))
    done = runner.command(*watched) if way == "run" else runner.plain(str(program), history)
    assert (done.exit_code, done.output) == (0, "[1, 3]\n"), done.errors
    (said,) = [line for line in done.errors.splitlines() if line.startswith("ray-snapshot: ")]
    assert said.startswith("ray-snapshot: nothing is watched: ")
    assert history in said
    assert "Traceback" not in done.errors


def test_a_setting_that_does_not_exist_is_an_error_of_install_itself() -> None:
    with pytest.raises(rs.SettingError, match="evry"):
        rs.install(evry=1.0)  # type: ignore[call-arg]
    with pytest.raises(rs.SettingError, match="trace"):
        rs.install(trace=True)  # type: ignore[call-arg]
