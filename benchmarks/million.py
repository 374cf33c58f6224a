"""A million machines on two hosts, that rest, or that have all sent: what a snapshot takes, and the memory of every process."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import ray

import ray_snapshot as rs
from benchmarks.measure import Result, alternate
from benchmarks.processes import cpu_s, memory_gb
from ray_snapshot.detectors import Termination

MACHINES = int(os.environ.get("RAY_SNAPSHOT_BENCHMARK_MACHINES", "1000000"))
"""A tenth of them is the other arm."""

BUSY = int(os.environ.get("RAY_SNAPSHOT_BENCHMARK_MACHINES", "30000"))
"""The same, of machines that send."""

WAYS = 10
"""Channels out of each of these."""

ROUNDS = 3
"""So many are from one snapshot to the next: of a million machines they take some 120 s."""

LONGEST_S = 600.0


class Idle(rs.SnapshotMixin):
    """A machine with a small state."""

    def __init__(self) -> None:
        self.balance = 100.5
        self.name = "account"
        self.open = True


class Busy(rs.SnapshotMixin):
    """Sends to ten others, once in each round; so each has ten channels out and ten in."""

    gone = taken = 0
    """In this process, of all rounds: machines that have sent, and messages that were accepted."""

    def __init__(self, number: int, count: int) -> None:
        self.number = number
        self.count = count
        self.round = 0

    def go(self, turn: int) -> None:
        Busy.taken += 1
        if turn > self.round:
            self.round = turn
            Busy.gone += 1
            for way in range(WAYS):
                self.machine(f"Busy-{(self.number * WAYS + way) % self.count}").go.send(turn)

    def ask(self) -> None:
        """Start a snapshot, and wait for nothing."""
        self.request_snapshot()

    def counts(self) -> tuple[int, int]:
        """What all machines of this process have done."""
        return Busy.gone, Busy.taken


def run(names: set[str]) -> Iterator[Result]:
    """Yield the figures `million`, `million-busy` and `million-busy-throughput`."""
    if "million" in names:
        yield _at_rest()
    if "million-busy" in names:
        yield _busy()
    if "million-busy-throughput" in names:
        yield _busy_throughput()


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


def _busy_throughput() -> Result:
    """`ROUNDS` with a snapshot in the first, over as many without."""
    with _Town("benchmark-busy-throughput", BUSY) as town:
        town.snapshot_s()
        return alternate(
            "million-busy-throughput",
            ">= 0.9",
            ("messages_per_s_with", lambda: town.messages_per_s(is_with=True)),
            ("messages_per_s_without", lambda: town.messages_per_s(is_with=False)),
            pairs=4,
        )


def _busy() -> Result:
    """All machines have acted since the last snapshot, and all channels have carried something; nothing is in flight."""
    spent: Counter[str] = Counter()
    with _Town("benchmark-busy-tenth", BUSY // 10) as few:
        few.snapshot_s()
        with _Town("benchmark-busy", BUSY) as many:
            before = memory_gb()
            result = alternate(
                "million-busy",
                "<= 1.1",
                ("us_per_channel", lambda: 1e6 * many.snapshot_s(spent) / many.channels),
                ("us_per_channel_of_a_tenth", lambda: 1e6 * few.snapshot_s() / few.channels),
                pairs=3,
            )
            parts = {"snapshot_s": result.arms["us_per_channel"] * many.channels / 1e6, "round_s": many.round_s}
            shares = 1e6 / many.snapshots / many.channels
            parts.update({f"{name}_cpu_us_per_channel": seconds * shares for name, seconds in spent.items()})
            for name, value in memory_gb().items():
                parts[f"{name}_gb"] = value
                parts[f"{name}_bytes_per_channel"] = (value - before.get(name, 0)) * 1e9 / many.channels
    return replace(result, parts=parts)


class _Town:
    """A system of such machines."""

    def __init__(self, name: str, count: int) -> None:
        self.count = count
        self.channels = count * WAYS
        self.round = self.snapshots = 0
        self.round_s = 0.0
        self.system = rs.System(name, detectors=[], snapshot_timeout=300, start_timeout=600)

    def __enter__(self) -> _Town:
        self.system.__enter__()
        half = (self.count + 1) // 2
        self.machines = self.system.spawn_many(
            Busy, [(number, self.count) for number in range(self.count)], per_host=half
        )
        self.system.start()
        return self

    def __exit__(self, *error: Any) -> None:
        self.system.__exit__(*error)

    def snapshot_s(self, spent: Counter[str] | None = None) -> float:
        """Seconds of a snapshot behind a round; `spent`: gets the processor time that each process takes for it."""
        self._send()
        before, began = cpu_s(), time.monotonic()
        found = self.system.snapshot()
        seconds = time.monotonic() - began
        assert found.channel_count >= self.channels, "all of them, and the driver's"
        if spent is not None:
            ray.get(self.system._analyst.drain.remote(LONGEST_S))
            spent.update(cpu_s() - before)
            self.snapshots += 1
        return seconds

    def messages_per_s(self, *, is_with: bool) -> float:
        """Of `ROUNDS`, with a snapshot that a machine asks for or without; all that it takes is over when this answers."""
        if is_with:
            self.machines[0].ask.send()
        seconds = 0.0
        for _ in range(ROUNDS):
            self._send()
            seconds += self.round_s
        if is_with:
            self.system.snapshot()  # is complete no sooner than the one before
            ray.get(self.system._analyst.drain.remote(LONGEST_S))
        return ROUNDS * self.channels / seconds

    def _send(self) -> None:
        """A round: each machine sends, and accepts what is sent to it."""
        self.round += 1
        began, first, last = time.monotonic(), self.machines[0], self.machines[-1]
        first.go.send(self.round)
        due = self.round * self.count, self.round * (self.channels + 1)
        while time.monotonic() < began + LONGEST_S:
            done = zip(*ray.get([one.counts.remote() for one in (first, last)]), strict=True)
            if tuple(map(sum, done)) == due:
                self.round_s = time.monotonic() - began
                return
            time.sleep(0.05)
        raise TimeoutError(f"a round of {self.count:,} machines took more than {LONGEST_S:g} s")
