"""Names that are numbered one after the other ("Account-0" to "Account-999"): a range stands for many of them."""

from __future__ import annotations

from collections.abc import Sequence

MOST_DIGITS = 18
"""A name with a longer number is taken for one that has none: Python's limit for numbers in texts is far above."""


def run_of(names: Sequence[str]) -> range | None:
    """The numbers of names that are numbered one after the other; None of any others."""
    prefix, first = split(names[0]) if names else ("", -1)
    if first < 0 or first + len(names) > 10**MOST_DIGITS:
        return None
    found = range(first, first + len(names))
    return found if all(name == f"{prefix}-{number}" for name, number in zip(names, found, strict=True)) else None


def split(name: str) -> tuple[str, int]:
    """What stands before the number of a name, and the number; -1 if it has none, or one that we would write otherwise."""
    prefix, dash, digits = name.rpartition("-")
    if (
        not dash
        or len(digits) > MOST_DIGITS
        or not (digits.isascii() and digits.isdigit())
        or str(int(digits)) != digits
    ):
        return prefix, -1
    return prefix, int(digits)
