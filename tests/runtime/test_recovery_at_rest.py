"""Hosts whose machines are at rest are killed, and go back: the system is as if every checkpoint had copied every machine."""

from __future__ import annotations

import os
import pickle
import signal
from pathlib import Path
from typing import Any

import pytest
import ray
from until import until

import ray_snapshot as rs
from ray_snapshot.history import History, checkpoints
from ray_snapshot.runtime.saved_machines import machines_in

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]

BOUND_S = 60.0
COUNT = 6


class Counting(rs.SnapshotMixin):
    """Counts; its state has no handle, so it comes to rest."""

    def __init__(self, start: int) -> None:
        self.total = start
        self.seen: list[int] = []

    def add(self, amount: int) -> int:
        self.total += amount
        self.seen.append(amount)
        return self.total

    def later(self, seconds: float) -> None:
        self.handle.add.send_after(seconds, 7)

    def pid(self) -> int:
        return os.getpid()


def _at_rest(history: Path, snapshot: rs.Snapshot) -> set[str]:
    """Who is at rest in the checkpoint of a snapshot, as its file says."""
    checkpoint = checkpoints.read(history, snapshot.snapshot_id, checkpoints.checkpoint_key())
    tables = [table for section in checkpoint.of_hosts for table in pickle.loads(section)[5:]]
    return {name for table in tables for name, *_ in machines_in(table)}


def _totals(snapshot: rs.Snapshot) -> dict[str, str]:
    rows = snapshot.tables["machines"].to_pylist()
    return {row["machine"]: row["state"] for row in rows if row["machine"] != "driver"}


def _kept(system: rs.System, snapshot: rs.Snapshot) -> None:
    until(lambda: ray.get(system._service.about.remote())["goes_back_to"] >= snapshot.snapshot_id, seconds=BOUND_S)


@pytest.mark.nightly
def test_a_killed_host_of_machines_at_rest_recovers_and_older_snapshots_bring_back_the_same(
    tmp_path: Path,
) -> None:
    with rs.System("at-rest", recover="rollback", history=str(tmp_path / "h")) as system:
        names = [f"c{number}" for number in range(COUNT)]
        many: Any = system.spawn_many(Counting, args=[(n,) for n in range(COUNT)], names=names, per_host=COUNT // 2)
        system.start()
        assert [ray.get(one.add.remote(10)) for one in many] == [10 + n for n in range(COUNT)]
        many[5].later.send(1_000.0)
        first, second = (system.snapshot() for _ in range(2))
        ray.get(many[0].add.remote(1))
        third = system.snapshot()
        _kept(system, third)
        assert _at_rest(tmp_path / "h", third) == {"c1", "c2", "c3", "c4"}
        os.kill(ray.get(many[4].pid.remote()), signal.SIGKILL)
        until(
            lambda: ray.get(system._service.about.remote()),
            good=lambda about: about["generation"] >= 1,
            seconds=BOUND_S,
        )
        back = until(
            system.snapshot, good=lambda _: True, again=(rs.RolledBackError, rs.HostDiedError, rs.SnapshotAbortedError)
        )
        assert _totals(back) == _totals(third) != _totals(second)
        assert ray.get(many[4].add.remote(1)) == 15
        system.restore(first)
        again = [system.snapshot() for _ in range(3)]
        assert [_totals(one) for one in again] == [_totals(first)] * 3
        assert [one.in_flight_count for one in again] == [1] * 3, "the timer"
        ray.get(many[3].add.remote(1))
        last = system.snapshot()
        _kept(system, last)
        assert _at_rest(tmp_path / "h", last) == {"c0", "c1", "c2", "c4"}
        assert _totals(last)["c3"] != _totals(first)["c3"]
    assert [problems for _, problems in History(tmp_path / "h").verify() if problems] == []
