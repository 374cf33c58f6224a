"""A `gather` over replies and items of streaming generators, mixed in any order: no Ray in here."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ray_snapshot.instrument.process.coroutines import note_wait, resolved
from ray_snapshot.protocol.call_collector import PendingCallSnapshot, ResolvedWait
from ray_snapshot.protocol.calls import Awaited, CallLedger, MachineReport, call_id_of

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
