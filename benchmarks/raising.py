"""What it costs that a wait may end in `DeadlockError`: calls of a program whose waits go in slices, over the same without."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import ray

import ray_snapshot as rs
from benchmarks.calls import PAIRS, ROUND_TRIPS, Peer
from benchmarks.measure import Result, alternate


def run(names: set[str]) -> Iterator[Result]:
    """Yield the figure: a call of the program's and its reply."""
    with rs.watch("benchmark-raising", on_deadlock="raise") as watch:
        peer = ray.remote(num_cpus=0)(Peer).remote()

        def arm(*, is_on: bool) -> Callable[[], float]:
            def round_trips() -> float:
                watch.process.raising.is_on = is_on
                began = time.perf_counter()
                for number in range(ROUND_TRIPS):
                    ray.get(peer.ping.remote(number))
                return (time.perf_counter() - began) / ROUND_TRIPS * 1e6

            return round_trips

        yield alternate(
            "raising-round-trip",
            "<= 1.03",
            ("in_slices_us", arm(is_on=True)),
            ("whole_us", arm(is_on=False)),
            pairs=PAIRS,
        )
