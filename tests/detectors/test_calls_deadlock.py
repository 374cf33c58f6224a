"""Deadlocks among the calls of an app: calls wait for replies, and calls that have not begun for a free slot."""

from datetime import UTC, datetime
from typing import Any

import pytest
from calls_by_hand import App, stuck_calls

import ray_snapshot as rs

pytestmark = pytest.mark.contract

LATER = datetime(2026, 1, 1, 13, tzinfo=UTC)


def two_actors(*, slots: int = 1) -> tuple[App, str, str]:
    """A-0 and A-1 run a call each that waits for one more call to the other."""
    app = App().actor("A-0", slots).actor("A-1", slots)
    both = app.runs("A-0", "driver", "both", "app.py:7")
    ask = app.runs("A-1", "A-0", "ask", "app.py:8")
    answer = app.queues("A-0", "A-1", "answer")
    app.waits_for(both, ask).waits_for(ask, answer)
    return app, both, ask


def member(machine: str, method: str, site: str, on: list[str], *calls: str) -> dict[str, Any]:
    found = {"machine": machine, "class": machine.partition("-")[0], "method": method, "call_site": site}
    return found | {"waits_for": on, "mode": "all", "waits_for_calls": [*calls]}


def test_two_actors_that_get_each_other_are_named_with_methods_and_call_sites() -> None:
    app, _, _ = two_actors()
    verdict = app.verdict()
    assert verdict.holds is True
    assert verdict.evidence["members"] == [
        member("A-0", "both", "app.py:7", ["A-1"], "A.ask"),
        member("A-1", "ask", "app.py:8", ["A-0"], "A.answer"),
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
    app.actor("driver").program("main.py:3", *running)
    verdict = app.verdict()
    assert verdict.holds is True
    assert verdict.evidence["cycle"] == ["Node-0", "Node-1", "Node-2", "Node-3"]
    assert len(verdict.evidence["members"]) == 4
    nodes = ["Node-0", "Node-1", "Node-2", "Node-3"]
    assert verdict.evidence["stuck_behind"] == [member("driver", "(the program)", "main.py:3", nodes, "Node.go")]
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
        f"Broker.pay ({sites}) waits for Broker.check of the same actor: call self.check() directly,"
        f" or raise max_concurrency of Broker to {2 * slots} ({2 * slots} of its calls then run at once: lock what they change,"
        " but not while they wait)."
    )


def test_a_call_that_calls_itself_is_told_so_without_a_number_of_slots_for_each_level_takes_one_more() -> None:
    app = App().actor("Tree-0", 2).actor("driver")
    first, second = (app.runs("Tree-0", source, "size", "tree.py:16") for source in ("driver", "Tree-0"))
    app.waits_for("driver", first).waits_for(first, second).waits_for(second, app.queues("Tree-0", "Tree-0", "size"))
    assert app.verdict().evidence["advice"] == [
        "Tree.size (tree.py:16) calls itself, and each level takes a slot: call self.size() directly."
    ]


def test_the_same_calls_with_one_slot_free_are_no_deadlock() -> None:
    app = App().actor("Broker-0", 3)
    for _ in range(2):
        app.waits_for(app.runs("Broker-0", "driver", "pay"), app.queues("Broker-0", "Broker-0", "check"))
    assert app.verdict().holds is False


def test_a_call_that_holds_no_slot_leaves_it_to_others() -> None:
    app = App().actor("Broker-0")
    app.waits_for(app.runs("Broker-0", "driver", "pay", holds_slot=False), app.queues("Broker-0", "driver", "check"))
    assert app.verdict().holds is False


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
    assert any("not in Child.__init__ (child.py:4): Child.ready (called" in text for text in verdict.evidence["advice"])
    app.waits = app.waits[:1]
    app.machines[0]["status"] = "active"
    assert app.verdict().holds is False, "a constructor that works will return"


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


def test_a_wait_of_which_no_row_says_for_what_is_told_with_its_place_and_since_when() -> None:
    app = App().actor("A-0").actor("A-1")
    ask = app.runs("A-1", "A-0", "ask")
    app.waits_for(app.runs("A-0", "driver", "both"), ask).waits_for(ask, None)
    app.calls[0]["call_site"], app.waits[-1]["waiting_since"] = "app.py:7", datetime(2026, 3, 1, 10, 0, 7, tzinfo=UTC)
    assert app.verdict().evidence["depends_on"] == ["what ask of A-1 waits for (app.py:7, since 10:00:07)"]


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
