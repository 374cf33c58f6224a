"""What is measured of a system, among Ray's own metrics: where the cluster exports those, Prometheus finds it there.

They are of the analyst's process. What is measured no more (a class that has no machines any more) is 0 from then on; what a
detector says that is asked no more is no number.
"""

from __future__ import annotations

import math
from typing import Any

from ray_snapshot.glances import Glance, Totals
from ray_snapshot.metrics import METRICS, readings

VERDICT = "snapshot_verdict"


class RayMetrics:
    """Tells Ray what is measured, after each snapshot."""

    def __init__(self, system: str) -> None:
        self.system = system
        self._made: dict[str, Any] = {}
        self._told: dict[tuple[str, tuple[str, ...]], float] = {}
        """By name and tags: the value that Ray has."""

    def take(self, totals: Totals, last: Glance | None) -> None:
        """There is one more snapshot."""
        if not self._made:
            self._made = _made()
        found = {(name, tags): value for name, tags, value in readings(self.system, totals, last)}
        gone = {key: math.nan if key[0] == VERDICT else 0.0 for key in self._told if key not in found}
        for (name, values), value in (found | gone).items():
            metric, is_counter, keys = self._made[name]
            tags = dict(zip(keys, values, strict=True))
            if not is_counter:
                metric.set(value, tags=tags)
            elif (more := value - self._told.get((name, values), 0.0)) > 0:
                metric.inc(more, tags=tags)
        self._told = found


def _made() -> dict[str, tuple[Any, bool, tuple[str, ...]]]:
    """By name: Ray's metric, whether it is a counter, its tags."""
    from ray.util.metrics import Counter, Gauge

    made = {"counter": Counter, "gauge": Gauge}
    return {
        one.name: (made[one.kind](one.name, one.help, tag_keys=one.tags), one.kind == "counter", one.tags)
        for one in METRICS
    }
