"""What detectors make of the rows that one host keeps."""

from __future__ import annotations

import pickle
import weakref
from collections.abc import Callable
from typing import Any

from ray import cloudpickle

from ray_snapshot.adding import AddsUp, is_timeless
from ray_snapshot.snapshot import Snapshot

MOST_LEARNT = 100


class Partials:
    """Of one host; asked again of the same rows, what is timeless is not computed again. Used by one thread."""

    def __init__(self) -> None:
        self._items: dict[str, AddsUp] = {}
        self._last: dict[str, tuple[weakref.ref[Any], bytes]] = {}
        """By detector: the rows that it was last asked about, and what they came to, pickled."""

    def knows(self, key: str) -> bool:
        """Whether that detector has been learnt."""
        return key in self._items

    def learn(self, key: str, pickled: bytes) -> None:
        """Learn a detector."""
        if len(self._items) >= MOST_LEARNT:
            self._items.clear()
            self._last.clear()
        self._items[key] = cloudpickle.loads(pickled)

    def of(self, key: str, rows: Any, part: Callable[[], Snapshot]) -> bytes:
        """What the rows come to, pickled; `part` has them. Raises what the detector raises."""
        item = self._items[key]
        known = self._last.get(key)
        if known is not None and known[0]() is rows:
            return known[1]
        value = item.partial(part())
        try:
            found = pickle.dumps(value)
        except Exception as error:
            raise TypeError(f"what its partial returns, a {type(value).__name__}, cannot be pickled: {error}") from None
        if is_timeless(item):
            self._last[key] = weakref.ref(rows), found
        return found
