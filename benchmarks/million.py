"""A million machines at rest on two hosts: what a snapshot takes, and the memory of every process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import ray_snapshot as rs
from benchmarks.measure import Result, alternate
from benchmarks.processes import memory_gb
from ray_snapshot.detectors import Termination

MACHINES = int(os.environ.get("RAY_SNAPSHOT_BENCHMARK_MACHINES", "1000000"))
"""A tenth of them is the other arm."""


LONGEST_S = 600.0


class Idle(rs.SnapshotMixin):
    """A machine with a small state."""

    def __init__(self) -> None:
        self.balance = 100.5
        self.name = "account"
        self.open = True


def run(names: set[str]) -> Iterator[Result]:
    """Yield the figure `million`."""
    if "million" in names:
        yield _at_rest()


def _at_rest() -> Result:
    parts: dict[str, float] = {}
    with _idle("benchmark-tenth", MACHINES // 10, {}) as few, _idle("benchmark-million", MACHINES, parts) as many:
        result = alternate(
            "million",
            "<= 1.1",
            ("us_per_machine", lambda: 1e6 * _unchanged_s(many) / MACHINES),
            ("us_per_machine_of_a_tenth", lambda: 1e6 * _unchanged_s(few) / (MACHINES // 10)),
            pairs=3,
        )
        parts["unchanged_s"] = result.arms["us_per_machine"] * MACHINES / 1e6
        began = time.monotonic()
        many.wait_for("termination", timeout=600)
        parts["termination_s"] = time.monotonic() - began
        parts.update({f"{name}_gb": value for name, value in memory_gb().items()})
    return replace(result, parts=parts)


@contextmanager
def _idle(name: str, count: int, parts: dict[str, float]) -> Iterator[rs.System]:
    with rs.System(name, detectors=[Termination()], snapshot_timeout=300, start_timeout=600) as system:
        began = time.monotonic()
        system.spawn_many(Idle, count=count, per_host=(count + 1) // 2)
        system.start()
        parts["spawned_s"] = time.monotonic() - began
        began = time.monotonic()
        assert system.snapshot().machine_count == count + 1, "all of them, and the driver"
        parts["all_read_s"] = time.monotonic() - began
        yield system


def _unchanged_s(system: rs.System) -> float:
    began = time.monotonic()
    system.snapshot()
    return time.monotonic() - began
