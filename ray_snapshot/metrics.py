"""What is measured of a system, for Prometheus: the same names and values in Ray's own metrics and at `/metrics` of `serve`.

A name has the tags `system`, `detector` and `class`, and never a machine: there may be a million of those.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from ray_snapshot.glances import Glance, Totals

Kind = Literal["counter", "gauge"]


@dataclass(frozen=True, slots=True)
class Metric:
    """One name. Ray and `serve` put `ray_` before it."""

    name: str
    kind: Kind
    help: str
    tags: tuple[str, ...] = ("system",)


METRICS = (
    Metric("snapshot_completed_total", "counter", "Snapshots that were completed."),
    Metric("snapshot_aborted_total", "counter", "Snapshots that were given up."),
    Metric("snapshot_restores_total", "counter", "How often the system was rolled back to a snapshot."),
    Metric("snapshot_last_completed_timestamp_seconds", "gauge", "When the last snapshot was completed, Unix time."),
    Metric(
        "snapshot_duration_seconds",
        "gauge",
        "How long the last snapshot took, from its beginning until it was complete.",
    ),
    Metric("snapshot_record_delay_seconds", "gauge", "How long after its beginning the last machine recorded."),
    Metric("snapshot_bytes", "gauge", "Size of the last snapshot."),
    Metric("snapshot_in_flight_messages", "gauge", "Messages and calls in flight in the last snapshot."),
    Metric(
        "snapshot_largest_backlog_messages",
        "gauge",
        "Of the machines of a class: the most messages and calls in flight to one.",
        ("system", "class"),
    ),
    Metric("snapshot_machines", "gauge", "Machines of a class.", ("system", "class")),
    Metric("snapshot_blocked_machines", "gauge", "Machines of a class that wait.", ("system", "class")),
    Metric("snapshot_active_machines", "gauge", "Machines of a class that act.", ("system", "class")),
    Metric(
        "snapshot_verdict",
        "gauge",
        "What a detector says of the last snapshot: 1 holds, 0 does not hold, -1 cannot be told.",
        ("system", "detector"),
    ),
    Metric("snapshot_alarm", "gauge", "1 if what a detector says is an alarm, else 0.", ("system", "detector")),
)
"""All names, in the order in which they are shown."""

Reading = tuple[str, tuple[str, ...], float]
"""(name, the values of its tags, value)."""


def readings(system: str, totals: Totals, last: Glance | None) -> Iterator[Reading]:
    """What is measured of a system; `last`: of its last complete snapshot."""
    yield "snapshot_completed_total", (system,), totals.completed
    yield "snapshot_aborted_total", (system,), totals.aborted
    yield "snapshot_restores_total", (system,), totals.restores
    if last is None:
        return
    row = last.row
    yield "snapshot_last_completed_timestamp_seconds", (system,), row["completed_at"].timestamp()
    yield "snapshot_duration_seconds", (system,), row["duration_ms"] / 1000
    yield "snapshot_record_delay_seconds", (system,), last.record_delay_ms / 1000
    yield "snapshot_bytes", (system,), row["bytes"]
    yield "snapshot_in_flight_messages", (system,), row["in_flight_count"]
    for name, counts in last.classes.items():
        yield "snapshot_machines", (system, name), sum(counts.values())
        yield "snapshot_blocked_machines", (system, name), counts.get("blocked", 0)
        yield "snapshot_active_machines", (system, name), counts.get("active", 0)
        yield "snapshot_largest_backlog_messages", (system, name), last.backlogs.get(name, 0)
    for word in last.words:
        yield "snapshot_verdict", (system, word.detector), -1 if word.holds is None else int(word.holds)
        yield "snapshot_alarm", (system, word.detector), int(word.alarm)
