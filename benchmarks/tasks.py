"""What following plain tasks costs: tasks that a watched actor starts over the same tasks that a plain one does, in one run.

The plain arm's actor lives in a process in which nothing of Ray's is replaced; no snapshot spreads meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import ray

import ray_snapshot as rs
from benchmarks.measure import Result, alternate

PAIRS = 20
ROUND_TRIPS = 300
PIPELINED = 1_500


class Starter:
    """Starts plain tasks, and reads their results."""

    def __init__(self) -> None:
        @ray.remote
        def same(given: Any) -> Any:
            return given

        self.same = same

    def round_trips(self, count: int) -> float:
        """Microseconds of a task and its reply, one at a time."""
        began = time.perf_counter()
        for number in range(count):
            ray.get(self.same.remote(number))
        return (time.perf_counter() - began) / count * 1e6

    def pipelined(self, count: int) -> float:
        """Tasks a second, all started before the first reply is read."""
        began = time.perf_counter()
        ray.get([self.same.remote(number) for number in range(count)])
        return count / (time.perf_counter() - began)


def run(names: set[str]) -> Iterator[Result]:
    """Yield the figures of followed tasks."""
    kind = ray.remote(num_cpus=0)(Starter)
    if not ray.is_initialized():
        ray.init(include_dashboard=False, logging_level="ERROR")
    with rs.watch("benchmark-tasks", detectors=[]):
        ours, raw = ray.remote(num_cpus=0)(rs.wrap(Starter)).remote(), kind.remote()
        figures = (
            ("task-round-trip", "<= 1.05", "us", "round_trips", ROUND_TRIPS),
            ("task-pipelined", ">= 0.93", "tasks_per_s", "pipelined", PIPELINED),
        )
        for name, goal, unit, method, count in figures:
            if name in names:

                def arm(actor: Any, method: str = method, count: int = count) -> Callable[[], float]:
                    return lambda: float(ray.get(getattr(actor, method).remote(count)))

                watched, plain = (f"watched_{unit}", arm(ours)), (f"plain_{unit}", arm(raw))
                yield alternate(name, goal, watched, plain, pairs=PAIRS)
