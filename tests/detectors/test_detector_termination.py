"""When a computation is over, and when it only looks so."""

import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import ray_snapshot as rs
from ray_snapshot.detectors import Termination
from ray_snapshot.instrument.diagnosis import diagnosis


def judge(statuses: dict[str, str], **tables: Any) -> rs.Verdict:
    machines = [{"machine": name, "status": status} for name, status in statuses.items()]
    return Termination().evaluate(rs.Snapshot.from_rows(machines=machines, **tables))


@pytest.mark.contract
def test_everybody_passive_or_stopped_and_nothing_in_flight_is_termination() -> None:
    verdict = judge({"a": "passive", "b": "stopped", "driver": "passive"})
    assert verdict.holds is True
    assert not verdict.alarm
    assert verdict.sentence == "Terminated: 3 machines passive or stopped, nothing in flight."


@pytest.mark.contract
def test_everybody_idle_is_not_termination_while_a_message_is_in_flight() -> None:
    verdict = judge({"a": "passive", "b": "passive"}, messages=[{"source": "a", "target": "b"}])
    assert verdict.holds is False
    assert verdict.evidence["first_channels"] == [{"source": "a", "target": "b", "kind": "mail", "count": 1}]
    assert verdict.sentence == "Not terminated: 1 message in flight (the first from a to b)."


@pytest.mark.contract
@pytest.mark.parametrize("kind", ["mail", "call", "timer"])
def test_a_message_of_any_kind_counts_and_a_timer_however_late_it_is_due(kind: str) -> None:
    message = {"source": "a", "target": "a", "kind": kind, "due_at": datetime(2100, 1, 1, tzinfo=UTC)}
    verdict = judge({"a": "passive"}, messages=[message])
    assert verdict.holds is False
    assert verdict.evidence["timers"] == (kind == "timer")


@pytest.mark.contract
def test_the_driver_while_it_still_sets_things_up_is_active() -> None:
    verdict = judge({"a": "passive", "driver": "active"})
    assert verdict.holds is False
    assert verdict.evidence["first_active"] == ["driver"]


@pytest.mark.contract
@pytest.mark.parametrize(
    ("waits", "sentence"),
    [
        ([False], "Not terminated (stuck, not done): b blocked."),
        ([True], "Not terminated: b blocked, and what is waited for has come or can still come."),
        ([], "Not terminated: b blocked, and whether what is waited for can come cannot be told."),
    ],
)
def test_a_blocked_machine_is_not_done_and_stuck_only_if_nothing_can_end_its_wait(
    waits: list[bool], sentence: str
) -> None:
    rows = [{"machine": "b", "on_machine": "a", "satisfied": satisfied} for satisfied in waits]
    verdict = judge({"a": "passive", "b": "blocked"}, waits=rows)
    assert (verdict.holds, verdict.sentence) == (False, sentence)


def test_a_wait_that_is_met_is_said_so_in_every_line_of_a_diagnosis() -> None:
    machines = [{"machine": name, "status": status} for name, status in (("a", "passive"), ("driver", "blocked"))]
    common = {"machine": "driver", "k": 1, "alternative": 0}
    waits = [{**common, "on_machine": name, "satisfied": name == "a"} for name in ("a", "c")]
    snapshot = rs.Snapshot.from_rows(machines=machines, waits=waits)
    lines = diagnosis(snapshot).lines

    assert lines[1:] == [
        "  deadlock: No deadlock: 1 machine blocked, and what it waits for can still come.",
        "  termination: Not terminated: driver blocked, and what is waited for has come or can still come.",
        "  who waits for whom:",
        "    driver: what it waits for has come",
    ]


@pytest.mark.contract
def test_a_status_that_this_version_does_not_know_counts_as_active() -> None:
    assert judge({"a": "dreaming"}).holds is False


@pytest.mark.contract
def test_what_a_stopped_machine_will_never_accept_is_no_work() -> None:
    verdict = judge({"a": "passive", "b": "stopped"}, messages=[{"source": "a", "target": "b"}] * 2)
    assert verdict.holds is True
    assert verdict.evidence["undeliverable"] == 2


@pytest.mark.contract
def test_a_message_for_a_machine_that_is_not_spawned_yet_is_work() -> None:
    assert judge({"a": "passive"}, messages=[{"source": "a", "target": "unborn"}]).holds is False


@pytest.mark.contract
def test_a_channel_that_counts_messages_in_flight_is_believed_without_their_rows() -> None:
    channels = [{"source": "a", "target": "b", "sent_count": 3, "in_flight_count": 2}]
    verdict = judge({"a": "passive", "b": "passive"}, channels=channels)
    assert verdict.holds is False
    assert verdict.evidence["in_flight"] == 2


@pytest.mark.contract
@pytest.mark.parametrize("coverage", [{"uncovered": ["plain tasks"]}, {}])
def test_with_anything_unobserved_quiet_is_unknown_but_work_is_still_work(coverage: dict[str, Any]) -> None:
    assert judge({"a": "passive"}, coverage=coverage).holds is None
    assert judge({"a": "active"}, coverage=coverage).holds is False


@pytest.mark.contract
@pytest.mark.parametrize(("column", "value"), [("consistent", False), ("status", "aborted")])
def test_a_snapshot_that_is_no_consistent_cut_proves_nothing(column: str, value: Any) -> None:
    assert judge({"a": "passive"}, **{column: value}).holds is None


@pytest.mark.contract
def test_it_is_told_which_calls_still_run_where_and_how_long() -> None:
    now = datetime(2026, 1, 1, 13, tzinfo=UTC)
    machines = [{"machine": "nap-0", "class_name": "", "status": "active"}, {"machine": "driver", "status": "blocked"}]
    machines += [{"machine": name, "class_name": "A", "status": "active"} for name in ("A-0", "A-1", "A-2")]
    calls = [
        {
            "machine": "nap-0",
            "call_id": "1",
            "method": "nap",
            "call_site": "app.py:5",
            "started_at": now - timedelta(seconds=12),
        },
        {"machine": "A-0", "call_id": "2", "method": "late", "started_at": now - timedelta(seconds=1)},
        {"machine": "A-0", "call_id": "3", "method": "wait", "started_at": now - timedelta(hours=3)},
        {"machine": "A-2", "call_id": None, "method": "(a task of its own)", "started_at": now},
    ]
    rows = rs.Snapshot.from_rows(machines=machines, calls=calls, started_at=now)
    assert Termination().evaluate(rows).sentence == (
        "Not terminated: nap-0 still runs nap (at app.py:5, for 12 s); A-0 still runs A.wait (for 3 h); A-1, A-2 active;"
        " driver blocked."
    )


@pytest.mark.contract
def test_a_worker_of_rays_is_told_as_the_task_that_it_runs_or_by_its_process() -> None:
    machines = [
        {"machine": "f-1", "class_name": "", "host": "pid-12", "status": "blocked"},
        {"machine": "A-0", "host": "pid-13"},
    ]
    for source, shown in (
        ("ray-worker-12", "f-1"),
        ("ray-worker-12-0", "f-1"),
        ("ray-worker-13", "a worker of Ray's (process 13)"),
    ):
        rows = rs.Snapshot.from_rows(machines=machines, messages=[{"source": source, "target": "f()", "kind": "call"}])
        found = Termination().evaluate(rows)
        assert f"1 message in flight (the first from {shown} to f())" in found.sentence
        assert found.evidence["first_channels"][0]["source"] == source


@pytest.mark.contract
def test_where_only_the_driver_is_active_the_sentence_says_why_termination_may_have_held_before() -> None:
    resting, driver = {"machine": "a"}, {"machine": "driver", "status": "active"}
    said = Termination().evaluate(rs.Snapshot.from_rows(machines=[resting, driver])).sentence
    assert said.startswith("Not terminated: driver active; all machines are at rest, and only the program")
    assert said.endswith("passive while it sits in wait_for, so termination may have held before.")
    for machines, messages in (
        ([{"machine": "a", "status": "active"}, driver], []),
        ([{"machine": "a", "status": "active"}], []),
        ([resting, driver], [{"source": "driver", "target": "a", "method": "go", "args": []}]),
    ):
        said = Termination().evaluate(rs.Snapshot.from_rows(machines=machines, messages=messages)).sentence
        assert "wait_for" not in said


def test_the_first_channels_are_those_of_the_first_messages_with_all_of_theirs() -> None:
    chance = random.Random(7)
    for number in range(60):
        names = [f"m{name}" for name in range(chance.choice([2, 4, 8]))]
        statuses = {name: chance.choice(["passive", "passive", "stopped"]) for name in names}
        keys = ("source", "target", "kind")
        messages = [
            dict(zip(keys, (chance.choice(names), chance.choice(names), chance.choice(["mail", "timer"])), strict=True))
            for _ in range(chance.choice([0, 1, 15, 90]))
        ]
        if number % 2:
            messages.sort(key=lambda row: tuple(row.values()))
        coming = [tuple(row.values()) for row in messages if statuses[row["target"]] != "stopped"]
        found = judge(statuses, messages=messages).evidence
        expected = [{**dict(zip(keys, key, strict=True)), "count": count} for key, count in Counter(coming).items()]
        assert found["first_channels"] == expected[:10]
        assert (found["in_flight"], found["undeliverable"]) == (len(coming), len(messages) - len(coming))
        assert found["timers"] == sum(kind == "timer" for *_, kind in coming)
