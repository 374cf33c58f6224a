"""`/metrics`: what is measured of the systems that run, as Prometheus reads it; with the names that Ray gives its own."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from ray_snapshot.glances import Totals
from ray_snapshot.metrics import METRICS, readings
from ray_snapshot.web.served import Served

CONTENT_TYPE = CONTENT_TYPE_LATEST
PREFIX = "ray_"
"""What Ray puts before the names of metrics that are not its own."""


class _Systems(Collector):
    def __init__(self, served: Served) -> None:
        self.served = served

    def collect(self) -> Iterator[Metric]:
        """Each name with the values of all systems."""
        made = {"counter": CounterMetricFamily, "gauge": GaugeMetricFamily}
        families = {one.name: made[one.kind](PREFIX + one.name, one.help, labels=one.tags) for one in METRICS}
        up = GaugeMetricFamily(
            f"{PREFIX}snapshot_up", "1 if the system has answered when it was asked last.", labels=("system",)
        )
        for one in self.served.running():
            up.add_metric((one.name,), int(not one.trouble))
            if one.trouble or not one.about:  # what it said before is not so any more
                continue
            for name, values, value in readings(one.name, one.about.get("totals", Totals()), one.about.get("last")):
                families[name].add_metric(values, value)
        yield up
        yield from families.values()


def scraped(served: Served) -> bytes:
    """The whole answer."""
    registry = CollectorRegistry()
    registry.register(_Systems(served))
    return generate_latest(registry)
