"""What the driver remembers, so that a service or an analyst that is started anew can go on where the one before has died.

The driver is the only process that everything ends with; so it is where all is kept that must not be lost: which hosts
there are, what was declared, up to where numbers of snapshots may have been given out, and what to go back to. The
service may give out numbers only as far as the driver knows of (a block at a time): so no number is used twice,
whichever process dies, and some are skipped. What is decided about these, `protocol.recovery_line` decides. Generations
of the system are counted from `GENERATIONS` times the life of the service on, for the same reason.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ray_snapshot.pace import Every
from ray_snapshot.protocol.recovery_line import Base, DriverLine

if TYPE_CHECKING:
    from ray_snapshot.runtime.host.config import HostConfig

GENERATIONS = 1_000_000
"""More than there will be in one life of the service."""


@dataclass(slots=True)
class Recollection:
    """What a service that is started anew is told."""

    life: int
    analyst: list[Any]
    """The actor, in a list of one."""
    actors: dict[str, Any]
    """The actor of each host, in a list of one."""
    births: dict[str, tuple[HostConfig, dict[str, Any]]]
    incarnations: dict[str, int]
    declared: list[tuple[str, str, str | None]]
    sources: list[str]
    unclaimed: list[str]
    numbers: int
    """No number of a snapshot that is higher has been given out."""
    every: Every | None
    base: Base
    claimed: dict[str, str]
    classes: dict[str, tuple[str, bytes]]


@dataclass(slots=True)
class Memory(DriverLine):
    """What one driver remembers; `DriverLine` decides what to go back to. Changed under the lock of the driver's
    post."""

    actors: dict[str, Any] = field(default_factory=dict)
    births: dict[str, tuple[HostConfig, dict[str, Any]]] = field(default_factory=dict)
    incarnations: Counter[str] = field(default_factory=Counter)
    declared: list[tuple[str, str, str | None]] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    unclaimed: set[str] = field(default_factory=set)
    every: Every | None = None
    wanted: str | None = None
    """The snapshot that the program was started to go on from, and where the program wants its machines."""
    claimed: Mapping[str, str] = field(default_factory=dict)
    classes: Mapping[str, tuple[str, bytes]] = field(default_factory=dict)
    aliases: list[str] = field(default_factory=list)
    """Runs whose machines are now this run's: for an analyst that is started anew."""
    deaths: deque[float] = field(default_factory=deque)
    """When a service or an analyst has died."""

    def recollection(self, base: Base, analyst: Any) -> Recollection:
        """What the next life of the service is told; it may give out a block of numbers after all given out so far."""
        life, numbers = self.next_life()
        is_wanted = base.snapshot_id == self.wanted
        return Recollection(
            life,
            [analyst],
            {host: [actor] for host, actor in self.actors.items()},
            dict(self.births),
            dict(self.incarnations),
            list(self.declared),
            list(self.sources),
            list(self.unclaimed),
            numbers,
            self.every,
            Base(base.snapshot_id, base.number),
            dict(self.claimed) if is_wanted else {},
            dict(self.classes) if is_wanted else {},
        )

    def died(self, now: float, within_s: float) -> int:
        """Note that a service or an analyst has died; returns how many have died within the last `within_s` seconds."""
        self.deaths.append(now)
        while self.deaths[0] < now - within_s:
            self.deaths.popleft()
        return len(self.deaths)
