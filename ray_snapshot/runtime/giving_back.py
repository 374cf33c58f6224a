"""Memory that large snapshots have taken for a moment goes back to the machine.

What Arrow and C let go of, their allocators keep. A snapshot of a million busy machines takes a gigabyte while it is put
together; the process would hold it until it ends. Arrow is imported where it is used: Ray imports this module in every process
that gets a handle of an actor of ours.
"""

from __future__ import annotations

import ctypes
import sys
import time
from functools import cache
from typing import Any

LARGE = 1_000_000
"""Bytes of parts from which on it is worth the time; to make them, or to read them, takes some thirty times that."""

SELDOM_S = 5.0
"""No oftener than that: milliseconds, but in a process of a million small holes some hundredths of a second."""

_last = -SELDOM_S


def is_large(size: int) -> bool:
    """Whether parts of so many bytes are worth the time."""
    return size >= LARGE


def give_back(size: int) -> None:
    """`size`: the bytes of the parts that this thread has been at work on; what Arrow took in others stays theirs."""
    global _last
    if not is_large(size) or time.monotonic() < _last + SELDOM_S:
        return
    import pyarrow as pa

    pa.default_memory_pool().release_unused()
    if (trim := _malloc_trim()) is not None:
        trim(0)
    _last = time.monotonic()


@cache
def _malloc_trim() -> Any:
    """The function of glibc; None with another C library."""
    return getattr(ctypes.CDLL(None), "malloc_trim", None) if sys.platform == "linux" else None
