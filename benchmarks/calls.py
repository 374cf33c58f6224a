"""What watching an existing app costs: calls between watched actors over the same calls between plain ones, in one run.

The plain arm's actors live in processes in which nothing of Ray's is replaced.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
import ray

import ray_snapshot as rs
from benchmarks.measure import Result, alternate, timed_ms

PAIRS = 20
"""More than elsewhere: both arms are bound by two processes at once, and swing with whatever else runs."""
ROUND_TRIPS = 400
PIPELINED = 1_500
MARKS = 100_000, 300_000
"""Calls between which memory is compared."""
CHUNK = 10_000
"""Calls that are on their way at once."""
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

    def cpu(self, other: Any, count: int) -> tuple[float, float]:
        """Microseconds of processor time that a call and its reply take, in the threads that run the two actors."""
        here, there = time.thread_time(), ray.get(other.thread_s.remote())
        for number in range(count):
            ray.get(other.ping.remote(number))
        here, there = time.thread_time() - here, ray.get(other.thread_s.remote()) - there
        return here / count * 1e6, there / count * 1e6

    def thread_s(self) -> float:
        """Processor time of this thread so far."""
        return time.thread_time()

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
        if "watched-cpu" in names:
            yield _cpu(ours, raw)
        if "watched-megabyte" in names:
            yield _alternated("watched-megabyte", "<= 1.03", "us", "big", 100, ours, raw)
        if "watched-memory" in names:
            yield _memory(watched[0], plain[0])
        if "watched-snapshot-32" in names:
            yield _snapshot(watch, watched[0])


def _calls(names: set[str], kind: str, ours: Any, raw: Any) -> Iterator[Result]:
    figures = (
        ("round-trip", "<= 1.12", "us", "round_trips", ROUND_TRIPS),
        ("pipelined", ">= 0.88", "calls_per_s", "pipelined", PIPELINED),
    )
    for name, goal, unit, method, count in figures:
        if f"watched-{kind}{name}" in names:
            yield _alternated(f"watched-{kind}{name}", goal, unit, method, count, ours, raw)


def _alternated(name: str, goal: str, unit: str, method: str, count: int, ours: Any, raw: Any) -> Result:
    def arm(pair: Any) -> Callable[[], float]:
        return lambda: float(ray.get(getattr(pair[0], method).remote(pair[1], count)))

    return alternate(name, goal, (f"watched_{unit}", arm(ours)), (f"plain_{unit}", arm(raw)), pairs=PAIRS)


def _cpu(ours: Any, raw: Any) -> Result:
    """Quieter than the time that passes, for it leaves out who waits for whom; Ray's own threads are not in it."""
    spent: dict[str, list[float]] = {}

    def arm(name: str, pair: Any) -> Callable[[], float]:
        def measure() -> float:
            caller, callee = ray.get(pair[0].cpu.remote(pair[1], ROUND_TRIPS))
            spent.setdefault(f"{name}_caller_us", []).append(caller)
            spent.setdefault(f"{name}_callee_us", []).append(callee)
            return float(caller + callee)

        return measure

    arms = ("watched_us", arm("watched", ours)), ("plain_us", arm("plain", raw))
    found = alternate("watched-cpu", "<= 1.2", *arms, pairs=PAIRS)
    return replace(found, parts={name: median(samples[1:]) for name, samples in spent.items()})


def _memory(watched: Any, plain: Any) -> Result:
    """Growth of driver and actor over calls that nobody waits for, over the growth of the same with plain Ray.

    The watched arm comes first: what Ray itself takes once, in the driver, counts against it.
    """
    grown = {name: _grown(kind.remote()) for name, kind in (("watched", watched), ("plain", plain))}
    arms = {
        f"{name}_{who}_mb_at_{mark}": megabytes
        for name, samples in grown.items()
        for mark, sample in zip(MARKS, samples, strict=True)
        for who, megabytes in zip(("driver", "actor"), sample, strict=True)
    }
    ratios = sorted(
        (ours_late / ours_early) / (raw_late / raw_early)
        for ours_early, ours_late, raw_early, raw_late in zip(*grown["watched"], *grown["plain"], strict=True)
    )
    return Result("watched-memory", ratios[-1], ratios[0], ratios[-1], "<= 1.03", arms)


def _grown(callee: Any, marks: tuple[int, ...] = MARKS) -> list[tuple[float, float]]:
    """Megabytes of driver and actor after so many calls whose refs are dropped at once."""
    samples, made = [], 0
    for mark in marks:
        for end in range(made + CHUNK, mark + 1, CHUNK):
            for number in range(end - CHUNK, end):
                callee.ping.remote(number)
            ray.get(callee.ping.remote())
        made = mark
        samples.append((megabytes(), float(ray.get(callee.memory.remote()))))
    return samples


def _snapshot(watch: Any, kind: Any) -> Result:
    actors = [kind.remote() for _ in range(ACTORS)]
    ray.get([actor.ping.remote() for actor in actors])

    return alternate(
        "watched-snapshot-32",
        "<= 3",
        ("snapshot_ms", lambda: timed_ms(watch.snapshot)),
        ("empty_calls_ms", lambda: timed_ms(lambda: ray.get([actor.ping.remote() for actor in actors]))),
    )
