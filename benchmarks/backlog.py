"""A snapshot while a million messages wait in a mailbox, over the time in which they are accepted.

They are sent faster than they are taken, as it is where a backlog comes about: each keeps its machine busy for `WORK_US`.
Every one of them is in flight at the cut, so each is recorded. `RAY_SNAPSHOT_BENCHMARK_MESSAGES` makes it smaller.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import ray

import ray_snapshot as rs
from benchmarks.measure import Result, alternate

MESSAGES = int(os.environ.get("RAY_SNAPSHOT_BENCHMARK_MESSAGES", "1000000"))
WORK_US = 20
LONGEST_S = 300.0


class Part(rs.SnapshotMixin):
    """The first of four counts what it gets; the third, on the other host, floods it, and then rings at the second."""

    def __init__(self) -> None:
        self.taken = 0
        self.began = self.ended = 0.0
        self.rung = 0

    def take(self, number: int) -> None:
        now = time.perf_counter()
        if not number:
            self.taken, self.began = 0, now
        while (ended := time.perf_counter()) < now + WORK_US / 1e6:
            pass
        self.taken, self.ended = self.taken + 1, ended

    def ring(self) -> None:
        self.rung += 1

    def told(self) -> tuple[int, int, float]:
        """How often it was rung at, how many messages it has got, and the seconds from the first to the last."""
        return self.rung, self.taken, self.ended - self.began

    def flood(self, count: int) -> None:
        send = self.machine("Part-0").take.send
        for number in range(count):
            send(number)
        self.machine("Part-1").ring.send()


def run(names: set[str]) -> Iterator[Result]:
    """Yield `snapshot-backlog`."""
    with rs.System("benchmark-backlog", mailbox_bound=2 * MESSAGES, detectors=[]) as system:
        sink, bell, source, _ = system.spawn_many(Part, count=4, per_host=2)
        system.start()
        backlog = Backlog(system, sink, bell, source)
        arms = ("snapshot_s", backlog.snapshot), ("drained_s", backlog.drained)
        yield replace(alternate("snapshot-backlog", "<= 0.02", *arms, pairs=2), parts={"messages": MESSAGES})


class Backlog:
    """Floods one machine, again and again."""

    def __init__(self, system: rs.System, sink: rs.MachineHandle, bell: rs.MachineHandle, source: rs.MachineHandle):
        self.system = system
        self.sink = sink
        self.bell = bell
        self.source = source
        self.floods = 0

    def snapshot(self) -> float:
        """Of a snapshot that is begun when all of them have arrived at their host."""
        self._flood()
        began = time.perf_counter()
        found = self.system.snapshot(timeout=LONGEST_S)
        seconds = time.perf_counter() - began
        assert found.in_flight_count > MESSAGES / 2, f"of the backlog, {found.in_flight_count:,} were left"
        self._drain()
        return seconds

    def drained(self) -> float:
        """Of accepting all of them."""
        self._flood()
        return self._drain()

    def _flood(self) -> None:
        self.floods += 1
        self.source.flood.send(MESSAGES)
        _until(self.bell, lambda rung, *_: rung == self.floods)

    def _drain(self) -> float:
        return _until(self.sink, lambda _, taken, __: taken == MESSAGES)[2]


def _until(machine: rs.MachineHandle, is_so: Callable[[int, int, float], bool]) -> tuple[int, int, float]:
    """What a machine tells as soon as it is so."""
    end = time.monotonic() + LONGEST_S
    while time.monotonic() < end:
        told: tuple[int, int, float] = ray.get(machine.told.remote(), timeout=LONGEST_S)
        if is_so(*told):
            return told
        time.sleep(0.01)
    raise TimeoutError(f"{MESSAGES:,} messages were not accepted within {LONGEST_S:g} s")
