"""Calls that wait outside of Ray's calls (for a lock, a queue, a thread, a socket, a child), and for room on a node. On Ray."""

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from app_runner import APPS, Done, Runner
from until import until

import ray_snapshot as rs

pytestmark = [pytest.mark.ray, pytest.mark.contract]

OVERDUE_MS = 4_000
"""A call that runs on is recorded in the middle of its action behind so long."""

BOUND_S = 300.0
"""So long what can be told may take to be told, beside much other work; where nothing else runs, a quarter of a minute."""

PROVEN = {"get", "lock", "condition", "hold", "occupy", "ask", "ask_there"}
"""Methods of calls that only their own processes could end."""
UNTOLD = {"socket", "child", "process_queue", "join", "locked", "reading", "unread-0"}
"""Machines with a wait that something else may end."""


def _verdicts(history: Path) -> list[Mapping[str, Any]]:
    return [row for row in rs.History(history).verdicts() if row["detector"] == "deadlock"]


def _members(verdict: Mapping[str, Any]) -> set[str]:
    return {one["method"] for name in ("members", "stuck_behind") for one in verdict["evidence"].get(name, ())}


def _line(source: str) -> str:
    lines = [line.strip() for line in (APPS / "outside.py").read_text().splitlines()]
    return f"outside.py:{1 + lines.index(source)}"


def _unexplained(history: Path, verdict: Mapping[str, Any]) -> dict[str, tuple[str, str]]:
    """By machine: the place of its wait, and what it waits for."""
    coverage = rs.History(history).load(verdict["snapshot_id"]).coverage
    return {
        row["machine"]: (row["call_site"].rpartition("/")[2], row["what"]) for row in coverage.get("unexplained", ())
    }


def _told(history: Path) -> tuple[set[str], set[str], dict[str, None]]:
    """Of the latest of the fullest true verdicts: its members, and who is listed beside; and what all verdicts have said."""
    verdicts = _verdicts(history)
    held = [row for row in reversed(verdicts) if row["holds"]]
    fullest = max(held, key=lambda row: len(_members(row)), default=None)
    said = dict.fromkeys(row["sentence"] for row in verdicts)
    return (set(), set(), said) if fullest is None else (_members(fullest), {*_unexplained(history, fullest)}, said)


def _is_all(told: tuple[set[str], set[str], dict[str, None]]) -> bool:
    return told[0] >= PROVEN and told[1] >= UNTOLD


@pytest.fixture(scope="module")
def healthy(runner: Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """A program that goes on while another one hangs, and its history."""
    history = tmp_path_factory.mktemp("outside") / "healthy"
    program = (*_kept(history), "--exit-on", "deadlock", "outside.py", "healthy")
    with runner.watching("outside-healthy", *program) as app:
        yield app, history


def _hanging(runner: Runner, folder: Path) -> Done:
    history, given_up = folder / "hanging", folder / "given up"
    program = (*_kept(history, every="3"), "outside.py", "hanging", str(given_up))
    with runner.watching("outside-hanging", *program) as app:
        until(lambda: _told(history), good=_is_all, seconds=BOUND_S, again=(rs.RaySnapshotError,))
        given_up.touch()
        return runner.finish(app)


def _kept(history: Path, every: str = "1") -> tuple[str, ...]:
    return "--every", every, "--history", str(history)


def test_what_only_its_own_process_could_end_is_a_deadlock_and_what_else_may_end_is_told_with_its_place(
    runner: Runner, tmp_path: Path
) -> None:
    done, history = _hanging(runner, tmp_path), tmp_path / "hanging"
    assert (done.output, done.exit_code) == ("given up\n", 0), done.errors
    verdicts = _verdicts(history)
    held = [row for row in verdicts if row["holds"]]
    assert held, [row["sentence"] for row in verdicts]
    stuck = max(held, key=lambda row: len(_members(row)))
    assert _members(stuck) >= PROVEN, [row["sentence"] for row in held]
    assert not any({*UNTOLD, "run"} & _members(row) for row in held)
    told = max((_unexplained(history, row) for row in held), key=len)
    assert told["socket"][0] == _line("client.recv(1)")
    assert re.fullmatch(r"in client.recv, for a socket connected to 127.0.0.1:\d+ of socket", told["socket"][1])
    assert told["child"][1].startswith("in subprocess.Popen.wait, for child process ")
    assert re.search(r", which is alive: begun at [\d:]+ UTC, [\d.]+ s of processor time$", told["child"][1])
    assert told["process_queue"][1] == "in multiprocessing.queues.Queue.get, for a pipe"
    assert told["join"][1].startswith("in threading.Thread.join, for the end of thread beat, which is in Stuck.beat (")
    assert told["locked"][0] == _line("await asyncio.to_thread(lock.acquire)")
    assert told["locked"][1].startswith("for thread ")
    assert told["reading"] == (_line("await reader.read(1)"), "for a future that nothing seen here sets")
    assert told["unread-0"][0] == _line("return ray.get(unwritten.remote())")
    assert told["unread-0"][1].startswith("for the reply of unwritten(), which has ended: ")
    machines = rs.History(history).load(stuck["snapshot_id"]).tables["machines"].to_pylist()
    assert {row["machine"]: row["state"] for row in machines}["lock"] == "{}", "it was not recorded where it stands"
    assert max(row["record_delay_ms"] for row in machines) < OVERDUE_MS


@pytest.mark.nightly
def test_a_wait_that_ends_in_a_way_that_no_call_shows_is_never_a_deadlock(
    runner: Runner, healthy: tuple[subprocess.Popen[str], Path]
) -> None:
    app, history = healthy
    done = runner.finish(app)
    ends = ["a lock", "another group", "a reply", "a timer", "a thread of C", "a child", "a request"]
    ends += ["a sleep there", "a thread beside", "an executor", "a task there"]
    assert (done.output, done.exit_code) == (f"{ends} [None, None]\n", 0), done.errors
    assert "deadlock in" not in done.errors
    answers = [row["holds"] for row in _verdicts(history)]
    assert len(answers) >= 10, "hardly looked at"
    assert True not in answers


DEADLOCKED = 3


def _run(runner: Runner, scenario: str, history: Path, *more: str) -> Done:
    options = ("--every", "0.5", "--history", str(history), "--detect", "deadlock", "--name", scenario, *more)
    done = runner.command("run", *options, "rooms.py", scenario)
    assert "fault of ours" not in done.errors
    return done


FOUND = {
    "last_cpu": ["Trainer-0 in Trainer.go", "prepare(), not begun, needs CPU 1, and Trainer-0 holds CPU "],
    "own_seat": ["prepare(), not begun, needs CPU 1, ", "Trainer-0 holds node:__internal_head__ 1 of 1"],
    "creation": ["Trainer-0 in Trainer.make", "Trainer-1, not begun, needs CPU 1, "],
    "two_groups": ["Owner-0 in Owner.take", "Owner-1 in Owner.take", "Owner-0 holds node:__internal_head__ 0.5 of 1 by"],
    "nested": ["outer-0 in outer", "and outer-0 holds node:__internal_head__ 1 of 1"],
    "nowhere": ["prepare(), not begun, needs CPU 1, nowhere 1, and no node has more than nowhere 0"],
    "at_rest": ["prepare(), not begun, needs CPU 1, ", "Trainer-0 holds node:__internal_head__ 1 of 1"],
}  # fmt: skip


@pytest.mark.nightly
@pytest.mark.parametrize("scenario", FOUND)
def test_who_can_never_get_room_is_found_with_what_it_needs_and_who_holds_it(
    runner: Runner, tmp_path: Path, scenario: str
) -> None:
    done = _run(runner, scenario, tmp_path / "h", "--exit-on", "deadlock")
    assert done.exit_code == DEADLOCKED, done.errors
    for text in FOUND[scenario]:
        assert text in done.errors
    assert "to do: " in done.errors


@pytest.mark.nightly
@pytest.mark.parametrize(
    "scenario",
    [
        "given_up",
        "freed_by_collection",
        "taken_back",
        "freed_by_a_task",
        "freed_by_a_watchdog",
        "freed_by_another",
        "freed_by_itself",
        "freed_by_who_is_to_come",
        "groups_in_turn",
    ],
)
def test_who_may_yet_get_room_is_not_reported(runner: Runner, tmp_path: Path, scenario: str) -> None:
    done = _run(runner, scenario, tmp_path / "h")
    history = rs.History(tmp_path / "h")
    assert (done.exit_code, done.output.splitlines()[-1]) == (0, "the end"), done.errors
    assert [one.sentence for one in history.verdicts() if one.holds] == []
    waited = [row for row in history.snapshots() if "demands" in json.dumps(row["coverage"])]
    assert waited, "no snapshot was taken while anything waited for room"
