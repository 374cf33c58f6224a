"""A snapshot while a million messages wait in a mailbox, over the time in which they are accepted.

Each of them is in flight at the cut, so each is recorded. `RAY_SNAPSHOT_BENCHMARK_MESSAGES` makes it smaller.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import replace

import ray

import ray_snapshot as rs
from benchmarks.measure import Result, alternate

MESSAGES = int(os.environ.get("RAY_SNAPSHOT_BENCHMARK_MESSAGES", "1000000"))
LONGEST_S = 300.0


class Sink(rs.SnapshotMixin):
    """Counts what it gets; the second of two floods the first."""

    def __init__(self) -> None:
        self.taken = 0
        self.began = self.ended = 0.0

    def take(self, number: int) -> None:
        if not number:
            self.taken, self.began = 0, time.monotonic()
        self.taken, self.ended = self.taken + 1, time.monotonic()

    def spent(self) -> tuple[int, float]:
        """How many it has got, and the seconds from the first to the last."""
        return self.taken, self.ended - self.began

    def flood(self, count: int) -> None:
        send = self.machine("Sink-0").take.send
        for number in range(count):
            send(number)


def run(names: set[str]) -> Iterator[Result]:
    """Yield `snapshot-backlog`."""
    with rs.System("benchmark-backlog", mailbox_bound=2 * MESSAGES, detectors=[]) as system:
        sink, source = system.spawn_many(Sink, count=2, per_host=1)
        system.start()
        arms = ("snapshot_s", lambda: _snapshot(system, sink, source)), ("drained_s", lambda: _drained(sink, source))
        yield replace(alternate("snapshot-backlog", "<= 0.02", *arms, pairs=2), parts={"messages": MESSAGES})


def _snapshot(system: rs.System, sink: rs.MachineHandle, source: rs.MachineHandle) -> float:
    """Of a snapshot that is begun as soon as the first message has been accepted."""
    source.flood.send(MESSAGES)
    _until(sink, 1, MESSAGES - 1)
    began = time.perf_counter()
    found = system.snapshot(timeout=LONGEST_S)
    seconds = time.perf_counter() - began
    assert found.in_flight_count > MESSAGES / 2, "the backlog was there"
    _until(sink, MESSAGES, MESSAGES)
    return seconds


def _drained(sink: rs.MachineHandle, source: rs.MachineHandle) -> float:
    source.flood.send(MESSAGES)
    _until(sink, 1, MESSAGES - 1)
    return _until(sink, MESSAGES, MESSAGES)


def _until(sink: rs.MachineHandle, least: int, most: int) -> float:
    """Wait until it has got so many of this flood; the seconds that it took for them."""
    end = time.monotonic() + LONGEST_S
    while time.monotonic() < end:
        count, seconds = ray.get(sink.spent.remote(), timeout=LONGEST_S)
        if least <= count <= most:
            return float(seconds)
        time.sleep(0.01)
    raise TimeoutError(f"{least:,} messages were not accepted within {LONGEST_S:g} s")
