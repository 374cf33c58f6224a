"""Where the watching cannot start, the program runs as it does without us, and one line on stderr says why."""

from pathlib import Path

import pytest
import ray
from app_runner import Runner

import ray_snapshot as rs
from ray_snapshot.names import NAMESPACE, PREFIX

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

BROKEN = """
import os, sys
import ray_snapshot as rs
rs.install("broken", start_timeout=float(sys.argv[2]))
import ray

def dies():
    from ray_snapshot.instrument.watcher import watcher
    watcher.Watcher.__init__ = lambda *_, **__: os._exit(1)

@ray.remote(num_cpus=0, runtime_env={"py_executable": sys.executable})
class Counter:
    def add(self, number):
        self.sum = getattr(self, "sum", 0) + number
        return self.sum

starts = {
    "its name is taken": {},
    "it dies": {"worker_process_setup_hook": dies},
    "no worker starts for it": {"py_executable": "/no/such/python"},
}
ray.init(runtime_env=starts[sys.argv[1]])
counter = Counter.remote()
print(ray.get([counter.add.remote(number) for number in (1, 2)]))
"""
"""A program whose watcher cannot start, while its own actor can."""


@ray.remote(num_cpus=0)
class Stranger:
    """Has the name that the watcher is to have."""


def broken_history(folder: Path) -> str:
    """A folder that may be written to, in which the watcher cannot open a history."""
    log = folder / "history" / "snapshots" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("no commit\n")
    return str(folder / "history")


@pytest.mark.contract
@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.nightly
@pytest.mark.parametrize("way", ["run", "install"])
def test_a_program_whose_watching_cannot_start_runs_unwatched_and_one_line_says_why(
    runner: Runner, tmp_path: Path, way: str
) -> None:
    history, program = broken_history(tmp_path), tmp_path / "app.py"
    program.write_text(APP if way == "run" else INSTALLED)
    watched = ("run", "--quiet", "--history", history, str(program))
    done = runner.command(*watched) if way == "run" else runner.plain(str(program), history)
    assert (done.exit_code, done.output) == (0, "[1, 3]\n"), done.errors
    (said,) = [line for line in done.errors.splitlines() if line.startswith("ray-snapshot: ")]
    assert said.startswith("ray-snapshot: nothing is watched: ")
    assert history in said
    assert "Traceback" not in done.errors


@pytest.mark.nightly
@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
@pytest.mark.parametrize(
    ("start", "seconds", "said"),
    [
        ("it dies", "120", "waited for the services of system broken, but the process asked is gone"),
        ("no worker starts for it", "5", "waited 5 s for the services of system broken\n"),
    ],
)
def test_a_watcher_that_never_begins_is_waited_for_no_longer_than_its_bound(
    runner: Runner, tmp_path: Path, start: str, seconds: str, said: str
) -> None:
    program = tmp_path / "app.py"
    program.write_text(BROKEN)
    done = runner.plain(str(program), start, seconds)
    assert (done.exit_code, done.output) == (0, "[1, 3]\n"), done.errors
    assert done.errors.count("ray-snapshot: ") == 1
    assert f"ray-snapshot: nothing is watched: {said}" in done.errors
    assert "Traceback" not in done.errors


@pytest.mark.nightly
@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_a_watcher_whose_name_an_actor_of_others_has_gets_another(runner: Runner, tmp_path: Path) -> None:
    stranger = Stranger.options(name=f"{PREFIX}broken", namespace=NAMESPACE).remote()
    ray.get(stranger.__ray_ready__.remote())
    program = tmp_path / "app.py"
    program.write_text(BROKEN + "print(rs.watch().name)\n")
    done = runner.plain(str(program), "its name is taken", "120")
    assert (done.exit_code, done.output) == (0, "[1, 3]\nbroken-2\n"), done.errors
    ray.kill(stranger)


@pytest.mark.contract
def test_a_setting_that_does_not_exist_is_an_error_of_install_itself() -> None:
    with pytest.raises(rs.SettingError, match="evry"):
        rs.install(evry=1.0)  # type: ignore[call-arg]
    with pytest.raises(rs.SettingError, match="trace"):
        rs.install(trace=True)  # type: ignore[call-arg]
