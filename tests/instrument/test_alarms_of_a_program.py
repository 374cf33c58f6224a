"""`run --on-alarm`: a command and an address are told of a deadlock in a program that knows nothing of it."""

from pathlib import Path

import pytest
from app_runner import Runner

pytestmark = pytest.mark.contract

ray = pytest.mark.ray
by_night = pytest.mark.nightly


@pytest.mark.nightly
@ray
def test_a_command_is_told_before_the_program_is_ended(runner: Runner, tmp_path: Path) -> None:
    out = tmp_path / "told"
    command = (
        f"sleep 1; cat > {out}; echo $RAY_SNAPSHOT_EVENT $RAY_SNAPSHOT_DETECTOR >> {out}; echo not for the program"
    )
    options = ("--every", "0.5", "--exit-on", "deadlock", "--name", "told", "--on-alarm", command)
    done = runner.command("run", *options, "raising.py", "uncaught")
    assert (done.exit_code, "not for the program" in done.output + done.errors) == (3, False), done.errors
    text = out.read_text()
    assert text.startswith("ray-snapshot: deadlock in told (snapshot ")
    assert "Account.pay (raising.py:" in text
    assert text.endswith("begins deadlock\n")
    assert "was not told" not in done.errors


def test_what_is_neither_a_command_nor_an_address_is_refused_before_the_program_begins(runner: Runner) -> None:
    done = runner.command("run", "--on-alarm", "https://", "program.py", "ray")
    assert (done.exit_code, done.output, done.errors.count("\n")) == (2, "", 1), done.errors
    assert "--on-alarm" in done.errors


SLOW = """
import time
import ray
import ray_snapshot as rs

@rs.detector(stable=True, alarm_when=True, name="slow")
def slow(snapshot):
    time.sleep(3)
    return True

if __name__ == "__main__":
    ray.init()

    @ray.remote
    class Idle:
        def ask(self):
            return 1

    ray.get(Idle.remote().ask.remote())
    time.sleep(1.5)
"""


@ray
@by_night
def test_an_alarm_that_is_found_while_the_program_ends_is_told_before_it_is_ended(
    runner: Runner, tmp_path: Path
) -> None:
    """Its detector takes longer than the program: two threads end it at the same time."""
    (tmp_path / "slowly.py").write_text(SLOW)
    out = tmp_path / "told"
    told = ("--detect", "slowly:slow", "--exit-on", "slowly:slow", "--on-alarm", f"sleep 1; cat > {out}")
    done = runner.command("run", "--every", "0.5", *told, str(tmp_path / "slowly.py"))
    assert done.exit_code == 3, done.errors
    assert "alarm of slow in slowly (snapshot " in out.read_text()
