"""Deadlocks among the calls of small random apps, and of large ones.

The truth about small apps is found by a fixpoint in plain Python (`who_moves`), which shares no code with the detector.
"""

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from calls_by_hand import App, table
from hypothesis import given, settings
from hypothesis import strategies as st

import ray_snapshot as rs
from ray_snapshot.detectors import Deadlock

LATER = datetime(2026, 1, 1, 13, tzinfo=UTC)


def who_moves(app: App) -> set[str]:
    """Ids of all calls (and machines that wait themselves) that may ever go on, slowly and obviously."""
    running, queued = {row["call_id"] for row in app.calls}, {row["call_id"]: row for row in app.messages}
    moves: set[str] = set()
    waiters = running | set(queued) | {row["machine"] for row in app.waits if row["call_id"] is None}
    while True:
        fresh = {one for one in waiters - moves if _may_go_on(app, one, queued.get(one), moves)}
        if not fresh:
            return moves
        moves |= fresh


def _may_go_on(app: App, one: str, message: dict[str, Any] | None, moves: set[str]) -> bool:
    machine = next((row for row in app.machines if message and row["machine"] == message["target"]), None)
    if machine is not None and machine["status"] == "stopped":
        return True  # Ray refuses the call
    return _may_wait_end(app, one, moves) and (message is None or _may_begin(app, message, machine, moves))


def _may_wait_end(app: App, one: str, moves: set[str]) -> bool:
    rows = [row for row in app.waits if one in (row["call_id"], row["machine"] if row["call_id"] is None else "")]
    known = {row["call_id"] for row in (*app.calls, *app.messages)}
    if not rows or any(row.get("timeout_at") for row in rows):
        return True
    for alternative in {row["alternative"] for row in rows}:
        mine = [row for row in rows if row["alternative"] == alternative]
        good = [row for row in mine if row["satisfied"] or row["on_call_id"] in moves or row["on_call_id"] not in known]
        if len(good) >= mine[0]["k"]:
            return True
    return False


def _may_begin(app: App, message: dict[str, Any], machine: dict[str, Any] | None, moves: set[str]) -> bool:
    if machine is None:
        return True
    here = [row for row in app.calls if row["machine"] == machine["machine"]]
    starting = [row for row in here if row["method"] == "__init__"]
    if starting:
        return any(row["call_id"] in moves for row in starting)
    group = message["concurrency_group"]
    holders = [row for row in here if row["holds_slot"] and row["concurrency_group"] == group]
    bounds = app.coverage.get("groups", {}).get(machine["machine"], {})
    bound = machine["max_concurrency"] if group is None else bounds.get(group, 10**9)
    return len(holders) < bound or any(row["call_id"] in moves for row in holders)


NAMES = ["A-0", "B-0", "C-0"]


@st.composite
def apps(draw: st.DrawFn) -> App:
    """A few actors with everything in them that decides; half of all waits are for one call, as in an app."""
    app = App()
    for name in NAMES:
        app.actor(name, draw(st.integers(1, 2)), draw(st.sampled_from(["active"] * 5 + ["stopped"])))
    app.coverage["groups"] = {"A-0": {"io": 1}, "B-0": {"io": 2}}
    living = [row["machine"] for row in app.machines if row["status"] != "stopped"] or ["Gone-0"]
    groups = st.sampled_from([None, None, "io"])
    running = []
    for _ in range(draw(st.integers(1, 5))):
        name, is_slow = draw(st.sampled_from(living)), draw(st.integers(0, 9)) == 0
        number = (
            {"number": 0} if is_slow and not any(row["call_id"] == f"driver/0/{name}/0" for row in app.calls) else {}
        )
        more = {"concurrency_group": draw(groups), "holds_slot": draw(st.integers(0, 5)) > 0, **number}
        running.append(app.runs(name, "driver", "__init__" if number else "run", **more))
    queued = [
        app.queues(
            draw(st.sampled_from([*NAMES, *NAMES, "Unborn-0"])), "driver", "later", concurrency_group=draw(groups)
        )
        for _ in range(draw(st.integers(0, 4)))
    ]
    for call_id in [*running, *queued]:
        chance = 9 if call_id in running else 2
        if draw(st.integers(0, 9)) < chance:
            _add_waits(draw, app, call_id, [*running, *queued])
    if draw(st.booleans()):
        app.actor("driver")
        _add_waits(draw, app, "driver", [*running, *queued])
    return app


def _add_waits(draw: st.DrawFn, app: App, call_id: str, known: list[str]) -> None:
    for alternative in range(draw(st.sampled_from([1, 1, 1, 2]))):
        size = draw(st.sampled_from([1, 1, 2, 3]))
        on = draw(st.lists(st.sampled_from(known), min_size=1, max_size=size, unique=True))
        ghost = [f"driver/0/A-0/{900 + alternative}"] * (draw(st.integers(0, 19)) == 0)
        k = len(on) + len(ghost) if call_id.rsplit("/", maxsplit=1)[-1] >= "100" else draw(st.integers(1, len(on)))
        app.waits_for(call_id, *on, *ghost, k=k, alternative=alternative)
        for row in app.waits[-len(on) - len(ghost) :]:
            row["satisfied"] = draw(st.integers(0, 14)) == 0
            row["timeout_at"] = LATER if draw(st.integers(0, 29)) == 0 else None


def reported(evidence: dict[str, Any]) -> int:
    return int(evidence["member_count"]) + int(evidence["stuck_behind_count"])


@pytest.mark.contract
@settings(max_examples=400, print_blob=True)
@given(apps())
def test_exactly_those_that_no_fixpoint_reaches_are_reported(app: App) -> None:
    """What only an unknown reply can free is None; here that counts as free, as in the detector's second look."""
    moves = who_moves(app)
    waiting = {row["call_id"] or row["machine"] for row in app.waits}
    known = {row["call_id"] for row in (*app.calls, *app.messages)} | {row["machine"] for row in app.machines}
    stuck = (waiting & known) - moves
    verdict = app.verdict()
    assert (verdict.holds is True) == bool(stuck)
    if stuck:
        machines = {name.split("/")[2] if "/" in name else name for name in stuck}
        records = verdict.evidence["members"] + verdict.evidence["stuck_behind"]
        assert reported(verdict.evidence) == len(stuck)
        assert {record["machine"] for record in records} == machines
        assert verdict.evidence["members"]
        assert verdict.sentence.startswith("Deadlock: ")


# ---- size -----------------------------------------------------------------------------------------------------------


def long_chain(size: int, *, is_closed: bool) -> rs.Snapshot:
    """Call i runs on machine i and waits for call i+1; a third of them have a call in the queue that nobody awaits."""
    names = np.array([f"m{number}" for number in range(size)])
    ids = np.array([f"driver/0/m{number}/1" for number in range(size)])
    last = size if is_closed else size - 1
    waits = {"machine": names, "call_id": ids, "on_machine": np.roll(names, -1), "on_call_id": np.roll(ids, -1)}
    late = [f"driver/0/m{number}/2" for number in range(0, size, 3)]
    return rs.Snapshot(
        {
            "snapshots": table("snapshots", 1, snapshot_id=["s"], run_id=["r"]),
            "machines": table("machines", size, machine=names, status=["active"] * size),
            "calls": table("calls", size, machine=names, call_id=ids, method=["go"] * size),
            "messages": table("messages", len(late), target=names[::3], call_id=late, kind=["call"] * len(late)),
            "waits": table("waits", last, **{name: column[:last] for name, column in waits.items()}),
        }
    )


@pytest.mark.parametrize("is_closed", [True, False])
def test_thirty_thousand_calls_are_decided_and_the_evidence_is_bounded(is_closed: bool) -> None:
    verdict = Deadlock().evaluate(long_chain(30_000, is_closed=is_closed))
    assert verdict.holds is is_closed
    assert verdict.evidence["member_count"] == (30_000 if is_closed else 0)
    assert len(verdict.evidence["members"]) == len(verdict.evidence["cycle"]) == (1_000 if is_closed else 0)
    assert ("and so on round a cycle of 30,000" in verdict.sentence) is is_closed


@pytest.mark.contract
def test_a_machine_is_listed_before_the_thousandth_call_of_another() -> None:
    app = App().actor("A-0", 2_000).actor("Y-0").actor("Z-0")
    stuck = [app.runs("A-0", "driver", "wait") for _ in range(1_100)]
    asks = [app.runs(machine, "driver", "ask") for machine in ("Y-0", "Z-0")]
    for number, one in enumerate(stuck):
        app.waits_for(one, asks[number % 2])
    for one in asks:
        app.waits_for(one, *stuck)
    verdict = app.verdict()
    evidence = verdict.evidence
    assert (evidence["member_count"], len(evidence["members"])) == (1_102, 1_000)
    assert {one["machine"] for one in evidence["members"]} == {"A-0", "Y-0", "Z-0"}
    assert [sorted(core) for core in evidence["cores"]] == [["A-0", "Y-0", "Z-0"]]
    assert "Z-0" in verdict.sentence
