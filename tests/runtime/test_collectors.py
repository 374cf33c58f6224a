"""Hosts that share collectors: snapshots are what they are without, and a collector may die."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import ray
from until import until

import ray_snapshot as rs
from ray_snapshot.runtime.here import HERE

MACHINES, TOKENS = 5, 4


class Passer(rs.SnapshotMixin):
    """Passes tokens on for as long as they have turns left."""

    def __init__(self, number: int) -> None:
        self.tokens = TOKENS
        self.others = [self.machine(f"Passer-{other}") for other in range(MACHINES) if other != number]

    def begin(self, turns: int) -> None:
        for at in range(self.tokens):
            self.others[at].take.send(turns)
        self.tokens = 0

    def take(self, turns: int) -> None:
        self.tokens += 1
        if turns:
            self.tokens -= 1
            self.others[turns % len(self.others)].take.send(turns - 1)

    def collector(self) -> list[Any]:
        """Where this machine's host reports to."""
        return [HERE.post.member.collector]  # type: ignore[union-attr]


@pytest.fixture(scope="module")
def passers(ray_cluster: None) -> Iterator[tuple[rs.System, list[Any]]]:
    with rs.System("collected", hosts_per_collector=2, detectors=[]) as system:
        machines = system.spawn_many(Passer, args=[(number,) for number in range(MACHINES)], per_host=1)
        system.start()
        yield system, list(machines)


def collectors_of(machines: list[Any]) -> list[Any]:
    return [ray.get(machine.collector.remote(), timeout=60)[0] for machine in machines]


def check(system: rs.System) -> rs.Snapshot:
    found = system.snapshot()
    found.verify()
    assert found.machine_count == MACHINES + 1  # and the driver
    held = sum(machine.state["tokens"] for name, machine in found.machines.items() if name.startswith("Passer"))
    in_flight = sum(len(channel.messages) for key, channel in found.channels.items() if key[0].startswith("Passer"))
    assert held + in_flight == MACHINES * TOKENS
    return found


@pytest.mark.ray
@pytest.mark.nightly
def test_snapshots_of_hosts_that_share_collectors_are_consistent(passers: tuple[rs.System, list[Any]]) -> None:
    system, machines = passers
    check(system)
    known = until(lambda: collectors_of(machines), good=lambda found: None not in found)  # they start meanwhile
    found = [one._actor_id.hex() for one in known]

    assert [found.count(one) for one in dict.fromkeys(found)] == [2, 2, 1]
    ray.get([machine.begin.remote(2_000) for machine in machines], timeout=60)
    assert any(sum(len(one.messages) for one in check(system).channels.values()) for _ in range(20))


@pytest.mark.ray
@pytest.mark.nightly
def test_where_a_collector_dies_its_hosts_report_to_the_service(passers: tuple[rs.System, list[Any]]) -> None:
    system, machines = passers
    ray.kill(collectors_of(machines)[0])

    def know_it() -> bool:
        try:
            check(system)
        except rs.SnapshotAbortedError as error:
            assert "collector-0 is gone" in str(error)  # noqa: PT017 - whether it was pending then is for chance to say
        return collectors_of(machines[:2]) == [None, None]

    until(know_it)
    assert None not in collectors_of(machines[2:])
    check(system)
