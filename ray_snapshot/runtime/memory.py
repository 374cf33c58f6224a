"""What the driver remembers, so that a service or an analyst that is started anew can go on where the one before has died.

The driver is the only process that everything ends with; so it is where all is kept that must not be lost: which hosts there
are, what was declared, up to where numbers of snapshots may have been given out, and what to go back to. The service may give
out numbers only as far as the driver knows of (`BLOCK` at a time): so none is used twice, whoever dies, and some are skipped.
Generations of the system are counted from `GENERATIONS` times the life of the service on, for the same reason.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ray_snapshot.history.checkpoints import Checkpoint

if TYPE_CHECKING:
    from ray_snapshot.runtime.host import HostConfig

BLOCK = 64
"""Numbers of snapshots that the driver lets the service give out at a time."""

GENERATIONS = 1_000_000
"""More than there will be in one life of the service."""


@dataclass(slots=True)
class Base:
    """A snapshot that the system can go back to, whoever dies."""

    snapshot_id: str
    number: int
    """Its number, if it is of this run; else 0."""
    checkpoint: Checkpoint | None = None
    """What a restore needs of it, where no history keeps that."""


@dataclass(slots=True)
class Recollection:
    """What a service that is started anew is told."""

    life: int
    analyst: list[Any]
    """In a list of one."""
    actors: dict[str, Any]
    """By host, each in a list of one."""
    births: dict[str, tuple[HostConfig, dict[str, Any]]]
    incarnations: dict[str, int]
    declared: list[tuple[str, str, str | None]]
    sources: list[str]
    unclaimed: list[str]
    numbers: int
    """No number of a snapshot that is higher has been given out."""
    every: float | None
    base: Base
    claimed: dict[str, str]
    classes: dict[str, tuple[str, bytes]]


@dataclass(slots=True)
class Memory:
    """See the module. Changed under the lock of the driver's post."""

    keeps_copy: bool = False
    """Whether checkpoints are kept here, for there is no history."""
    life: int = 0
    """How many services have been told something."""
    analyst_life: int = 0
    actors: dict[str, Any] = field(default_factory=dict)
    births: dict[str, tuple[HostConfig, dict[str, Any]]] = field(default_factory=dict)
    incarnations: Counter[str] = field(default_factory=Counter)
    declared: list[tuple[str, str, str | None]] = field(default_factory=list)
    sources: list[str] = field(default_factory=list)
    unclaimed: set[str] = field(default_factory=set)
    numbers: int = BLOCK
    every: float | None = None
    base: Base | None = None
    former: Base | None = None
    """The one before, as long as the service has not said that it does not go back to that any more."""
    wanted: str | None = None
    """The snapshot that the program was started to go on from, and where the program wants its machines."""
    claimed: Mapping[str, str] = field(default_factory=dict)
    classes: Mapping[str, tuple[str, bytes]] = field(default_factory=dict)
    aliases: list[str] = field(default_factory=list)
    """Runs whose machines are now this run's: for an analyst that is started anew."""
    deaths: deque[float] = field(default_factory=deque)
    """When a service or an analyst has died."""

    def wants(self, number: int) -> bool:
        """Whether a snapshot of this number is further than what is gone back to, or the copy of that is missing."""
        base = self.base
        if base is None or number > base.number:
            return True
        return number == base.number and self.keeps_copy and base.checkpoint is None

    def move_to(self, base: Base) -> None:
        """A later snapshot is what to go back to, if the service agrees; until it does, the former is needed, too."""
        self.former, self.base = self.former or self.base, base

    def went_back(self, snapshot_id: str, number: int) -> None:
        """Everybody goes on from this snapshot: whoever dies now, it is what to go back to."""
        known = (base for base in (self.base, self.former) if base is not None and base.snapshot_id == snapshot_id)
        self.base, self.former = next(known, Base(snapshot_id, number)), None

    def copies(self) -> list[Checkpoint]:
        """The checkpoints that are kept here, the newest last."""
        return [
            base.checkpoint for base in (self.former, self.base) if base is not None and base.checkpoint is not None
        ]

    def recollection(self, base: Base, analyst: Any) -> Recollection:
        """For the next life of the service, which may give out a block of numbers behind all that were given out so far."""
        self.life += 1
        is_wanted = base.snapshot_id == self.wanted
        found = Recollection(
            self.life,
            [analyst],
            {host: [actor] for host, actor in self.actors.items()},
            dict(self.births),
            dict(self.incarnations),
            list(self.declared),
            list(self.sources),
            list(self.unclaimed),
            self.numbers,
            self.every,
            Base(base.snapshot_id, base.number),
            dict(self.claimed) if is_wanted else {},
            dict(self.classes) if is_wanted else {},
        )
        self.numbers += BLOCK
        return found

    def died(self, now: float, within_s: float) -> int:
        """A service or an analyst has died; returns how many have within so many seconds."""
        self.deaths.append(now)
        while self.deaths[0] < now - within_s:
            self.deaths.popleft()
        return len(self.deaths)


class Allowance:
    """The service's side: up to which number it may give out."""

    def __init__(self, *, is_bounded: bool) -> None:
        self.most: float = BLOCK if is_bounded else math.inf
        self.more: tuple[int, int] | None = None
        """(number, place in the driver's log) of what the driver has been asked to let us give out."""

    def wanted(self, last: int) -> int | None:
        """Up to which number the driver is to be asked, when half of a block is left; None while there are enough."""
        return int(self.most) + BLOCK if self.more is None and last + BLOCK // 2 > self.most else None

    def asked(self, number: int, place: int) -> None:
        """The driver will find that in its log, at this place."""
        self.more = number, place

    def obeyed(self, count: int) -> None:
        """The driver has obeyed so many commands: what was among them it has noted."""
        if self.more is not None and self.more[1] <= count:
            self.most, self.more = self.more[0], None
