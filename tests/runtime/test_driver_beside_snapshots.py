"""What a program does beside its snapshots, each of which shows of it what it is; and what a snapshot that it holds has."""

import ctypes
import os
import signal
import threading
from contextlib import suppress
from pathlib import Path

import pytest
import ray

import ray_snapshot as rs
from ray_snapshot import Snapshot, detectors
from ray_snapshot.limits import LIMITS

pytestmark = [pytest.mark.ray, pytest.mark.nightly]


class Till(rs.SnapshotMixin):
    def __init__(self, coins: int = 0) -> None:
        self.coins = coins

    def give(self, coins: int) -> int:
        self.coins += coins
        return self.coins

    def pid(self) -> int:
        return os.getpid()


@pytest.mark.contract
def test_a_program_that_holds_the_interpreter_longer_than_a_snapshot_may_take_aborts_none(
    ray_cluster: None, tmp_path: Path
) -> None:
    with rs.System("in-c", every=0.1, snapshot_timeout=1.0, detectors=[], history=tmp_path / "h") as system:
        system.spawn(Till).give.send(1)
        system.start()
        system.snapshot()
        ctypes.PyDLL(None).usleep(2_000_000)  # no other thread of this process runs meanwhile
        system.snapshot()
    assert {row["status"] for row in rs.History(tmp_path / "h").snapshots()} == {"complete"}


def test_sends_of_another_thread_are_in_every_cut_or_behind_it(ray_cluster: None) -> None:
    with rs.System("now-and-then") as system:
        tills = system.spawn_many(Till, count=4, per_host=2)
        system.start()
        sent, is_over = [0], threading.Event()

        def shown() -> int:
            found = system.snapshot()
            assert found.consistent
            return sum(row["sent_count"] for row in found.tables["channels"].to_pylist() if row["source"] == "driver")

        def send() -> None:
            for turn in range(40):
                tills[turn % 4].give.send(1)
                sent[0] += 1
                is_over.wait(0.002 * (turn % 8))
            is_over.set()

        thread = threading.Thread(target=send)
        thread.start()
        while not is_over.is_set():
            before = sent[0]
            assert before <= shown() <= sent[0] + 1
        thread.join()
        assert shown() == 40


@pytest.mark.contract
def test_a_thread_that_ends_is_not_seen_acting_for_ever(ray_cluster: None) -> None:
    with rs.System("ended-thread", detectors=[detectors.Termination()]) as system:
        till = system.spawn(Till)
        system.start()
        may_end = threading.Event()

        def send() -> None:
            till.give.send(1)
            may_end.wait(60)

        sender = threading.Thread(target=send)
        sender.start()

        def look() -> None:
            for _ in range(6):
                system.snapshot()
            may_end.set()

        looking = threading.Thread(target=look)
        looking.start()
        assert system.wait_for("termination", timeout=15).holds
        sender.join()
        looking.join()


def test_a_held_snapshot_is_read_as_of_its_moment_when_its_host_has_died_and_its_system_has_closed(
    ray_cluster: None,
) -> None:
    system = rs.System("held", detectors=[])
    tills = system.spawn_many(Till, [(10,)] * LIMITS.packed_rows)
    system.start()
    held = [_unread(system) for _ in range(2)]
    assert ray.get(tills[3].give.remote(5), timeout=60) == 15
    os.kill(ray.get(tills[0].pid.remote(), timeout=60), signal.SIGKILL)
    assert held[0].machines["Till-3"].state == {"coins": 10}
    with pytest.raises(rs.RaySnapshotError):
        system.snapshot(timeout=20)
    with suppress(rs.HostDiedError):
        system.close()
    assert held[1].machines["Till-3"].state == {"coins": 10}
    assert len(held[1].machines) == LIMITS.packed_rows + 1


def _unread(system: rs.System) -> Snapshot:
    """A snapshot with rows that nothing has read yet: of machines that are as in the snapshot before."""
    for _ in range(10):
        taken = system.snapshot()
        if taken.parted[1] is not None:
            return taken
    raise AssertionError("no machine came to rest")
