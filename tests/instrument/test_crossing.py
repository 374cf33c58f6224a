"""Spawned machines and ordinary actors in one program, run as its user runs it: they are one system, in every snapshot."""

import json
from pathlib import Path
from typing import Any

import pytest
from app_runner import Runner

import ray_snapshot as rs

pytestmark = [pytest.mark.ray, pytest.mark.contract]

BY_DAY = ("storm:chandy-lamport", "both_wait")
BY_NIGHT = ("others", "gone", "lists", "threads")

SNAPSHOTS = 12
"""The storm in `crossing.py` takes so many; one or two may meet nothing in flight by chance, but not half of them."""


def told(runner: Runner, *scenarios: str) -> dict[str, dict[str, Any]]:
    done = runner.command("run", "--name", "crossing", "crossing.py", *scenarios)
    assert done.exit_code == 0, done.errors
    lines = [json.loads(line) for line in done.output.splitlines()]
    return {line.pop("scenario"): {**line, "errors": done.errors} for line in lines}


@pytest.fixture(scope="module")
def crossing(runner: Runner) -> dict[str, dict[str, Any]]:
    return told(runner, *BY_DAY)


@pytest.fixture(scope="module")
def by_night(runner: Runner) -> dict[str, dict[str, Any]]:
    return told(runner, *BY_NIGHT)


def check_storm(found: dict[str, Any]) -> None:
    """Tokens cross both ways all the time, in messages, calls and replies."""
    assert found["problems"] == found["uncovered"] == []
    assert found["busy"] >= SNAPSHOTS // 2, "hardly anything was in flight: this storm shows nothing"
    assert (found["totals"], found["last"]) == ([300], 300)
    assert found["end"] == "Terminated: 7 machines passive or stopped, nothing in flight."


def test_no_snapshot_of_a_storm_across_both_loses_or_doubles_a_token(crossing: dict[str, Any]) -> None:
    check_storm(crossing["storm"])


def test_a_deadlock_across_both_is_told_with_both_lines(crossing: dict[str, Any]) -> None:
    found = crossing["both_wait"]
    assert found["cores"] == [["desk", "clerk"]]
    report = found["errors"]
    assert "desk in Purse.ask (crossing.py:" in report
    assert "clerk in Vault.confirm (crossing.py:" in report


@pytest.mark.nightly
def test_an_async_actor_awaits_machines_and_a_machine_makes_an_actor(by_night: dict[str, Any]) -> None:
    found = by_night["others"]
    assert (found["summed"], found["passed"], found["problems"]) == (2, 1, [])
    tokens = sorted(found["tokens"].values())[-4:]
    assert (found["tokens"]["first"], found["tokens"]["second"], 8 in tokens) == (4, 3, True)
    assert found["end"].startswith("Terminated: ")


@pytest.mark.nightly
def test_an_actor_that_is_killed_and_a_machine_that_stops_leave_no_snapshot_open(by_night: dict[str, Any]) -> None:
    found = by_night["gone"]
    assert found["problems"] == found["uncovered"] == found["again_problems"] == []
    assert (found["tokens"]["stays"], found["tokens"]["stops"]) == (6, 2)
    assert found["refused"] == "Vault sent put to stops, which has stopped"


@pytest.mark.nightly
def test_when_its_system_has_closed_another_takes_its_place(by_night: dict[str, Any]) -> None:
    found = by_night["gone"]
    assert found["again"]["stays"] == 3
    assert found["end"].startswith("Terminated: ")


@pytest.mark.nightly
def test_a_call_that_is_queued_is_in_flight_whatever_became_of_those_beside_it(by_night: dict[str, Any]) -> None:
    found = by_night["lists"]
    assert (found["failed"], found["seen"], found["problems"]) == (True, [60], [])


@pytest.mark.nightly
def test_threads_of_the_program_and_of_a_host_are_not_overlooked(by_night: dict[str, Any]) -> None:
    found = by_night["threads"]
    assert found["early"] is None, "a thread of the program was calling"
    assert found["end"].startswith("Terminated: ")
    assert [text for text in found["told"] if text.startswith("who calls actors from a thread of host-")] != []


@pytest.mark.nightly
def test_what_the_program_watches_itself_is_one_history_and_ends_with_the_watch(runner: Runner, tmp_path: Path) -> None:
    history = tmp_path / "history"
    done = runner.plain("crossing.py", f"watched:{history}")
    assert done.exit_code == 0, done.errors
    found = json.loads(done.output)
    assert (found["end"], found["open"]) == ("Terminated: 3 machines passive or stopped, nothing in flight.", [])
    last = [one for one in rs.History(history).snapshots() if one.machine_count == 3][-1]
    loaded = rs.History(history).load(last.snapshot_id)
    hosts = {row["machine"]: row["host"].partition("-")[0] for row in loaded.tables["machines"].to_pylist()}
    assert hosts == {"Plain-0": "pid", "driver": "driver", "machine": "host"}
    assert loaded.machines["machine"].state["tokens"] == 4
    assert runner.command("verify", str(history)).exit_code == 0


@pytest.mark.nightly
def test_a_system_that_stays_apart_may_bear_the_name_of_the_watch(runner: Runner, tmp_path: Path) -> None:
    """`run` names the watch after the script; what the program calls its system is its own affair."""
    done = runner.command("run", "--name", "apart", "crossing.py", f"apart:{tmp_path / 'history'}")
    assert done.exit_code == 0, done.errors
    assert json.loads(done.output)["systems"] == ["apart"]
    assert "the system apart and the actors beside it are not one system: its history is" in done.errors
    assert "from outside the system apart is called apart-2" in done.errors


@pytest.mark.nightly
@pytest.mark.parametrize("run", range(5))
def test_many_storms(runner: Runner, run: int) -> None:
    protocol = ("observer", "chandy-lamport")[run % 2]
    check_storm(told(runner, f"storm:{protocol}")["storm"])
