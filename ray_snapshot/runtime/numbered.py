"""Names that are numbered one after the other ("Account-0" to "Account-999"): a range stands for many of them."""

from __future__ import annotations

from collections.abc import Sequence


def run_of(names: Sequence[str]) -> range | None:
    """The numbers of names that are numbered one after the other; None of any others."""
    prefix, _, digits = names[0].rpartition("-") if names else ("", "", "")
    if not digits.isdigit():
        return None
    found = range(int(digits), int(digits) + len(names))
    return found if all(name == f"{prefix}-{number}" for name, number in zip(names, found, strict=True)) else None


def split(name: str) -> tuple[str, int]:
    """What stands before the number of a name, and the number; -1 if it has none, or one that we would write otherwise."""
    prefix, _, digits = name.rpartition("-")
    is_number = digits.isascii() and digits.isdigit() and str(int(digits)) == digits
    return prefix, int(digits) if is_number else -1
