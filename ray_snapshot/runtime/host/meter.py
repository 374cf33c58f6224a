"""The processor time of what a host does for snapshots."""

from __future__ import annotations

import time


class Meter:
    """Counts the time between entering and leaving, once however deep; under the host's lock, so in one thread at a time."""

    __slots__ = ("began", "depth", "seconds")

    def __init__(self) -> None:
        self.seconds = 0.0
        self.depth = 0
        self.began = 0.0

    def __enter__(self) -> None:
        self.depth += 1
        if self.depth == 1:
            self.began = time.thread_time()

    def __exit__(self, *_: object) -> None:
        self.depth -= 1
        if not self.depth:
            self.seconds += time.thread_time() - self.began

    def take(self) -> float:
        """What was counted since this was last asked."""
        found, self.seconds = self.seconds, 0.0
        return found
