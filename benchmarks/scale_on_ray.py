"""What Ray adds to what a snapshot costs its service: the service's process at two numbers of hosts, and the difference by host."""

from __future__ import annotations

import time

import ray_snapshot as rs
from benchmarks.processes import cpu_s

FEW, MANY = 4, 24
SNAPSHOTS = 40


class Idle(rs.SnapshotMixin):
    """A machine with nothing to do."""

    def __init__(self, number: int) -> None:
        self.number = number


def service_ms_per_host() -> tuple[float, float]:
    """Milliseconds of processor time of the service's process per snapshot: for each host, and for none."""
    few, many = (_service_ms(hosts) for hosts in (FEW, MANY))
    slope = (many - few) / (MANY - FEW)
    return slope, few - slope * FEW


def _service_ms(hosts: int) -> float:
    """Milliseconds of a snapshot of so many hosts with a machine each, which is written nowhere and judged by nobody."""
    with rs.System(f"benchmark-scale-{hosts}", detectors=[]) as system:
        system.spawn_many(Idle, args=[(number,) for number in range(hosts)], per_host=1)
        system.start()
        system.snapshot()
        before, began = cpu_s()["service"], time.monotonic()
        for _ in range(SNAPSHOTS):
            system.snapshot()
        spent, seconds = cpu_s()["service"] - before, time.monotonic() - began
        at_rest = _at_rest(seconds)
    return 1e3 * (spent - at_rest) / SNAPSHOTS


def _at_rest(seconds: float) -> float:
    """What the service spends in so many seconds without snapshots."""
    before = cpu_s()["service"]
    time.sleep(seconds)
    return cpu_s()["service"] - before
