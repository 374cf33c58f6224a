"""The same program with what hosts keep of machines that have not acted, and without it: what is asked of both is the same."""

from __future__ import annotations

from typing import Any

import pytest
import ray

import ray_snapshot as rs

pytestmark = pytest.mark.ray

MACHINES, MONEY = 20, 10


class Counted(rs.SnapshotMixin):
    """Counts how often it is read, where no snapshot sees it."""

    volatile = False
    count = 0

    def snapshot_state(self) -> Any:
        Counted.count += 1
        return {}

    def reads(self) -> int:
        return Counted.count


def test_a_machine_that_has_never_acted_is_read_once_and_one_that_rests_again_twice(ray_cluster: None) -> None:
    with rs.System("rests") as system:
        machine = system.spawn(Counted)
        system.start()
        for _ in range(5):
            system.snapshot()
        assert ray.get(machine.reads.remote()) == 1
        for _ in range(5):
            system.snapshot()
        assert ray.get(machine.reads.remote()) == 3
