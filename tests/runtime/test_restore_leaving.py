"""SIGTERM: a last snapshot is taken, and then the process ends; what it was is gone on from."""

import os
import signal
import sys
from pathlib import Path

import pytest
import ray
from clean import clean_environment
from restore_machines import BOUND_S, patiently, total_of
from started import started
from test_restore_command import COMMAND, KEY, run
from test_restore_recovery import COUNT, TOTAL, await_generation, town

import ray_snapshot as rs

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]

PROGRAM = str(Path(__file__).with_name("told_to_end.py"))


@pytest.mark.contract
@pytest.mark.nightly
def test_a_program_that_is_told_to_end_takes_a_last_snapshot_and_can_be_restored(tmp_path: Path) -> None:
    history, address = tmp_path / "history", str(ray.get_runtime_context().gcs_address)
    environment = clean_environment(**{"RAY_SNAPSHOT_KEY": KEY})
    command = [sys.executable, PROGRAM, str(history), address]
    with started(command, env=environment) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "working\n"
        process.send_signal(signal.SIGTERM)
        said = process.communicate(timeout=BOUND_S)[1]
    assert process.returncode == 128 + signal.SIGTERM
    (last,) = rs.History(history).snapshots()
    assert f"is saved in snapshot {last['snapshot_id']}; go on with `ray-snapshot restore {history} latest" in said
    assert (last["status"], last["restorable"]) == ("complete", True)
    done = run("-c", COMMAND, "restore", history, last["snapshot_id"], PROGRAM, history, address)
    assert (done.returncode, done.stdout) == (0, "400\n"), done.stderr


@pytest.mark.nightly
def test_a_host_that_is_told_to_end_leaves_a_snapshot_that_the_others_go_on_from(ray_cluster: None) -> None:
    """No snapshot is taken by a clock: what the machines have done since the start is in the last one only."""
    with rs.System("reclaimed", recover="rollback", detectors=[]) as system:
        many = town(system)
        for machine in many:
            machine.later.send(0.0, 1)
            machine.pass_on.send(1, 0)
        before = patiently(system.snapshot).sequence
        pid = ray.get(many[0].pid.remote())
        os.kill(pid, signal.SIGTERM)
        await_generation(system, 1)
        last = patiently(system.snapshot)
        assert total_of(last) == TOTAL
        assert sum(last.machines[f"v{number}"].state["turn"] for number in range(COUNT)) == COUNT
        assert int(str(last.restored_from).rpartition("-")[2]) > before
        assert patiently(lambda: ray.get(many[0].pid.remote(), timeout=BOUND_S)) != pid
