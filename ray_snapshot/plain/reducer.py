"""Reduces one value: carries what bounds the work, and leaves each kind of value to its handler. Standard library only."""

from __future__ import annotations

import enum
import hashlib
import itertools
import math
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ray_snapshot import redaction
from ray_snapshot.plain.bounds import (
    CHUNK,
    CLOCK_EVERY,
    HASHED_BYTES,
    HEAD_ITEMS,
    LARGEST_INTEGER,
    LONGEST_KEY,
    MOST_CONTAINERS,
    MOST_DEPTH,
    type_name,
)
from ray_snapshot.plain.handlers import EXACT, handler_of


class TooMuch(BaseException):
    """The room or the time for one value is used up; no `except Exception` on the way may keep it."""


class Reducer:
    """Reduces one value; afterwards `truncated` tells whether something was left out.

    `bytes_cut`: about how much. `overflowed`: a container had more items than fit, and ends in a `$cut`; or, if the reducer
    `gives_up`, `TooMuch` is raised at once: then what was reduced so far is of no use. `until`: when it gives up, in seconds of
    this thread's processor time, which a busy machine does not use up.
    """

    __slots__ = (
        "above",
        "bytes_cut",
        "containers_left",
        "gives_up",
        "handlers",
        "hash_left",
        "left",
        "overflowed",
        "truncated",
        "until",
    )

    def __init__(self, most_bytes: int, *, gives_up: bool = False, until: float | None = None) -> None:
        self.left = most_bytes
        self.gives_up = gives_up
        self.until = until
        self.truncated = False
        self.overflowed = False
        self.bytes_cut = 0
        self.hash_left = 8 * HASHED_BYTES
        self.containers_left = MOST_CONTAINERS
        self.above: dict[int, int] = {}
        self.handlers = EXACT.copy()

    def reduce(self, value: Any) -> Any:
        """The plain form of `value`; what cannot be read becomes `{"$unreadable": type}`."""
        kind = type(value)
        try:
            handler = self.handlers.get(kind)
            if handler is None:
                handler = self.handlers[kind] = handler_of(kind)
            return handler(self, value)
        except Exception as error:  # the value's fault, whatever it is: the rest must still be written
            self.truncated = True
            self.left -= 100
            return {"$unreadable": type_name(kind), "error": type(error).__name__}

    def inside(self, value: Any, reduce: Callable[[], Any]) -> Any:
        """`reduce()` with `value` as the container around it, unless it is its own ancestor or too deep."""
        self.left -= 2
        self.containers_left -= 1
        if self.containers_left < 0:
            self.left = 0
        if self.containers_left % CLOCK_EVERY == 0:
            self.look_at_the_clock()
        identity, depth = id(value), len(self.above)
        if identity in self.above:
            return {"$cycle": depth - self.above[identity]}
        if depth >= MOST_DEPTH:
            self.truncated = True
            return {"$cut": "depth", "type": type_name(type(value))}
        self.above[identity] = depth
        try:
            return reduce()
        finally:
            del self.above[identity]

    def items(self, items: Iterable[Any], count: int) -> list[Any]:
        """The plain forms of `count` items, as many as fit."""
        found: list[Any] = []
        before = self.left
        if self.gives_up and 2 * count > self.left:
            self.overflow(count, 0, before)
        for chunk in _chunks(items) if count > CHUNK else (list(items),):
            self.look_at_the_clock()
            cost = _plain_cost(chunk)
            if cost is not None and cost <= self.left:
                found += chunk
                self.left -= cost
                continue
            for item in chunk:
                if self.left <= 0:
                    break
                found.append(self.reduce(item))
                self.left -= 1
            if self.left <= 0:
                break
        if len(found) < count:
            found.append(self.overflow(count - len(found), len(found), before))
        return found

    def entries(self, pairs: Iterable[tuple[Any, Any]], count: int) -> dict[str, Any]:
        """The plain form of a dictionary's pairs; `{"$dict": [[key, value], ...]}` if its keys are no plain
        names.
        """
        keys: list[Any] = []
        values: list[Any] = []
        before = self.left
        listed = itertools.chain.from_iterable(_chunks(pairs)) if count > CHUNK else list(pairs)
        for key, value in listed:
            if self.left <= 0:
                break
            keys.append(key)
            values.append(self.entry(key, value))
            self.left -= 4
        names = [_key_text(key) for key in keys]
        self.left -= sum(len(name) for name in names if name is not None)
        if None in names or len(set(names)) < len(names):
            entries = [[self.reduce(key), value] for key, value in zip(keys, values, strict=True)]
            found: dict[str, Any] = {"$dict": entries}
        else:
            found = dict(zip(names, values, strict=True))  # type: ignore[arg-type]
        if len(keys) < count:
            found["$cut"] = self.overflow(count - len(keys), len(keys), before)
        return found

    def entry(self, key: Any, value: Any) -> Any:
        """The plain form of what stands under a name."""
        if not redaction.is_redacted(key):
            return self.reduce(value)
        self.left -= 30
        return redaction.mark(key)

    def look_at_the_clock(self) -> None:
        """Give up if the time is over."""
        if self.until is not None and time.thread_time() > self.until:
            self.truncated = self.overflowed = True
            raise TooMuch

    def overflow(self, missing: int, done: int, left_before: int) -> dict[str, Any]:
        """What stands for `missing` items of a container after `done` of them used up the room."""
        self.truncated = self.overflowed = True
        self.bytes_cut += missing * max(2, (left_before - self.left) // max(1, done))
        if self.gives_up:
            raise TooMuch
        return {"$cut": "items", "count": missing}

    def cut(self, kind: str, size: int, head: Any, raw: bytes | memoryview | None, **more: Any) -> dict[str, Any]:
        """What stands for one long string, blob or array; `size` is what its text would have taken, in
        bytes.
        """
        self.truncated = True
        self.bytes_cut += size
        self.left -= 2 * HEAD_ITEMS
        digest = None
        if raw is not None and self.hash_left > 0:
            self.hash_left -= len(raw)
            digest = hashlib.sha256(raw).hexdigest()
        return {"$cut": kind, "head": head, "sha256": digest, **more}


def _chunks(items: Iterable[Any]) -> Iterator[list[Any]]:
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, CHUNK)):
        yield chunk


def _plain_cost(chunk: list[Any]) -> int | None:
    """The length of the text of numbers or short strings that need no change; None for anything else."""
    kinds = set(map(type, chunk))
    if kinds == {int}:
        return len(str(chunk)) if min(chunk) >= -LARGEST_INTEGER and max(chunk) <= LARGEST_INTEGER else None
    if kinds == {float}:
        return len(str(chunk)) if all(map(math.isfinite, chunk)) else None
    if kinds == {str}:
        return sum(map(len, chunk)) + 3 * len(chunk)
    return None


def _key_text(key: Any) -> str | None:
    kind = type(key)
    if kind is int and -LARGEST_INTEGER <= key <= LARGEST_INTEGER:
        return str(key)
    if not issubclass(kind, str) or issubclass(kind, enum.Enum) or len(key) > LONGEST_KEY:
        return None
    text = str.__str__(key)
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()
