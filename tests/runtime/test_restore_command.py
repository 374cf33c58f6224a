"""A program is started again from one of its snapshots: in another process, on another number of hosts."""

import json
import os
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import ray
from clean import clean_environment, ran
from restore_machines import Keeper
from until import until

import ray_snapshot as rs
from ray_snapshot.history import checkpoints
from ray_snapshot.history.checkpoints import Checkpoint

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]

PROGRAM = str(Path(__file__).with_name("restored_program.py"))
COMMAND = "import sys; from ray_snapshot.cli import main; sys.exit(main())"
KEY = "the key of these tests"


def run(*arguments: Any, key: str = KEY) -> subprocess.CompletedProcess[str]:
    environment = clean_environment(**{"RAY_SNAPSHOT_KEY": key})
    command = [sys.executable, *map(str, arguments)]
    return ran(*command, env=environment)


def await_file(path: Path) -> None:
    until(path.exists)


def lines(done: subprocess.CompletedProcess[str]) -> list[dict[str, Any]]:
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def address(ray_cluster: None) -> str:
    return str(ray.get_runtime_context().gcs_address)


@pytest.fixture(scope="module")
def recorded(address: str, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[dict[str, Any]]]:
    history = tmp_path_factory.mktemp("restored") / "history"
    return history, lines(run(PROGRAM, history, address, 4))


@pytest.mark.contract
@pytest.mark.nightly
@pytest.mark.parametrize("hosts", [1, 3])
def test_it_goes_on_with_every_token_on_another_number_of_hosts(recorded: Any, address: str, hosts: int) -> None:
    history, (begun, ended) = recorded
    assert begun["restorable"]
    assert begun["moving"] > 0
    done = run("-c", COMMAND, "restore", "--hosts", hosts, history, begun["id"], PROGRAM, history, address, 4)
    again, last = lines(done)
    assert "8 messages that the program sent before start() were dropped" in done.stderr
    assert [line["tokens"] for line in (begun, ended, again, last)] == [800] * 4
    assert (again["restored_from"], len(again["hosts"]), again["sequence"]) == (begun["id"], hosts, 1)
    assert again["hosts"][-1] - again["hosts"][0] <= 2, "about as many on each, beside the one that is hired meanwhile"
    assert last["machines"] == ["extra", "hired", *(f"v{number}" for number in range(8))] == ended["machines"]


@pytest.mark.contract
@pytest.mark.nightly
def test_a_restored_run_can_be_restored_in_turn_as_the_program_spawns(recorded: Any, address: str) -> None:
    """Handles in messages that have been in flight all the time name machines of the first run."""
    history, (begun, _) = recorded
    first = lines(run("-c", COMMAND, "restore", history, begun["id"], PROGRAM, history, address, 8))[0]
    second, last = lines(run("-c", COMMAND, "restore", history, first["id"], PROGRAM, history, address, 2))
    assert [len(one["hosts"]) for one in (first, second)] == [1, 4]
    assert second["restored_from"] == first["id"]
    assert (second["tokens"], last["tokens"]) == (800, 800)


@pytest.mark.contract
@pytest.mark.nightly
def test_a_wrong_key_and_a_program_without_that_system_are_said_in_one_line(
    recorded: Any, address: str, tmp_path: Path
) -> None:
    history, (begun, _) = recorded
    restore = ("-c", COMMAND, "restore", history, begun["id"])
    wrong = run(*restore, PROGRAM, history, address, 4, key="another key than theirs")
    assert "damaged, or was not written with this key" in wrong.stderr
    assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
    other = tmp_path / "other.py"
    other.write_text("print('nothing')")
    done = run(*restore, other)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "the snapshot is of system 'purses', and the program never opened it" in done.stderr


def test_a_forged_or_damaged_checkpoint_is_refused_and_nothing_of_it_is_run(
    ray_cluster: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_SNAPSHOT_KEY", KEY)
    trap, history = tmp_path / "trap", tmp_path / "history"

    class Bomb:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(trap),)

    with rs.System("guarded", history=history, checkpoint=True, detectors=[]) as system:
        system.spawn(Keeper, name="keeper").note.send("kept")
        system.start()
        ray.get(system.machine("keeper").read.remote())
        taken = [system.snapshot() for _ in range(4)]
        await_file(checkpoints.path_of(history, taken[3].snapshot_id))  # from now on the last two are in memory
        path = checkpoints.path_of(history, taken[0].snapshot_id)
        whole = path.read_bytes()
        about = {"snapshot_id": taken[0].snapshot_id, "run_id": system.run_id, "number": 1, "aliases": []}
        checkpoints.write(history, Checkpoint(about, [pickle.dumps(Bomb())]), b"the key of somebody else")
        forged = path.read_bytes()
        for content in (forged, whole[:-1], whole[:100] + b"?" + whole[101:], b""):
            path.write_bytes(content)
            with pytest.raises(rs.CheckpointError, match="nothing of it was loaded"):
                system.restore(taken[0])
            assert not trap.exists()
            assert system.snapshot().restored_from is None  # and the system goes on as it was
        path.write_bytes(whole)
        system.restore(taken[0])
        assert ray.get(system.machine("keeper").read.remote()) == ["kept", "restored"]
        path.unlink()
        later = [system.snapshot() for _ in range(3)]
        await_file(checkpoints.path_of(history, later[2].snapshot_id))
        with pytest.raises(rs.NotRestorableError, match="has no checkpoint"):
            system.restore(taken[0])


@pytest.mark.nightly
def test_the_checkpoint_is_there_before_the_snapshot_is_listed(recorded: Any) -> None:
    history, _ = recorded
    opened = rs.History(history)
    listed = [row.snapshot_id for row in opened.snapshots() if row.restorable]
    assert len(listed) > 1
    assert all(checkpoints.path_of(history, snapshot_id).exists() for snapshot_id in listed)
