"""Which waits lack an object that no watched call gives, and which of them a snapshot tells of. No Ray in here."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from lone_app import snapshot_of
from lone_process import lone_process

from ray_snapshot.instrument.here import CURRENT
from ray_snapshot.instrument.process import callbacks, coroutines, recording, waiting
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.instrument.process.reports import LONG_S
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.calls import CallLedger, call_id_of
from ray_snapshot.protocol.commands import Overdue, Request
from ray_snapshot.protocol.coordinator import Coordinator

CALL, OTHER = "driver/0/A/1", "driver/0/A/2"
PUT = "put"
"""In place of a ref of `ray.put`; a call's id stands for a ref that this call answers, None for one that nobody knows."""


def _apart(refs: Any) -> tuple[list[Any], list[Any], list[Any]]:
    waited = [ref for ref in refs if ref != PUT]
    return waited, waited, [ref for ref in refs if ref == PUT]


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    """It runs a call."""
    monkeypatch.setattr(waiting, "apart", _apart)
    monkeypatch.setattr(waiting.task_shape, "is_own", lambda ref: True)
    monkeypatch.setattr(callbacks, "call_of", lambda ref: ref)
    callbacks._FUTURES.clear()  # other tests of this run leave theirs
    with lone_process() as found:
        CURRENT.set(found.enter(None, "m"))
        yield found


@pytest.mark.parametrize(
    ("refs", "k", "timeout", "objects"),
    [
        ([PUT], 1, None, 1),
        ([None], 1, None, 1),
        ([PUT], 1, 5.0, 0),
        ([CALL], 1, None, 0),
        ([CALL, PUT, None], 3, None, 2),
        ([CALL, PUT], 1, None, 0),
        ([PUT, None], 1, None, 1),
    ],
)
def test_a_wait_lacks_what_it_needs_beyond_the_replies_of_calls(
    process: Process, refs: list[Any], k: int, timeout: float | None, objects: int
) -> None:
    wait_id, _ = process.waiting.begin(refs, k, timeout, "app.py:1", is_blocking=True)
    assert process.ledger.waits[wait_id].objects == objects


def test_a_gather_lacks_what_all_of_it_lack(process: Process) -> None:
    waits = [
        process.ledger.waits[process.waiting.begin([ref], 1, None, "", is_blocking=True)[0]] for ref in (CALL, PUT)
    ]
    assert coroutines._joined(waits).objects == 1


# ---- awaits, which nobody has followed -------------------------------------------------------------------------------


def _told(process: Process, ref: str | None, now: Callable[[], float]) -> Any:
    """What is recorded while a task of this loop awaits a ref."""
    done: Future[Any] = callbacks.future_made(Future)
    done.object_ref = ref  # type: ignore[attr-defined]

    async def reader() -> None:
        await asyncio.wrap_future(done)

    async def scenario() -> Any:
        task = asyncio.ensure_future(reader())
        await asyncio.sleep(0)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(recording.time, "time", now)
            process.obey(Request(1))
            process.obey(Overdue(1))
        done.set_result(None)
        await task
        return process.recording.reports[1].objects

    return asyncio.run(scenario()), reader


_NOW = time.time


def _later() -> float:
    return _NOW() + 2 * LONG_S


def test_an_await_that_has_lasted_is_recorded_with_its_place(process: Process) -> None:
    ((since, site),), reader = _told(process, None, _later)
    assert site == f"{__file__}:{reader.__code__.co_firstlineno + 1}"
    assert since == pytest.approx(_NOW(), abs=LONG_S)


@pytest.mark.parametrize(("ref", "now"), [(CALL, _later), (None, _NOW)], ids=["a reply", "it may be on its way"])
def test_a_reply_or_what_may_be_on_its_way_is_not(process: Process, ref: str | None, now: Callable[[], float]) -> None:
    assert _told(process, ref, now)[0] == ()


def test_nor_what_has_come_just_now(process: Process) -> None:
    done: Future[Any] = callbacks.future_made(Future)

    async def scenario() -> list[int]:
        awaited = asyncio.wrap_future(done)
        found = [len(callbacks.awaited_objects(_later(), lambda _: ""))]
        done.set_result(None)
        found.append(len(callbacks.awaited_objects(_later(), lambda _: "")))
        await awaited
        return found

    assert asyncio.run(scenario()) == [1, 0]


# ---- in a snapshot ---------------------------------------------------------------------------------------------------


class App:
    """A driver that has called A twice, and waits for one of the calls and for an object, or for an object alone."""

    def __init__(self) -> None:
        self.coordinator = Coordinator()
        self.ledgers = {DRIVER: CallLedger(DRIVER, acts_unasked=True), "A": CallLedger("A")}
        for name in self.ledgers:
            self.coordinator.join(name, 0, 0)

    def told(self, since: float, *, beside: bool = False, is_answered: bool = False, known: Any = None) -> Any:
        """The coverage's list; the snapshot is taken at 0."""
        driver, actor = self.ledgers[DRIVER], self.ledgers["A"]
        header = driver.submit("A", "m", None, 0.0)
        call = call_id_of(DRIVER, 0, "A", header.number)
        running = actor.accept(header, "m", 0.0)
        if is_answered:
            actor.finish(running)
        on = [call] if beside else [None]
        driver.wait(None, on, len(on), since, call_site="app.py:1", may_act=not beside, objects=1)
        return snapshot_of(self.coordinator, self.ledgers, {}, known=known).coverage.get("unexplained")


def test_a_snapshot_tells_of_a_wait_that_has_lasted() -> None:
    assert App().told(-2 * LONG_S) == [
        {"machine": DRIVER, "call_site": "app.py:1", "since": "1969-12-31T23:59:40+00:00"}
    ]


def test_not_of_one_whose_object_may_be_on_its_way() -> None:
    assert App().told(-LONG_S / 2) is None


def test_of_one_that_waits_for_a_call_beside_when_that_is_answered() -> None:
    assert App().told(-2 * LONG_S, beside=True) is None
    assert App().told(-2 * LONG_S, beside=True, is_answered=True) is not None


def test_and_of_what_a_process_has_seen_awaited() -> None:
    found = App().told(0.0, known={"A": {"objects": ((-42.0, "app.py:9"),)}})
    assert found == [{"machine": "A", "call_site": "app.py:9", "since": "1969-12-31T23:59:18+00:00"}]
