"""The line of complete snapshots on their way to the analyst: they are handed over in the order of their numbers.

So verdicts are heard in that order. A party that has recorded a snapshot has recorded all earlier ones, so these are complete
a moment later, or given up: the wait is short.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any

from ray_snapshot.limits import LIMITS


class Line:
    """The line of one service or watcher. Everything runs on one event loop; `give` hands one snapshot over."""

    def __init__(
        self, give: Callable[[Any], Coroutine[Any, Any, None]], ended: Callable[[asyncio.Task[Any]], None]
    ) -> None:
        """`ended` is called with each task that has handed something over, or failed."""
        self.give = give
        self.ended = ended
        self.waiting: dict[int, Any] = {}
        """By number: snapshots behind one that is still pending."""
        self.under_way: set[asyncio.Task[Any]] = set()
        """The tasks that hand snapshots over."""
        self.completed: deque[int] = deque(maxlen=LIMITS.complete_numbers)

    def __len__(self) -> int:
        return len(self.waiting) + len(self.under_way)

    def put(self, number: int, found: Any) -> None:
        """A snapshot is complete; `advance` hands it over in its turn."""
        self.completed.append(number)
        self.waiting[number] = found

    def advance(self, lowest: int | None) -> None:
        """Hand over what is in front of `lowest`, the lowest number that is pending; None: everything."""
        for number in sorted(self.waiting):
            if lowest is None or number < lowest:
                self.begin(self.give(self.waiting.pop(number)))

    def begin(self, work: Coroutine[Any, Any, Any]) -> None:
        """Do something that ends with a snapshot handed over, out of turn."""
        task = asyncio.get_running_loop().create_task(work)
        self.under_way.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self.under_way.discard(task)
        self.ended(task)

    def holds(self, snapshot_id: str) -> bool:
        """Whether this snapshot waits for its turn."""
        return any(found.header.snapshot_id == snapshot_id for found in self.waiting.values())

    async def handed_over(self) -> None:
        """Answers when all that is under way now has been handed over; what comes later is not waited for."""
        if self.under_way:
            await asyncio.wait(self.under_way)

    def completed_after(self, number: int) -> int:
        """How many snapshots with higher numbers have been completed, of the latest `complete_numbers`."""
        return sum(found > number for found in self.completed)

    async def settle(self, pending: Callable[[], Iterable[Awaitable[Any]]], timeout: float) -> None:
        """Wait up to `timeout` seconds until nothing is pending or under way; then hand over whatever is complete."""
        deadline = time.monotonic() + timeout
        while (busy := [*map(asyncio.ensure_future, pending()), *self.under_way]) and (
            left := deadline - time.monotonic()
        ) > 0:
            await asyncio.wait(busy, timeout=left)
        self.advance(None)
        if self.under_way:
            await asyncio.wait(self.under_way, timeout=LIMITS.last_in_line_s)
