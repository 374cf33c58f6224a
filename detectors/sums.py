"""What all machines and messages of a snapshot hold, as sums: it adds up over any split of the rows (`adding`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

from ray_snapshot.detectors.holdings import (
    StatePath,
    in_machines,
    in_messages,
)
from ray_snapshot.detectors.ledger import Ledger, make_ledger
from ray_snapshot.limits import LIMITS
from ray_snapshot.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Sums:
    """The sums of a ledger, and what could not be read."""

    in_machines: Fraction
    in_flight: Fraction
    machines: int
    """How many machines hold a number, or nothing."""
    messages: int
    """How many messages carry one."""
    is_rounded: bool
    is_empty: bool
    """Whether the paths lead to nothing in every machine and message."""
    unknown_machines: tuple[str, ...]
    """A line for each value that is needed but not there: at most 100, in their order."""
    unknown_messages: tuple[str, ...]
    unreadable: int = 0
    """How many such values there are in all."""

    @property
    def found(self) -> Fraction:
        return self.in_machines + self.in_flight

    @property
    def unknown(self) -> list[str]:
        """What could not be read, of machines first."""
        return [*self.unknown_machines, *self.unknown_messages]

    def plus(self, other: Sums) -> Sums:
        """Those of the rows of both."""
        return Sums(
            self.in_machines + other.in_machines,
            self.in_flight + other.in_flight,
            self.machines + other.machines,
            self.messages + other.messages,
            self.is_rounded or other.is_rounded,
            self.is_empty and other.is_empty,
            _first(self.unknown_machines + other.unknown_machines),
            _first(self.unknown_messages + other.unknown_messages),
            self.unreadable + other.unreadable,
        )


def ledger_of(snapshot: Snapshot, state: StatePath, messages: Mapping[str, str | None]) -> Ledger:
    """What each machine and each message in flight holds."""
    return make_ledger(snapshot, in_machines(snapshot, state), in_messages(snapshot, messages))


def sums_of(snapshot: Snapshot, state: StatePath, messages: Mapping[str, str | None]) -> Sums:
    """The sums over the rows of a snapshot, or of a part of one."""
    found = ledger_of(snapshot, state, messages)
    return Sums(
        found.in_machines,
        found.in_flight,
        found.machines.count,
        found.messages.count,
        found.rounded,
        found.empty,
        _first(found.unknown_machines),
        _first(found.unknown_messages),
        len(found.unknown_machines) + len(found.unknown_messages),
    )


def _first(lines: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(lines)[: LIMITS.listed])
