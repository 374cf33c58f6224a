"""What ran on two hosts goes on, on one and on three."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from restore_machines import Vault, conservation, total_of

import ray_snapshot as rs
from ray_snapshot import detectors
from ray_snapshot.commands.restore import _wanted
from ray_snapshot.runtime.restoring import want

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]

TOKENS, BOUND_S = 3, 300.0


def begin(system: rs.System, count: int) -> None:
    """The program: the same, whether it begins or goes on."""
    names = [f"v{number}" for number in range(count)]
    args = [(TOKENS, tuple(names[(at + step * step) % count] for step in range(1, 8))) for at in range(count)]
    machines = system.spawn_many(Vault, args=args, names=names, per_host=-(-count // 2))
    system.start()
    if not system.restored:
        for machine in machines[:100]:
            machine.pass_on.send(1, 500)


@pytest.mark.nightly
@pytest.mark.parametrize("count", [60, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_machines_of_two_hosts_are_restored_on_one_and_on_three(count: int, tmp_path: Path) -> None:
    folder, total = tmp_path / "history", count * TOKENS
    with rs.System("scaled", history=folder, checkpoint=True, detectors=[]) as system:
        begin(system, count)
        taken = system.snapshot()
    assert (taken.restorable, taken.obstacles) == (True, [])
    assert total_of(taken) == total
    for hosts in (1, 3):
        want(_wanted(rs.History(folder), taken.snapshot_id, hosts))
        with rs.System("scaled", history=folder, checkpoint=True, detectors=[conservation(total)]) as system:
            assert system.restored
            begin(system, count)
            again = system.snapshot()
            assert total_of(again) == total
            lives = Counter(machine.host for name, machine in again.machines.items() if name != "driver")
            assert (len(lives), sum(lives.values())) == (hosts, count)
            assert max(lives.values()) - min(lives.values()) <= 1
            assert again.restored_from == taken.snapshot_id
            system.wait_for(detectors.Termination(), timeout=BOUND_S)
            assert total_of(system.snapshot()) == total
