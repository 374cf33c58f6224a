"""What a deadlock among calls is said to be, and what is advised against it: queues, locks, slots, generators."""

import re
import time

import pytest
from calls_by_hand import App, stuck_calls

from ray_snapshot.detectors import Deadlock
from ray_snapshot.views.report import deadlock_report, wait_line

AT_ONCE = "of its calls then run at once: lock what they change, but not while they wait"


@pytest.mark.contract
def test_two_bounded_queues_used_in_opposite_order() -> None:
    """Two puts parked inside full queues: each waits for any later call to its queue, of whoever has a handle."""
    app = App().actor("Queue-0", 1_000).actor("Queue-1", 1_000).actor("A-0").actor("B-0")
    for one, worker in (("Queue-0", "A-0"), ("Queue-1", "B-0")):
        put = app.runs(one, worker, "put", "queue.py:1")
        app.waits_for(app.runs(worker, "driver", "work", "app.py:2"), app.parks(put, "A-0", "B-0"))
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
        "Deadlock: Queue-0 in Queue.put (queue.py:1) waits for a call of A-0 or B-0 to wake it;"
        " A-0 in A.work (app.py:2) waits for Queue.put of Queue-0;"
    )
    assert verdict.evidence["advice"] == [], "what would help is not known"
    assert verdict.evidence["callers"] == ["nobody is left to call Queue-[0-1]: A-0, B-0 are stuck"]
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
    app = App().actor("Queue-0", 1_000).actor("Gone-0", status="stopped").actor("Idle-0", status="passive")
    app.actor("driver")
    get = app.runs("Queue-0", "driver", "get", "queue.py:1")
    app.program("main.py:3", app.parks(get, "Gone-0", "Idle-0", "driver"))
    sent = {"source": "ended tasks", "target": "Queue-0", "kind": "call", "sent_count": 3}
    verdict = Deadlock().evaluate(app.snapshot(channels=[sent]))
    assert deadlock_report(verdict.evidence, "app", "s").splitlines()[1:] == [
        "    Queue-0: 1 call of Queue.get (queue.py:1) waits to be woken",
        "    nobody is left to call Queue-0: Gone-0, every task that called it have ended; driver is stuck; "
        "Idle-0 does nothing until it is called",
        "  stuck behind them:",
        "    driver in (the program) (main.py:3) waits for Queue-0 (Queue.get)",
    ]


@pytest.mark.contract
def test_the_cause_is_where_most_wait_and_an_idle_queue_is_stuck_behind_it() -> None:
    """Two players and a learner wait in a buffer; a monitor waits for a queue that any of them might fill."""
    app = App().actor("buffer", 1_000).actor("queue", 1_000)
    for actor, worker, method in (
        ("queue", "monitor", "get"),
        ("buffer", "learner", "sample"),
        ("buffer", "play-0", "add"),
        ("buffer", "play-1", "add"),
    ):
        call = app.runs(actor, worker, method, f"app.py:{len(app.calls)}")
        app.actor(worker).waits_for(app.runs(worker, "driver", "work", "app.py:9"), call)
        app.parks(call, "monitor", "learner", "play-0", "play-1")
    evidence = app.verdict().evidence
    assert [one["method"] for one in evidence["members"] if one.get("is_cause")] == ["sample", "add", "add"]
    assert evidence["member_count"] == 8, "all are in one knot"
    assert evidence["callers"] == ["nobody is left to call buffer: learner, monitor, play-[0-1] are stuck"]


@pytest.mark.contract
def test_what_could_not_move_if_the_parked_calls_did_is_of_the_cause() -> None:
    """A-0 waits for an item of a buffer, and for B-0, which waits for A-0."""
    app = App().actor("A-0").actor("B-0").actor("buffer", 1_000)
    both, back = app.runs("A-0", "driver", "both", "a.py:1"), app.runs("B-0", "A-0", "back", "b.py:2")
    app.waits_for(both, back, app.parks(app.runs("buffer", "A-0", "sample", "buffer.py:3"), "A-0"))
    app.waits_for(back, app.queues("A-0", "B-0", "again"))
    members = app.verdict().evidence["members"]
    assert {one["method"] for one in members if one.get("is_cause", True)} == {"both", "back", "sample"}


@pytest.mark.contract
def test_where_it_cannot_be_told_nobody_is_said_to_be_stuck() -> None:
    app = App().actor("buffer", 1_000).actor("learner")
    parked = app.parks(app.runs("buffer", "learner", "sample", "app.py:2"), "learner", "somebody")
    app.waits_for(app.runs("learner", "driver", "learn", "app.py:1"), parked)
    verdict = app.verdict()
    assert (verdict.holds, verdict.evidence["callers"]) == (None, [])


def test_of_many_parked_calls_it_is_said_how_many_at_least() -> None:
    app = App().actor("buffer", 10_000).actor("learner")
    calls = [app.parks(app.runs("buffer", "learner", "add", "app.py:2"), "learner") for _ in range(1_200)]
    app.waits_for(app.runs("learner", "driver", "learn", "app.py:1"), *calls)
    assert deadlock_report(app.verdict().evidence, "app", "s").splitlines()[1:] == [
        "    buffer: at least 1,000 calls of buffer.add (app.py:2) wait to be woken",
        "    ... and 200 more",
        "    nobody is left to call buffer: learner is stuck",
        "  stuck behind them:",
        "    learner in learner.learn (app.py:1) waits for buffer (buffer.add)",
    ]


@pytest.mark.contract
@pytest.mark.parametrize(("holders", "cause"), [("L.one, L.two", {"one", "two", "take"}), ("L._helper", set())])
def test_all_that_hold_a_lock_are_of_the_cause_or_nothing_is_said_of_it(holders: str, cause: set[str]) -> None:
    app = App().actor("L-0", 1_000).actor("driver")
    take = app.parks(app.runs("L-0", "driver", "take", "l.py:1"), "driver")
    app.waits_for("driver", *(app.runs("L-0", "driver", name, "l.py:2") for name in ("one", "two")), take)
    for call in [one["call_id"] for one in app.calls if one["method"] in ("one", "two")]:
        app.waits_for(call, take)
    app.coverage["primitives"] = {take: f"asyncio.Semaphore held by {holders}"}
    evidence = app.verdict().evidence
    assert {one["method"] for one in evidence["members"] if one.get("is_cause")} == cause
    told = "L._helper holds asyncio.Semaphore while it waits: leave the `async with` before that wait."
    assert evidence["advice"] == [told] * (not cause), "which of two to leave is not known"


@pytest.mark.contract
def test_where_parked_calls_fill_an_actor_not_to_wait_for_the_reply_would_not_help_and_is_not_advised() -> None:
    app = App().actor("Seats-0", 1).actor("A-0")
    acquire = app.parks(app.runs("Seats-0", "driver", "acquire", "seats.py:1"), "A-0")
    release = app.queues("Seats-0", "A-0", "release")
    app.waits_for(app.runs("A-0", "driver", "work", "app.py:2"), release)
    evidence = app.verdict().evidence
    advice = evidence["advice"]
    assert evidence["callers"] == ["no call can begin in Seats-0: every slot is taken; A-0 is stuck"]
    assert advice == [
        "Give Seats.release (called at app.py:2) a concurrency group apart from Seats.acquire; or raise max_concurrency of"
        f" Seats to 2 (2 {AT_ONCE}), which is enough for the calls that there are now."
    ]
    app.coverage["primitives"] = {acquire: "asyncio.Semaphore"}
    (advice,) = app.verdict().evidence["advice"]
    assert "and wake that by loop.call_soon_threadsafe" in advice, "a group has an event loop of its own"


@pytest.mark.contract
def test_calls_in_the_queue_that_may_come_first_count_for_the_slots_that_are_needed() -> None:
    app = App().actor("Server-0", 2).actor("driver")
    for _ in range(2):
        app.parks(app.runs("Server-0", "driver", "generate", "app.py:7"), "driver")
    for _ in range(3):
        app.queues("Server-0", "driver", "generate")
    app.waits_for("driver", app.queues("Server-0", "driver", "wake_up"))
    (advice,) = app.verdict().evidence["advice"]
    assert "Give Server.wake_up a concurrency group apart from Server.generate; or raise" in advice
    assert "or raise max_concurrency of Server to 6 (" in advice


@pytest.mark.contract
def test_of_what_stands_behind_parked_calls_that_is_advised_to_begin_which_does_not_park_itself_and_once() -> None:
    """All slots of a cache are taken by `join`, and `fulfil` and two more of `join` wait to begin."""
    app = App().actor("Cache-0", 2).actor("driver").actor("Worker-0").actor("Worker-1").actor("Worker-2")
    for name in ("Worker-0", "Worker-1"):
        app.waits_for(app.runs(name, "driver", "handle", "app.py:9"), app.parks(app.runs("Cache-0", name, "join")))
    app.waits_for(app.runs("Worker-2", "driver", "handle", "app.py:9"), app.queues("Cache-0", "Worker-2", "join"))
    joins = app.verdict().evidence["advice"]
    assert joins == [
        f"Raise max_concurrency of Cache to 3, so that Cache.join (called at app.py:9) can begin (3 {AT_ONCE})."
    ], "a group of its own would be as full"
    app.actor("Worker-3").waits_for(
        app.runs("Worker-3", "driver", "handle", "app.py:7"), app.queues("Cache-0", "Worker-3", "fulfil")
    )
    (advice,) = app.verdict().evidence["advice"]
    assert advice.startswith(
        "Give Cache.fulfil (called at app.py:7) a concurrency group apart from Cache.join, if that is what"
    )
    assert "; or raise max_concurrency of Cache to 4 (" in advice
    app.coverage["happened"] = [ENDED]
    app.messages = [one for one in app.messages if one["method"] == "join"]
    evidence = app.verdict().evidence
    assert evidence["advice"] == [], "its thread has ended, and a slot more would not help"
    assert evidence["callers"][0] == "Cache-0: thread reader was ended by ValueError at 12:03:11 (app.py:20)"


ENDED = {"kind": "thread_ended", "machine": "Cache-0", "thread": "reader", "error": "ValueError", "class": "Cache"} | {
    "at": "2026-11-29T12:03:11+00:00",
    "call_site": "app.py:20",
}


def test_a_thread_of_the_actor_that_has_ended_or_waits_too_stands_beside_the_calls_that_it_could_have_woken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    app = App().actor("Cache-0", 1).actor("driver")
    app.waits_for("driver", app.parks(app.runs("Cache-0", "driver", "plan", "app.py:3")))
    app.coverage |= {"happened": [ENDED], "parked_threads": {"Cache-0": [f"plan_{n} (app.py:21)" for n in range(2)]}}
    assert deadlock_report(app.verdict().evidence, "app", "s").splitlines()[1:] == [
        "    Cache-0: 1 call of Cache.plan (app.py:3) waits to be woken",
        "    Cache-0: thread reader was ended by ValueError at 12:03:11 (app.py:20)",
        "    2 threads plan_[0-1] (app.py:21) of Cache-0 wait, too",
        "    no call can begin in Cache-0: every slot is taken",
        "  stuck behind them:",
        "    driver waits for Cache-0 (Cache.plan)",
    ]


@pytest.mark.contract
def test_who_has_died_and_was_restarted_is_told_among_those_who_call_no_more() -> None:
    app = App().actor("Barrier-0", 1_000).actor("driver").actor("Rollout-2", status="passive")
    app.waits_for("driver", app.parks(app.runs("Barrier-0", "driver", "arrive", "app.py:3"), "driver", "Rollout-2"))
    lost = [{"method": "run", "caller": "driver"}]
    app.coverage["happened"] = [
        {"kind": "restarted", "machine": "Rollout-2", "class": "Rollout", "at": ENDED["at"], "cause": "exit code 70"}
        | {"count": 1, "lost": lost}
    ]
    evidence = app.verdict().evidence
    assert evidence["callers"] == [
        "nobody is left to call Barrier-0: Rollout-2 died, was restarted, and does nothing until it is called; driver is stuck"
    ]
    assert re.fullmatch(
        r"Rollout-2 died at \S+ \(exit code 70\), and was restarted; it was last seen in Rollout.run, called by driver, for"
        " which nobody waits",
        evidence["happened"][0],
    )


@pytest.mark.contract
def test_a_call_behind_parked_ones_that_only_their_own_actor_could_end_is_advised_to_begin() -> None:
    app = App().actor("Server-0", 1).actor("Caller-0", 1).actor("driver")
    generate = app.parks(app.runs("Server-0", "driver", "generate", "app.py:7"))
    app.waits_for(app.runs("Caller-0", "driver", "call", "app.py:9"), app.queues("Server-0", "Caller-0", "wake_up"))
    app.waits_for("driver", app.queues("Caller-0", "driver", "call"))
    (advice,) = app.verdict().evidence["advice"]
    assert advice.startswith("Give Server.wake_up (called at app.py:9) a concurrency group apart from Server.generate;")
    assert "or raise max_concurrency of Server to 2 (" in advice
    app.messages = [one for one in app.messages if one["method"] != "wake_up"]
    app.waits = [one for one in app.waits if one["machine"] != "Caller-0"]
    app.waits_for("Caller-0", generate)
    assert app.verdict().evidence["advice"] == [], "what stands behind another actor is no cause"


def test_a_lock_is_named_with_who_holds_it_and_what_to_leave_it_before() -> None:
    """A lock is held over a call whose answer needs the same lock."""
    app = App().actor("Ledger-0", 1_000).actor("Auditor-0").actor("driver")
    add = app.runs("Ledger-0", "driver", "add", "ledger.py:14")
    check = app.runs("Auditor-0", "Ledger-0", "check", "ledger.py:19")
    read = app.runs("Ledger-0", "Auditor-0", "read", "ledger.py:9")
    app.waits_for(add, check)
    app.waits_for(check, app.parks(read, "Auditor-0", "driver")).waits_for("driver", add)
    app.coverage["primitives"] = {read: "asyncio.Lock held by Ledger.add"}
    verdict = app.verdict()
    assert verdict.evidence["advice"] == [
        "Ledger.add holds asyncio.Lock while it waits (ledger.py:14) for Auditor.check of Auditor-0: leave the `async with`"
        " before that wait."
    ]
    cause = [one["method"] for one in verdict.evidence["members"] if one.get("is_cause")]
    assert cause == ["add", "check", "read"], "the lock, who holds it, and what that one waits for"
    assert verdict.evidence["callers"] == []
    (record,) = [one for one in verdict.evidence["members"] if one["method"] == "read"]
    assert (record["primitive"], record["held_by"]) == ("asyncio.Lock held by Ledger.add", "Ledger.add")
    assert "in asyncio.Lock held by Ledger.add) waits for Ledger.add to give it back" in wait_line(record)
    assert record["call_site"] == "ledger.py:9"


def test_locks_of_several_actors_that_are_kept_over_calls_are_one_advice() -> None:
    app = App().actor("Purse-0", 4).actor("Purse-1", 4).actor("driver")
    for mine, other in (("Purse-0", "Purse-1"), ("Purse-1", "Purse-0")):
        deposit = app.parks(app.runs(other, mine, "deposit", "purse.py:22"), "driver", mine)
        app.waits_for(app.runs(mine, "driver", "transfer", "purse.py:29"), deposit)
        app.coverage.setdefault("primitives", {})[deposit] = "threading.RLock held by Purse.transfer"
    app.waits_for("driver", *(one["call_id"] for one in app.calls if one["method"] == "transfer"))
    evidence = app.verdict().evidence
    assert evidence["advice"] == [
        "Purse.transfer holds threading.RLock while it waits (purse.py:29) for Purse.deposit of Purse-0, Purse.deposit of"
        " Purse-1: leave the `with` before that wait, or take these locks in the same order everywhere."
    ]
    assert evidence["callers"] == [], "no call of another would end it"
    assert (
        sorted(one["method"] for one in evidence["members"] if one.get("is_cause"))
        == ["deposit"] * 2 + ["transfer"] * 2
    )


@pytest.mark.contract
@pytest.mark.parametrize("kind", ["asyncio.Lock", "asyncio.Semaphore", "asyncio.Queue.put, 1 of 1 in the queue"])
def test_an_order_is_advised_for_locks_of_several_actors_alone(kind: str) -> None:
    app = App().actor("Lock-0", 1_000).actor("Lock-1", 1_000).actor("A-0").actor("B-0")
    for name, source in (("Lock-0", "A-0"), ("Lock-1", "B-0")):
        take = app.parks(app.runs(name, source, "take", "lock.py:1"), "A-0", "B-0")
        app.waits_for(app.runs(source, "driver", "work", "app.py:2"), take)
        app.coverage.setdefault("primitives", {})[take] = kind
    evidence = app.verdict().evidence
    room = "Take items while Lock.take (lock.py:1) puts more in, or give its queue a larger maxsize; or wait"
    order = "Take Lock-0, Lock-1 in the same order everywhere."
    assert evidence["advice"] == [f"{room} inside asyncio.timeout(seconds)." if "Queue" in kind else order]
    assert evidence["callers"] == ["nobody is left to call Lock-[0-1]: A-0, B-0 are stuck"]


@pytest.mark.contract
def test_of_a_generator_that_keeps_the_only_slot_the_advice_is_to_take_its_items() -> None:
    app = App().actor("driver").actor("Lines-0")
    lines = app.runs("Lines-0", "driver", "lines", "app.py:7")
    app.program("app.py:20", app.queues("Lines-0", "driver", "ready"))
    app.waits.append({"machine": "Lines-0", "call_id": lines, "k": 1, "on_machine": "driver", "satisfied": False})
    app.coverage["held_generators"] = [lines]
    (advice,) = app.verdict().evidence["advice"]
    assert advice == (
        "Take the items of Lines.lines before Lines.ready (called at app.py:20) is waited for, drop that generator, or raise"
        " its _generator_backpressure_num_objects; or raise max_concurrency of Lines to 2 (2 of its calls then run at once:"
        " lock what they change, but not while they wait)."
    )
