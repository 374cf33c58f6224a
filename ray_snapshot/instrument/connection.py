"""The gate through which our own threads call Ray; it is closed before Ray frees its core worker.

Ray frees its core worker while Python's threads still run. A thread that submits a call after that crashes the process, or
ends it at once, without the app's `atexit` functions. So our threads call Ray only in a step (`Connection.use`), and each way
in which a process ends closes the connection first (`hooks.ends`, `attaching.detach`). Imports nothing of Ray.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from ray_snapshot.limits import LIMITS

_T = TypeVar("_T")


class Connection:
    """Counts the steps that threads are in, and takes no new one once it is closed."""

    def __init__(self) -> None:
        self.is_open = True
        self.before_end: list[Callable[[], object]] = []
        """Functions that `end` calls, each once, before it closes the connection."""
        self._users: Counter[int] = Counter()
        """Thread to the number of steps that it is in (steps may be nested)."""
        self._collectors: set[int] = set()
        """Threads in a step that runs finalizers."""
        self._changed = threading.Condition()

    def use(self, step: Callable[..., _T], *args: object, collects: bool = False) -> _T | None:
        """Run `step`, which may call Ray but await no reply; once the connection is closed, do nothing, return None.

        `collects`: it runs finalizers of the app's.
        """
        me = threading.get_ident()
        with self._changed:
            if not self.is_open:
                return None
            self._users[me] += 1
            if collects:
                self._collectors.add(me)
        try:
            return step(*args)
        finally:
            with self._changed:
                self._users -= Counter((me,))
                self._collectors.discard(me)
                self._changed.notify_all()

    def end(self) -> None:
        """Close it; returns when no other thread is in a step, or after `gate_end_s` (`finalizers_s`)."""
        while self.before_end:
            with suppress(Exception):
                self.before_end.pop()()
        me = threading.get_ident()
        with self._changed:
            if not self.is_open and self._users[me]:
                return  # another thread ends it, and waits for this one
            self.is_open = False
            self._changed.wait_for(lambda: not self._users.keys() - {me} - self._collectors, LIMITS.gate_end_s)
            self._changed.wait_for(lambda: not self._users.keys() - {me}, LIMITS.finalizers_s)

    def begin(self) -> None:
        """Open it: the program begins another session with Ray."""
        with self._changed:
            self.is_open = True


CONNECTION = Connection()
