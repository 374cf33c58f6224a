"""What watching an existing app costs: calls between watched actors over the same calls between plain ones, in one run.

The plain arm's actors live in processes in which nothing of Ray's is replaced.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import ray

import ray_snapshot as rs
from benchmarks.measure import Result, alternate

ROUND_TRIPS = 400
PIPELINED = 1_500
MANY = 1_000_000
CHUNK = 20_000
ACTORS = 32


class Peer:
    """Calls another one, and is called."""

    def ping(self, given: Any = None) -> Any:
        return given

    def size(self, given: Any) -> int:
        return len(given)

    def round_trips(self, other: Any, count: int) -> float:
        """Microseconds of a call and its reply, one at a time."""
        began = time.perf_counter()
        for number in range(count):
            ray.get(other.ping.remote(number))
        return (time.perf_counter() - began) / count * 1e6

    def pipelined(self, other: Any, count: int) -> float:
        """Calls a second, all made before the first reply is read."""
        began = time.perf_counter()
        ray.get([other.ping.remote(number) for number in range(count)])
        return count / (time.perf_counter() - began)

    def big(self, other: Any, count: int) -> float:
        """Microseconds of a call with a megabyte of numpy."""
        block = np.zeros(125_000)
        began = time.perf_counter()
        for _ in range(count):
            ray.get(other.size.remote(block))
        return (time.perf_counter() - began) / count * 1e6

    def fire(self, other: Any, count: int) -> float:
        """Make calls and forget them; resident megabytes afterwards."""
        for start in range(0, count, CHUNK):
            for number in range(start, min(count, start + CHUNK)):
                other.ping.remote(number)
            ray.get(other.ping.remote())
        return megabytes()

    def memory(self) -> float:
        """Resident megabytes of this process."""
        return megabytes()


class AsyncPeer(Peer):
    """The same, on an event loop."""

    async def ping(self, given: Any = None) -> Any:
        return given


def megabytes() -> float:
    """Resident memory of this process."""
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize() / 1e6


def run(names: set[str]) -> Iterator[Result]:
    """Yield the figures of watched calls."""
    plain = ray.remote(num_cpus=0)(Peer), ray.remote(num_cpus=0)(AsyncPeer)
    if not ray.is_initialized():
        ray.init(include_dashboard=False, logging_level="ERROR")
    with rs.watch("benchmark-calls", detectors=[]) as watch:
        watched = ray.remote(num_cpus=0)(Peer), ray.remote(num_cpus=0)(AsyncPeer)
        pairs = {
            kind: [(callers[0].remote(), callers[at].remote()) for callers in (watched, plain)]
            for at, kind in enumerate(("", "async-"))
        }
        for kind, (ours, raw) in pairs.items():
            yield from _calls(names, kind, ours, raw)
        ours, raw = pairs[""]
        if "watched-megabyte" in names:
            yield _alternated("watched-megabyte", "<= 1.05", "us", "big", 100, ours, raw)
        if "watched-memory" in names:
            yield _memory(ours)
        if "watched-snapshot-32" in names:
            yield _snapshot(watch, watched[0])


def _calls(names: set[str], kind: str, ours: Any, raw: Any) -> Iterator[Result]:
    figures = (
        ("round-trip", "<= 1.25", "us", "round_trips", ROUND_TRIPS),
        ("pipelined", ">= 0.75", "calls_per_s", "pipelined", PIPELINED),
    )
    for name, goal, unit, method, count in figures:
        if f"watched-{kind}{name}" in names:
            yield _alternated(f"watched-{kind}{name}", goal, unit, method, count, ours, raw)


def _alternated(name: str, goal: str, unit: str, method: str, count: int, ours: Any, raw: Any) -> Result:
    def arm(pair: Any) -> Callable[[], float]:
        return lambda: float(ray.get(getattr(pair[0], method).remote(pair[1], count)))

    return alternate(name, goal, (f"watched_{unit}", arm(ours)), (f"plain_{unit}", arm(raw)))


def _memory(ours: Any) -> Result:
    """Megabytes after a million calls that nobody waits for over those after the first half of them; caller and callee."""
    caller, callee = ours
    halves = []
    for _ in range(2):
        ray.get(caller.fire.remote(callee, MANY // 2))
        halves.append([float(ray.get(one.memory.remote())) for one in ours])
    before, after = halves
    ratios = sorted(late / early for late, early in zip(after, before, strict=True))
    arms = {
        "caller_mb": after[0],
        "callee_mb": after[1],
        "caller_mb_at_half": before[0],
        "callee_mb_at_half": before[1],
    }
    return Result("watched-memory", ratios[-1], ratios[0], ratios[-1], "<= 1.05", arms)


def _snapshot(watch: Any, kind: Any) -> Result:
    actors = [kind.remote() for _ in range(ACTORS)]
    ray.get([actor.ping.remote() for actor in actors])

    def timed(work: Callable[[], Any]) -> float:
        began = time.perf_counter()
        work()
        return 1e3 * (time.perf_counter() - began)

    return alternate(
        "watched-snapshot-32",
        "<= 3",
        ("snapshot_ms", lambda: timed(watch.snapshot)),
        ("empty_calls_ms", lambda: timed(lambda: ray.get([actor.ping.remote() for actor in actors]))),
    )
