"""What a parked coroutine waits on is named, with who holds it where that is certain. No Ray."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from ray_snapshot.instrument.process.coroutines import frames_of
from ray_snapshot.instrument.process.primitives import Primitives


class Ledger:
    def __init__(self) -> None:
        self.lock, self.changed, self.permits = asyncio.Lock(), asyncio.Condition(), asyncio.Semaphore(1)
        self.full: asyncio.Queue[int] = asyncio.Queue(2)
        self.empty: asyncio.Queue[int] = asyncio.Queue()
        self.ends = asyncio.Event()

    async def add(self) -> None:
        async with self.lock:
            await self.deeper()

    async def deeper(self) -> None:
        await self.ends.wait()

    async def read(self) -> None:
        async with self.lock:
            pass

    async def watch(self) -> None:
        async with self.changed:
            await self.changed.wait()

    async def change(self) -> None:
        async with self.changed:
            await self.ends.wait()

    async def enter(self) -> None:
        async with self.changed:
            pass

    async def work(self) -> None:
        async with self.permits:
            await self.ends.wait()

    async def queue(self) -> None:
        await self.permits.acquire()

    async def put(self) -> None:
        for number in range(3):
            await self.full.put(number)

    async def get(self) -> None:
        await self.empty.get()

    async def join(self) -> None:
        await self.full.join()


async def _named(*methods: str) -> dict[str, str]:
    """By method of one ledger, begun in this order: what its coroutine waits on."""
    ledger = Ledger()
    calls: dict[str, Coroutine[Any, Any, None]] = {name: getattr(ledger, name)() for name in methods}
    tasks = [asyncio.ensure_future(call) for call in calls.values()]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    primitives = Primitives(calls.values())
    found = {name: primitives.of(frames_of(call)) for name, call in calls.items()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return found


def test_a_lock_is_told_with_the_function_that_is_inside_of_it() -> None:
    assert asyncio.run(_named("add", "read", "work", "queue")) == {
        "add": "asyncio.Event",
        "read": "asyncio.Lock held by Ledger.add",
        "work": "asyncio.Event",
        "queue": "asyncio.Semaphore held by Ledger.work",
    }


def test_who_waits_on_a_condition_has_given_its_lock_up_and_who_waits_for_it_does_not_hold_it() -> None:
    assert asyncio.run(_named("watch", "change", "enter")) == {
        "watch": "asyncio.Condition",
        "change": "asyncio.Event",
        "enter": "asyncio.Condition held by Ledger.change",
    }


def test_a_queue_is_told_with_how_full_it_is() -> None:
    assert asyncio.run(_named("put", "get", "join")) == {
        "put": "asyncio.Queue.put, 2 of 2 in the queue",
        "get": "asyncio.Queue.get, 0 in the queue",
        "join": "asyncio.Queue.join, 2 not done",
    }
