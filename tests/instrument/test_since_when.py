"""A wait keeps the time at which it began, in every snapshot that shows it: no Ray in here."""

import asyncio
import threading
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from lone_process import lone_process
from until import until

from ray_snapshot.instrument.process import waiting
from ray_snapshot.instrument.process.actor_loop import ActorLoop
from ray_snapshot.instrument.process.callbacks import callback_wait, future_made
from ray_snapshot.instrument.process.handed import HandedWork
from ray_snapshot.protocol.calls import CallLedger, Header

ASKED = "A/0/B:1/1"


def _since(loop: ActorLoop, ledger: CallLedger, now: float) -> list[float]:
    """Since when each call waits, as it is recorded at this moment."""
    parked = loop.park(ledger, now, {}, HandedWork())
    found = [ledger.waits[wait_id].waiting_since for wait_id in parked]
    for wait_id in parked:
        ledger.wake(wait_id)
    return found


def test_a_parked_call_waits_since_it_was_first_seen_so_until_it_goes_on() -> None:
    async def scenario() -> list[list[float]]:
        ledger, loop = CallLedger("A"), ActorLoop()
        changed, found = asyncio.Condition(), []

        async def take() -> None:
            async with changed:
                await changed.wait()
                await changed.wait()

        coroutine = take()
        task = asyncio.ensure_future(coroutine)
        await asyncio.sleep(0)
        loop.coroutines[ledger.accept(Header("driver", 0, 1, 0, 1), "take", 1.0)] = task, coroutine
        found += [_since(loop, ledger, now) for now in (2.0, 3.0)]
        async with changed:
            changed.notify_all()
        for _ in range(3):
            await asyncio.sleep(0)
        found += [_since(loop, ledger, now) for now in (4.0, 5.0)]
        task.cancel()
        return found

    assert asyncio.run(scenario()) == [[2.0], [2.0], [4.0], [4.0]]


def test_a_call_that_waits_for_a_thread_waits_since_that_thread_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "apart", lambda refs: (list(refs), list(refs), []))
    monkeypatch.setattr(waiting, "time", SimpleNamespace(time=lambda: 7.0))
    may_end, begun = threading.Event(), threading.Event()
    with lone_process() as process:

        def asks() -> None:
            before = process.waiting.begin_in_thread([ASKED], 1, None, "app.py:7")
            begun.set()
            may_end.wait()
            process.waiting.end_in_thread(before)

        def call() -> None:
            call_id = process.ledger.accept(Header("driver", 0, 1, 0, 1), "step", 5.0)
            process.threads[call_id] = threading.get_ident()
            asking = threading.Thread(target=asks, daemon=True)
            asking.start()
            asking.join()

        calling = threading.Thread(target=call, daemon=True)
        calling.start()
        assert begun.wait(10.0)
        found: list[float] = []
        until(lambda: _parked(process, found))
        until(lambda: _parked(process, found))
        may_end.set()
        calling.join(10.0)
    assert found == [7.0, 7.0]


def _parked(process: Any, found: list[float]) -> bool:
    with process.lock:
        waits = process.handed.park(process.ledger, process.threads.items())
        found += [process.ledger.waits[wait_id].waiting_since for wait_id in waits]
        for wait_id in waits:
            process.ledger.wake(wait_id)
    return bool(waits)


def test_a_callback_waits_since_its_future_was_made() -> None:
    future = future_made(Future)
    future.ray_snapshot_since = 3.0
    future.add_done_callback(print)
    first, second = callback_wait(), callback_wait()
    assert first is not None
    assert first == second
    assert first.waiting_since == 3.0
