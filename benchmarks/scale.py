"""Far more hosts than a machine has: what a snapshot sends, and what it costs the service, for 10 to 10,000 hosts.

`python -m benchmarks.scale [--most HOSTS] [--page docs/scale.md]` measures all sizes and graphs (some twenty minutes) and makes
the page. `python -m benchmarks control-messages-64 scale` gives figures of it. See `crowd` for what is real here.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from math import exp, log
from pathlib import Path
from statistics import median

from benchmarks import scale_on_ray
from benchmarks.crowd import Round, Targets, complete, ring, rounds_of, scattered, tree
from benchmarks.measure import Result
from benchmarks.scale_page import page

NEEDS_RAY = False

GRAPHS: dict[str, Callable[[int], Targets]] = {"complete": complete, "ring": ring, "tree": tree, "random": scattered}
LINKS: dict[str, Callable[[int], int]] = {
    "complete": lambda hosts: hosts * (hosts - 1),
    "ring": lambda hosts: hosts,
    "tree": lambda hosts: 2 * (hosts - 1),
    "random": lambda hosts: 8 * hosts,
}
SIZES = (10, 100, 1_000, 10_000)
COMPLETE_SIZES = (10, 30, 64, 100, 200, 300)
"""A complete graph of 10,000 hosts has 100 million links, of some kilobytes each."""
MOST_LINKS = 10
"""So many links for each of the most hosts are measured, which leaves out larger complete graphs."""
LOSSES = (0.0, 0.05)
ASYMPTOTIC = 30
"""The smallest size from which a growth is fitted."""


@dataclass(frozen=True, slots=True)
class Line:
    """One row of the table."""

    graph: str
    hosts: int
    loss: float
    is_measured: bool
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

    @property
    def figures(self) -> tuple[float, ...]:
        """What is fitted."""
        return self.kilobytes, self.handed_on_kilobytes, self.service_ms, self.hosts_ms


def line(graph: str, hosts: int, loss: float = 0.0, rounds: int | None = None) -> Line:
    """Measure one row."""
    count = rounds or (5 if hosts <= 100 else 2 if hosts <= 1_000 else 1)
    found = rounds_of(GRAPHS[graph](hosts), count, loss=loss)

    def middle(of: Callable[[Round], float]) -> float:
        return median(of(one) for one in found)

    return Line(
        graph, hosts, loss, True,
        middle(lambda one: one.control_messages),
        middle(lambda one: one.sent["marker"]),
        middle(lambda one: (one.size.total() - one.size["handed on"]) / 1e3),
        middle(lambda one: one.size["handed on"] / 1e3),
        middle(lambda one: 1e3 * one.service_s),
        middle(lambda one: 1e3 * one.hosts_s),
    )  # fmt: skip


def extrapolated(measured: list[Line], hosts: int) -> Line:
    """The row of so many hosts, if each figure goes on growing as it did: a power fitted to the measured ones.

    Counts follow from the number of links; what losses add to them is taken to be the share that they added last.
    """
    sizes = [log(one.hosts) for one in measured if one.hosts >= ASYMPTOTIC]
    rows = [one.figures for one in measured if one.hosts >= ASYMPTOTIC]
    figures = [_power(sizes, [log(value) for value in column], log(hosts)) for column in zip(*rows, strict=True)]
    last = measured[-1]
    links, before = LINKS[last.graph](hosts) + hosts, LINKS[last.graph](last.hosts) + last.hosts  # the driver's are n
    markers = last.markers * links / before
    control = last.control_messages * (links + 2 * hosts + 2) / (before + 2 * last.hosts + 2)
    return Line(last.graph, hosts, last.loss, False, control, markers, *figures)


def _power(sizes: list[float], values: list[float], at: float) -> float:
    """Least squares of a straight line through logarithms."""
    middle, height = sum(sizes) / len(sizes), sum(values) / len(values)
    slope = sum((x - middle) * (y - height) for x, y in zip(sizes, values, strict=True)) / sum(
        (x - middle) ** 2 for x in sizes
    )
    return exp(height + slope * (at - middle))


def lines(most: int) -> Iterator[Line]:
    """The whole table, up to `most` hosts measured."""
    for graph in GRAPHS:
        for loss in LOSSES:
            measured = []
            for size in _sizes(graph):
                if size <= most and (graph != "complete" or size * (size - 1) <= MOST_LINKS * most):
                    measured.append(line(graph, size, loss))
                    yield measured[-1]
            for hosts in (1_000, 10_000):
                if hosts > measured[-1].hosts:
                    yield extrapolated(measured, hosts)


def _sizes(graph: str) -> tuple[int, ...]:
    return COMPLETE_SIZES if graph == "complete" else SIZES


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


def main(argv: list[str] | None = None) -> int:
    """Measure everything; print the rows as they come, and write the page if one is asked for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scale", description=__doc__)
    parser.add_argument(
        "--most",
        type=int,
        default=10_000,
        metavar="HOSTS",
        help="measure no more hosts, and no more than ten links a host",
    )
    parser.add_argument("--page", type=Path, metavar="FILE", help="write the page there")
    options = parser.parse_args(argv)
    began, found = time.monotonic(), list[Line]()
    for one in lines(options.most):
        found.append(one)
        kind = "measured" if one.is_measured else "extrapolated"
        print(
            f"{one.graph:<9} {one.hosts:>6,} hosts, {one.loss:>3.0%} lost, {kind:<12} {one.control_messages:>13,.0f} control"
            f" messages {one.kilobytes:>12,.0f} kB  service {one.service_ms:>9,.1f} ms",
            flush=True,
        )
    if options.page is not None:
        on_ray = _on_ray()
        command = " ".join(["python -m benchmarks.scale", *(argv or sys.argv[1:])])
        seconds = time.monotonic() - began
        options.page.write_text(page(found, on_ray, command, asymptotic=ASYMPTOTIC, seconds=seconds))
    return 0


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
    sys.exit(main())
