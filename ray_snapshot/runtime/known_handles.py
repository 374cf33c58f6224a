"""Handles of actors that go to the same processes with every snapshot: each process opens one of them once.

Ray takes a tenth of a millisecond and more to make a handle of what has come, each time.
"""

from __future__ import annotations

import pickle
from functools import lru_cache
from typing import Any

from ray import cloudpickle

MOST = 10_000
"""So many handles are kept open; more hosts than one service can have."""


@lru_cache(MOST)
def opened(pickled: bytes) -> Any:
    """The handle; the same one for the same bytes."""
    return pickle.loads(pickled)


class KnownHandle:
    """A handle on its way: what comes of it in another process is the handle itself."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.pickled: bytes = cloudpickle.dumps(actor)

    def __reduce__(self) -> tuple[Any, ...]:
        return opened, (self.pickled,)


class KnownHandles:
    """Those that one process sends, by the name that they have there."""

    def __init__(self) -> None:
        self._made: dict[str, KnownHandle] = {}

    def of(self, name: str, actor: Any) -> KnownHandle:
        """What is sent in place of `actor`, which may have taken another one's place since."""
        found = self._made.get(name)
        if found is None or found.actor is not actor:
            found = self._made[name] = KnownHandle(actor)
        return found
