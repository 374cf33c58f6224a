"""Tests of a bank whose accounts can deadlock; the file is copied into a folder of its own, and run there."""

import asyncio
import contextlib
import os
import threading
import time
import unittest

import pytest
import ray


@ray.remote(num_cpus=0)
class Meeting:
    """Lets two callers go on together, so that each has begun."""

    def __init__(self):
        self.here, self.both = 0, asyncio.Event()

    async def arrive(self):
        self.here += 1
        if self.here == 2:
            self.both.set()
        await self.both.wait()


@ray.remote(num_cpus=0)
class Account:
    def __init__(self, balance=1):
        self.balance = balance

    def know(self, other, meeting):
        self.other, self.meeting = other, meeting

    def pay(self):
        ray.get(self.meeting.arrive.remote())
        return 1 + ray.get(self.other.take.remote())

    def take(self):
        return 1

    def nap(self):
        time.sleep(3)


@pytest.fixture(scope="session", autouse=True)
def cluster(tmp_path_factory):
    if "OWN_CLUSTER" in os.environ:
        ray.init(num_cpus=2, include_dashboard=False, _temp_dir="/tmp/rs-" + str(os.getpid()))
    else:
        ray.init()
    yield
    ray.shutdown()


TORN = []
KEPT = []


@pytest.fixture
def closed():
    yield
    TORN.append("closed")


def stuck():
    meeting = Meeting.remote()
    a, b = Account.remote(), Account.remote()
    ray.get([a.know.remote(b, meeting), b.know.remote(a, meeting)])
    return [a.pay.remote(), b.pay.remote()]


def test_hangs(closed):
    KEPT.extend(stuck())
    assert ray.get(KEPT) == [2, 2]


def test_that_comes_next():
    assert TORN == ["closed"]
    assert ray.get(Account.remote().take.remote()) == 1


def test_that_ends_beside_what_is_stuck(ray_snapshot):
    account = Account.remote()
    ray.get(account.take.remote())
    assert ray_snapshot.assert_terminates(20).holds
    assert "driver" in ray_snapshot.snapshot().tables["machines"]["machine"].to_pylist()


def test_that_takes_too_long(ray_snapshot):
    account = Account.remote()
    ray.get(account.take.remote())
    naps = account.nap.remote()
    ray_snapshot.assert_terminates(1)
    del naps


def test_that_never_ends(ray_snapshot):
    refs = stuck()
    ray_snapshot.assert_terminates(60)
    del refs


def test_that_catches_it():
    with contextlib.suppress(RuntimeError):
        ray.get(stuck())


@pytest.mark.ray_snapshot(every=0.2, expect="deadlock")
def test_that_expects_it():
    ray.get(stuck())


@pytest.mark.ray_snapshot(expect="deadlock")
def test_that_expects_it_in_vain():
    pass


@ray.remote(num_cpus=0)
class Vault:
    def __init__(self, balance):
        self.balance = balance

    def look(self):
        return self.balance


def conserved(ray_snapshot, total):
    from ray_snapshot import detectors

    vaults = [Vault.remote(60), Vault.remote(40)]
    ray.get([vault.look.remote() for vault in vaults])
    ray_snapshot.assert_conserved(detectors.TokenConservation(total=total, state={"Vault": "$.balance"}))


def test_conserved(ray_snapshot):
    conserved(ray_snapshot, 100)


def test_not_conserved(ray_snapshot):
    conserved(ray_snapshot, 101)


@pytest.fixture
def hangs_at_its_end():
    yield
    ray.get(stuck())


def test_with_a_fixture_that_hangs(hangs_at_its_end):
    pass


def test_that_somebody_ends():
    """A thread of the test's own kills what is stuck, later than the grace."""
    meeting = Meeting.remote()
    a, b = Account.remote(), Account.remote()
    ray.get([a.know.remote(b, meeting), b.know.remote(a, meeting)])
    refs = [a.pay.remote(), b.pay.remote()]
    timer = threading.Timer(5.0, lambda: ray.kill(a))
    timer.start()
    with pytest.raises(ray.exceptions.RayActorError):
        ray.get(refs[0])
    timer.join()


class TestOfTheOldKind(unittest.TestCase):
    @pytest.mark.ray_snapshot(expect="deadlock")
    def test_that_expects_it(self):
        ray.get(stuck())


@pytest.mark.ray_snapshot(expect="deadlock")
def test_that_expects_several():
    async def waits(ref):
        await ref

    async def main():
        async with asyncio.TaskGroup() as group:
            for ref in stuck():
                group.create_task(waits(ref))

    asyncio.run(main())


def test_that_runs_pytest(tmp_path):
    """What runs inside ends nothing of what runs outside."""
    (tmp_path / "test_inside.py").write_text("def test_it():\n    pass\n")
    assert pytest.main(["-q", "-p", "no:cacheprovider", str(tmp_path)]) == 0
    ray.get(stuck())


@pytest.mark.parametrize("name", ["a/b", "c/b"])
def test_elsewhere(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert name == "neither"


@pytest.mark.skip(reason="for the sake of the test")
@pytest.mark.ray_snapshot(expect="deadlock")
def test_that_is_skipped():
    pass
