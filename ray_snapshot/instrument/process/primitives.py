"""What a parked coroutine waits on, for a person: "asyncio.Lock held by Ledger.add", "asyncio.Queue.put, 2 of 2 in the queue".

Read between two steps of the loop, from the frames of asyncio and what their `self` is; runs no code of the app's.
"""

from __future__ import annotations

import asyncio
import gc
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import PurePath
from types import CoroutineType, MethodType
from typing import Any

from ray_snapshot.limits import LIMITS
from ray_snapshot.names import HELD_BY

_FILES = ("locks.py", "queues.py")


class Primitives:
    """`coroutines`: all that may hold a lock of one loop."""

    def __init__(self, coroutines: Iterable[Any]) -> None:
        self.coroutines = coroutines

    def of(self, frames: Sequence[Any]) -> str:
        """The primitive on which the innermost of `frames` (the innermost last) waits; "" if that is not known."""
        own = [frame for frame in frames if _is_primitive(frame)]
        if not own:
            return ""
        one, inner = (frame.f_locals.get("self") for frame in (own[0], own[-1]))
        kind = type(one)
        name = f"asyncio.{kind.__name__}" if kind.__module__.startswith("asyncio.") else kind.__qualname__
        if issubclass(kind, asyncio.Queue):
            method = own[0].f_code.co_name
            return f"{name}.{method}, {_filled(one, method)}"
        holders = self._holders.get(id(inner), ())
        if not holders:
            return f"{name}, no permit left" if issubclass(kind, asyncio.Semaphore) and not one._value else name
        return f"{name}{HELD_BY}{', '.join(list(holders)[: LIMITS.named_holders])}"

    @cached_property
    def _holders(self) -> Mapping[int, Mapping[str, None]]:
        """By lock or semaphore (its id): the functions that are inside an `async with` on it, or on its condition.

        None of those that are still to get it, or have given it up while they wait on its condition.
        """
        found: dict[int, dict[str, None]] = {}
        for coroutine in {id(one): one for one in self.coroutines}.values():
            chain = list(_chain(coroutine))
            inner = chain[-1].cr_frame if chain else None
            wanted = _lock_of(inner.f_locals.get("self")) if inner is not None and _is_primitive(inner) else None
            for one in chain:
                for lock in map(_lock_of, _entered(one)):
                    if lock is not wanted and issubclass(type(lock), asyncio.Lock | asyncio.Semaphore):
                        found.setdefault(id(lock), {})[one.cr_code.co_qualname] = None
        return found


def _is_primitive(frame: Any) -> bool:
    path = PurePath(frame.f_code.co_filename)
    return path.parent.name == "asyncio" and path.name in _FILES


def _filled(queue: Any, method: str) -> str:
    if method == "join":
        return f"{queue._unfinished_tasks} not done"
    items, most = getattr(queue, "_queue", None), queue._maxsize
    held = f"{len(items)}" if isinstance(items, deque | list) else "some"
    return f"{held} of {most} in the queue" if most > 0 else f"{held} in the queue"


def _entered(coroutine: Any) -> Iterator[Any]:
    """What a suspended coroutine has entered by `async with`: its frame keeps the method that is to be called at the end."""
    for item in gc.get_referents(coroutine):
        if type(item) is MethodType and item.__func__.__name__ == "__aexit__":
            yield item.__self__


def _lock_of(item: Any) -> Any:
    return item._lock if issubclass(type(item), asyncio.Condition) else item


def _chain(coroutine: Any) -> Iterator[Any]:
    """A suspended coroutine, the one that it awaits, and so on."""
    while type(coroutine) is CoroutineType and coroutine.cr_frame is not None:
        yield coroutine
        coroutine = coroutine.cr_await
