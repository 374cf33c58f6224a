"""The latest verdicts, for a caller that asks what came behind those it knows; all of them, for subscribers that are behind."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from ray_snapshot.limits import LIMITS

if TYPE_CHECKING:
    from ray_snapshot.verdicts import Verdict


class VerdictQueue:
    """Counts every verdict there was; used by several threads."""

    def __init__(self) -> None:
        self._kept: deque[tuple[int, Verdict]] = deque()
        self._forgotten = 0
        """How many there were before those in `_kept`."""
        self._handed_out: int | None = None
        """How many the subscribers have; None if there are none."""
        self._lock = threading.Lock()

    def begin(self, count: int, *, has_subscribers: bool) -> None:
        """Take it that there have been so many."""
        self._forgotten = count
        self._handed_out = count if has_subscribers else None

    @property
    def count(self) -> int:
        """How many there have been."""
        with self._lock:
            return self._forgotten + len(self._kept)

    def extend(self, found: Iterable[tuple[int, Verdict]]) -> int:
        """More have come, each with its snapshot's number; returns how many there are now."""
        with self._lock:
            self._kept.extend(found)
            self._forget()
            return self._forgotten + len(self._kept)

    def after(self, seen: int) -> tuple[int, list[tuple[int, Verdict]]]:
        """How many there are, and those behind the first `seen`, of those that are kept."""
        with self._lock:
            first = max(0, seen - self._forgotten)
            return self._forgotten + len(self._kept), [one for at, one in enumerate(self._kept) if at >= first]

    def subscribe(self) -> int:
        """From now on each is kept until it has been handed out; returns how many there have been."""
        with self._lock:
            self._handed_out = self._forgotten + len(self._kept)
            return self._handed_out

    def handed_out(self, count: int) -> None:
        """The subscribers have so many."""
        with self._lock:
            self._handed_out = count
            self._forget()

    def has_handed_out(self, count: int) -> bool:
        """Whether the subscribers, if there are any, have so many."""
        with self._lock:
            return self._handed_out is None or self._handed_out >= count

    def _forget(self) -> None:
        while len(self._kept) > LIMITS.late_verdicts and (
            self._handed_out is None or self._forgotten < self._handed_out
        ):
            self._kept.popleft()
            self._forgotten += 1
