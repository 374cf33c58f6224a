"""Leaving: nothing of a system stays alive, however its program ends; and looking at one from another program."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ray
from clean import clean_environment, ran
from runtime_machines import BOUND_S, House, Log
from started import started
from until import until

import ray_snapshot as rs
from ray_snapshot.runtime.cluster import running_systems

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]


class Here(rs.SnapshotMixin):
    def pid(self) -> int:
        return os.getpid()


def _await_end(pids: list[int]) -> None:
    """Ray says that an actor is gone a moment before its process is."""
    until(lambda: [pid for pid in pids if os.path.exists(f"/proc/{pid}")], good=lambda left: not left)


@pytest.mark.nightly
@pytest.mark.parametrize("how", ["the block ends", "the block raises"])
def test_after_the_block_no_process_of_the_system_is_left(how: str) -> None:
    pids: list[int] = []

    def work() -> None:
        with rs.System("passing") as system:
            machines = [system.spawn(Here), *system.spawn_many(Here, count=2)]
            pids.extend({ray.get(machine.pid.remote()) for machine in machines})
            assert "passing" in running_systems()
            if how == "the block raises":
                raise ZeroDivisionError("of the program's own")

    if how == "the block raises":
        with pytest.raises(ZeroDivisionError, match=r"program's own"):
            work()
    else:
        work()
    assert len(pids) == 2
    _await_end(pids)
    assert "passing" not in running_systems()
    assert "ray_snapshot" not in ray.get.__module__


SCRIPT = """
import os, signal, sys, time
import ray
import ray_snapshot as rs

class Here(rs.SnapshotMixin):
    def pid(self): return os.getpid()
    def work(self): self.handle.work.send_after(0.01)

system = rs.System("scripted", address=sys.argv[1], history=sys.argv[2], every=0.1)
machine = system.spawn(Here, name="here")
system.start()
machine.work.send()
print(ray.get(machine.pid.remote()), flush=True)
"""

ENDINGS = {
    "forgets to close": "system.snapshot()",
    "is interrupted": """
with system:
    system.snapshot()
    print("waiting", flush=True)
    system.wait_for("termination", timeout=600)
""",
    "is interrupted in ray.get": """
with system:
    system.snapshot()
    print("waiting", flush=True)
    ray.get(machine.pid.remote()); ray.get(system.machine("nobody").pid.remote())
""",
    "ends by an error": """
with system:
    system.snapshot()
    raise SystemExit(7)
""",
}


SHUT_DOWN = """
import sys
from ray import shutdown
import ray
import ray_snapshot as rs
from ray_snapshot.runtime import shutting_down

class Here(rs.SnapshotMixin):
    def hear(self): pass

def opened(name):
    ray.init(include_dashboard=False, num_cpus=2, logging_level="ERROR")
    system = rs.System(name, history=sys.argv[1])
    system.spawn(Here, name="here")
    system.start()
    return system

def told(act):
    try:
        act()
    except rs.RaySnapshotError as error:
        print(type(error).__name__, error)

own = shutting_down._cell().cell_contents
"""

CLOSED_FIRST = """
with opened("first") as system:
    system.snapshot()
    shutdown()
    told(system.snapshot)
    told(lambda: system.machine("here").hear.send())
assert not ray.is_initialized() and shutting_down._cell().cell_contents is own
"""

GONE = """
with opened("second") as system:
    own()  # by a way that cannot be seen
    told(system.snapshot)
    ray.init(include_dashboard=False, num_cpus=2, logging_level="ERROR")
    told(system.snapshot)
with rs.System("second") as system:
    system.spawn(Here, name="here")
    system.start()
    print("again:", system.snapshot().machine_count)
"""


def _done(text: str, folder: Path) -> subprocess.CompletedProcess[str]:
    script = folder / "script.py"
    script.write_text(text)
    command = [sys.executable, str(script), str(folder / "history")]
    found = ran(*command, seconds=2 * BOUND_S)
    assert found.returncode == 0, found.stderr
    return found


@pytest.mark.nightly
def test_what_is_open_when_the_program_shuts_ray_down_is_closed_first(tmp_path: Path) -> None:
    said = _done(SHUT_DOWN + CLOSED_FIRST, tmp_path).stdout.splitlines()
    assert said[0] == "SystemNotRunningError system first was closed"
    assert said[1].startswith("NotAMachineError here.hear: this process is no part of the machine's system")
    assert rs.History(tmp_path / "history").snapshots(), "written before Ray was gone"


@pytest.mark.nightly
def test_for_a_system_whose_ray_is_gone_no_other_is_started(tmp_path: Path) -> None:
    done = _done(SHUT_DOWN + GONE, tmp_path)
    gone = "SystemNotRunningError system second has ended: this program has left the Ray that it ran on;"
    said = done.stdout.splitlines()
    assert [line.startswith(gone) for line in said] == [True, True, False]
    assert said[2] == "again: 2"
    lost = f"what was not written yet is not in {tmp_path / 'history'}; close it before ray.shutdown()"
    assert f"system second: Ray is gone: {lost}" in done.stderr.splitlines()


RARE = {"is interrupted", "is interrupted in ray.get", "ends by an error"}


@pytest.mark.parametrize(
    "how", [pytest.param(how, marks=[pytest.mark.nightly] if how in RARE else []) for how in ENDINGS]
)
def test_a_script_leaves_nothing_behind_and_keeps_its_history(how: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT + ENDINGS[how])
    address = ray.get_runtime_context().gcs_address
    command = [sys.executable, str(script), address, str(tmp_path / "history")]
    with started(command, env=clean_environment()) as process:
        assert process.stdout is not None
        pid = int(process.stdout.readline())
        if how.startswith("is interrupted"):
            assert process.stdout.readline() == "waiting\n"
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=BOUND_S)
    expected = {"forgets to close": 0, "ends by an error": 7}.get(how, -signal.SIGINT)
    assert process.returncode in (expected, 130 if expected < 0 else expected), errors
    for word in ("was destroyed", "never awaited", "Unhandled", "Exception in thread", "never retrieved"):
        assert word not in errors, errors
    _await_end([pid])
    assert "scripted" not in running_systems()
    assert len(rs.History(tmp_path / "history").snapshots()) >= 1


# ---- from another terminal ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shown(house: House) -> House:
    house.make(Log, name="log")
    return house


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ray_snapshot.cli", *arguments]
    return ran(*command, seconds=BOUND_S)


@pytest.mark.contract
def test_running_systems_are_listed_and_a_snapshot_is_taken_from_another_process(shown: House) -> None:
    address = ray.get_runtime_context().gcs_address
    listed = _run("systems", "--address", address, "--json")
    assert listed.returncode == 0, listed.stderr
    rows = [json.loads(line) for line in listed.stdout.splitlines()]
    (row,) = [row for row in rows if row["system"] == shown.system.name]
    assert (row["hosts"], row["machines"], row["failed"]) == (2, 4, None), "the driver is counted, as in a snapshot"
    before = shown.system.snapshot().sequence
    taken = _run("snapshot", shown.system.name, "--address", address, "--json")
    assert taken.returncode == 0, taken.stderr
    snapshot: dict[str, Any] = json.loads(taken.stdout)
    assert (snapshot["machines"], snapshot["in_flight"], snapshot["consistent"]) == (4, 0, True)
    assert int(snapshot["snapshot_id"][-6:]) == before + 1
    assert shown.system.snapshot().sequence == before + 2


@pytest.mark.contract
@pytest.mark.nightly
def test_an_unknown_system_a_bad_name_and_no_cluster_are_one_line_and_exit_code_2(shown: House) -> None:
    address = ray.get_runtime_context().gcs_address
    for arguments, text in (
        (
            ("snapshot", "nowhere", "--address", address),
            f"no system 'nowhere' is running on this cluster; running: {shown.system.name}",
        ),
        (("snapshot", "Not/Allowed", "--address", address), "system name 'Not/Allowed' is not allowed"),
        (("systems", "--address", "127.0.0.1:1"), "no Ray cluster can be reached at '127.0.0.1:1'"),
    ):
        done = _run(*arguments)
        assert done.returncode == 2, (arguments, done.stdout, done.stderr)
        assert text in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1, done.stderr
