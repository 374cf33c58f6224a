"""How much memory a search may take: a share of what this computer, or this container, has. Told, and not killed.

And how often a search looks up from its work.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SHARE = 0.6
EVERY_S = 0.25

COLLECTED_EVERY = 50_000
"""So many objects more are there before Python looks for garbage among them, during a run; by default every 700."""


@contextmanager
def seldom_collected() -> Iterator[None]:
    """A run keeps nearly all that it makes: to look for garbage in it so often takes a fifth of its time."""
    before = gc.get_threshold()
    if before[0]:  # else it is switched off
        gc.set_threshold(max(before[0], COLLECTED_EVERY), *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)


class Memory:
    """The bound of one search."""

    def __init__(self) -> None:
        total = memory()
        self.most = None if total is None else int(total * SHARE)

    def is_short(self) -> str | None:
        """Why the search has to stop; None: it has not."""
        if self.most is None or (used := resident()) is None or used < self.most:
            return None
        return (
            f"it was stopped at {used / 1e9:.1f} GB of memory, {SHARE:.0%} of what there is: give it more, or fewer states"
            " (most_states=...)"
        )


class Pace:
    """When a search looks at the memory and says how far it is: a few times a second, however long its steps take."""

    def __init__(self) -> None:
        self.last = time.perf_counter()

    def is_due(self) -> bool:
        """Whether it is time again."""
        now = time.perf_counter()
        if now - self.last < EVERY_S:
            return False
        self.last = now
        return True


def resident() -> int | None:
    """Bytes of memory that this process takes; None where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, ValueError):
        return None
    return pages * os.sysconf("SC_PAGE_SIZE")


def memory() -> int | None:
    """Bytes of this machine, or of this container."""
    try:
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
    limits = [_number(path) for path in ("memory.max", "memory/memory.limit_in_bytes")]
    return min([total, *(limit for limit in limits if limit is not None)])


def _number(name: str) -> int | None:
    try:
        text = Path("/sys/fs/cgroup", name).read_text().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
