"""The connection of this process to Ray, as our own threads use it: it is closed before Ray takes its core worker down.

Ray frees its core worker while Python's threads still run. A thread that submits a call then crashes the process, or ends it
at once, without the app's `atexit` functions. So every step of our threads that touches Ray is a `use` of the one connection,
and every way in which a process ends closes it first (`hooks.ends`, `attaching.detach`). Imports nothing of Ray.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

END_S = 30.0
"""Ray gives a process that ends as long: a step that takes longer waits for what does not come."""

_T = TypeVar("_T")


class Connection:
    """Open or closed; and which threads are inside a step."""

    def __init__(self) -> None:
        self.is_open = True
        self.before_end: list[Callable[[], object]] = []
        """What has to be done while the connection is still open; each once."""
        self._users: Counter[int] = Counter()
        """By thread: how many steps it is inside, one in another."""
        self._changed = threading.Condition()

    def use(self, step: Callable[..., _T], *args: object) -> _T | None:
        """Take a step that touches Ray, but does not wait for it; None, and nothing is done, once the connection is closed."""
        me = threading.get_ident()
        with self._changed:
            if not self.is_open:
                return None
            self._users[me] += 1
        try:
            return step(*args)
        finally:
            with self._changed:
                self._users -= Counter((me,))
                self._changed.notify_all()

    def end(self) -> None:
        """Close it; returns when no other thread is inside a step."""
        while self.before_end:
            with suppress(Exception):
                self.before_end.pop()()
        me, deadline = threading.get_ident(), time.monotonic() + END_S
        with self._changed:
            self.is_open = False
            self._changed.wait_for(lambda: not self._users.keys() - {me}, max(0.0, deadline - time.monotonic()))

    def begin(self) -> None:
        """Open it for another session of the program."""
        with self._changed:
            self.is_open = True


CONNECTION = Connection()
