"""Tests as written with pytest-asyncio, pytest-timeout and pytest-rerunfailures; they run beside those of `suite.py`."""

import asyncio
import time

import pytest
import ray
from test_bank import Account, cluster, stuck  # noqa: F401


@pytest.mark.asyncio
async def test_that_awaits():
    await asyncio.gather(*stuck())


@pytest.mark.asyncio
async def test_that_awaits_what_comes():
    assert await Account.remote().take.remote() == 1


@pytest.mark.timeout(60)
def test_with_a_limit_by_signal():
    ray.get(stuck())


@pytest.mark.timeout(60, method="thread")
def test_with_a_limit_by_thread():
    ray.get(stuck())


@pytest.mark.timeout(2)
def test_past_its_limit():
    ray.get(Account.remote().nap.remote())
    time.sleep(30)


RUNS = []


@pytest.mark.flaky(reruns=1)
def test_that_hangs_once():
    RUNS.append("run")
    ray.get(stuck() if len(RUNS) == 1 else Account.remote().take.remote())


@pytest.mark.flaky(reruns=1)
@pytest.mark.ray_snapshot(expect="deadlock")
def test_that_expects_it_at_last():
    RUNS.append("again")
    ray.get(stuck() if RUNS.count("again") == 2 else Account.remote().take.remote())
