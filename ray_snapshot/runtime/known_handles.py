"""Handles of actors that go to the same processes with every snapshot: each process opens one of them once.

Ray takes a tenth of a millisecond and more to make a handle of what has come, each time.
"""

from __future__ import annotations

import pickle
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import ray

MOST = 1_000
"""So many handles a process keeps open; those that it has not used for longest are opened again."""


def opened(pickled: bytes) -> Any:
    """The handle; the same one for the same bytes, until this process leaves Ray: in another connection it is unknown."""
    return _opened(pickled, ray.get_runtime_context().get_worker_id())


@lru_cache(MOST)
def _opened(pickled: bytes, connection: str) -> Any:  # noqa: ARG001 - part of the key
    return pickle.loads(pickled)


class KnownHandle:
    """A handle on its way: what comes of it in another process is the handle itself."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.pickled = pickle.dumps(
            actor
        )  # not Ray's own pickle, which would count this as a use of the actor for ever

    def __reduce__(self) -> tuple[Any, ...]:
        return opened, (self.pickled,)


class KnownHandles:
    """Those that one process sends, by the name that they have there."""

    def __init__(self) -> None:
        self._known: dict[str, KnownHandle] = {}

    def of(self, actors: Mapping[str, Any]) -> dict[str, KnownHandle]:
        """What is sent in place of these; who has taken another one's place is sent in its place."""
        before = self._known
        self._known = {
            name: known if (known := before.get(name)) is not None and known.actor is actor else KnownHandle(actor)
            for name, actor in actors.items()
        }
        return self._known
