"""What bounds the work on one value, and the name of its type. Imports the standard library only."""

from __future__ import annotations

LARGEST_INTEGER = 2**63 - 1
"""Integers up to here stay JSON numbers: beyond 64 bits many readers fail or round."""

MOST_DEPTH = 64
MOST_CONTAINERS = 1_000_000
"""Lists and dictionaries in one value, those that are shared counted each time: what bounds the time."""

MOST_ELEMENTS = 10_000
"""An array with more elements is shown by its head: it is never walked as a whole."""

HASHED_BYTES = 1_000_000
"""A digest of what was cut covers its first so many bytes; after eight digests a value gets no more."""

CLOCK_EVERY = 64
"""Containers between two looks at the clock."""

HEAD_ITEMS = 1_000
HEAD_REPR = 200
CHUNK = 10_000
FEW = 64
MOST_SORTED = 100_000
LONG = 1_000
LONGEST_KEY = 10_000


def type_name(kind: type) -> str:
    """module.Class, cut to 200 characters."""
    try:
        return f"{kind.__module__}.{kind.__qualname__}"[:HEAD_REPR]
    except Exception:  # a metaclass that answers strangely
        return "unknown"
