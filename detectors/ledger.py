"""The amounts that one snapshot holds, row by row, and their exact sums.

Amounts are JSON numbers or the recorded forms of Python's exact ones: `{"$int": "..."}` (too large for a
JSON reader), `{"$decimal": "..."}` and `{"$fraction": "..."}`; true and false count 1 and 0. Read
`holdings` for how they are found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np

from ray_snapshot.detectors.holdings import Holdings, Numbers, labels
from ray_snapshot.detectors.json_path import MISSING
from ray_snapshot.snapshot import Snapshot

Amount = int | float | Fraction

_TAGGED: dict[str, Callable[[Any], Amount]] = {
    "$int": lambda text: int(text, 0),
    "$decimal": lambda text: _decimal(Decimal(text)),
    "$fraction": lambda text: Fraction(*map(int, text.split("/"))),
}
_LARGEST_EXPONENT = 1_000


@dataclass(slots=True)
class Amounts:
    """What some rows of a table hold."""

    numbers: list[Numbers]
    """Whole numbers that were read as columns; nothing is 0."""
    rows: list[int]
    amounts: list[Amount]
    """Of each of `rows`, which are all the others."""

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self.rows) + sum(part.count for part in self.numbers)

    def pairs(self) -> Iterator[tuple[int, Amount]]:
        """All as (row, amount)."""
        found = Holdings(self.rows, self.amounts, numbers=self.numbers).pairs()
        return ((row, 0 if amount is MISSING else amount) for row, amount in found)

    @property
    def total(self) -> Fraction:
        """The exact sum."""
        whole = sum(part.sum for part in self.numbers) + sum(amount for amount in self.amounts if type(amount) is int)
        return Fraction(whole) + sum((Fraction(part) for part in self.amounts if type(part) is not int), Fraction())

    @property
    def rounded(self) -> bool:
        """Whether a float is among the amounts, so that the program's own arithmetic was not exact."""
        return float in set(map(type, self.amounts))


@dataclass(slots=True)
class Ledger:
    """What one snapshot holds, and what of it could not be read."""

    snapshot: Snapshot
    machines: Amounts
    messages: Amounts
    unknown_machines: tuple[str, ...]
    unknown_messages: tuple[str, ...]
    empty: bool
    """Whether the paths lead to nothing in every machine and message."""
    in_machines: Fraction
    in_flight: Fraction

    @property
    def rounded(self) -> bool:
        return self.machines.rounded or self.messages.rounded


def make_ledger(snapshot: Snapshot, machines: Holdings, messages: Holdings) -> Ledger:
    """Turn what was found into amounts: a machine with nothing holds 0, a message must have a number."""
    kept = _amounts(machines, missing_is_zero=True)
    carried = _amounts(messages, missing_is_zero=False)
    return Ledger(
        snapshot,
        kept,
        carried,
        unknown_machines=_unknown_machines(snapshot, machines),
        unknown_messages=_unknown_messages(snapshot, messages),
        empty=not carried.count
        and all(value is MISSING or value is None for value in machines.values)
        and not any(len(part.rows) for part in machines.numbers),
        in_machines=kept.total,
        in_flight=carried.total,
    )


def _amounts(holdings: Holdings, *, missing_is_zero: bool) -> Amounts:
    """The rows that hold a number, and these; what is none goes to `holdings.unknown`."""
    found = Amounts(holdings.numbers, [], [])
    if not missing_is_zero and any(len(part.nothing) for part in holdings.numbers):
        found.numbers = [Numbers(part.rows, part.values, part.nothing[:0]) for part in holdings.numbers]
        rows = np.concatenate([part.nothing for part in holdings.numbers])
        holdings.unknown += [(row, "there is nothing where a number should be") for row in rows.tolist()]
    for row, value in zip(holdings.rows, holdings.values, strict=True):
        amount = value if type(value) is int else amount_of(value, missing_is_zero=missing_is_zero)
        if amount is None:
            shown = "nothing" if value is MISSING else repr(value)[:40]
            holdings.unknown.append((row, f"there is {shown} where a number should be"))
        else:
            found.rows.append(row)
            found.amounts.append(amount)
    return found


def amount_of(value: Any, *, missing_is_zero: bool) -> Amount | None:
    """A recorded value as a number; None if it is none."""
    if value is MISSING or value is None:
        return 0 if missing_is_zero else None
    if type(value) is int:
        return value
    if type(value) is float:
        return value if math.isfinite(value) else None
    if type(value) is bool:
        return int(value)
    if type(value) is dict and len(value) == 1:
        ((tag, text),) = value.items()
        return _tagged(tag, text)
    return None


def _tagged(tag: str, text: Any) -> Amount | None:
    try:
        return _TAGGED[tag](text)
    except (AttributeError, KeyError, TypeError, ValueError, ArithmeticError):
        return None


def _decimal(value: Decimal) -> Fraction:
    """Exactly; refused where it would have thousands of digits, as 1E+1000000 does."""
    if abs(value.adjusted()) > _LARGEST_EXPONENT:
        raise ValueError(f"{value} is too large or too small to count with")
    return Fraction(value)


def _unknown_machines(snapshot: Snapshot, machines: Holdings) -> tuple[str, ...]:
    """A line for each value that is needed but not there."""
    names = labels(snapshot.tables["machines"], [row for row, _ in machines.unknown], "machine")
    return tuple(f"machine {name}: {why}" for (name,), (_, why) in zip(names, machines.unknown, strict=True))


def _unknown_messages(snapshot: Snapshot, messages: Holdings) -> tuple[str, ...]:
    """The same of messages."""
    rows = [row for row, _ in messages.unknown]
    keys = labels(snapshot.tables["messages"], rows, "method", "source", "target")
    return tuple(
        f"message {method} from {source} to {target}: {why}"
        for (method, source, target), (_, why) in zip(keys, messages.unknown, strict=True)
    )


def plain(value: Amount) -> int | float:
    """A number as JSON has it: an int where it is whole, else a float."""
    exact = Fraction(value)
    return exact.numerator if exact.denominator == 1 else float(exact)


def say(value: Amount) -> str:
    """A number for a person: 2,100 or 0.25."""
    shown = plain(value)
    return f"{shown:,}" if isinstance(shown, int) else f"{shown:,.15g}"
