"""Snapshots that the system takes by itself: one every so many seconds, without drifting."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable


class Clock:
    """Begins snapshots once it is started; everything runs on one event loop.

    `begin` starts a snapshot and answers with its number, or with None if there can be none now: that tick is skipped.
    """

    def __init__(self, begin: Callable[[], Awaitable[int | None]]) -> None:
        self.begin = begin
        self.skipped = 0
        """How many ticks came to nothing."""
        self.task: asyncio.Task[None] | None = None

    def start(self, every: float) -> None:
        """Begin a snapshot every `every` seconds from now on; a clock that goes already keeps its pace."""
        if self.task is None:
            self.task = asyncio.get_running_loop().create_task(self._tick(every))

    def go_at(self, every: float) -> None:
        """Begin a snapshot every `every` seconds from now on, whatever the pace was."""
        self.stop()
        self.task = None
        self.start(every)

    def stop(self) -> None:
        """Begin no more."""
        if self.task is not None:
            self.task.cancel()

    async def _tick(self, every: float) -> None:
        due = time.monotonic()
        while True:
            due = max(due + every, time.monotonic())
            await asyncio.sleep(due - time.monotonic())
            if await self.begin() is None:
                self.skipped += 1
