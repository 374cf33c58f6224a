"""Far more hosts than a machine has: what a snapshot sends, and what it costs the service, for 10 to 1,000 hosts.

`python -m benchmarks.scale` prints the tables of `docs/scale.md`. See `crowd` for what is real here.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median

from benchmarks import scale_on_ray
from benchmarks.crowd import Round, Targets, complete, ring, rounds_of, scattered, tree
from benchmarks.measure import Result

NEEDS_RAY = False

GRAPHS: dict[str, Callable[[int], Targets]] = {"complete": complete, "ring": ring, "tree": tree, "random": scattered}
SIZES = {"complete": (10, 30, 64, 100), "ring": (10, 100, 1_000), "tree": (10, 100, 1_000), "random": (10, 100, 1_000)}
LOSSES = (0.0, 0.05)


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table."""

    graph: str
    hosts: int
    loss: float
    control_messages: float
    markers: float
    kilobytes: float
    """Of requests, markers and reports, as they are pickled."""
    handed_on_kilobytes: float
    """Of the parts that the service passes on to the analyst."""
    service_ms: float
    """Processor time of coordinator and collector, without Ray's."""
    hosts_ms: float
    """Of all hosts together, without Ray's."""


def line(graph: str, hosts: int, loss: float = 0.0, rounds: int | None = None) -> Line:
    """Measure one row."""
    count = rounds or (5 if hosts <= 100 else 2 if hosts <= 1_000 else 1)
    found = rounds_of(GRAPHS[graph](hosts), count, loss=loss)

    def middle(of: Callable[[Round], float]) -> float:
        return median(of(one) for one in found)

    return Line(
        graph, hosts, loss,
        middle(lambda one: one.control_messages),
        middle(lambda one: one.sent["marker"]),
        middle(lambda one: (one.size.total() - one.size["handed on"]) / 1e3),
        middle(lambda one: one.size["handed on"] / 1e3),
        middle(lambda one: 1e3 * one.service_s),
        middle(lambda one: 1e3 * one.hosts_s),
    )  # fmt: skip


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
            arms[f"service_us_per_host_at_{hosts}"] = 1e3 * line("random", hosts).service_ms / hosts
        ratios.append(arms[f"service_us_per_host_at_{large}"] / arms[f"service_us_per_host_at_{small}"])
    return Result("scale", median(ratios), min(ratios), max(ratios), "<= 1.5", arms)


COLUMNS = (
    "graph | hosts | lost | control messages | of them markers | kB sent | kB handed on | service (ms) | a host (ms)"
)


def main() -> None:
    """Print a row for each graph, size and loss; then what Ray adds."""
    print(f"| {COLUMNS} |")
    for graph, sizes in SIZES.items():
        for loss in LOSSES:
            for size in sizes:
                one = line(graph, size, loss)
                figures = (one.control_messages, one.markers, one.kilobytes, one.handed_on_kilobytes, one.service_ms)
                cells = [f"{value:,.4g}" for value in (*figures, one.hosts_ms / size)]
                print(f"| {graph} | {size:,} | {loss:.0%} | {' | '.join(cells)} |", flush=True)
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
