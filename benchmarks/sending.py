"""What a message costs: `send` beside Ray's own calls."""

from __future__ import annotations

import time
from collections.abc import Iterator
from statistics import median

import ray

import ray_snapshot as rs
from benchmarks.measure import Result, alternate

MESSAGES = 100_000
BURST = 1_000
CALLS = 2_000
LONE = 60
LONE_PAUSE_S = 0.004


class Sender(rs.SnapshotMixin):
    """Sends in bursts, one burst an action, or now and then a lone message with its time."""

    def burst(self, target: rs.SnapshotMixin, left: int) -> None:
        for number in range(BURST):
            target.hit.send(number)
        if left > 1:
            self.handle.burst.send(target, left - 1)

    def lone(self, target: rs.SnapshotMixin, left: int) -> None:
        target.timed.send(time.time())
        if left > 1:
            self.handle.lone.send_after(LONE_PAUSE_S, target, left - 1)


class Receiver(rs.SnapshotMixin):
    """Counts, and says so when the last of a lot has come."""

    def __init__(self) -> None:
        self.expected = 0
        self.hits = 0
        self.first = 0.0
        self.last = 0.0
        self.delays: list[float] = []

    def expect(self, count: int) -> None:
        self.expected, self.hits, self.delays = count, 0, []

    def hit(self, number: int) -> None:
        self.hits += 1
        if self.hits == 1:
            self.first = time.time()
        elif self.hits == self.expected:
            self.last = time.time()

    def timed(self, sent_at: float) -> None:
        self.delays.append(time.time() - sent_at)

    def rate(self) -> float | None:
        return (self.hits - 1) / (self.last - self.first) if self.hits == self.expected else None

    def median_delay(self) -> float | None:
        return median(self.delays) if len(self.delays) == self.expected else None


@ray.remote(num_cpus=0)
class Plain:
    """The same over Ray's own actor calls."""

    def hit(self, number: int) -> int:
        return number

    def pipelined(self, other: object, calls: int) -> float:
        began = time.perf_counter()
        ray.get([other.hit.remote(number) for number in range(calls)])
        return calls / (time.perf_counter() - began)

    def round_trip(self, other: object, calls: int) -> float:
        taken = []
        for number in range(calls):
            began = time.perf_counter()
            ray.get(other.hit.remote(number))
            taken.append(time.perf_counter() - began)
            time.sleep(LONE_PAUSE_S)
        return median(taken)


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
    """Yield the figures `send-between-hosts`, `send-within-host`, `lone-send-latency`."""
    with rs.System("benchmark-sending", detectors=[]) as system:
        sender, near = system.spawn_many(Sender, count=1)[0], None
        far = system.spawn(Receiver, name="far")
        near_sender = system.spawn(Nest, name="nest")
        system.start()
        ray.get(near_sender.build.remote())
        near, near_source = system.machine("near"), system.machine("near-sender")
        one, two = Plain.remote(), Plain.remote()
        ray.get([one.hit.remote(0), two.hit.remote(0)])

        def sending(source: object, target: object) -> float:
            ray.get(target.expect.remote(MESSAGES))
            source.burst.send(target, MESSAGES // BURST)
            return _until(target.rate)

        def lone() -> float:
            ray.get(far.expect.remote(LONE))
            sender.lone.send(far, LONE)
            return 1e3 * _until(far.median_delay)

        plain = ("ray_calls_per_s", lambda: ray.get(one.pipelined.remote(two, CALLS)))
        if "send-between-hosts" in names:
            yield alternate("send-between-hosts", ">= 80", ("messages_per_s", lambda: sending(sender, far)), plain)
        if "send-within-host" in names:
            yield alternate("send-within-host", ">= 80", ("messages_per_s", lambda: sending(near_source, near)), plain)
        if "lone-send-latency" in names:
            trip = ("ray_round_trip_ms", lambda: 1e3 * ray.get(one.round_trip.remote(two, LONE)))
            yield alternate("lone-send-latency", "<= 1.5", ("one_way_ms", lone), trip)


class Nest(rs.SnapshotMixin):
    """Makes a sender and a receiver on its own host."""

    def build(self) -> None:
        self.spawn(Sender, name="near-sender")
        self.spawn(Receiver, name="near")
