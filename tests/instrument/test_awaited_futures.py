"""Which awaits of an async actor's call have nothing seen that ends them. No Ray in here."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ray_snapshot.instrument.process.awaited import A_FUTURE, awaited_futures
from ray_snapshot.instrument.process.blocked_threads import BlockedThreads
from ray_snapshot.instrument.process.reports import LongWait
from ray_snapshot.names import LONG_S

OVER = threading.Event()
"""Ends the threads of all scenarios."""


def _stand() -> None:
    OVER.wait()


async def a_future() -> None:
    await asyncio.get_running_loop().create_future()


async def both() -> None:
    await asyncio.gather(asyncio.to_thread(_stand), asyncio.get_running_loop().create_future())


async def a_blocked_thread() -> None:
    await asyncio.to_thread(_stand)


async def a_sleep() -> None:
    await asyncio.sleep(3_600)


async def a_bound() -> None:
    await asyncio.wait_for(asyncio.get_running_loop().create_future(), 3_600)


async def any_of_two() -> None:
    futures = [asyncio.get_running_loop().create_future() for _ in range(2)]
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


async def an_acting_thread() -> None:
    await asyncio.to_thread(_work)


def _work() -> None:
    while not OVER.wait(0.01):
        pass


def _told(scenario: Callable[[], Awaitable[None]]) -> tuple[LongWait, ...]:
    """What is told of a call in `scenario`, as of a moment that is `LONG_S` after the first look."""
    threads = BlockedThreads()
    OVER.clear()

    async def main() -> tuple[LongWait, ...]:
        coroutine: Any = scenario()
        task, loop = asyncio.ensure_future(coroutine), asyncio.get_running_loop()
        await asyncio.sleep(0.2)  # its thread has come to rest
        now = time.time()
        looks = [
            awaited_futures(now + later, [(task, coroutine)], threads, (), loop) for later in (0, LONG_S, 2 * LONG_S)
        ]
        OVER.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert looks[0] == ()
        return looks[2]

    return asyncio.run(main())


@pytest.mark.parametrize("scenario", [a_future, both, a_blocked_thread])
def test_an_await_that_nothing_seen_ends_is_told_with_its_place(scenario: Callable[[], Awaitable[None]]) -> None:
    ((_, site, what),) = _told(scenario)
    assert site.partition(",")[0] == f"{__file__}:{scenario.__code__.co_firstlineno + 1}"
    if scenario is a_future:
        assert what == A_FUTURE
    else:
        assert what.startswith("for thread asyncio_0, which waits in threading.Event.wait")


@pytest.mark.parametrize("scenario", [a_sleep, a_bound, any_of_two, an_acting_thread])
def test_a_timer_another_future_or_a_thread_that_acts_may_end_it(scenario: Callable[[], Awaitable[None]]) -> None:
    assert _told(scenario) == ()
