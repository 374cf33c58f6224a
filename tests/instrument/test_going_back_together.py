"""Spawned machines and ordinary actors go back to one moment, in this run and in another; `together.py` has the scenarios."""

import json
from pathlib import Path
from typing import Any

import pytest
from app_runner import APPS, Done, Runner

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.contract, pytest.mark.nightly]

KEY = "the key of these tests"
PROGRAM = str(APPS / "together.py")
TOKENS = 300
"""Fifty with each of two actors and four machines."""


def told(done: Done) -> dict[str, dict[str, Any]]:
    assert done.exit_code == 0, done.errors
    lines = [json.loads(line) for line in done.output.splitlines()]
    return {line.pop("scenario"): line for line in lines}


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("going-back-together") / "history"


@pytest.fixture(scope="module")
def together(runner: Runner, history: Path) -> dict[str, dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_SNAPSHOT_KEY", KEY)
        return told(runner.plain(PROGRAM, f"storm:chandy-lamport:{history}"))


@pytest.fixture(scope="module")
def by_night(runner: Runner, tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folders = {name: tmp_path_factory.mktemp(name) for name in ("slow", "stumbles")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_SNAPSHOT_KEY", KEY)
        return told(runner.plain(PROGRAM, "stuck", *(f"{name}:{folder}" for name, folder in folders.items())))


def check_storm(found: dict[str, Any]) -> None:
    """What was in flight, both ways, came once each time; whatever was seen, no token was lost or doubled."""
    assert {"machine to actor", "actor to machine"} <= found["kinds"].keys()
    assert found["totals"] == [TOKENS]
    assert found["problems"] == found["uncovered"] == []
    assert found["again"] == [True, True, True]
    assert found["last"] == TOKENS
    assert found["end"] == "Terminated: 7 machines passive or stopped, nothing in flight."


def test_messages_and_calls_in_flight_across_both_come_once_each_time(together: dict[str, Any]) -> None:
    check_storm(together["storm"])


def test_a_machine_and_an_actor_that_wait_for_each_other_go_back_to_the_moment_before(by_night: dict[str, Any]) -> None:
    found = by_night["stuck"]
    assert found["cores"] == [["purse-0", "Vault-0"]]
    inside = {text.partition(" at ")[0] for text in found["obstacles"]}
    assert inside == {
        "purse-0: inside ask",
        "Vault-0: inside confirm",
        "Vault-0: its call of purse-0.sign is in flight",
    }
    assert found["end"].startswith("Terminated")
    assert found["held"] == dict.fromkeys(found["held"], 50) | {"purse-0": 51, "Vault-0": 53}


def test_an_actor_that_does_not_stop_is_named_and_machines_go_on_as_they_were(by_night: dict[str, Any]) -> None:
    found = by_night["slow"]
    assert found["given_up"]["kind"] == "SnapshotTimeoutError"
    assert f"waiting for Vault-0 (at {PROGRAM}:" in found["given_up"]["text"]
    assert "all go on as they were" in found["given_up"]["text"]
    assert (found["computed"], found["meanwhile"]["purse-0"]) == ("computed", 55)
    assert found["held"] == dict.fromkeys(found["held"], 50)


def test_a_machine_that_does_not_take_its_state_back_is_named_and_another_restore_may_succeed(
    by_night: dict[str, Any],
) -> None:
    found = by_night["stumbles"]
    assert found["failed"] == {
        "kind": "MachineFailedError",
        "text": "purse-2 does not take its state back: ValueError: it stumbles",
    }
    assert "stands still, for that failed: restore again" in found["no_snapshot"]["text"]
    assert found["held"] == dict.fromkeys(found["held"], 50) | {"purse-2": 51, "Vault-1": 57}


def test_another_run_of_the_program_goes_on_from_the_snapshot(
    runner: Runner, together: dict[str, Any], history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_SNAPSHOT_KEY", KEY)
    storm = f"storm:chandy-lamport:{tmp_path / 'history'}"
    found = told(runner.command("restore", str(history), together["storm"]["id"], PROGRAM, storm))["storm"]
    assert (found["restored"], found["restored_from"]) == (True, together["storm"]["id"])
    assert (found["first"], found["last"]) == (TOKENS, TOKENS)
    assert found["end"].startswith("Terminated")


@pytest.mark.parametrize("protocol", ["chandy-lamport", "observer"])
def test_storms_go_back_together_again_and_again(runner: Runner, protocol: str) -> None:
    for _ in range(5):
        check_storm(told(runner.plain(PROGRAM, f"storm:{protocol}"))["storm"])


def test_another_number_of_hosts_is_refused(
    runner: Runner, together: dict[str, Any], history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_SNAPSHOT_KEY", KEY)
    storm = f"storm:chandy-lamport:{tmp_path / 'history'}"
    snapshot_id = together["storm"]["id"]
    done = runner.command("restore", "--hosts", "3", str(history), snapshot_id, PROGRAM, storm)
    assert done.exit_code == 2
    assert "restore --hosts 3: the program watches its actors (storm)" in done.errors
    assert "Traceback" not in done.errors
