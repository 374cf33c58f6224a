"""What a message costs: `send` beside Ray's own calls."""

from __future__ import annotations

import time
from collections.abc import Iterator

import ray

import ray_snapshot as rs
from benchmarks.measure import Result, alternate

MESSAGES = 100_000
BURST = 1_000
CALLS = 2_000


class Sender(rs.SnapshotMixin):
    """Sends in bursts, one burst an action."""

    def burst(self, target: rs.SnapshotMixin, left: int) -> None:
        for number in range(BURST):
            target.hit.send(number)
        if left > 1:
            self.handle.burst.send(target, left - 1)


class Receiver(rs.SnapshotMixin):
    """Counts, and says so when the last of a lot has come."""

    def __init__(self) -> None:
        self.expected = 0
        self.hits = 0
        self.first = 0.0
        self.last = 0.0

    def expect(self, count: int) -> None:
        self.expected, self.hits = count, 0

    def hit(self, number: int) -> None:
        self.hits += 1
        if self.hits == 1:
            self.first = time.time()
        elif self.hits == self.expected:
            self.last = time.time()

    def rate(self) -> float | None:
        return (self.hits - 1) / (self.last - self.first) if self.hits == self.expected else None


@ray.remote(num_cpus=0)
class Plain:
    """The same over Ray's own actor calls."""

    def hit(self, number: int) -> int:
        return number

    def pipelined(self, other: object, calls: int) -> float:
        began = time.perf_counter()
        ray.get([other.hit.remote(number) for number in range(calls)])
        return calls / (time.perf_counter() - began)


def _until(ask: object) -> float:
    """Ask a machine again and again until it has an answer, for at most a minute."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        found = ray.get(ask.remote())
        if found is not None:
            return found
        time.sleep(0.02)
    raise TimeoutError("the messages of a benchmark did not arrive within 60 s")


def run(names: set[str]) -> Iterator[Result]:
    """Yield the figure `send-between-hosts`."""
    if "send-between-hosts" not in names:
        return
    with rs.System("benchmark-sending", detectors=[]) as system:
        source, target = system.spawn(Sender, name="source"), system.spawn(Receiver, name="target")
        system.start()
        one, two = Plain.remote(), Plain.remote()
        ray.get([one.hit.remote(0), two.hit.remote(0)])

        def sending() -> float:
            ray.get(target.expect.remote(MESSAGES))
            source.burst.send(target, MESSAGES // BURST)
            return _until(target.rate)

        plain = ("ray_calls_per_s", lambda: ray.get(one.pipelined.remote(two, CALLS)))
        yield alternate("send-between-hosts", ">= 80", ("messages_per_s", sending), plain)
