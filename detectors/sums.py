"""What all machines and messages of a snapshot hold, as sums: it adds up over any split of the rows (`adding`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from ray_snapshot.adding import Together
from ray_snapshot.detectors.common import MOST_LISTED, Booleans, Integers, is_any_of
from ray_snapshot.detectors.holdings import (
    HALF,
    Numbers,
    StatePath,
    in_machines,
    in_messages,
    masks_of_state,
    numbers_in,
)
from ray_snapshot.detectors.ledger import Ledger, make_ledger
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


def sums_of_each(rows: Together, state: StatePath, messages: Mapping[str, str | None]) -> list[Sums | None]:
    """The sums over the rows of each of many snapshots; None of those that have more than whole numbers and nothing.

    Exactly `sums_of` each of them by itself.
    """
    in_states = numbers_in(rows.machines, "state", masks_of_state(rows.machines, state))
    methods = [(is_any_of(rows.messages["method"], method), path) for method, path in messages.items() if path]
    in_args = numbers_in(rows.messages, "args", methods)
    if in_states is None or in_args is None or len(methods) < len(messages):
        return [None] * rows.count
    (held, unknown_states), (carried, unknown_args) = in_states, in_args
    lacking = [unknown_args, *(part.nothing for part in carried)]  # a message must have a number
    known = _all_but(rows, unknown_states, np.concatenate(lacking))
    in_machines, machines, holding = _added_up(held, rows.machines_of, rows.count)
    in_flight, flying, _ = _added_up(carried, rows.messages_of, rows.count)
    each = zip(known.tolist(), in_machines, in_flight, machines, flying, holding, strict=True)
    return [
        Sums(Fraction(kept), Fraction(sent), count, number, False, not (number or some), (), ()) if is_known else None
        for is_known, kept, sent, count, number, some in each
    ]


def _all_but(rows: Together, machines: Integers, messages: Integers) -> Booleans:
    """Which snapshots have none of these rows."""
    found = np.ones(rows.count + 1, np.bool_)
    found[rows.machines_of[machines]] = False
    found[rows.messages_of[messages]] = False
    return found[:-1]


def _added_up(parts: Sequence[Numbers], place: Integers, count: int) -> tuple[list[int], list[int], list[int]]:
    """By snapshot: the exact sum, the number of values and places without one, and the number of values."""
    upper, lower, values, nothing = (np.zeros(count + 1, np.int64) for _ in range(4))
    for part in parts:
        of, whole = place[part.rows], part.values.astype(np.int64)
        np.add.at(upper, of, whole >> HALF)  # neither sum can be too large for 64 bits
        np.add.at(lower, of, whole & ((1 << HALF) - 1))
        values += _counted(of, count)
        nothing += _counted(place[part.nothing], count)
    sums = [(high << HALF) + low for high, low in zip(upper.tolist(), lower.tolist(), strict=True)]
    return sums[:-1], (values + nothing).tolist()[:-1], values.tolist()[:-1]


def _counted(place: Integers, count: int) -> Integers:
    return np.bincount(place[place >= 0], minlength=count + 1)


def _first(lines: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(sorted(lines)[:MOST_LISTED])
