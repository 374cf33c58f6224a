"""Who takes part in a recovery that `recovering` plays: what the driver, the service and the analyst know, and what may happen.

Imports the standard library only.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any

from ray_snapshot.protocol.recovery_line import Allowance, DriverLine, KeptSnapshot, Retention, ServiceLine

BLOCK = 2
GENERATIONS = 100
FIRST = 1
NOBODY = -1
Step = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Script:
    """What happens at most; each at any moment."""

    messages: int = 2
    snapshots: int = 2
    deaths: tuple[str, ...] = ()
    """Who may die, as often as it is named: `service`, `analyst`, `host`; `any`: whoever of these."""
    restores: int = 0
    hiccups: int = 0
    """Answers of the service that are lost though nobody has died."""
    has_history: bool = False
    most_kept: int = 1
    """So many checkpoints the analyst keeps in memory, and as many of the latest ones beside what is held."""


@dataclass(slots=True)
class Service:
    """One life of it."""

    life: int
    generation: int
    last: int
    line: ServiceLine
    allowance: Allowance
    stage: str = ""
    """Of a rollback: `stop`, `plan`, `load`."""
    target: int | None = None
    """What the program has asked to be restored."""
    seeking: int | None = None
    """The same, before anybody has stopped."""
    sought: int = 0
    """What is gone back to in this rollback: known from its beginning."""
    pending: set[int] = field(default_factory=set)
    noted: list[tuple[int, int]] = field(default_factory=list)
    """(number, generation) of what the driver was asked to secure, and somebody waits for."""
    unfinished: list[tuple[int, int]] = field(default_factory=list)
    """The same of what the analyst has not answered for."""
    told: int = 0
    obeyed: int = 0

    @property
    def is_rolling(self) -> bool:
        """Whether a rollback is under way."""
        return bool(self.stage)

    def fingerprint(self) -> Hashable:
        """A value that is equal exactly for states that behave alike: places in the log count from what is obeyed."""
        open_numbers = {number for number, _ in (*self.noted, *self.unfinished)}
        more = self.allowance.more and (self.allowance.more[0], self.allowance.more[1] - self.obeyed)
        return (
            self.life, self.generation, self.last, self.line.snapshot_id, self.allowance.most, more, self.stage,
            self.target, self.seeking, self.sought, tuple(sorted(self.pending)), tuple(self.noted), tuple(self.unfinished),
            tuple(sorted(open_numbers & {*self.line.refused})),
        )  # fmt: skip


@dataclass(slots=True)
class Driver:
    """Never dies: with it everything ends."""

    line: DriverLine
    generation: int = 0
    is_rolling: bool = False
    colour: int = FIRST
    journal: list[tuple[int, int]] = field(default_factory=list)
    waiting: list[KeptSnapshot] = field(default_factory=list)
    found: list[KeptSnapshot] = field(default_factory=list)
    """What it is seeing to."""
    is_asking: bool = False
    """Whether it waits for the service's answer."""

    def fingerprint(self) -> Hashable:
        """A value that is equal exactly for states that behave alike."""
        found = tuple(self.journal), tuple(self.waiting), tuple(self.found)
        line = self.line
        bases = [(base.snapshot_id, base.number, base.checkpoint) for base in line.bases()]
        lives = line.life, line.analyst_life, line.numbers, line.sought and line.sought.number
        return *lives, *bases, self.generation, self.is_rolling, self.colour, self.is_asking, *found


@dataclass(slots=True)
class Analyst:
    """One life of it."""

    kept: list[int] = field(default_factory=list)
    retention: Retention = field(default_factory=Retention)

    def keep(self, number: int, most: int) -> None:
        """Once more is kept than may be, what is loose goes, the oldest first."""
        if number not in self.kept:
            self.kept.append(number)
        for name in self.retention.loose([name_of(one) for one in self.kept], most):
            if len(self.kept) > most:
                self.kept.remove(number_of(name))

    def fingerprint(self) -> Hashable:
        """A value that is equal exactly for states that behave alike."""
        held = self.retention
        return tuple(self.kept), tuple(sorted(held.pinned)), tuple(held.lent), tuple(sorted(held.planned))


def name_of(number: int) -> str:
    """The id of a snapshot."""
    return f"s{number}"


def number_of(name: str) -> int:
    """The number of a snapshot."""
    return int(name[1:])
