"""Where alignment is skipped, what comes twice after a recovery is what the snapshot had foretold, and nothing else."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pytest
from restore_machines import BOUND_S
from test_restore_recovery import Mortal, await_kept, kill_host_of, patiently
from test_restore_services import patiently_kill

import ray_snapshot as rs
from ray_snapshot import detectors

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]

COUNT, KILLS, PACE_S = 2_000, 6, 0.002


class Source(Mortal):
    """Sends one to the sink, again and again."""

    def run(self, left: int) -> None:
        self.machine("sink").count.send(1)
        if left > 1:
            self.handle.run.send_after(PACE_S, left - 1)


class Busy(Source):
    """Keeps its host busy, so that it records late, and what the other source has sent meanwhile comes twice."""

    def nap(self, left: int) -> None:
        time.sleep(0.005)
        if left:
            self.handle.nap.send(left - 1)


class Sink(Mortal):
    """Counts."""

    def count(self, amount: int) -> None:
        self.tokens += amount


def foretold(history: rs.History, snapshot_id: str | None) -> int:
    """The duplicates of all snapshots on the way back from this one."""
    found = 0
    while snapshot_id is not None:
        snapshot = history.load(snapshot_id)
        found += sum(channel.duplicate_count for channel in snapshot.channels.values())
        snapshot_id = snapshot.restored_from
    return found


@pytest.mark.nightly
def test_the_duplicates_are_those_that_the_restored_snapshots_foretold(
    ray_cluster: None, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    options: dict[str, Any] = {"recover": "rollback", "every": 0.3, "most_failures": 100, "detectors": []}
    folder = tmp_path / "history"
    with rs.System("twice", protocol="at-least-once-barrier", history=folder, **options) as system:
        slow, sleeper = system.spawn_many(Busy, args=[(0,), (0,)], names=["slow", "sleeper"], role="source")
        fast = system.spawn(Source, 0, name="fast", role="source")
        sink = system.spawn(Sink, 0, name="sink")
        for source in (slow, fast):
            system.connect(source, sink)
        system.start()
        for source in (slow, fast):
            source.run.send(COUNT)
        sleeper.nap.send(COUNT)
        for _ in range(KILLS):
            await_kept(system, patiently(system.snapshot))
            time.sleep(chance.uniform(0.0, 1.0))
            if chance.random() < 0.2:
                patiently_kill(system._service)
            else:
                kill_host_of(chance.choice([slow, fast, sink]))
        system.wait_for(detectors.Termination(), timeout=3 * BOUND_S)
        last = patiently(system.snapshot)
    duplicates = foretold(rs.History(folder), last.restored_from)
    print("duplicates", duplicates)
    assert last.machines["sink"].state["tokens"] == 2 * COUNT + duplicates
