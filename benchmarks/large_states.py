"""How long a watched actor with a state of 24 MB stands still for snapshots: calls to it over calls to the same, unwatched."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from statistics import median
from typing import Any

import ray

import ray_snapshot as rs
from benchmarks.measure import Result, alternate

ROWS = 350_000
"""Small dictionaries: 24 MB as JSON."""
EVERY_S = 1.0
SECONDS = 5.0


class Heavy:
    """Holds much, and does little."""

    def __init__(self, rows: int) -> None:
        self.rows = [{"id": row, "name": f"name-{row}", "value": row * 1.5, "tags": ["a", "b"]} for row in range(rows)]

    def ping(self) -> int:
        return len(self.rows)


def run(names: set[str]) -> Iterator[Result]:
    """Yield the figure."""
    plain = ray.remote(num_cpus=0)(Heavy).remote(ROWS)
    with rs.watch("benchmark-large-states", detectors=[]) as watch:
        watched = ray.remote(num_cpus=0)(Heavy).remote(ROWS)
        ray.get([plain.ping.remote(), watched.ping.remote()])
        longest: dict[str, list[float]] = {"watched": [], "plain": []}

        def arm(name: str, actor: Any) -> float:
            count, pause = _calls(actor)
            longest[name].append(pause)
            return count / SECONDS

        with _snapshots_of(watch):
            found = alternate(
                "watched-24-megabytes",
                ">= 0.85",
                ("watched_calls_per_s", lambda: arm("watched", watched)),
                ("plain_calls_per_s", lambda: arm("plain", plain)),
                pairs=6,
            )
        pauses = {f"{name}_longest_ms": median(values) for name, values in longest.items()}
        yield replace(found, arms={**found.arms, **pauses})


def _calls(actor: Any) -> tuple[int, float]:
    """Calls one after the other, and the longest in milliseconds."""
    count, longest, until = 0, 0.0, time.perf_counter() + SECONDS
    while (began := time.perf_counter()) < until:
        ray.get(actor.ping.remote())
        longest = max(longest, time.perf_counter() - began)
        count += 1
    return count, 1e3 * longest


@contextmanager
def _snapshots_of(watch: Any) -> Iterator[None]:
    """Snapshots by the clock, during both arms alike."""
    over = threading.Event()

    def take() -> None:
        while not over.wait(EVERY_S):
            watch.snapshot()

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
