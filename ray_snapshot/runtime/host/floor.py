"""The floor of a host: the right to run actions, held by one thread at a time.

The thread that holds it runs one action after the other. A machine that waits inside an action gives the floor away (to
another thread, started if none is spare) and takes it back after the wait, before any thread that only looks for work.
All methods are called under the host's lock.
"""

from __future__ import annotations

import threading
from typing import Any


class Floor:
    """The floor of one host: which thread holds it, how many wait to have it back, and how many look for work."""

    def __init__(self, lock: Any) -> None:
        self.free = threading.Condition(lock)
        self.work = threading.Condition(lock)
        self.holder: int | None = None
        self.returning = 0
        """How many threads have ended their wait and want the floor back."""
        self.spare = 0
        """How many threads look for work and do not have the floor."""
        self.is_idle = False
        self.is_closed = False

    def take(self) -> bool:
        """Wait for the floor, and let threads that take it back go first; False if it was closed meanwhile."""
        self.spare += 1
        while (self.holder is not None or self.returning) and not self.is_closed:
            self.free.wait()
        self.spare -= 1
        if self.is_closed:
            return False
        self.holder = threading.get_ident()
        return True

    def take_back(self) -> None:
        """Wait for the floor, before threads that only look for work."""
        self.returning += 1
        self.work.notify_all()
        while self.holder is not None and not self.is_closed:
            self.free.wait()
        self.returning -= 1
        self.holder = threading.get_ident()

    def give(self) -> None:
        """Let another thread have the floor."""
        self.holder = None
        self.free.notify_all()

    def idle(self) -> None:
        """Wait until there may be something to do, or until another thread wants the floor."""
        self.is_idle = True
        self.work.wait()
        self.is_idle = False

    def pause(self, seconds: float) -> None:
        """Let others have the lock for a moment, at most so long: there is something to do, but nothing that cannot wait."""
        self.is_idle = True
        self.work.wait(seconds)
        self.is_idle = False

    def wake(self) -> None:
        """There may be something to do."""
        if self.is_idle:
            self.work.notify_all()

    def close(self) -> None:
        """Let all threads leave."""
        self.is_closed = True
        self.free.notify_all()
        self.work.notify_all()
