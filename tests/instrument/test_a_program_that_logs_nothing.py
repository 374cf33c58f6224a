"""What a program is told although its own configuration of `logging` lets nothing pass, and what it then is not."""

from pathlib import Path

import pytest
from app_runner import Runner

pytestmark = [pytest.mark.ray, pytest.mark.contract, pytest.mark.nightly]

SILENT = """
import logging.config
logging.config.dictConfig({"version": 1, "disable_existing_loggers": True, "root": {"level": "CRITICAL"}})
"""

STUCK = """
import ray
import ray_snapshot as rs

@ray.remote(num_cpus=0)
class Account:
    def again(self):
        return ray.get(ray.get_runtime_context().current_actor.again.remote())

ray.init()
rs.watch("another")
ray.get(Account.remote().again.remote())
"""

DIAGNOSTIC = "ray-snapshot: this app is watched already, as 'app', with the settings of that"


@pytest.mark.parametrize(("configured", "count"), [("", 1), (SILENT, 0)])
def test_an_alarm_and_the_reason_of_the_end_are_told_whatever_is_logged(
    runner: Runner, tmp_path: Path, configured: str, count: int
) -> None:
    program = tmp_path / "app.py"
    program.write_text(configured + STUCK)
    done = runner.command("run", "--every", "0.5", "--on-deadlock", "exit", "--deadlock-grace", "1", str(program))
    assert done.exit_code == 3, done.errors
    assert done.errors.count(DIAGNOSTIC) == count, done.errors
    assert "Account-0 in Account.again (" in done.errors
    assert "ray-snapshot: the deadlock stands: the program ends, with exit code 3" in done.errors


def test_why_nothing_is_watched_is_told_whatever_is_logged(runner: Runner, tmp_path: Path) -> None:
    log, program = tmp_path / "history/snapshots/_delta_log", tmp_path / "app.py"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("no commit\n")
    program.write_text(SILENT + "import ray\nray.init()\nprint(ray.get(ray.put(1)))\n")
    done = runner.command("run", "--history", str(tmp_path / "history"), str(program))
    assert (done.exit_code, done.output) == (0, "1\n"), done.errors
    assert "ray-snapshot: nothing is watched: " in done.errors
