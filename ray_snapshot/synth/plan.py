"""What is to be made up, and where the anomalies are planted: each among eight machines of its own.

Machines are numbers here: 0 is the driver, 1 to `machines` are the workers. Read `motion` for what an anomaly does to the
channels, `rows` for what it does to the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import numpy as np

from ray_snapshot.errors import SettingError
from ray_snapshot.names import check_system_name

ANOMALIES = {
    "deadlock": "three machines call each other in a circle, one edge a snapshot; a fourth is stuck behind them",
    "leak": "a machine that does nothing loses ten of its balance",
    "stuck": "the head of a channel is never accepted, though its target accepts others",
    "backlog": "a channel carries more than its target accepts",
    "deaf": "a machine accepts nothing any more, though messages wait for it",
    "hot": "a machine gets a hundred times the messages of the others",
    "appear": "a machine is born",
    "vanish": "a machine is gone",
    "field": "a field that nobody ever changes has another value",
    "slow": "the machines of one host record late for three snapshots",
    "abort": "two snapshots are given up because of one machine",
    "stall": "nothing moves any more, though machines are active",
    "tear": "a snapshot is no consistent cut, though it says so",
    "lie": "a live verdict names a deadlock that is none",
}
"""Each anomaly that can be planted, and what it is."""

JOBS = {
    "deadlock": ("deadlocks", "detections", "traffic"),
    "leak": ("conservation",),
    "stuck": ("traffic",),
    "backlog": ("traffic",),
    "deaf": ("traffic",),
    "hot": ("traffic",),
    "appear": ("changes",),
    "vanish": ("changes",),
    "field": ("changes",),
    "slow": ("cost",),
    "abort": ("cost",),
    "stall": ("progress",),
    "tear": (),
    "lie": ("detections",),
}
"""Which Spark jobs tell of it; of `tear`, `ray-snapshot history verify`."""

BLOCK = 8
"""Machines that one anomaly has for itself."""

LEAST_SNAPSHOTS = 24
"""With fewer an anomaly has not the time to show."""

LONELY = frozenset({"appear", "vanish"})
"""Anomalies whose machine has no channels: what it held or was sent would be lost with it."""

LEAKED = 10
LIMIT, NEW_LIMIT = 100, 7
ABORTED = 2
SLOW_SNAPSHOTS = 3


@dataclass(frozen=True, slots=True)
class Settings:
    """What to make: checked when it is made; raises `SettingError`, `NameNotAllowedError`."""

    machines: int
    snapshots: int
    anomalies: Sequence[str] = ()
    seed: int = 0
    system: str = "synth"
    every_s: float = 1.0
    started_at: datetime = datetime(2026, 3, 1, tzinfo=UTC)

    def __post_init__(self) -> None:
        check_system_name(self.system)
        unknown = [name for name in self.anomalies if name not in ANOMALIES]
        if unknown:
            raise SettingError(f"there is no anomaly {unknown[0]!r}: choose from {', '.join(ANOMALIES)}")
        if self.snapshots < 1 or self.every_s <= 0:
            raise SettingError("at least one snapshot is needed, and a time above 0 between two of them")
        least = 2 * BLOCK * (len(self.anomalies) + 1)
        if self.machines < least:
            raise SettingError(
                f"a history with {len(self.anomalies)} anomalies has at least {least} machines, and {self.machines} were"
                " asked for"
            )
        if self.anomalies and self.snapshots < LEAST_SNAPSHOTS:
            raise SettingError(
                f"anomalies need at least {LEAST_SNAPSHOTS} snapshots to show, and {self.snapshots} were asked for"
            )

    @property
    def host_count(self) -> int:
        return min(16, max(2, self.machines // 50))

    def name(self, machine: int) -> str:
        """The name of a machine; names sort as their numbers do."""
        return "driver" if machine == 0 else f"worker-{machine:0{len(str(self.machines))}d}"

    def host(self, machine: int) -> int:
        """The number of a machine's host."""
        return (max(machine, 1) - 1) * self.host_count // self.machines


@dataclass(frozen=True, slots=True)
class Planted:
    """One anomaly: in effect from snapshot `at` on (by its sequence), up to and including `until`."""

    anomaly: str
    at: int
    until: int
    first: int
    """The first of its eight machines."""
    details: dict[str, Any] = field(default_factory=dict)
    """For a person: machine names, channels, values."""

    def holds(self, step: int) -> bool:
        """Whether it is in effect in snapshot number `step`."""
        return self.at <= step <= self.until


def plant(settings: Settings, chance: np.random.Generator) -> list[Planted]:
    """Choose the machines and the time of each anomaly, in the order in which they were asked for."""
    blocks = chance.permutation(settings.machines // BLOCK - 1)[: len(settings.anomalies)]
    found = []
    for number, anomaly in enumerate(settings.anomalies):
        first = int(blocks[number]) * BLOCK + 1
        at, until = _times(settings, anomaly, chance)
        found.append(Planted(anomaly, at, until, first, _details(settings, anomaly, first)))
    return found


def _times(settings: Settings, anomaly: str, chance: np.random.Generator) -> tuple[int, int]:
    last = settings.snapshots - 1
    if anomaly == "stall":
        return last - 5, last
    if anomaly == "abort":  # what begins in a snapshot that is given up is seen by none
        return last - 10, last - 10 + ABORTED - 1
    at = int(chance.integers(6, max(7, last - 16)))
    lasts = {"slow": SLOW_SNAPSHOTS, "tear": 1, "lie": 1}
    return at, at + lasts[anomaly] - 1 if anomaly in lasts else last


def _details(settings: Settings, anomaly: str, first: int) -> dict[str, Any]:
    """Who it concerns: these are the names that the jobs must find."""
    name = settings.name
    one, two, three, four = (name(first + n) for n in range(4))
    match anomaly:
        case "deadlock":
            return {"machines": [one, two, three], "stuck_behind": [four]}
        case "stuck" | "backlog":
            return {"channel": [one, two, "mail"]}
        case "leak":
            return {"machine": two, "difference": -LEAKED}
        case "field":
            return {"machine": two, "field": "limit", "before": LIMIT, "after": NEW_LIMIT}
        case "slow":
            return {"host": f"host-{settings.host(first):02d}"}
        case "tear":
            return {"channel": [one, two, "mail"]}
        case "lie":
            return {"machines": [one, two], "detector": "deadlock"}
        case "stall":
            return {}
        case _:
            return {"machine": two}
