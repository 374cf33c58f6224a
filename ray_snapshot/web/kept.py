"""Values that take time to make, kept up to a number of bytes: each is made once, however many viewers ask for it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import Any

MOST_BYTES = 400_000_000


class Kept:
    """The last values that were asked for; one that is larger than all the room is kept alone. Used by several threads."""

    def __init__(self, most: int = MOST_BYTES) -> None:
        self.most = most
        self.size = 0
        self._made: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._making: dict[Hashable, Future[Any]] = {}
        self._lock = threading.Lock()

    def get(self, key: Hashable, make: Callable[[], Any], size: Callable[[Any], int] = lambda _: 1_000) -> Any:
        """The value of this key; the first who asks makes it, others wait for it, and get its error as well."""
        with self._lock:
            if key in self._made:
                self._made.move_to_end(key)
                return self._made[key][0]
            being_made = self._making.get(key)
            if being_made is None:
                own: Future[Any] = Future()
                self._making[key] = own
        if being_made is not None:
            return being_made.result()
        try:
            value = make()
        except BaseException as error:
            with self._lock:
                del self._making[key]
            own.set_exception(error)
            raise
        with self._lock:
            del self._making[key]
            self._made[key] = value, size(value)
            self.size += self._made[key][1]
            while self.size > self.most and len(self._made) > 1:
                _, (_, gone) = self._made.popitem(last=False)
                self.size -= gone
        own.set_result(value)
        return value
