"""What a person is told of calls that wait for a slot while others run on, and of what has not begun for want of room."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from calls_by_hand import App
from rooms_by_hand import Room, last_cpu, wait_row

from ray_snapshot import Snapshot
from ray_snapshot.detectors import Deadlock
from ray_snapshot.detectors.busy_loops import busy_loops
from ray_snapshot.detectors.pending import why_pending
from ray_snapshot.detectors.queued import why_queued
from ray_snapshot.instrument.diagnosis import diagnosis
from ray_snapshot.limits import LIMITS

NOW = datetime(2026, 3, 1, 10, 1, tzinfo=UTC)


def ago(seconds: float) -> datetime:
    return NOW - timedelta(seconds=seconds)


def sent(method: str = "count", number: int = 1, *, seconds: float = 42, **more: Any) -> dict[str, Any]:
    call = {"kind": "call", "call_id": f"driver/0/E/{number}", "method": method, "sent_at": ago(seconds)}
    return {"source": "driver", "target": "E", **call, **more}


def run(method: str = "loop", number: int = 100, *, seconds: float = 43, **more: Any) -> dict[str, Any]:
    call = {"call_id": f"driver/0/E/{number}", "method": method, "started_at": ago(seconds), "call_site": "app.py:7"}
    return {"machine": "E", "caller": "driver", "holds_slot": True, **call, **more}


def taken(*messages: dict[str, Any], calls: Any = (), slots: int = 1, waits: Any = (), **coverage: Any) -> Snapshot:
    actor = {"machine": "E", "class_name": "Executor", "status": "active", "max_concurrency": slots}
    driver = {"machine": "driver", "status": "active"}
    rows = {"machines": [actor, driver], "messages": messages, "calls": calls, "waits": waits}
    return Snapshot.from_rows(**rows, started_at=NOW, coverage={"uncovered": [], **coverage})


LINE = "count of E has waited for 42 s: every slot is taken, loop (app.py:7) has run for 43 s"


def test_a_call_behind_one_that_runs_on_is_told_with_both_times_and_the_place() -> None:
    assert why_queued(taken(sent(), calls=[run()])) == [LINE]


@pytest.mark.parametrize(
    "snapshot",
    [
        taken(sent(seconds=5), calls=[run()]),
        taken(sent(), calls=[run()], slots=2),
        taken(sent(), calls=[run(holds_slot=False)]),
        taken(sent(), calls=[]),
        taken(sent(kind="mail"), calls=[run()]),
        taken(sent(concurrency_group="io"), calls=[run()], groups={"E": {"io": 1}}),
        taken(sent(concurrency_group="io"), calls=[run(concurrency_group="io")], groups={"E": {"io": 2}}),
        taken(
            sent(),
            calls=[run()],
            waits=[{"machine": "E", "call_id": "driver/0/E/1", "on_machine": "B", "k": 1, "satisfied": False}],
        ),
    ],
    ids=[
        "it may be on its way", "a slot is free", "its slot is free", "nothing runs", "no call", "its group is free",
        "one of its group is", "arguments",
    ],
)  # fmt: skip
def test_nothing_is_told_where_the_slots_are_not_the_reason(snapshot: Snapshot) -> None:
    assert why_queued(snapshot) == []


def test_slots_are_those_of_the_concurrency_group() -> None:
    calls = [run(concurrency_group="io"), run("other", 101)]
    (line,) = why_queued(taken(sent(concurrency_group="io"), calls=calls, slots=5, groups={"E": {"io": 1}}))
    assert line.endswith("every slot is taken, loop (app.py:7) has run for 43 s")


def test_of_an_async_actor_it_is_the_call_that_blocks_the_loop() -> None:
    calls = [run(), run("awaits", 101, call_site="app.py:9")]
    (line,) = why_queued(taken(sent(), calls=calls, slots=1000, blocked_loops={"E": "driver/0/E/100"}))
    assert line == "count of E has waited for 42 s: the event loop is blocked, loop (app.py:7) has run for 43 s"


def test_calls_of_one_method_are_one_line_and_lines_have_a_bound() -> None:
    (line,) = why_queued(taken(sent(), sent(number=2, seconds=20), calls=[run()]))
    assert line.startswith("count of E (2 calls) has waited for 42 s: ")
    many = [sent(f"m{at:02}", at, seconds=100 - at) for at in range(LIMITS.queued_lines + 3)]
    lines = why_queued(taken(*many, calls=[run()]))
    assert lines[0].startswith("m00 of E has waited for ")
    assert (len(lines), lines[-1]) == (LIMITS.queued_lines + 1, "... and 3 more")


def test_a_strangers_rows_are_told_as_far_as_they_go() -> None:
    messages = [sent(), sent(None, 2), sent("other", 3, target=None), sent("late", 4, sent_at=None)]  # type: ignore[arg-type]
    calls = [run(), run("unknown", 101, started_at=None)]
    lines = why_queued(taken(*messages, calls=calls, blocked_loops=[5], groups={"E": 5, "F": {"io": "x"}}))
    assert LINE in lines
    assert not any("late" in line or "unknown" in line for line in lines)


def test_the_diagnosis_shows_it_unless_a_deadlock_says_more() -> None:
    assert f"    {LINE}" in diagnosis(taken(sent(), calls=[run()])).lines
    wait = {"machine": "E", "call_id": "driver/0/E/100", "on_machine": "E", "on_call_id": "driver/0/E/1"}
    wait |= {"k": 1, "satisfied": False, "waiting_since": ago(43)}
    lines = diagnosis(taken(sent(), calls=[run()], waits=[wait])).lines
    assert not any("has waited for" in line for line in lines)
    assert "  the last of these waits began at 10:00:17, 43 s ago" in lines
    beside = diagnosis(taken(sent(), sent("note", 2), calls=[run()], waits=[wait])).lines
    assert [line for line in beside if "has waited for" in line] == [f"    {LINE.replace('count', 'note')}"]


def test_where_a_deadlock_cannot_be_told_the_call_that_is_waited_for_is_shown_too() -> None:
    app = App().actor("E").actor("driver")
    app.waits_for("driver", app.queues("E", "driver", "count", sent_at=ago(42)))
    app.waits_for(app.runs("E", "driver", "loop", "app.py:7", started_at=ago(43), holds_slot=True), None)
    found = diagnosis(app.snapshot(started_at=NOW))
    assert (found.verdicts[0].holds, f"    {LINE}" in found.lines) == (None, True)


def test_while_a_method_that_is_not_async_occupies_the_loop_it_cannot_be_told_and_who_stands_behind_it_is_said() -> (
    None
):
    snapshot = taken(sent("stop"), calls=[run()], slots=1000, blocked_loops={"E": "driver/0/E/100"})
    verdict = Deadlock().evaluate(snapshot)
    assert verdict.holds is None
    assert verdict.sentence == (
        "Deadlock cannot be told: E (app.py:7) has been in loop for 43 s, which occupies its event loop, and stop waits for"
        " that."
    )
    assert verdict.evidence["depends_on"] == ["whether loop of E ends without stop"]
    lines = diagnosis(snapshot).lines
    assert any(line.startswith("  to do: Make loop async, with an await where it waits") for line in lines)


@pytest.mark.parametrize(
    ("messages", "call", "blocked"),
    [([], run(), {"E": "driver/0/E/100"}), ([sent()], run(seconds=5), {"E": "driver/0/E/100"}), ([sent()], run(), {})],
)
def test_a_loop_that_is_not_occupied_for_long_or_with_no_call_behind_holds_no_verdict_up(
    messages: Any, call: Any, blocked: Any
) -> None:
    assert Deadlock().evaluate(taken(*messages, calls=[call], slots=1000, blocked_loops=blocked)).holds is False
    assert busy_loops(taken(*messages, calls=[call], blocked_loops=[5])) == []


def test_it_is_told_of_each_pending_thing_why() -> None:
    app, room = last_cpu(cpus=2)
    room.told["holders"][0]["amounts"] = {"CPU": 1}
    app.actor("slow-0", status="active")
    app.runs("slow-0", "driver", "slow")
    room.holds("slow-0", "n1", CPU=1)
    room.told["holders"][-1]["task"] = True
    late = app.queues("after()", "driver", "after", number=1)
    app.waits.append(wait_row("after()", late, "Trainer-0/0/prepare()/1", 1))
    room.group("spare", {"CPU": 4})
    assert why_pending(app.snapshot(started_at=datetime.fromtimestamp(110, UTC))) == [
        "prepare() of Trainer-0 has waited for 100 s: it needs CPU 1, and Trainer-0, slow-0 each hold CPU 1 of 2",
        "after() waits for its arguments, by prepare()",
        "placement group spare has not been made: it needs CPU 4, and no node has more than CPU 2",
    ]
    assert app.verdict().holds is False, "a task that computes gives its CPU back"


def test_a_group_that_somebody_asks_for_again_and_again_has_an_owner_and_who_holds_it_is_told() -> None:
    """No call waits for it that was recorded. A group with a name is called by that, and what it has is reserved, too."""
    app = App().actor("Owner-0", status="active")
    room = Room(app).node("n1", CPU=4).group("0123456789abcdef", {"CPU": 4}, owners=["Owner-0"])
    room.group("made", {"CPU": 1}, on="n1", owners=["Owner-0"]).group("named", {"CPU": 1}, on="n1", name="spare")
    assert why_pending(app.snapshot()) == [
        "placement group 01234567 of Owner-0 has not been made: it needs CPU 4, and Owner-0 holds CPU 1 of 4 by placement group"
        " made; its owner holds CPU 1 of 4 by placement group spare"
    ]
    room.told["groups"] = [one for one in room.told["groups"] if not one["created"]]
    assert why_pending(app.snapshot()) == [
        "placement group 01234567 of Owner-0 has not been made: it needs CPU 4, and there is room: it is about to be made"
    ]


def test_an_actor_that_computes_holds_what_it_has_though_it_may_take_a_call_more() -> None:
    """For a verdict it counts as about to give it back; not for the answer why something waits now."""
    app, _ = last_cpu()
    app.machines[1].update(status="active", max_concurrency=2)
    (line,) = why_pending(app.snapshot(started_at=datetime.fromtimestamp(110, UTC)))
    assert line.endswith("it needs CPU 1, and Trainer-0 holds CPU 4 of 4")


def test_it_is_told_that_there_is_room() -> None:
    app, _ = last_cpu(cpus=5)
    assert why_pending(app.snapshot(started_at=datetime.fromtimestamp(110, UTC))) == [
        "prepare() of Trainer-0 has waited for 100 s: it needs CPU 1, and a node has room: Ray has not begun it all the same"
    ]
