"""Far more hosts than a machine has: what a snapshot sends, and what it costs the service, for 10 to 1,000 hosts.

`python -m benchmarks.scale` prints the tables of `docs/scale.md`. See `crowd` for what is real here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from statistics import median

from benchmarks import scale_on_ray
from benchmarks.crowd import Round, Targets, complete, ring, rounds_of, scattered, tree
from benchmarks.measure import Result

NEEDS_RAY = False

GRAPHS: dict[str, tuple[Callable[[int], Targets], tuple[int, ...]]] = {
    "complete": (complete, (10, 30, 64, 100)),
    "ring": (ring, (10, 100, 1_000)),
    "tree": (tree, (10, 100, 1_000)),
    "random": (scattered, (10, 100, 1_000)),
}
COLUMNS: dict[str, Callable[[Round, int], float]] = {
    "control messages": lambda one, _: one.control_messages,
    "of them markers": lambda one, _: one.sent["marker"],
    "kB sent": lambda one, _: (one.size.total() - one.size["handed on"]) / 1e3,
    "kB handed on": lambda one, _: one.size["handed on"] / 1e3,
    "service (ms)": lambda one, _: 1e3 * one.service_s,
    "a host (ms)": lambda one, hosts: 1e3 * one.hosts_s / hosts,
}
"""What the table has of a snapshot of so many hosts; times are processor time, without Ray's."""


def run(names: set[str]) -> Iterator[Result]:
    """Yield the figures `control-messages-64`, `control-messages-64-barriers` and `scale`."""
    if "control-messages-64" in names:
        yield _over_markers("control-messages-64", 64, "chandy-lamport", 2 / 63)
    if "control-messages-64-barriers" in names:
        yield _over_markers("control-messages-64-barriers", 64, "aligned-barrier", 4 / 64)
    if "scale" in names:
        yield _growth(100, 1_000)


def _over_markers(name: str, hosts: int, protocol: str, most_more: float) -> Result:
    """All control messages of a snapshot, over the markers among them.

    Each host is asked once and reports once: 2/n of the markers, one on each of n (n - 1) links and of n from the driver.
    The driver is asked and reports, too: that is 2/n^2 more, which together is less than 2/(n - 1).
    """
    (found,) = rounds_of(complete(hosts), 1, protocol=protocol)
    ratio = found.control_messages / found.sent["marker"]
    goal = f"<= {1 + most_more:.6f}"
    arms = {"control_messages": found.control_messages, "markers": found.sent["marker"]}
    return Result(name, ratio, ratio, ratio, goal, arms)


def _growth(small: int, large: int) -> Result:
    """Processor time of the service for a host of many, over one of few: what is above 1 does not grow linearly."""
    ratios, arms = [], {}
    for _ in range(3):
        for hosts in (small, large):
            spent = median(one.service_s for one in rounds_of(scattered(hosts)))
            arms[f"service_us_per_host_at_{hosts}"] = 1e6 * spent / hosts
        ratios.append(arms[f"service_us_per_host_at_{large}"] / arms[f"service_us_per_host_at_{small}"])
    return Result("scale", median(ratios), min(ratios), max(ratios), "<= 1.5", arms)


def main() -> None:
    """Print a row for each graph and size; then what Ray adds."""
    print(f"| graph | hosts | {' | '.join(COLUMNS)} |")
    for graph, (made, sizes) in GRAPHS.items():
        for hosts in sizes:
            rounds = rounds_of(made(hosts))
            cells = [f"{median(of(one, hosts) for one in rounds):,.4g}" for of in COLUMNS.values()]
            print(f"| {graph} | {hosts:,} | {' | '.join(cells)} |", flush=True)
    on_ray = _on_ray()
    print(f"on Ray: {on_ray.fixed_ms:.1f} ms of the service a snapshot, and {on_ray.per_host_ms:.2f} ms for each host")


def _on_ray() -> scale_on_ray.OnRay:
    import ray

    from ray_snapshot.runtime.cluster import connect

    with tempfile.TemporaryDirectory(prefix="rs-", dir="/tmp", ignore_cleanup_errors=True) as folder:
        connect(temp_dir=folder)
        try:
            return scale_on_ray.measured()
        finally:
            ray.shutdown()


if __name__ == "__main__":
    main()
