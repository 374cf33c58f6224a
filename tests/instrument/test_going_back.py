"""An app of somebody else's goes back to one moment, with the calls that were in flight: in the same run, and in another."""

import json
from pathlib import Path
from typing import Any

import pytest
from app_runner import Done, Runner

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.contract]

HERE = Path(__file__).parent
PROGRAM = str(HERE / "going_back_driver.py")
CALLS = 400


def said(done: Done) -> dict[str, dict[str, Any]]:
    assert done.exit_code == 0, done.errors
    return {line["what"]: line for line in map(json.loads, done.output.splitlines())}


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("going-back") / "history"


@pytest.fixture(scope="module")
def told(runner: Runner, history: Path) -> dict[str, dict[str, Any]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_SNAPSHOT_KEY", "the key of these tests")
        return said(runner.plain(PROGRAM, str(history)))


def test_calls_in_flight_are_made_again_and_each_counts_once(told: dict[str, Any]) -> None:
    assert told["snapshot"]["restorable"], told["snapshot"]["obstacles"]
    assert told["snapshot"]["moving"]["driver->a"] > 0
    assert told["again"]["counts"] == [CALLS, CALLS]
    assert told["again"]["restored_from"] == told["snapshot"]["id"]


def test_what_was_made_or_asked_since_is_of_the_past(told: dict[str, Any]) -> None:
    assert told["later"]["kind"] == "ActorDiedError"
    assert told["old"]["kind"] == "RolledBackError"


def test_what_belongs_to_an_actors_thread_is_made_anew_there(told: dict[str, Any]) -> None:
    """And, in a new run, what only it held a handle of is still there (`test_a_new_run_of_the_program...`)."""
    assert told["ledger"]["read"] == [3, 3]


def test_rays_own_thread_for_items_is_none_of_the_apps(told: dict[str, Any]) -> None:
    assert told["items"]["items"] == [0, 1, 2]
    assert told["snapshot"]["obstacles"] == []


def test_an_app_goes_back_out_of_a_deadlock(told: dict[str, Any]) -> None:
    assert told["hung"]["members"] == ["a", "b"]
    assert told["out"]["counts"] == [CALLS, CALLS, 0]
    assert told["out"]["ended"] == ["RolledBackError"] * 5


def test_who_is_inside_an_action_is_an_obstacle_with_its_place(told: dict[str, Any]) -> None:
    assert told["refused"]["kind"] == "NotRestorableError"
    found = told["hung"]["obstacles"]
    for machine, method in (("a", "meet"), ("b", "meet"), ("Parked-0", "park"), ("Parked-0", "ask")):
        assert any(text.startswith(f"{machine}: inside {method} at {PROGRAM}:") for text in found), (machine, method)


def test_who_does_not_stop_is_named_and_all_go_on_as_they_were(told: dict[str, Any]) -> None:
    assert told["given up"]["kind"] == "SnapshotTimeoutError"
    assert f"waiting for a (at {PROGRAM}:" in told["given up"]["text"]
    assert told["meanwhile"]["counts"] == [CALLS]
    assert told["computed"]["answer"] == "computed"
    assert told["end"] == {"what": "end", "counts": [CALLS, CALLS], "obstacles": []}


@pytest.mark.nightly
def test_a_new_run_of_the_program_goes_on_from_the_snapshot(
    runner: Runner, told: dict[str, Any], history: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_SNAPSHOT_KEY", "the key of these tests")
    done = runner.command("restore", str(history), told["snapshot"]["id"], PROGRAM, str(tmp_path / "history"))
    went_on = said(done)["went on"]
    assert went_on["counts"] == [CALLS, CALLS, 0]
    assert went_on["restored_from"] == told["snapshot"]["id"]
    assert f"not in snapshot {told['snapshot']['id']}, so as the program made them: new" in done.errors
    assert said(done)["ledger"]["read"] == [3, 3]


@pytest.mark.nightly
def test_of_actors_that_were_dead_before_the_error_says_what_to_do_and_done_it_helps(
    runner: Runner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the run itself, and by the command."""
    monkeypatch.setenv("RAY_SNAPSHOT_KEY", "the key of these tests")
    program, remedy = (PROGRAM, "--bereaved"), "make actors of these names, with .options(name=...)"
    told = said(runner.plain(*program, str(tmp_path / "first"), "again"))
    restore = ("restore", str(tmp_path / "first"), told["refused"]["id"], *program)
    refused = runner.command(*restore, str(tmp_path / "second"))
    assert (refused.exit_code, refused.errors.count("\n"), refused.output) == (2, 1, "")
    for text in (told["refused"]["text"], refused.errors):
        assert f"cannot be restored: actors not there any more: Node-0, a; {remedy}" in text
    helped = said(runner.command(*restore, str(tmp_path / "third"), "again"))
    assert told["back"]["counts"] == helped["back"]["counts"] == [3, 3]
