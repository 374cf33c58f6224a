"""The clock alone: a service and a watcher have one."""

import asyncio

import pytest
from runtime_machines import BOUND_S

from ray_snapshot.limits import LIMITS
from ray_snapshot.pace import LEAST_S
from ray_snapshot.runtime.service.clock import Clock


def test_a_clock_counts_the_ticks_that_came_to_nothing_and_keeps_its_pace_when_started_again() -> None:
    async def play() -> None:
        begun, enough = [0], asyncio.Event()

        async def begin() -> int | None:
            begun[0] += 1
            if begun[0] == 4:
                enough.set()
            return None if begun[0] % 2 else begun[0]

        clock = Clock(begin)
        clock.start(0.001)
        task = clock.task
        clock.start(1_000.0)
        assert clock.task is task
        await enough.wait()
        clock.stop()
        assert task is not None
        await asyncio.wait([task])
        assert (task.cancelled(), clock.skipped) == (True, 2)

    asyncio.run(asyncio.wait_for(play(), BOUND_S))


def test_a_clock_that_is_told_another_pace_goes_at_that_and_no_more_at_the_old_one() -> None:
    async def play() -> None:
        ticked = asyncio.Event()

        async def begin() -> int:
            ticked.set()
            return 1

        clock = Clock(begin)
        clock.start(1_000.0)
        slow = clock.task
        clock.go_at(0.001)
        await ticked.wait()
        assert slow is not None
        await asyncio.wait([slow])
        assert slow.cancelled()
        clock.stop()

    asyncio.run(asyncio.wait_for(play(), BOUND_S))


async def _nothing() -> int:
    return 1


def test_a_share_is_kept_by_what_snapshots_have_taken() -> None:
    clock = Clock(_nothing)
    assert clock.about() == {"every": None, "interval_s": None, "cpu_share": None}
    clock.every = "2%"
    assert clock.interval == LIMITS.first_share_s
    clock.took(0.010)
    assert clock.about() == {"every": "2%", "interval_s": pytest.approx(0.5), "cpu_share": pytest.approx(0.02)}
    clock.took(0.050)
    assert clock.interval == pytest.approx(2.5), "one that takes more counts at once"
    clock.took(0.010)
    assert clock.interval == pytest.approx(2.0), "one that takes less by and by"
    for _ in range(100):
        clock.took(0.010)
    assert clock.interval == pytest.approx(0.5)


def test_by_a_share_it_goes_neither_too_fast_nor_for_ever_too_slowly() -> None:
    clock = Clock(_nothing)
    clock.every = "50%"
    clock.took(1e-6)
    assert clock.interval == LEAST_S
    clock.took(1e6)
    assert clock.interval == LIMITS.slowest_share_s


def test_seconds_stay_seconds_whatever_a_snapshot_takes() -> None:
    clock = Clock(_nothing)
    clock.every = 0.25
    clock.took(10.0)
    assert clock.about() == {"every": 0.25, "interval_s": 0.25, "cpu_share": 40.0}


def test_first_snapshots_that_are_given_up_at_once_and_told_nothing_make_it_slower_too() -> None:
    clock = Clock(_nothing)
    clock.every = "1%"
    for factor in (2, 4, 8):
        clock.gave_up(0.0)
        assert clock.interval == pytest.approx(factor * LIMITS.first_share_s)


def test_snapshots_that_are_given_up_make_it_slower_until_they_are_complete_again() -> None:
    clock = Clock(_nothing)
    clock.every = "10%"
    clock.took(0.01)
    for seconds, interval in ((0.0, 0.2), (0.05, 0.5), (0.0, 1.0)):
        clock.gave_up(seconds)
        assert clock.interval == pytest.approx(interval)
    for _ in range(100):
        clock.gave_up(0.0)
    assert clock.interval == LIMITS.slowest_share_s
    clock.took(0.01)
    assert clock.interval == LIMITS.slowest_share_s, "by and by"
