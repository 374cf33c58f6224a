"""What Ray adds to what a snapshot costs its service: measured at two numbers of hosts."""

from __future__ import annotations

import time
from dataclasses import dataclass

import ray_snapshot as rs
from benchmarks.processes import cpu_s

FEW, MANY = 4, 20
SNAPSHOTS = 40


class Idle(rs.SnapshotMixin):
    """A machine with nothing to do."""

    def __init__(self, number: int) -> None:
        self.number = number


@dataclass(frozen=True, slots=True)
class OnRay:
    """Milliseconds of processor time that a snapshot takes of the service's process, Ray's own threads in it included."""

    few_ms: float
    many_ms: float

    @property
    def per_host_ms(self) -> float:
        """For one more host."""
        return (self.many_ms - self.few_ms) / (MANY - FEW)

    @property
    def fixed_ms(self) -> float:
        """For a snapshot of no hosts."""
        return self.few_ms - FEW * self.per_host_ms


def measured() -> OnRay:
    """Needs a running Ray."""
    return OnRay(_service_ms(FEW), _service_ms(MANY))


def _service_ms(hosts: int) -> float:
    """Of a snapshot of so many hosts with a machine each, which is written nowhere and judged by nobody."""
    with rs.System(f"benchmark-scale-{hosts}", detectors=[]) as system:
        system.spawn_many(Idle, args=[(number,) for number in range(hosts)], per_host=1)
        system.start()
        for _ in range(3):
            system.snapshot()
        before, began = cpu_s()["service"], time.monotonic()
        for _ in range(SNAPSHOTS):
            system.snapshot()
        spent, seconds = cpu_s()["service"] - before, time.monotonic() - began
        return 1e3 * (spent - _at_rest(seconds)) / SNAPSHOTS


def _at_rest(seconds: float) -> float:
    """What the service spends in so many seconds without snapshots."""
    before = cpu_s()["service"]
    time.sleep(seconds)
    return cpu_s()["service"] - before
