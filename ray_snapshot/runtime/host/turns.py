"""How long a thread of a host's process keeps the interpreter when another wants it.

Behind actions that never wait for anything, each of the hundred steps of a large report would wait Python's 5 ms for it. At
all times brisk turns would cost messages. The interval is the process's, and two posts may make reports at once there (one is
being left, for the system goes back): so the first begins, and the last puts back what was there before.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ray_snapshot.limits import LIMITS

HALF_S = 5e-7
"""Python cuts an interval to microseconds: one that is put back again and again would become shorter."""


class Turns:
    """Of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._brisk = 0
        """How many threads want them brisk."""
        self._before_s = self._ours_s = 0.0

    @contextmanager
    def brisk(self) -> Iterator[None]:
        """Let the threads take turns quickly meanwhile."""
        with self._lock:
            self._brisk += 1
            if self._brisk == 1:
                self._before_s = sys.getswitchinterval()
                sys.setswitchinterval(min(LIMITS.switch_s, self._before_s) + HALF_S)
                self._ours_s = sys.getswitchinterval()
        try:
            yield
        finally:
            with self._lock:
                self._brisk -= 1
                if not self._brisk and sys.getswitchinterval() == self._ours_s:  # else the program has chosen another
                    sys.setswitchinterval(self._before_s + HALF_S)


TURNS = Turns()
