"""Snapshots that the system takes by itself: one every so many seconds, or as often as a share of processor time allows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from ray_snapshot.limits import LIMITS
from ray_snapshot.pace import LEAST_S, Every, share_of


class Clock:
    """Begins snapshots once it is started; everything runs on one event loop.

    `begin` starts a snapshot and answers with its number, or with None if there can be none now: that tick is skipped.
    """

    def __init__(self, begin: Callable[[], Awaitable[int | None]]) -> None:
        self.begin = begin
        self.skipped = 0
        """How many ticks came to nothing."""
        self.every: Every | None = None
        """Seconds, or a share of processor time."""
        self.cost: float | None = None
        """What a snapshot takes of the party that it takes most of, in seconds of processor time, as of the last ones."""
        self.task: asyncio.Task[None] | None = None

    def start(self, every: Every) -> None:
        """Begin a snapshot every `every` seconds from now on; a clock that goes already keeps its pace."""
        if self.task is None:
            self.every = every
            self.task = asyncio.get_running_loop().create_task(self._tick())

    def go_at(self, every: Every) -> None:
        """Begin a snapshot every `every` seconds from now on, whatever the pace was."""
        self.stop()
        self.task = None
        self.start(every)

    def stop(self) -> None:
        """Begin no more."""
        if self.task is not None:
            self.task.cancel()

    def took(self, seconds: float) -> None:
        """A snapshot has been completed, which took so much processor time of the party that it took most of.

        One that takes more counts at once, one that takes less by and by: so the share is not exceeded where costs change.
        """
        last = seconds if self.cost is None else self.cost
        self.cost = max(seconds, last + LIMITS.forgetting_share * (seconds - last))

    def gave_up(self, seconds: float) -> None:
        """A snapshot was given up; what is known of it has taken so much. So the next one is to be cheaper, or later."""
        share = share_of(self.every) if self.every is not None else None
        least = 0.0 if share is None else LIMITS.first_share_s * share  # what was given up may have told nothing
        self.took(max(seconds, 2 * (self.cost or least)))

    @property
    def interval(self) -> float | None:
        """Seconds from one snapshot to the next; None without a clock."""
        if self.every is None:
            return None
        share = share_of(self.every)
        if share is None:
            return float(self.every)
        return (
            LIMITS.first_share_s if self.cost is None else min(LIMITS.slowest_share_s, max(LEAST_S, self.cost / share))
        )

    def about(self) -> dict[str, Any]:
        """What people are shown: the setting, what follows from it, and what was measured (a part of one processor)."""
        interval = self.interval
        share = None if interval is None or self.cost is None else self.cost / interval
        return {"every": self.every, "interval_s": interval, "cpu_share": share}

    async def _tick(self) -> None:
        due = time.monotonic()
        while True:
            due = max(due + (self.interval or 0.0), time.monotonic())
            await asyncio.sleep(due - time.monotonic())
            if await self.begin() is None:
                self.skipped += 1
