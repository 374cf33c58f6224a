"""Calls that wait outside of Ray's calls: for a lock, a queue, a thread, a socket, a child. On Ray."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from app_runner import APPS, Runner

import ray_snapshot as rs

pytestmark = [pytest.mark.ray, pytest.mark.contract]

OVERDUE_MS = 4_000
"""A call that runs on is recorded in the middle of its action behind so long."""


def _verdicts(history: Path) -> list[Mapping[str, Any]]:
    return [row for row in rs.History(history).verdicts() if row["detector"] == "deadlock"]


def _members(verdict: Mapping[str, Any]) -> set[str]:
    return {one["method"] for name in ("members", "stuck_behind") for one in verdict["evidence"][name]}


def _line(source: str) -> str:
    lines = [line.strip() for line in (APPS / "outside.py").read_text().splitlines()]
    return f"outside.py:{1 + lines.index(source)}"


def test_what_only_its_own_process_could_end_is_a_deadlock_and_what_else_may_end_is_told_with_its_place(
    runner: Runner, tmp_path: Path
) -> None:
    done = runner.command("run", "--every", "0.5", "--history", str(tmp_path / "history"), "outside.py", "hanging")
    assert (done.output, done.exit_code) == ("given up\n", 0), done.errors
    verdicts = _verdicts(tmp_path / "history")
    held = [row for row in verdicts if row["holds"]]
    assert held, [row["sentence"] for row in verdicts]
    stuck = max(held, key=lambda row: len(_members(row)))
    members = _members(stuck)
    assert {"get", "lock", "condition", "hold", "occupy", "ask"} <= members, [row["sentence"] for row in held]
    assert not {"socket", "child", "process_queue", "join", "run"} & members
    snapshot = rs.History(tmp_path / "history").load(stuck["snapshot_id"])
    told = {
        row["machine"]: (row["call_site"].rpartition("/")[2], row["what"]) for row in snapshot.coverage["unexplained"]
    }
    assert told["socket"][0] == _line("client.recv(1)")
    assert told["socket"][1].startswith("in client.recv, for a socket connected to 127.0.0.1:")
    assert told["child"][1].startswith("in subprocess.Popen.wait, for child process ")
    assert told["child"][1].endswith(", which is alive")
    assert told["process_queue"][1] == "in multiprocessing.queues.Queue.get, for a pipe"
    assert told["join"][1].startswith("in threading.Thread.join, for the end of thread beat, which is in Stuck.beat (")
    awaits = {
        row["call_site"].rpartition("/")[2]: row["what"]
        for row in snapshot.coverage["unexplained"]
        if row["machine"].startswith("Awaits")
    }
    assert set(awaits) == {_line("await asyncio.to_thread(lock.acquire)"), _line("await reader.read(1)")}
    assert awaits[_line("await reader.read(1)")] == "for a future that nothing seen here sets"
    states = {row["machine"]: row["state"] for row in snapshot.tables["machines"].to_pylist()}
    assert states["lock"] == "{}", "it was not recorded where it stands"
    assert max(row["record_delay_ms"] for row in snapshot.tables["machines"].to_pylist()) < OVERDUE_MS


def test_a_wait_that_ends_in_a_way_that_no_call_shows_is_never_a_deadlock(runner: Runner, tmp_path: Path) -> None:
    options = ["--every", "0.5", "--exit-on", "deadlock", "--history", str(tmp_path / "history")]
    done = runner.command("run", *options, "outside.py", "healthy")
    ends = ["a lock", "another group", "a reply", "a timer", "a thread of C", "a child", "a request"]
    assert (done.output, done.exit_code) == (f"{ends} [None, None]\n", 0), done.errors
    assert "deadlock in" not in done.errors
    answers = [row["holds"] for row in _verdicts(tmp_path / "history")]
    assert len(answers) >= 10, "hardly looked at"
    assert True not in answers
