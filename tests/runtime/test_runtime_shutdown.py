"""Leaving: nothing of a system stays alive, however its program ends; and looking at one from another program."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ray
from clean import clean_environment
from runtime_machines import BOUND_S, House, Log
from started import started
from until import until

import ray_snapshot as rs

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]


class Here(rs.SnapshotMixin):
    """Tells which process it is in."""

    def pid(self) -> int:
        return os.getpid()


def _await_end(pids: list[int]) -> None:
    """Ray says that an actor is gone a moment before its process is."""
    until(lambda: [pid for pid in pids if os.path.exists(f"/proc/{pid}")], good=lambda left: not left)


def _systems() -> list[str]:
    return [item["name"] for item in ray.util.list_named_actors(all_namespaces=True)]


@pytest.mark.parametrize("how", ["the block ends", "the block raises"])
def test_after_the_block_no_process_of_the_system_is_left(how: str) -> None:
    pids: list[int] = []

    def work() -> None:
        with rs.System("passing") as system:
            machines = [system.spawn(Here), *system.spawn_many(Here, count=2)]
            pids.extend({ray.get(machine.pid.remote()) for machine in machines})
            assert "system:passing" in _systems()
            if how == "the block raises":
                raise ZeroDivisionError("of the program's own")

    if how == "the block raises":
        with pytest.raises(ZeroDivisionError, match=r"program's own"):
            work()
    else:
        work()
    assert len(pids) == 2
    _await_end(pids)
    assert "system:passing" not in _systems()
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


RARE = {"is interrupted in ray.get", "ends by an error"}


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
    assert "system:scripted" not in _systems()
    assert len(rs.History(tmp_path / "history").snapshots()) >= 1


# ---- from another terminal ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def shown(house: House) -> House:
    house.make(Log, name="log")
    return house


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "ray_snapshot.cli", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=BOUND_S, check=False, env=clean_environment()
    )


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
