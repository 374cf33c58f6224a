"""`ray-snapshot export --perfetto`: what is in the trace, that its slices lie one in the other, and that it stays bounded."""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from incidents import START, deadlocked, healthy, incident, written

from ray_snapshot.cli import main
from ray_snapshot.history import HistoryWriter
from ray_snapshot.reports import perfetto
from ray_snapshot.schema import ACTIONS
from ray_snapshot.snapshot import Snapshot

Event = dict[str, Any]


def exported(path: Path, *options: str) -> list[Event]:
    out = path.parent / "trace.json"
    assert main(["export", str(path), "--perfetto", str(out), *options]) == 0
    found: list[Event] = json.loads(out.read_text())["traceEvents"]
    return found


def named(events: list[Event], phase: str, name: str) -> list[Event]:
    return [one for one in events if (one["ph"], one["name"]) == (phase, name)]


def check_nesting(events: list[Event]) -> None:
    """Slices of one id lie one in the other, in the order of their times."""
    open_: dict[Any, list[str]] = defaultdict(list)
    for one in sorted((one for one in events if one["ph"] in "be"), key=lambda one: one["ts"]):
        stack = open_[one["pid"], one["cat"], one["id"]]
        if one["ph"] == "b":
            stack.append(one["name"])
        else:
            assert stack.pop() == one["name"]
    assert not any(open_.values())


def us(seconds: float) -> int:
    return round((START + timedelta(seconds=seconds)).timestamp() * 1_000_000)


def test_snapshots_what_detectors_say_and_waits_are_drawn_over_time(tmp_path: Path) -> None:
    rows = [
        one(number, completed_at=START + timedelta(seconds=number + 0.5))
        for number, one in enumerate((healthy, healthy, healthy, healthy, deadlocked, deadlocked))
    ]
    events = exported(written(tmp_path / "h", rows))
    check_nesting(events)
    assert [one["args"]["name"] for one in named(events, "M", "process_name")] == ["system bank"]
    begin, end = (
        one for one in events if one["ph"] in "be" and one["id"] == "bank-00004" and one["name"] == "snapshot"
    )
    assert (begin["ts"], end["ts"], begin["args"]["in_flight_count"]) == (us(4), us(4.5), 2)
    alarms = named(events, "i", "deadlock: ALARM: holds")
    assert [(one["ts"], one["s"]) for one in alarms] == [(us(4.5), "p"), (us(5.5), "p")]
    assert "a in Account.transfer" in alarms[0]["args"]["sentence"]
    (wait,), (over,) = named(events, "b", "a waits for b"), named(events, "e", "a waits for b")
    assert (wait["ts"], over["ts"]) == (us(3), us(5.5)), "one wait, seen in two snapshots, until the last that has it"
    assert wait["args"]["where"] == "transfer /srv/app/bank.py:41"
    tracks = {one["tid"]: one["args"]["name"] for one in named(events, "M", "thread_name")}
    assert tracks[wait["tid"]] == "a"
    assert [one["args"]["in flight"] for one in named(events, "C", "in flight")] == [0, 0, 0, 0, 2, 2]


def test_who_recorded_late_lies_around_who_was_early_and_a_snapshot_that_was_given_up_says_so(tmp_path: Path) -> None:
    machines = [{"machine": f"m{at}", "host": f"host-{at}", "record_delay_ms": 10.0 * at} for at in range(4)]
    late = Snapshot.from_rows(
        machines=machines, snapshot_id="s1", started_at=START, completed_at=START + timedelta(milliseconds=25)
    )
    aborted = Snapshot.from_rows(
        machines=[], snapshot_id="s2", sequence=2, started_at=START, status="aborted", abort_reason="slow\x1b"
    )
    events = exported(written(tmp_path / "h", [late, aborted]))
    check_nesting(events)
    ends = {one["name"]: one["ts"] - us(0) for one in events if one["ph"] == "e" and one["id"] == "s1"}
    assert ends == {"host-0": 0, "host-1": 10_000, "host-2": 20_000, "host-3": 25_000, "snapshot": 25_000}
    (given_up,) = named(events, "b", "snapshot that was given up")
    assert given_up["args"]["abort_reason"] == "slow\\x1b"


def actions(*rows: tuple[str, int, str, list[Any], list[Any]]) -> pa.Table:
    made = [
        {
            "run_id": "run-1",
            "machine": machine,
            "number": number,
            "host": "h",
            "method": method,
            "accepted": json.dumps(accepted),
            "sent": json.dumps(sent),
            "colour": 0,
            "acted_at": datetime(2026, 3, 1, 12, 0, number, tzinfo=UTC),
            "is_over": True,
            "waited_at": None,
            "raised": None,
        }
        for machine, number, method, accepted, sent in rows
    ]
    return pa.Table.from_pylist(made, schema=ACTIONS)


@pytest.fixture
def traced(tmp_path: Path) -> Path:
    path = incident(tmp_path / "h")
    to_b = {"target": "b", "kind": "mail", "number": 1, "method": "deposit", "args": []}
    from_a = {"source": "a", "kind": "mail", "number": 1, "method": "deposit", "args": []}
    with HistoryWriter(path) as writer:
        writer.add_actions(actions(("a", 1, "pay", [], [to_b]), ("b", 2, "deposit", [from_a], [])), system="bank")
    return path


def test_actions_of_a_traced_run_are_moments_and_messages_are_arrows(traced: Path) -> None:
    events = exported(traced)
    (pay,), (deposit,) = named(events, "X", "pay"), named(events, "X", "deposit")
    assert deposit["ts"] - pay["ts"] == 1_000_000
    (start,), (finish,) = named(events, "s", "deposit"), named(events, "f", "deposit")
    assert start["id"] == finish["id"]
    assert (start["tid"], start["ts"], finish["tid"], finish["ts"]) == (
        pay["tid"],
        pay["ts"],
        deposit["tid"],
        deposit["ts"],
    )


def test_too_much_is_left_out_and_said(
    traced: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(perfetto, "MOST_SNAPSHOTS", 2)
    monkeypatch.setattr(perfetto, "MOST_MACHINES", 1)
    monkeypatch.setattr(perfetto, "MOST_ACTIONS", 1)
    events = exported(traced)
    assert len([one for one in events if one["ph"] == "b" and one["name"] == "snapshot"]) == 2
    assert len([one for one in named(events, "M", "thread_name") if one["tid"] >= perfetto.FIRST_MACHINE]) == 1
    told = capsys.readouterr().err
    for what in ("4 of 6 snapshots (the earliest)", "1 of 2 actions (the last)", "2 of 3 machines"):
        assert f"left out: {what}" in told


def test_one_system_and_one_run_can_be_chosen_and_what_is_not_there_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path / "h", [healthy(0), healthy(1, run_id="run-2", system="shop", snapshot_id="shop-1")])
    assert len(named(exported(path), "M", "process_name")) == 2
    assert [one["args"]["name"] for one in named(exported(path, "--system", "shop"), "M", "process_name")] == [
        "system shop"
    ]
    assert [one["args"]["name"] for one in named(exported(path, "--run", "run-1"), "M", "process_name")] == [
        "system bank"
    ]
    for options in (["--run", "nope"], ["--system", "nope"]):
        assert main(["export", str(path), "--perfetto", str(tmp_path / "x.json"), *options]) == 2
    assert main(["export", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 3
    assert not (tmp_path / "x.json").exists()
