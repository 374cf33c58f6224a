"""Who asks again and again in one process, and what its watcher makes of that over snapshots; without Ray."""

from __future__ import annotations

import asyncio
import enum
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, NamedTuple

import pytest

from ray_snapshot.encoding import to_json
from ray_snapshot.instrument.process import polls
from ray_snapshot.instrument.process.answer_uses import Asking, Chain, Place, Use
from ray_snapshot.instrument.process.blocked_threads import Threads
from ray_snapshot.instrument.process.plain_methods import AskedMethods
from ray_snapshot.instrument.process.polls import Poll, Polls, token
from ray_snapshot.instrument.process.reports import ProcessReport
from ray_snapshot.instrument.process.timed_waits import TimedWait
from ray_snapshot.instrument.watcher.polls import Polls as OverSnapshots
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.call_collector import CompletedCallSnapshot
from ray_snapshot.protocol.calls import CallLedger, InReport, MachineReport, RunningCall, call_id_of

CODE = (lambda: None).__code__
UNTIL, DROPPED = ((CODE, 0),), ((CODE, 2),)
OPEN = Asking("app.py:8", Use.OPEN)
PLACES = {Place(UNTIL): Asking("app.py:7", Use.UNTIL), Place(DROPPED): Asking("app.py:9", Use.DROPPED)}
PLACES[Place(UNTIL, "sleep")] = Asking("app.py:9", Use.ONCE)
PLACES |= {Place(UNTIL, name): OPEN for name in ("ray.wait", "ray.get", "ray.get_actor")}


class Program:
    """A driver that asks."""

    def __init__(self) -> None:
        self.ledger = CallLedger("driver", acts_unasked=True)
        self.polls = Polls()
        self.polls.places = dict(PLACES)
        self.behind: dict[int, str | None] = {}
        self.now = 0.0
        self.task: Any = None

    def wait(
        self, *workers: str, answer: str = "nothing ready", function: str = "ray.wait", method: str = "step"
    ) -> None:
        """For a new call of each; `answer`: "" if the replies come."""
        calls = []
        for name in workers:
            header = self.ledger.submit(name, method, (), self.now)
            if self.polls.is_armed:
                self.polls.sent(name, method, header.number, (), self.now)
            calls.append(call_id_of("driver", header.incarnation, name, header.number))
        self.now += 0.5
        self.polls.missed += bool(answer)
        if self.polls.is_armed:
            self.polls.asked_ray(function, answer, calls, UNTIL, self.now)

    def ask(
        self, answer: Any, machine: str = "b", method: str = "sample", chain: Chain = UNTIL, arguments: Any = (8,)
    ) -> None:
        header = self.ledger.submit(machine, method, arguments, self.now)
        if self.polls.is_armed:
            self.polls.sent(machine, method, header.number, arguments, self.now)
        self.now += 0.5
        if self.polls.is_armed:
            call = call_id_of("driver", header.incarnation, machine, header.number)
            self.polls.read([call], [answer], chain, self.now, self.task)

    def go_on(self, step: Callable[[], None], seconds: float) -> tuple[Poll, ...]:
        """With a snapshot every second; returns what the last has found."""
        until, found = self.now + seconds, ()
        while self.now < until:
            step()
            step()
            found = self.polls.look(self.ledger, self.now, self.behind)
        return found


def test_nothing_is_noted_before_three_snapshots_have_found_calls() -> None:
    program = Program()
    for now in (0.0, 1.0):
        assert program.polls.look(program.ledger, now, {}) == ()
    program.ask(None)
    for now in (2.0, 3.0):
        program.polls.look(program.ledger, now, {})
        assert not program.polls.is_armed
    program.ask(None)
    program.polls.look(program.ledger, 4.0 + LIMITS.poll_forgotten_s, {})
    assert not program.polls.is_armed, "that was long ago"
    program.ask(None)
    program.polls.look(program.ledger, 5.0 + LIMITS.poll_forgotten_s, {})
    assert program.polls.is_armed
    assert not program.polls.unread


def test_equal_answers_for_long_are_a_poll() -> None:
    program = Program()
    assert program.go_on(lambda: program.ask(None), LIMITS.young_poll_s) == (), "not for long"
    (young,) = program.go_on(lambda: program.ask(None), LIMITS.poll_s - LIMITS.young_poll_s)
    (found,) = program.go_on(lambda: program.ask(None), 10.0)
    (asked,) = found.asked
    assert (young.is_young, found.is_young) == (True, False)
    assert (found.call_id, found.thread, found.use, found.sent) == (None, "", "until", ())
    assert (asked.machine, asked.method, asked.call_site, asked.answer) == ("b", "sample", "app.py:7", "None")
    assert asked.times > 2 * LIMITS.poll_s


def test_a_wait_that_each_snapshot_finds_is_a_poll_unless_something_was_sent_between() -> None:
    program, place = Program(), Place(UNTIL, "ray.wait")

    def find(seconds: float, *places: Any, sends: bool = False) -> tuple[Poll, ...]:
        for _ in range(int(seconds)):
            program.now += 1.0
            if sends:
                program.ledger.submit("b", "beat", (), program.now)
            waits = [TimedWait(one, "app.py:8, in queue.Queue.get", "queue.Queue.get") for one in places]
            sent = program.ledger.outputs["b"].sent_count if "b" in program.ledger.outputs else 0
            program.polls.wait(None, threading.get_ident(), waits, sent, program.now)
        return program.polls.look(program.ledger, program.now, {})

    assert find(2 * LIMITS.poll_s, place, sends=True) == ()
    assert find(LIMITS.young_poll_s - 1, place) == (), "not for long"
    (young,) = find(2.0, place)
    (found,) = find(LIMITS.poll_s, place)
    assert (young.is_young, found.is_young, found.use, found.asked[0].call_site) == (True, False, "open", "app.py:8")
    wait = found.wait
    assert wait is not None
    assert (wait.is_local, wait.may_act, wait.what, wait.waiting_since) == (True, True, "queue.Queue.get", found.since)
    assert not program.polls.is_armed, "no call is compared for it"
    (found,) = find(LIMITS.poll_s, place, Place(UNTIL, "sleep"))
    assert found.use == "once", "one of them works between its pauses"
    program.now += 60.0
    assert find(1.0) == (), "it has gone on"


def test_over_several_by_turns_and_whatever_is_sent_beside() -> None:
    program = Program()
    for machine in "bc":
        program.ledger.submit(machine, "init", (), 0.0)

    def step() -> None:
        program.ask(False, "b")
        program.ask(False, "c")
        header = program.ledger.submit("d", "beat", (), program.now)
        program.polls.sent("d", "beat", header.number, (), program.now)

    (found,) = program.go_on(step, 2 * LIMITS.poll_s)
    assert [(one.machine, one.answer) for one in found.asked] == [("b", "False"), ("c", "False")]
    assert found.sent == (("d", "beat"),)


def test_what_is_not_known_of_it_makes_it_less() -> None:
    """Arguments with code of their own, and where it asks."""
    program = Program()
    (found,) = program.go_on(lambda: program.ask(None, arguments=(object(),)), 2 * LIMITS.poll_s)
    assert found.use == "open"
    program = Program()
    program.polls.places.clear()
    assert program.go_on(lambda: program.ask(None), 2 * LIMITS.poll_s) == ()
    assert program.polls.to_look_up(program.now) == [Place(UNTIL)]


@pytest.mark.parametrize(("kind", "use"), [("waits", "until"), ("does else", "once"), ("bounds", "once")])
def test_a_task_beside_those_that_ask_may_end_the_loop_unless_it_waits_for_them(kind: str, use: str) -> None:
    async def both() -> str:
        program, asking = Program(), asyncio.ensure_future(asyncio.sleep(9))
        beside = asyncio.ensure_future(asyncio.Event().wait() if kind == "does else" else asyncio.wait([asking]))
        timer = asyncio.get_running_loop().call_later(9, asking.cancel)
        if kind != "bounds":
            timer.cancel()
        outer = asyncio.current_task()
        await asyncio.sleep(0)

        def ask() -> None:
            for program.task in (asking, outer):
                program.ask(None)

        (found,) = program.go_on(ask, 2 * LIMITS.poll_s)
        beside.cancel()
        asking.cancel()
        return found.use

    assert asyncio.run(both()) == use


def test_a_wait_that_ends_without_a_reply_again_and_again_is_a_poll() -> None:
    """Whether it waits for one call, or for a new one each time."""
    program = Program()
    (found,) = program.go_on(lambda: program.wait("w"), 2 * LIMITS.poll_s)
    (asked,) = found.asked
    assert (asked.machine, asked.method, asked.call_site, asked.answer) == ("", "ray.wait", "app.py:8", "nothing ready")
    assert asked.calls == (call_id_of("driver", 0, "w", program.ledger.outputs["w"].sent_count),)
    assert found.use == "open"


def test_asking_for_an_actor_by_a_name_that_there_is_not_is_a_poll() -> None:
    program = Program()
    name = "ray.get_actor('x')"
    (found,) = program.go_on(lambda: program.wait(answer="ValueError", function=name), 2 * LIMITS.poll_s)
    assert [(one.machine, one.method, one.answer) for one in found.asked] == [("", name, "ValueError")]


def test_replies_that_come_now_and_then_are_none() -> None:
    program, count = Program(), iter(range(1_000))
    assert not program.go_on(
        lambda: program.wait("w", answer="" if next(count) % 9 == 0 else "1 of 2"), 2 * LIMITS.poll_s
    )
    program = Program()
    assert not program.go_on(lambda: program.wait(*"vw"[next(count) // 9 % 2 :]), 2 * LIMITS.poll_s), (
        "others are missing"
    )


def test_who_waits_for_each_answer_with_a_timeout_asks_for_the_answers() -> None:
    program = Program()

    def step() -> None:
        program.wait("b", answer="", method="sample")
        program.ask(None)

    program.ask(None)
    (found,) = program.go_on(step, 2 * LIMITS.poll_s)
    assert [(one.machine, one.method) for one in found.asked] == [("b", "sample")]


def test_what_a_thread_asks_is_a_poll_of_the_call_that_waits_for_the_thread() -> None:
    def found_behind(behind: dict[int, str | None]) -> list[tuple[str | None, str]]:
        program, found = Program(), list[Any]()
        program.behind = behind or {}
        with ThreadPoolExecutor(1, "feed") as pool:
            if behind:
                program.behind = {pool.submit(threading.get_ident).result(): "driver/0/a/1"}
            for _ in range(int(3 * LIMITS.poll_s)):
                pool.submit(program.ask, None).result()
                found = [
                    (one.call_id, one.thread) for one in program.polls.look(program.ledger, program.now, program.behind)
                ]
        return found

    assert found_behind({0: None}) == [("driver/0/a/1", "")]
    assert found_behind({}) == [(None, "feed_0")]


def test_what_it_called_before_is_not_beside_it() -> None:
    program = Program()
    program.go_on(lambda: program.ask(None), 5.0)
    program.ask("started", machine="collector", method="start")
    program.go_on(lambda: program.ask(None), 40 * LIMITS.poll_pause_s)
    (found,) = program.polls.look(program.ledger, program.now, {})
    assert found.sent == ()
    assert [one.machine for one in found.asked] == ["b"]


@pytest.mark.parametrize("kind", ["other answers", "of no use", "not to be compared", "something new now and then"])
def test_whoever_gets_on_is_left_alone(kind: str) -> None:
    program, count = Program(), iter(range(1_000))

    def step() -> None:
        number = next(count)
        match kind:
            case "other answers":
                program.ask(number)
            case "of no use":
                program.ask(None, chain=DROPPED)
            case "not to be compared":
                program.ask(object())
            case _:
                program.ask(None, method="sample" if number % 20 else f"other{number}")

    assert program.go_on(step, 2 * LIMITS.poll_s) == ()
    if kind != "something new now and then":
        armed = 0
        for _ in range(40):
            assert program.go_on(step, 1.0) == ()
            armed += program.polls.is_armed
        assert armed < 20, "it costs each call something"


def test_a_poll_that_has_stopped_is_none() -> None:
    program = Program()
    assert program.go_on(lambda: program.ask(None), 2 * LIMITS.poll_s)
    program.now += 30.0
    assert program.polls.look(program.ledger, program.now, {}) == ()


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Status(NamedTuple):
    ready: bool


class Step(int):
    """It may have more than its number."""


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (None, False),
        (0, False),
        (1, 1.0),
        ("a", b"a"),
        ([1], (1,)),
        ({"a": [1, {2}]}, {"a": [1, {3}]}),
        (Colour.RED, Colour.GREEN),
        (Status(True), Status(False)),
    ],
)
def test_answers_are_compared_without_their_own_code(one: Any, other: Any) -> None:
    assert token(one) is not None
    assert token(one) == token(one)
    assert token(one) != token(other)


@pytest.mark.parametrize(
    "large", [object(), "x" * 2_000, [0] * 1_000, [1 << 99_000], Step(1), pytest, [[object()]], print]
)
def test_what_is_large_or_strange_is_not_compared(large: Any) -> None:
    assert token(large) is None


def _at(state: Any, own: int, others: int = 0) -> CompletedCallSnapshot:
    inputs = tuple(InReport(name, 0, 1, (), count) for name, count in (("driver", own), ("feeder", others)))
    report = MachineReport("b", 0, 1, 0, has_state=True, state=None if state is None else to_json(state), inputs=inputs)
    return CompletedCallSnapshot(1, {"b": report}, (), (), (), (), ())


def _row(*snapshots: CompletedCallSnapshot, beside: Any = (), **about: Any) -> dict[str, Any]:
    """What is told of a poll in the last of these; nothing of some that are young."""
    plain, threads = about.get("plain", ("sample",)), Threads(acting=about.get("threads", ()))
    buffer = ProcessReport(MachineReport("b", 0, 1, 0), 0.0, plain_methods=plain, threads=threads)
    over, rows = OverSnapshots(), []
    for number, calls in enumerate(snapshots):
        times = 9 + about.get("rounds", 2) * number
        asked = polls.PolledMethod("b", "sample", "app.py:7", times, about.get("answer", "None"))
        poll = Poll(None, "", 0.0, (asked,), about.get("use", "until"), beside, about.get("young", False))
        program = ProcessReport(MachineReport("driver", 0, 1, 0), 0.0, polls=(poll,))
        rows = list(over.rows(calls, {"driver": program, "b": buffer}, about.get("worked", {}), 1_000.0 + number))
    return rows[0] if rows else {}


def test_who_is_asked_moves_if_calls_of_others_change_it() -> None:
    def moving(*snapshots: CompletedCallSnapshot, beside: Any = ()) -> bool:
        return bool(_row(*snapshots, beside=beside)["is_moving"])

    assert not moving(_at({"asked": 1}, 1))
    assert not moving(_at({"asked": 1}, 1), _at({"asked": 2}, 2)), "asking does"
    assert not moving(_at({"groups": 1}, 1), _at({"groups": 1}, 2, 5)), "they change nothing"
    assert moving(_at({"groups": 1}, 1), _at({"groups": 2}, 2, 5))
    assert moving(_at({"groups": 1}, 1), _at({"groups": 3}, 2)), "whoever did that"
    assert not moving(_at(None, 1), _at(None, 2)), "what it holds is not known"
    assert moving(_at(None, 1), _at(None, 2, 1)), "and others may have changed it"


def test_who_only_an_error_stops_watches_unless_the_answers_are_in_vain() -> None:
    assert _row(_at({}, 1), use="watched", answer="")["is_bounded"]
    assert not _row(_at({}, 1), use="watched")["is_bounded"]


def test_a_thread_at_work_may_change_it_one_that_only_stands_there_is_not_known_to() -> None:
    def moving(**about: Any) -> bool:
        return bool(_row(_at({}, 1), _at({}, 2), **about)["is_moving"])

    assert moving(threads=("feed",), worked={"b": 999.0})
    assert not moving(threads=("feed",))
    assert not moving(threads=("feed",), worked={"b": 900.0})
    assert not moving(worked={"b": 999.0}), "calls do not make it one"
    assert not moving(threads=("feed",), worked={"driver": 999.0}), "who asks often works for that"


def test_a_young_poll_is_told_where_it_asks_in_vain_and_nothing_else_may_act() -> None:
    def young(*snapshots: CompletedCallSnapshot, **about: Any) -> Any:
        return _row(*(snapshots or (_at({}, 1), _at({}, 2))), young=True, **about).get("is_young")

    assert young()
    assert young(use="open"), "None is no answer"
    assert young(answer="")
    assert not young(use="open", answer=""), "it may be one for a monitor"
    assert not young(threads=("feed",)), "it may bring another answer"
    assert young(_at({}, 1), threads=("feed",)), "perhaps it is over at once"
    assert not young(_at({"groups": 1}, 1), _at({"groups": 5}, 1, 1)), "somebody has changed it"


STATE = {"groups": [1, 2], "deep": {"asked": 7}}


def test_what_only_counts_the_calls_is_told_where_all_else_has_stayed() -> None:
    assert _row(_at(STATE, 1), _at(STATE, 9))["counters"] == []
    counted = STATE | {"deep": {"asked": 15}}
    assert _row(_at(STATE, 1), _at(counted, 9))["counters"] == ["asked"]
    assert _row(_at(STATE, 1), _at(STATE, 5), _at(counted, 9))["counters"] == ["asked"], "since it was seen first"
    parked = _at(STATE, 1)
    there = replace(parked.machines["b"], calls=(RunningCall("feeder/0/b/1", "take", 0.0),))
    before = replace(parked, machines={"b": there})
    assert _row(before, _at(STATE, 9))["counters"] is None, "that may have changed it to and fro"
    inside = replace(_at(STATE, 9), machines={"b": MachineReport("b", 0, 1, 0)})
    assert _row(_at(STATE, 1), _at(STATE, 5), inside)["counters"] is None, "a call is inside an action there"


@pytest.mark.parametrize(
    ("later", "about"),
    [
        (None, {}),
        (_at(STATE, 9), {"rounds": 1}),  # to a call that was made before
        (_at(STATE | {"deep": {"asked": 14}}, 9), {}),
        (_at(STATE | {"deep": {"asked": 15.0}}, 9), {}),
        (_at(STATE | {"groups": [1, 2, 3]}, 9), {}),
        (_at(STATE | {"groups": [1, 3]}, 9), {}),
        (_at(STATE | {"more": 8}, 9), {}),
        (_at(STATE, 9, 1), {}),
        (_at(STATE, 9), {"plain": ()}),
        (_at(STATE, 9), {"use": "open"}),
        (_at(STATE, 9), {"answer": "'ok'"}),
        (_at(STATE, 9), {"beside": (("c", "step"),)}),
    ],
)
def test_anything_else_is_nothing_to_suspect(later: CompletedCallSnapshot | None, about: dict[str, Any]) -> None:
    snapshots = [_at(STATE, 1)] if later is None else [_at(STATE, 1), later]
    assert _row(*snapshots, **about)["counters"] is None


class Buffer:
    """One who is asked."""

    def sample(self) -> None:
        return None


def test_of_two_who_ask_one_actor_neither_is_anybody_else() -> None:
    def told(times: int, *names: str) -> dict[str, ProcessReport]:
        poll = Poll(None, "", 0.0, (polls.PolledMethod("b", "sample", "app.py:7", times, "None"),), "until", ())
        asking = {name: ProcessReport(MachineReport(name, 0, 1, 0), 0.0, polls=(poll,)) for name in names}
        return asking | {"b": ProcessReport(MachineReport("b", 0, 1, 0), 0.0, plain_methods=("sample",))}

    over = OverSnapshots()
    list(over.rows(_at({"asked": 2}, 1, 1), told(9, "driver"), {}, 1_000.0))
    (alone,) = over.rows(_at({"asked": 9}, 5, 4), told(13, "driver"), {}, 1_001.0)
    assert alone["counters"] is None
    found = list(over.rows(_at({"asked": 20}, 10, 10), told(18, "driver", "feeder"), {}, 1_002.0))
    assert [one["counters"] for one in found] == [["asked"], None], "the second one is seen for the first time"
    found = list(over.rows(_at({"asked": 30}, 15, 15), told(23, "driver", "feeder"), {}, 1_003.0))
    assert [one["counters"] for one in found] == [["asked"], ["asked"]]


def test_methods_that_are_called_again_and_again_are_looked_into() -> None:
    body, methods = Buffer(), AskedMethods()
    assert methods.look(body, {"driver": "sample"}, 0, 0.0) == ()
    assert methods.look(body, {"driver": "sample"}, 2, LIMITS.poll_s) == (), "hardly called"
    assert methods.look(body, {"driver": "sample", "c": "add"}, 99, LIMITS.poll_s) == ("sample",)
    assert methods.look(body, {"driver": "other"}, 99, 2 * LIMITS.poll_s) == ()
