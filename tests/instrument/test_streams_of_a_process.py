"""Generators of a process at their `yield`s, when they wait there, and a `gather` over their items. No Ray runs."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from hypothesis import given
from hypothesis import strategies as st

from ray_snapshot.instrument.hooks.calls import delegated
from ray_snapshot.instrument.process.coroutines import note_wait, resolved
from ray_snapshot.instrument.process.streams import Streams
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.call_collector import PendingCallSnapshot, ResolvedWait
from ray_snapshot.protocol.calls import Awaited, CallLedger, Header, MachineReport, call_id_of
from ray_snapshot.runtime.here import call_site

NO_THREAD = 0
"""Of a thread that runs nothing in Python there is no frame."""


def lines() -> Iterator[str]:
    yield "first"
    yield from inner()


def inner() -> Iterator[str]:
    yield "second"


class Run:
    """What the wrappers tell of a generator, as they tell it to a process."""

    def __init__(self) -> None:
        self.ledger = CallLedger("P")
        self.call = self.ledger.accept(Header("C", 0, 1, 0, 1), "lines", 0.0)
        self.streams = Streams()

    def generates(self, generator: Any) -> None:
        self.streams.begin(self.call, generator)

    def item(self, value: Any) -> Any:
        self.ledger.yields(self.call)
        self.streams.go_out(self.call)
        return value

    def resumed(self) -> None:
        self.streams.come_back(self.call)

    def parked(self, thread: int = NO_THREAD, now: float = 0.0, *, has_loop: bool = False) -> list[Any]:
        """What of it waits, as it is told at this moment."""
        found = self.streams.park(self.ledger, {self.call: thread}, now, has_loop=has_loop)
        waits = [self.ledger.waits[wait_id] for wait_id in found]
        for wait_id in found:
            self.ledger.wake(wait_id)
        return waits


def _source(site: str) -> str:
    path, _, line = site.rpartition(":")
    with open(path) as file:
        return file.read().splitlines()[int(line) - 1].strip()


def test_the_place_of_a_generator_is_its_own_yield() -> None:
    run = Run()
    places = []
    for _ in delegated(run, lines()):
        places += [_source(site) for site in run.streams.sites().values()]
    assert places == ['yield "first"', 'yield "second"']
    assert run.streams.sites() == {}, "it has ended"


def test_an_asynchronous_one_is_told_by_its_own_line_too() -> None:
    async def numbers() -> Any:
        yield 1

    generator = numbers()
    with pytest.raises(StopIteration):
        generator.asend(None).send(None)
    run = Run()
    run.generates(generator)
    run.item(1)
    assert [_source(site) for site in run.streams.sites().values()] == ["yield 1"]


def test_it_waits_while_it_is_at_a_yield_and_its_thread_runs_nothing() -> None:
    run = Run()
    items = delegated(run, lines())
    assert run.parked() == []
    next(items)
    assert [(wait.at_yield, wait.is_long) for wait in run.parked()] == [(True, False)]
    assert run.ledger.can_copy is False, "only for the moment of the recording"
    assert run.parked(threading.get_ident()) == [], "while an item is being pickled its call is active"
    later = run.streams.running[run.call].since + LIMITS.held_yield_s + 0.1
    assert [wait.is_long for wait in run.parked(now=later)] == [True]
    items.close()
    assert run.parked() == []


def test_a_plain_generator_on_the_loop_of_an_async_actor_is_unsure_and_blocks_that() -> None:
    run = Run()
    items = delegated(run, lines())
    next(items)
    for now, told in ((0.0, []), (run.streams.running[run.call].since + LIMITS.held_yield_s + 0.1, [(True, True)])):
        waits = run.parked(now=now, has_loop=True)
        assert [(wait.is_long, wait.is_unsure) for wait in waits] == told
        assert run.streams.blocking == (run.call if told else None)


def test_an_item_counts_before_ray_has_it_and_the_app_runs_on_only_when_it_is_resumed() -> None:
    run, seen = Run(), list[tuple[int, bool]]()

    def told() -> Iterator[int]:
        for number in range(2):
            seen.append((run.ledger.running[run.call].yielded, run.streams.running[run.call].is_out))
            yield number

    assert list(delegated(run, told())) == [0, 1]
    assert seen == [(0, False), (1, False)]
    assert run.ledger.running[run.call].yielded == 2


def test_an_error_that_is_thrown_in_finds_it_resumed() -> None:
    run, seen = Run(), list[bool]()

    def told() -> Iterator[int]:
        try:
            yield 1
        finally:
            seen.append(run.streams.running[run.call].is_out)

    items = delegated(run, told())
    next(items)
    items.close()
    assert seen == [False]


def test_no_place_is_a_file_of_rays() -> None:
    """In a worker Ray's own program is `__main__`."""
    found: list[str | None] = []
    for path in ("/site-packages/ray/_private/workers/default_worker.py", "/home/me/default_worker.py"):
        about = {"__name__": "__main__", "call_site": call_site, "sys": sys, "found": found}
        exec(compile("def run(): found.append(call_site(sys._getframe()))", path, "exec"), about)
        about["run"]()
    assert found[0] is not None
    assert found[0].startswith(__file__)
    assert found[1] == "/home/me/default_worker.py:1"


def _ref(task: int, number: int) -> Any:
    """The ref of a task's object: 1 is that of its generator, the first item has 2."""
    return ray.ObjectRef(task.to_bytes(24, "little") + number.to_bytes(4, "little"))


def _taken(told: Streams, task: int) -> Any:
    core = SimpleNamespace(async_delete_object_ref_stream=id)
    refs = ray.ObjectRefGenerator(_ref(task, 1), SimpleNamespace(check_connected=bool, core_worker=core))
    told.take(refs, f"C/0/P/{task}", None)
    return refs


def test_an_item_that_was_taken_has_come_also_when_its_generator_is_dropped() -> None:
    told = Streams()
    refs = _taken(told, 1)
    assert [told.has_come(_ref(1, number)) for number in (1, 2, 3)] == [False, True, True]
    assert not told.has_come(_ref(2, 2)), "nothing is known of it"
    del refs
    for task in range(2, LIMITS.dropped_generators + 3):
        _taken(told, task)
    assert [told.has_come(_ref(task, 2)) for task in (1, 2, 3)] == [False, True, True], "the oldest is forgotten"


YIELDED = 2
"""How many items the generator has yielded."""

OWED = ("m", "m/1")
"""What a machine of a host owes."""


class Readers:
    """An actor `A` that awaits calls and items, each in a task of its own."""

    def __init__(self) -> None:
        self.ledger, self.producer = CallLedger("A"), CallLedger("P")
        self.own = self.ledger.accept_unknown("read", 0.0)
        header = self.ledger.submit("P", "items", None, 0.0)
        self.call = call_id_of("A", 0, "P", header.number)
        self.producer.accept(header, "items", 0.0)
        for _ in range(YIELDED):
            self.producer.yields(self.call)
        self.tasks: dict[int, Any] = {}

    async def reads(self, kind: int | str) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        calls = {"owed": (), "unknown": (None,), "end": (self.call,)}
        on = (Awaited(self.call, kind),) if isinstance(kind, int) else calls[kind]
        wait_id = self.ledger.wait(self.own, on, 1, 0.0, owed=[OWED] if kind == "owed" else ())
        self.tasks[wait_id] = asyncio.current_task()
        note_wait(future, wait_id)
        await future

    async def record(self, kinds: list[int | str]) -> MachineReport:
        async def gathering() -> None:
            await asyncio.gather(*[self.reads(kind) for kind in kinds])

        coroutine = gathering()
        task = asyncio.ensure_future(coroutine)
        for _ in range(3):
            await asyncio.sleep(0)
        self.ledger.request(1)
        self.ledger.record(None)
        found = resolved(self.ledger.report(1), {self.own: (task, coroutine)}, self.tasks, asyncio.get_running_loop())
        task.cancel()
        return found

    def waits(self, kinds: list[int | str]) -> tuple[ResolvedWait, ...]:
        self.producer.request(1)
        self.producer.record(None)
        pending = PendingCallSnapshot(1, ["A", "P"])
        pending.report(asyncio.run(self.record(kinds)))
        pending.report(self.producer.report(1))
        return pending.completed().waits


def _answer(kind: int | str) -> list[bool | None]:
    return {"end": [False], "unknown": [None], "owed": []}.get(kind, [isinstance(kind, int) and kind < YIELDED])


@given(st.lists(st.sampled_from(["end", "unknown", "owed", 0, 1, 2, 3]), min_size=2, max_size=6))
def test_a_gather_has_the_answer_of_each_thing_it_waits_for(kinds: list[int | str]) -> None:
    all_of, *each = Readers().waits(kinds)
    answers = [answer for kind in kinds for answer in _answer(kind)]
    assert list(all_of.answers) == answers
    assert (all_of.wait.k, len(all_of.wait.owed)) == (len(kinds), kinds.count("owed"))
    unsure = None if None in answers or "owed" in kinds else True
    assert all_of.is_satisfied is (False if False in answers else unsure)
    assert [list(one.answers) for one in each] == [_answer(kind) for kind in kinds]


def test_a_wait_for_an_item_and_one_for_the_end_of_its_call_are_different() -> None:
    ledger = CallLedger("A")
    both = ledger.waits[ledger.wait(None, ["A/0/P/1", Awaited("A/0/P/1", 3)], 2, 0.0)]
    assert both.on == (Awaited("A/0/P/1"), Awaited("A/0/P/1", 3))
    assert replace(both, on=both.on[1:]).calls == ("A/0/P/1",)
