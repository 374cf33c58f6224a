"""Deadlocks among the calls of actors with concurrency groups and event loops: who keeps whom from a slot."""

from typing import Any

import pytest
from calls_by_hand import App, stuck_calls

import ray_snapshot as rs

pytestmark = pytest.mark.contract


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
    assert "or raise the bound of concurrency group io of Store to 2 (" in verdict.evidence["advice"][0]


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
        "Await the reply in Async.get (loop.py:5) instead of ray.get (`await ref`, in an async method): it keeps the event loop"
        " that Async.helper (called at loop.py:5) needs."
    ]


def test_one_that_waits_in_a_lock_there_is_advised_to_wait_in_a_thread() -> None:
    app = App().actor("driver").actor("Async-0", 1_000)
    get = app.runs("Async-0", "driver", "get", "loop.py:5")
    app.coverage |= {"blocked_loops": {"Async-0": get}, "primitives": {get: "self.lock.acquire"}}
    app.waits_for("driver", app.queues("Async-0", "driver", "release"))
    app.waits.append({"machine": "Async-0", "call_id": get, "k": 1, "on_machine": "Async-0", "satisfied": False})
    assert app.verdict().evidence["advice"] == [
        "Let Async.get (loop.py:5) wait in a thread (await asyncio.to_thread(...)): it keeps the event loop that Async.release"
        " needs."
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
