"""The thread in which a host makes its reports, one after the other; who has little to do may do without it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any


class OneThread(ThreadPoolExecutor):
    """An executor of one thread that says whether all it was given is done."""

    def __init__(self, name: str) -> None:
        super().__init__(1, thread_name_prefix=name)
        self._order = threading.Lock()
        self._last: Future[Any] | None = None

    def submit(self, work: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Do this behind all that was submitted before."""
        with self._order:
            found = self._last = super().submit(work, *args, **kwargs)
        return found

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way, nor stands in line."""
        with self._order:
            return self._last is None or self._last.done()


def done(work: Callable[..., Any], *args: Any) -> Future[Any]:
    """What came of this, done at once by the caller."""
    found: Future[Any] = Future()
    try:
        found.set_result(work(*args))
    except Exception as error:
        found.set_exception(error)
    return found
