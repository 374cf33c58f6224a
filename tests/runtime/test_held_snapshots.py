"""A snapshot that a program holds has all its rows, whatever has become of the machines, their host, or the system."""

from __future__ import annotations

import os
import signal
from contextlib import suppress

import pytest
import ray

import ray_snapshot as rs
from ray_snapshot import Snapshot
from ray_snapshot.limits import LIMITS


class Purse(rs.SnapshotMixin):
    def __init__(self, coins: int) -> None:
        self.coins = coins

    def add(self, coins: int) -> int:
        self.coins += coins
        return self.coins

    def pid(self) -> int:
        return os.getpid()


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_a_held_snapshot_is_read_as_of_its_moment_when_its_host_has_died_and_its_system_has_closed() -> None:
    system = rs.System("held", detectors=[])
    purses = system.spawn_many(Purse, [(10,)] * LIMITS.packed_rows)
    system.start()
    held = [_unread(system) for _ in range(2)]
    assert ray.get(purses[3].add.remote(5), timeout=60) == 15
    os.kill(ray.get(purses[0].pid.remote(), timeout=60), signal.SIGKILL)
    assert held[0].machines["Purse-3"].state == {"coins": 10}
    with pytest.raises(rs.RaySnapshotError):
        system.snapshot(timeout=20)
    with suppress(rs.HostDiedError):
        system.close()
    assert held[1].machines["Purse-3"].state == {"coins": 10}
    assert len(held[1].machines) == LIMITS.packed_rows + 1


def _unread(system: rs.System) -> Snapshot:
    """A snapshot with rows that nothing has read yet: of machines that are as in the snapshot before."""
    for _ in range(10):
        taken = system.snapshot()
        if taken.parted[1] is not None:
            return taken
    raise AssertionError("no machine came to rest")
