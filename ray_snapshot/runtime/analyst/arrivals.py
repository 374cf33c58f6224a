"""Snapshots as they are handed over: evaluated in the order of their places, and done with in that order."""

from __future__ import annotations

import queue
import threading
import uuid
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from ray_snapshot.runtime.collected import Collected


class Handed(NamedTuple):
    """A snapshot as it was handed over."""

    collected: Collected
    place: int | None = None
    """Its place in the line, from 1 on."""
    session: str | None = None
    again: bool = False
    """Whether an analyst that has died may have seen to it already."""


class InWork(NamedTuple):
    """An evaluated snapshot that may not be done with."""

    place: int
    mark: int
    """The `committed` that the writer must reach."""
    verdicts: int
    """How many must have been handed out."""


class Arrivals:
    """What has come and what is done with; `inbox` and what stands behind it is of the thread that evaluates."""

    def __init__(self) -> None:
        self.inbox: queue.SimpleQueue[Handed] = queue.SimpleQueue()
        self.received = 0
        self.session = uuid.uuid4().hex
        """Session id; changes when service or analyst restarts."""
        self._early: dict[int, Handed] = {}
        """Snapshots that came before those in front of them, by their place in the line."""
        self._next_place = 1
        self._in_work: deque[InWork] = deque()
        self._finished = 0
        self._lock = threading.Lock()

    def begin_session(self) -> str:
        """Places count from 1 again; what is of an earlier session is refused."""
        self.received -= len(self._early)
        self._early.clear()
        self._next_place = 1
        with self._lock:
            self.session = uuid.uuid4().hex
            self._in_work.clear()
            self._finished = 0
        return self.session

    def put(self, handed: Handed) -> bool:
        """Take one in, without a place at once; False if it is of an earlier session."""
        if handed.session not in (None, self.session):
            return False
        self.received += 1
        if handed.place is None:
            self.inbox.put(handed)
        else:
            self._early[handed.place] = handed
        while (found := self._early.pop(self._next_place, None)) is not None:
            self.inbox.put(found)
            self._next_place += 1
        return True

    @property
    def in_order(self) -> int:
        """How many have come, without those that are behind a gap: what fills that may come only once others are answered."""
        return self.received - len(self._early)

    def evaluated(self, handed: Handed, mark: int, verdicts: int) -> None:
        """It has been judged, and handed to the writer."""
        with self._lock:
            if handed.place is not None and handed.session == self.session:
                self._in_work.append(InWork(handed.place, mark, verdicts))

    def finished(self, is_done: Callable[[InWork], bool]) -> int:
        """The highest place of this session up to which nothing would be lost if this process died."""
        with self._lock:
            while self._in_work and is_done(self._in_work[0]):
                self._finished = self._in_work.popleft().place
            return self._finished
