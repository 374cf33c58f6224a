"""Deadlocks among the calls of an app: calls wait for replies, and calls that have not begun for a free slot.

The truth about small random apps is found by a fixpoint in plain Python (`who_moves`), which shares no code with
the detector.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from calls_by_hand import App
from hypothesis import given, settings
from hypothesis import strategies as st

import ray_snapshot as rs
from ray_snapshot.detectors import Deadlock
from ray_snapshot.schema import DEFAULTS, SNAPSHOT_TABLES
from ray_snapshot.views.report import deadlock_report, wait_line

LATER = datetime(2026, 1, 1, 13, tzinfo=UTC)


def stuck_calls(records: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(record["machine"], record["method"]) for record in records]


def two_actors(*, slots: int = 1) -> tuple[App, str, str]:
    """A-0 and A-1 run a call each that waits for one more call to the other."""
    app = App().actor("A-0", slots).actor("A-1", slots)
    both = app.runs("A-0", "driver", "both", "app.py:7")
    ask = app.runs("A-1", "A-0", "ask", "app.py:8")
    answer = app.queues("A-0", "A-1", "answer")
    app.waits_for(both, ask).waits_for(ask, answer)
    return app, both, ask


def test_two_actors_that_get_each_other_are_named_with_methods_and_call_sites() -> None:
    app, _, _ = two_actors()
    verdict = app.verdict()
    assert verdict.holds is True
    assert verdict.evidence["members"] == [
        {
            "machine": "A-0",
            "class": "A",
            "method": "both",
            "call_site": "app.py:7",
            "waits_for": ["A-1"],
            "mode": "all",
            "waits_for_calls": ["A.ask"],
        },
        {
            "machine": "A-1",
            "class": "A",
            "method": "ask",
            "call_site": "app.py:8",
            "waits_for": ["A-0"],
            "mode": "all",
            "waits_for_calls": ["A.answer"],
        },
    ]
    assert verdict.evidence["stuck_behind"] == []
    assert verdict.evidence["cores"] == [["A-0", "A-1"]]
    assert verdict.evidence["cycle"] == ["A-0", "A-1"]
    assert verdict.evidence["advice"] == [
        "Raise max_concurrency of A to 2, or make A an async actor that awaits,"
        " so that A.answer (called at app.py:8) can begin (2 of its"
        " calls then run at once: lock what they change, but not while they wait); or give its value along with the call, so"
        " that nobody asks back; or do not wait for its reply."
    ]
    assert verdict.sentence == (
        "Deadlock: A-0 in A.both (app.py:7) waits for A.ask of A-1;"
        " A-1 in A.ask (app.py:8) waits for A.answer of A-0, which waits for a free slot of A-0;"
        " 2 calls can never move again."
    )


def test_with_one_more_slot_the_same_two_actors_get_on() -> None:
    app, _, _ = two_actors(slots=2)
    verdict = app.verdict()
    assert verdict.holds is False
    assert verdict.sentence == "No deadlock: 2 calls blocked, and what each waits for can still come."


def ring(size: int) -> tuple[App, list[str]]:
    app = App()
    for number in range(size):
        app.actor(f"Node-{number}")
    running = [app.runs(f"Node-{number}", "driver", "go", f"ring.py:{number}") for number in range(size)]
    for number, call_id in enumerate(running):
        after = f"Node-{(number + 1) % size}"
        app.waits_for(call_id, app.queues(after, f"Node-{number}", "ping"))
    return app, running


def test_a_ring_of_four_is_one_cycle_and_the_driver_is_stuck_behind_it() -> None:
    app, running = ring(4)
    app.actor("driver").waits_for("driver", *running)
    app.calls.append({"machine": "driver", "method": "(the program)", "holds_slot": False, "call_site": "main.py:3"})
    verdict = app.verdict()
    assert verdict.holds is True
    assert verdict.evidence["cycle"] == ["Node-0", "Node-1", "Node-2", "Node-3"]
    assert len(verdict.evidence["members"]) == 4
    assert verdict.evidence["stuck_behind"] == [
        {
            "machine": "driver",
            "class": "driver",
            "method": "(the program)",
            "call_site": "main.py:3",
            "waits_for": ["Node-0", "Node-1", "Node-2", "Node-3"],
            "mode": "all",
            "waits_for_calls": ["Node.go"],
        }
    ]
    assert verdict.sentence.endswith("4 calls can never move again; 1 more is stuck behind them (driver).")
    assert verdict.evidence["advice"] == [
        "Raise max_concurrency of Node to 2, or make Node an async actor that awaits,"
        " so that Node.ping (called at ring.py:0, ring.py:1,"
        " ring.py:2 and 1 more) can begin (2 of its calls then run at once: lock what they change, but not while they wait);"
        " or give its value along with the call, so that nobody asks back; or do not wait for its reply."
    ]


@pytest.mark.parametrize("slots", [1, 3])
def test_calls_that_hold_all_slots_and_wait_for_later_calls_to_the_same_actor(slots: int) -> None:
    """A sync actor that calls itself, an async one with one slot, and any with n slots: the same graph."""
    app = App().actor("Broker-0", slots)
    for number in range(slots):
        call_id = app.runs("Broker-0", "driver", "pay", f"bank.py:{number}")
        app.waits_for(call_id, app.queues("Broker-0", "Broker-0", "check"))
    verdict = app.verdict()
    assert verdict.holds is True
    assert stuck_calls(verdict.evidence["members"]) == [("Broker-0", "pay")] * slots
    assert verdict.evidence["cycle"] == ["Broker-0"]
    sites = ", ".join(f"bank.py:{number}" for number in range(slots))
    assert verdict.evidence["advice"][0] == (
        f"Broker.pay waits at {sites} for Broker.check of the same actor: call self.check() directly,"
        f" or raise max_concurrency of Broker to {2 * slots}; {2 * slots} of its calls then run at once: lock what they change,"
        " but not while they wait."
    )


def test_the_same_calls_with_one_slot_free_are_no_deadlock() -> None:
    app = App().actor("Broker-0", 3)
    for _ in range(2):
        app.waits_for(app.runs("Broker-0", "driver", "pay"), app.queues("Broker-0", "Broker-0", "check"))
    assert app.verdict().holds is False


def test_a_call_that_holds_no_slot_leaves_it_to_others() -> None:
    app = App().actor("Broker-0")
    app.waits_for(app.runs("Broker-0", "driver", "pay", holds_slot=False), app.queues("Broker-0", "driver", "check"))
    assert app.verdict().holds is False


def grouped(own: str | None, other: str | None, **coverage: Any) -> rs.Verdict:
    """A threaded actor whose one slot of group `own` is held by a call that waits for one of group `other`."""
    app = App().actor("Store-0", 1)
    app.coverage.update(coverage)
    reads = app.runs("Store-0", "driver", "read", concurrency_group=own)
    return app.waits_for(reads, app.queues("Store-0", "Store-0", "write", concurrency_group=other)).verdict()


def test_a_full_group_stops_its_own_calls_and_no_others() -> None:
    bounds = {"Store-0": {"io": 1, "cpu": 1}}
    assert grouped("io", "io", groups=bounds).holds is True
    assert grouped("io", "cpu", groups=bounds).holds is False
    assert grouped("io", None, groups=bounds).holds is False
    assert grouped(None, "io", groups=bounds).holds is False
    assert grouped("io", "io", groups={"Store-0": {"io": 2}}).holds is False
    assert grouped("io", "io").holds is False, "the bound is not known"


def test_the_group_is_named_in_the_sentence_and_in_the_advice() -> None:
    verdict = grouped("io", "io", groups={"Store-0": {"io": 1}})
    assert "which waits for a free slot of group io of Store-0" in verdict.sentence
    assert "or raise the bound of concurrency group io of Store to 2;" in verdict.evidence["advice"][0]


def k_of_three(k: int) -> rs.Verdict:
    """ray.wait for `k` of a call that works and of two that need the waiter's own slot."""
    app = App().actor("A-0").actor("B-0", status="active").actor("C-0").actor("D-0")
    waiter = app.runs("A-0", "driver", "gather", "app.py:3")
    works = app.runs("B-0", "A-0", "work")
    stuck = [app.runs(name, "A-0", "back", "app.py:9") for name in ("C-0", "D-0")]
    for call_id in stuck:
        app.waits_for(call_id, app.queues("A-0", call_id.split("/")[2], "more"))
    return app.waits_for(waiter, works, *stuck, k=k).verdict()


def test_k_of_n_holds_exactly_if_fewer_than_k_can_answer() -> None:
    assert k_of_three(1).holds is False
    verdict = k_of_three(2)
    assert verdict.holds is True
    assert verdict.evidence["members"][0]["mode"] == "k_of_n"
    assert verdict.evidence["members"][0]["k"] == 2
    assert "A-0 in A.gather (app.py:3) waits for 2 of C.back of C-0, " in verdict.sentence


def test_a_wait_for_more_replies_than_there_are_calls_says_what_cannot_come() -> None:
    app = App().actor("A-0").actor("B-0", status="active")
    waiter, works = app.runs("A-0", "driver", "gather", "app.py:3"), app.runs("B-0", "A-0", "work")
    verdict = app.waits_for(waiter, works, k=2).verdict()
    assert verdict.holds is True
    assert "A-0 in A.gather (app.py:3) waits for 2 of B.work of B-0, and so many can never come" in verdict.sentence
    assert "A-0 in A.gather (app.py:3) waits for 2 of B.work of B-0" in verdict.evidence["advice"][0]


def test_a_cycle_of_running_calls_says_what_must_come_and_cannot() -> None:
    """Refs that were passed on: each of two calls waits for the reply of the other."""
    app = App().actor("A-0", 5).actor("B-0", 5).actor("C-0", status="active")
    one, other = app.runs("A-0", "driver", "f"), app.runs("B-0", "driver", "g")
    free = app.runs("C-0", "driver", "h")
    verdict = app.waits_for(one, other, free).waits_for(other, one).verdict()
    assert verdict.holds is True
    assert verdict.evidence["cycle"] == ["A-0", "B-0"]
    assert ", and B.g of B-0 can never come: " in verdict.evidence["advice"][0]


def test_a_cycle_through_a_constructor_keeps_every_call_out_whatever_its_slots_and_group() -> None:
    app = App().actor("Child-0", 1_000).actor("Parent-0")
    starts = app.runs("Child-0", "Parent-0", "__init__", "child.py:4", number=0)
    create = app.runs("Parent-0", "driver", "create", "parent.py:9")
    app.waits_for(create, app.queues("Child-0", "Parent-0", "ready", concurrency_group="io"))
    app.waits_for(starts, app.queues("Parent-0", "Child-0", "register"))
    verdict = app.verdict()
    assert verdict.holds is True
    assert stuck_calls(verdict.evidence["members"]) == [("Child-0", "__init__"), ("Parent-0", "create")]
    assert "waits for Child.ready of Child-0, which waits for the constructor of Child-0" in verdict.sentence
    assert any("when the constructor of Child-0 has returned" in text for text in verdict.evidence["advice"])
    app.waits = app.waits[:1]
    app.machines[0]["status"] = "active"
    assert app.verdict().holds is False, "a constructor that works will return"


def blocked_loop(**coverage: Any) -> rs.Verdict:
    app = App().actor("Async-0", 1_000)
    app.coverage.update(coverage)
    get = app.runs("Async-0", "driver", "get", "loop.py:5")
    return app.waits_for(get, app.queues("Async-0", "Async-0", "helper")).verdict()


def test_a_call_that_blocks_its_event_loop_keeps_every_other_call_out() -> None:
    assert blocked_loop().holds is False
    verdict = blocked_loop(blocked_loops={"Async-0": "driver/0/Async-0/1"})
    assert verdict.holds is True
    assert "which waits for the event loop of Async-0" in verdict.sentence
    assert verdict.evidence["advice"] == [
        "Async.helper (called at loop.py:5) can begin only when the event loop of Async-0 is free:"
        " await the reply there instead of ray.get."
    ]


def test_a_coroutine_that_has_begun_needs_the_blocked_loop_too() -> None:
    app = App().actor("Async-0", 1_000).actor("B-0", status="active")
    get, begun = app.runs("Async-0", "driver", "get"), app.runs("Async-0", "driver", "begun")
    app.waits_for(get, begun).waits_for(begun, app.runs("B-0", "Async-0", "work"))
    assert app.verdict().holds is False
    app.coverage["blocked_loops"] = {"Async-0": get}
    assert app.verdict().holds is True


def test_a_coroutine_that_waits_for_nothing_recorded_needs_the_blocked_loop_as_well() -> None:
    app = App().actor("Async-0", 1_000, "active")
    get, begun = app.runs("Async-0", "driver", "get"), app.runs("Async-0", "driver", "begun")
    app.waits_for(get, begun)
    assert app.verdict().holds is False
    app.coverage["blocked_loops"] = {"Async-0": get}
    verdict = app.verdict()
    assert verdict.holds is True
    assert stuck_calls(verdict.evidence["members"]) == [("Async-0", "get"), ("Async-0", "begun")]
    assert "Async-0 in Async.begun waits for Async.get of Async-0" in verdict.sentence


def test_the_short_form_of_a_machine_that_runs_calls_adds_nothing_to_their_waits() -> None:
    app, _, _ = two_actors()
    without = app.verdict()
    app.machines[0].update(wait_mode="all", wait_k=1, waits_for=["A-1"])
    assert app.verdict().evidence == without.evidence


def test_a_machine_that_waits_for_so_many_replies_names_a_hundred() -> None:
    app = App().actor("driver")
    for number in range(150):
        one = app.actor(f"A-{number}").runs(f"A-{number}", "driver", "f")
        app.waits_for(one, app.queues(f"A-{number}", f"A-{number}", "g"))
    app.waits_for("driver", *(row["call_id"] for row in app.calls))
    (record,) = app.verdict().evidence["stuck_behind"]
    assert len(record["waits_for"]) == 100
    assert record["waits_for_count"] == 150
    assert record["waits_for_calls"] == ["A.f"]


def test_one_call_of_an_async_actor_is_stuck_while_another_one_works() -> None:
    app = App().actor("A-0", 2, "active").actor("B-0")
    stuck, back = app.runs("A-0", "driver", "stuck"), app.runs("B-0", "A-0", "back")
    app.runs("A-0", "driver", "works")
    app.waits_for(stuck, back).waits_for(back, stuck)
    verdict = app.verdict()
    assert verdict.holds is True
    assert stuck_calls(verdict.evidence["members"]) == [("A-0", "stuck"), ("B-0", "back")]


def test_two_stuck_calls_of_one_async_actor_are_two_records_and_one_name_in_the_core() -> None:
    app = App().actor("A-0", 5)
    one, other = app.runs("A-0", "driver", "one"), app.runs("A-0", "driver", "other")
    verdict = app.waits_for(one, other).waits_for(other, one).verdict()
    assert stuck_calls(verdict.evidence["members"]) == [("A-0", "one"), ("A-0", "other")]
    assert verdict.evidence["member_count"] == 2
    assert verdict.evidence["cores"] == [["A-0"]]
    assert verdict.evidence["cycle"] == ["A-0"]


def test_a_call_behind_another_one_in_a_full_queue_starves_only_if_that_never_ends() -> None:
    """Starvation: the slot is held by a call that works, however long."""
    app = App().actor("A-0", status="active").actor("driver")
    app.runs("A-0", "driver", "slow")
    assert app.waits_for("driver", app.queues("A-0", "driver", "late")).verdict().holds is False


def test_one_holder_that_can_move_frees_a_slot_for_all() -> None:
    app = App().actor("A-0", 2, "active")
    stuck = app.runs("A-0", "driver", "stuck")
    app.runs("A-0", "driver", "works")
    assert app.waits_for(stuck, app.queues("A-0", "A-0", "later")).verdict().holds is False


def test_a_reply_in_flight_dissolves_the_cycle() -> None:
    app, _, _ = two_actors()
    app.waits[0]["satisfied"] = True
    assert app.verdict().holds is False


def test_a_wait_with_a_timeout_ends_by_itself() -> None:
    app, _, _ = two_actors()
    app.waits[1]["timeout_at"] = LATER
    assert app.verdict().holds is False


def test_one_more_wait_of_the_same_call_is_an_alternative() -> None:
    """Two tasks of one coroutine: it goes on when either of its waits is over."""
    app, both, _ = two_actors()
    works = app.actor("B-0", status="active").runs("B-0", "A-0", "work")
    assert app.waits_for(both, works, alternative=1).verdict().holds is False


@pytest.mark.parametrize(
    ("on", "missing"),
    [
        (None, "what ask of A-1 waits for"),
        ("A-1/0/A-0/999", "the reply to call A-1/0/A-0/999, which neither runs nor is in flight"),
    ],
)
def test_a_wait_for_something_unknown_is_never_called_a_deadlock(on: str | None, missing: str) -> None:
    app = App().actor("A-0").actor("A-1")
    ask = app.runs("A-1", "A-0", "ask")
    verdict = app.waits_for(app.runs("A-0", "driver", "both"), ask).waits_for(ask, on).verdict()
    assert verdict.holds is None
    assert verdict.evidence["depends_on"] == [missing]


def test_a_running_call_that_waits_for_nothing_recorded_moves_unless_its_whole_machine_is_blocked() -> None:
    app = App().actor("A-0", status="active").actor("driver")
    app.waits_for("driver", app.runs("A-0", "driver", "work"))
    assert app.verdict().holds is False
    app.machines[0]["status"] = "blocked"
    verdict = app.verdict()
    assert verdict.holds is None
    assert verdict.evidence["depends_on"] == ["what work of A-0 waits for"]


def test_calls_to_a_machine_that_has_stopped_or_is_not_born_yet_will_be_answered() -> None:
    app = App().actor("A-0").actor("Gone-0", status="stopped")
    call_id = app.runs("A-0", "driver", "both")
    app.waits_for(call_id, app.queues("Gone-0", "A-0", "ask"), app.queues("Unborn-0", "A-0", "__init__", number=0))
    assert app.verdict().holds is False


def test_calls_to_an_actor_that_does_nothing_can_begin() -> None:
    app = App().actor("A-0").actor("Idle-0", status="passive")
    app.waits_for(app.runs("A-0", "driver", "both"), app.queues("Idle-0", "A-0", "ask"))
    assert app.verdict().holds is False


def test_of_a_call_that_runs_twice_either_run_may_answer() -> None:
    """A retried call whose first run lasts."""
    app = App().actor("A-0", 2, "active").actor("B-0")
    first = app.runs("A-0", "B-0", "twice")
    back = app.runs("B-0", "driver", "back")
    app.waits_for(back, first).waits_for(first, back)
    assert app.verdict().holds is True
    app.calls.append({**app.calls[0], "call_id": f"{first}#2"})
    app.waits_for(f"{first}#2", app.runs(app.actor("C-0", status="active").machines[-1]["machine"], "A-0", "work"))
    assert app.verdict().holds is False


def test_a_call_whose_argument_can_never_come_does_not_begin() -> None:
    """Its actor is idle, but Ray holds it back until the reply that is its argument is there."""
    app, both, _ = two_actors()
    app.actor("Idle-0", status="passive").actor("driver")
    held = app.queues("Idle-0", "driver", "use")
    app.waits_for(held, both).waits_for("driver", held)
    verdict = app.verdict()
    assert verdict.holds is True
    assert stuck_calls(verdict.evidence["stuck_behind"]) == [("driver", None), ("Idle-0", "use")]
    assert verdict.evidence["stuck_behind"][1]["waits_for_calls"] == ["A.both"]
    assert verdict.evidence["stuck_behind"][1]["mode"] == "all"


def test_two_bounded_queues_used_in_opposite_order() -> None:
    """Two puts parked inside full queues: each waits for any later call to its queue, by whoever has a handle."""
    app = App().actor("Queue-0", 1_000).actor("Queue-1", 1_000).actor("A-0").actor("B-0")
    for one, worker in (("Queue-0", "A-0"), ("Queue-1", "B-0")):
        put = app.runs(one, worker, "put", "queue.py:1")
        app.waits_for(app.runs(worker, "driver", "work", "app.py:2"), put)
        app.waits += [
            {"machine": one, "call_id": put, "k": 1, "on_machine": other, "on_call_id": None}
            for other in (one, "A-0", "B-0")
        ]
    verdict = app.verdict()
    assert verdict.holds is True
    assert stuck_calls(verdict.evidence["members"]) == [
        ("Queue-0", "put"),
        ("A-0", "work"),
        ("Queue-1", "put"),
        ("B-0", "work"),
    ]
    assert verdict.evidence["cycle"] == ["Queue-0", "A-0"]
    assert verdict.sentence.startswith(
        "Deadlock: Queue-0 in Queue.put (queue.py:1) waits for a later call to Queue-0, by any of A-0, B-0;"
        " A-0 in A.work (app.py:2) waits for Queue.put of Queue-0;"
    )
    assert verdict.evidence["advice"] == [
        "Queue-0 in Queue.put (queue.py:1), Queue-1 in Queue.put (queue.py:1) wait for later calls to them, which were never"
        " made, or can never come: A-0 is stuck in A.work (app.py:2), B-0 is stuck in B.work (app.py:2)."
    ]
    put = verdict.evidence["members"][0]
    assert (put["waits_for"], put["waits_for_later_call"]) == (["Queue-0", "A-0", "B-0"], True)
    assert "waits_for_later_call" not in verdict.evidence["members"][1]
    app.queues("Queue-0", "driver", "get")
    assert app.verdict().holds is False, "a call on its way to the queue may take an item out"
    app.messages.clear()
    app.coverage["uncovered"] = ["plain tasks"]
    assert app.verdict().holds is None, "a plain task may have a handle of the queue"


def test_a_call_that_nobody_is_left_to_wake_is_told_who_might_have_and_what_became_of_them() -> None:
    """A `get` of an empty queue: of those who might put something in one has ended, one is at rest, one waits for it."""
    app = (
        App()
        .actor("Queue-0", 1_000)
        .actor("Gone-0", status="stopped")
        .actor("Idle-0", status="passive")
        .actor("driver")
    )
    get = app.runs("Queue-0", "driver", "get", "queue.py:1")
    app.waits_for("driver", get)
    app.calls.append({"machine": "driver", "method": "(the program)", "holds_slot": False, "call_site": "main.py:3"})
    app.waits += [
        {"machine": "Queue-0", "call_id": get, "k": 1, "on_machine": other, "on_call_id": None}
        for other in ("Queue-0", "Gone-0", "Idle-0", "driver")
    ]
    sent = {"source": "ended tasks", "target": "Queue-0", "kind": "call", "sent_count": 3}
    verdict = Deadlock().evaluate(app.snapshot(channels=[sent]))
    assert verdict.evidence["advice"] == [
        "Queue-0 in Queue.get (queue.py:1) waits for a later call to Queue-0, which was never made, or can never come:"
        " Gone-0 has ended, Idle-0 does nothing, driver is stuck in (the program) (main.py:3); tasks that have ended make no"
        " more calls."
    ]
    assert "waits for a later call to Queue-0, by any of Gone-0, Idle-0, driver" in deadlock_report(
        verdict.evidence, "app", "s"
    )


def test_where_parked_calls_fill_an_actor_not_to_wait_for_the_reply_would_not_help_and_is_not_advised() -> None:
    app = App().actor("Seats-0", 1).actor("A-0")
    acquire = app.runs("Seats-0", "driver", "acquire", "seats.py:1")
    row = {"machine": "Seats-0", "call_id": acquire, "k": 1, "on_call_id": None, "satisfied": False}
    app.waits += [{**row, "on_machine": other} for other in ("Seats-0", "A-0")]
    release = app.queues("Seats-0", "A-0", "release")
    app.waits_for(app.runs("A-0", "driver", "work", "app.py:2"), release)
    advice = app.verdict().evidence["advice"]
    assert any(one.startswith("Raise max_concurrency of Seats to 2, so that Seats.release") for one in advice), advice
    assert all("async actor" not in one for one in advice)
    assert all("do not wait for its reply" not in one for one in advice)
    assert any(one.endswith("or give it a concurrency group of its own.") for one in advice)
    app.coverage["primitives"] = {acquire: "asyncio.Semaphore"}
    (advice,) = app.verdict().evidence["advice"]
    assert "let it end these waits by loop.call_soon_threadsafe" in advice, "a group has an event loop of its own"


def test_calls_in_the_queue_that_may_come_first_count_for_the_slots_that_are_needed() -> None:
    app = App().actor("Server-0", 2).actor("driver")
    running = [app.runs("Server-0", "driver", "generate", "app.py:7") for _ in range(2)]
    app.waits += [
        {"machine": "Server-0", "call_id": call, "k": 1, "on_machine": other, "on_call_id": None, "satisfied": False}
        for call in running
        for other in ("Server-0", "driver")
    ]
    for _ in range(3):
        app.queues("Server-0", "driver", "generate")
    app.waits_for("driver", app.queues("Server-0", "driver", "wake_up"))
    (advice,) = app.verdict().evidence["advice"]
    assert advice.startswith("Raise max_concurrency of Server to 6, so that Server.wake_up")


def test_a_call_behind_parked_ones_that_only_their_own_actor_could_end_is_advised_to_begin() -> None:
    app = App().actor("Server-0", 1).actor("Caller-0", 1).actor("driver")
    generate = app.runs("Server-0", "driver", "generate", "app.py:7")
    row = {"machine": "Server-0", "call_id": generate, "k": 1, "on_call_id": None, "satisfied": False}
    app.waits += [{**row, "on_machine": "Server-0"}]
    app.waits_for(app.runs("Caller-0", "driver", "call", "app.py:9"), app.queues("Server-0", "Caller-0", "wake_up"))
    app.waits_for("driver", app.queues("Caller-0", "driver", "call"))
    (advice,) = app.verdict().evidence["advice"]
    assert advice.startswith("Raise max_concurrency of Server to 2, so that Server.wake_up (called at app.py:9)")
    app.messages = [one for one in app.messages if one["method"] != "wake_up"]
    app.waits = [one for one in app.waits if one["machine"] != "Caller-0"]
    app.waits_for("Caller-0", generate)
    (advice,) = app.verdict().evidence["advice"]
    assert "Raise" not in advice, "what stands behind another actor is no cause"


def test_a_lock_is_named_with_who_holds_it_and_what_to_leave_it_before() -> None:
    """A lock is held over a call whose answer needs the same lock."""
    app = App().actor("Ledger-0", 1_000).actor("Auditor-0").actor("driver")
    add = app.runs("Ledger-0", "driver", "add", "ledger.py:14")
    check = app.runs("Auditor-0", "Ledger-0", "check", "ledger.py:19")
    read = app.runs("Ledger-0", "Auditor-0", "read", "ledger.py:9")
    app.waits_for(add, check)
    app.waits_for(check, read)
    app.waits_for("driver", add)
    app.waits += [
        {"machine": "Ledger-0", "call_id": read, "k": 1, "on_machine": other, "on_call_id": None, "satisfied": False}
        for other in ("Ledger-0", "Auditor-0", "driver")
    ]
    app.coverage["primitives"] = {read: "asyncio.Lock held by Ledger.add"}
    verdict = app.verdict()
    assert verdict.evidence["advice"] == [
        "Ledger-0 in Ledger.read (ledger.py:9, in asyncio.Lock held by Ledger.add) waits: Ledger.add holds asyncio.Lock while"
        " it waits (ledger.py:14) for Auditor.check of Auditor-0: leave the `async with` before that wait."
    ]
    (record,) = [one for one in verdict.evidence["members"] if one["method"] == "read"]
    assert (record["primitive"], record["held_by"]) == ("asyncio.Lock held by Ledger.add", "Ledger.add")
    assert "in asyncio.Lock held by Ledger.add) waits for Ledger.add to give it back" in wait_line(record)
    assert record["call_site"] == "ledger.py:9"


@pytest.mark.parametrize("kind", ["asyncio.Lock", "asyncio.Semaphore", "asyncio.Queue.put, 1 of 1 in the queue"])
def test_an_order_is_advised_for_locks_of_several_actors_alone(kind: str) -> None:
    app = App().actor("Lock-0", 1_000).actor("Lock-1", 1_000).actor("A-0").actor("B-0")
    takes = {
        name: app.runs(name, source, "take", "lock.py:1") for name, source in (("Lock-0", "A-0"), ("Lock-1", "B-0"))
    }
    app.waits += [
        {"machine": name, "call_id": call, "k": 1, "on_machine": other, "on_call_id": None, "satisfied": False}
        for name, call in takes.items()
        for other in (name, "A-0", "B-0")
    ]
    app.waits_for(app.runs("A-0", "driver", "work", "app.py:2"), takes["Lock-0"])
    app.waits_for(app.runs("B-0", "driver", "work", "app.py:2"), takes["Lock-1"])
    app.coverage["primitives"] = dict.fromkeys(takes.values(), kind)
    (advice,) = app.verdict().evidence["advice"]
    assert advice.endswith("Take them in the same order everywhere.") is ("Queue" not in kind)
    assert f"Lock-0 in Lock.take (lock.py:1, in {kind})" in advice


def test_what_was_not_observed_cannot_answer_for_exact_calls() -> None:
    app, _, _ = two_actors()
    app.coverage["uncovered"] = ["plain tasks", {"machine": "A-0", "what": "threads"}]
    assert app.verdict().holds is True


def test_a_machine_of_one_action_at_a_time_and_calls_are_one_graph() -> None:
    """A spawned machine waits for a call, and the call's actor for that machine."""
    app = App().actor("spawned").actor("A-0")
    waits = app.runs("A-0", "spawned", "ask", "app.py:8")
    app.waits_for("spawned", waits)
    app.waits.append({"machine": "A-0", "call_id": waits, "on_machine": "spawned", "on_call_id": "host-1/7"})
    verdict = app.verdict()
    assert verdict.holds is True
    assert verdict.evidence["cycle"] == ["spawned", "A-0"]
    assert verdict.sentence.endswith("1 machine and 1 call can never move again.")
    app.machines[0]["status"] = "active"
    assert app.verdict().holds is False


def test_independent_cycles_are_independent_cores() -> None:
    app, _ = ring(2)
    one, other = app.actor("C-0", 9).runs("C-0", "driver", "f"), app.runs("C-0", "driver", "g")
    verdict = app.waits_for(one, other).waits_for(other, one).verdict()
    assert verdict.evidence["core_count"] == 2
    assert verdict.evidence["cores"] == [["Node-0", "Node-1"], ["C-0"]]


# ---- against a fixpoint in plain Python -----------------------------------------------------------------------------


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


def table(name: str, size: int, **columns: Any) -> pa.Table:
    schema, defaults = SNAPSHOT_TABLES[name], DEFAULTS[name]
    parts = [
        pa.array(columns[item.name], item.type)
        if item.name in columns
        else pa.repeat(pa.scalar(defaults.get(item.name), item.type), size)
        for item in schema
    ]
    return pa.table(parts, schema=schema)


def long_chain(size: int, *, is_closed: bool) -> rs.Snapshot:
    """Call i runs on machine i and waits for call i+1; a third of them have a call in the queue that nobody awaits."""
    names = np.array([f"m{number}" for number in range(size)])
    ids = np.array([f"driver/0/m{number}/1" for number in range(size)])
    last = size if is_closed else size - 1
    late = [f"driver/0/m{number}/2" for number in range(0, size, 3)]
    return rs.Snapshot(
        {
            "snapshots": table("snapshots", 1, snapshot_id=["s"], run_id=["r"]),
            "machines": table("machines", size, machine=names, status=["active"] * size),
            "calls": table("calls", size, machine=names, call_id=ids, method=["go"] * size),
            "messages": table("messages", len(late), target=names[::3], call_id=late, kind=["call"] * len(late)),
            "waits": table(
                "waits",
                last,
                machine=names[:last],
                call_id=ids[:last],
                on_machine=names,
                on_call_id=np.roll(ids, -1)[:last],
            )
            if is_closed
            else table(
                "waits", last, machine=names[:last], call_id=ids[:last], on_machine=names[1:], on_call_id=ids[1:]
            ),
        }
    )


@pytest.mark.parametrize("is_closed", [True, False])
def test_thirty_thousand_calls_are_decided_and_the_evidence_is_bounded(is_closed: bool) -> None:
    verdict = Deadlock().evaluate(long_chain(30_000, is_closed=is_closed))
    assert verdict.holds is is_closed
    assert verdict.evidence["member_count"] == (30_000 if is_closed else 0)
    assert len(verdict.evidence["members"]) == len(verdict.evidence["cycle"]) == (1_000 if is_closed else 0)
    assert ("and so on round a cycle of 30,000" in verdict.sentence) is is_closed


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


def test_of_a_generator_that_keeps_the_only_slot_the_advice_is_to_take_its_items() -> None:
    app = App().actor("driver").actor("Lines-0")
    lines = app.runs("Lines-0", "driver", "lines", "app.py:7")
    app.calls.append({"machine": "driver", "method": "(the program)", "holds_slot": False, "call_site": "app.py:20"})
    app.waits_for("driver", app.queues("Lines-0", "driver", "ready"))
    app.waits.append({"machine": "Lines-0", "call_id": lines, "k": 1, "on_machine": "driver", "satisfied": False})
    app.coverage["held_generators"] = [lines]
    (advice,) = app.verdict().evidence["advice"]
    assert advice == (
        "Take the items of Lines.lines before Lines.ready (called at app.py:20) is waited for, drop that generator, or raise"
        " its _generator_backpressure_num_objects; or raise max_concurrency of Lines to 2 (2 of its calls then run at once:"
        " lock what they change, but not while they wait)."
    )


def test_a_wait_of_which_no_row_says_for_what_is_told_with_its_place_and_since_when() -> None:
    app = App().actor("A-0").actor("A-1")
    ask = app.runs("A-1", "A-0", "ask")
    app.waits_for(app.runs("A-0", "driver", "both"), ask).waits_for(ask, None)
    app.calls[0]["call_site"], app.waits[-1]["waiting_since"] = "app.py:7", datetime(2026, 3, 1, 10, 0, 7, tzinfo=UTC)
    assert app.verdict().evidence["depends_on"] == ["what ask of A-1 waits for (app.py:7, since 10:00:07)"]
