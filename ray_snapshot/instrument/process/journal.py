"""The program's calls since the snapshot that its app would go back to, so that they can be made again, in their order.

The program itself is not rolled back: it has sent a call once, and waits for its reply, or will. A program that asks for a
reply gets that of the call which was made again. A call stays in the journal until a snapshot that the app goes back to has
it behind itself: sent before the program's instant, and not in flight. Used under the lock of the process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ray

from ray_snapshot.instrument import shape
from ray_snapshot.instrument.process import states
from ray_snapshot.protocol.calls import Header
from ray_snapshot.protocol.commands import Based


@dataclass(slots=True, eq=False)
class Entry:
    """A call, as it was when it was made; the program may change its arguments afterwards."""

    handle: Any
    method: str
    options: Mapping[str, Any]
    blob: bytes | None
    """The arguments; None if they cannot be pickled: then `items` are they themselves."""
    items: list[Any]
    """The handles and refs in them."""
    target: str = ""
    incarnation: int = -1
    """Of the program, when this was made last."""
    number: int = 0
    answers: list[list[bytes]] = field(default_factory=list)
    """The ids of its results, for each time that it was made."""
    is_under_way: bool = True
    """Whether the thread that makes it has not come back yet."""
    renewed: Any = None
    """Its results, if it was made again meanwhile."""


class Journal:
    """The calls of one program."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.answers: dict[bytes, Any] = {}
        """By the id of a result that will never come, or is of the past: the ref that answers in its place."""
        self.repeating: Entry | None = None
        """The call that is just being made again."""

    def entry(self, handle: Any, method: str, args: Any, kwargs: Any, options: Mapping[str, Any]) -> Entry:
        """What must be known of a call to make it again."""
        if self.repeating is not None:
            return self.repeating
        given = tuple(args or ()), dict(kwargs or {})
        try:
            blob, items = states.whole(given)
        except Exception:  # whatever its own classes raise; Ray may say so in a moment, too
            blob, items = None, [given]
        return Entry(handle, method, dict(options), blob, items)

    def add(self, entry: Entry, target: str, header: Header) -> None:
        """The call has this number now."""
        entry.target, entry.incarnation, entry.number = target, header.incarnation, header.number
        if entry is not self.repeating:
            self.entries.append(entry)

    def remove(self, entry: Entry) -> None:
        """Making it raised."""
        if entry is not self.repeating and entry in self.entries:
            self.entries.remove(entry)

    def made(self, entry: Entry, refs: Any) -> Any:
        """The call has been made; returns the refs that answer it."""
        if entry is self.repeating:
            entry.renewed = refs if entry.is_under_way else None
            self._renew(entry, refs)
            return refs
        entry.is_under_way = False
        if entry.renewed is not None:
            refs, entry.renewed = entry.renewed, None
        else:
            entry.answers.append(_ids(refs))
        return refs

    def _renew(self, entry: Entry, refs: Any) -> None:
        new = refs if isinstance(refs, list) else [refs]
        for ids in entry.answers:
            self.answers.update(zip(ids, new, strict=False))
        entry.answers.append(_ids(refs))

    def based(self, command: Based, incarnation: int) -> None:
        """The app goes back to this snapshot from now on: forget what it has behind itself."""
        if command.incarnation != incarnation:
            return

        def is_needed(entry: Entry) -> bool:
            later = entry.number > command.sent.get(entry.target, 0)
            return later or (entry.target, entry.number) in command.in_flight

        self.entries = [entry for entry in self.entries if is_needed(entry)]
        if self.answers:  # what the program has no refs to is asked for no more
            self.answers = {key: self.answers[key] for key in self.answers.keys() & shape.ids_in_use()}

    def again(self) -> list[Exception]:
        """Make all of them again, in their order; returns what making them raised."""
        wanted = shape.ids_in_use()
        failures = []
        for entry in self.entries:
            entry.answers = [ids for ids in entry.answers if wanted.intersection(ids)]
            self.repeating = entry
            try:
                args, kwargs = self._arguments(entry)
                shape.call_again(entry.handle, entry.method, args, kwargs, entry.options)
            except Exception as error:
                failures.append(error)
            finally:
                self.repeating = None
        return failures

    def _arguments(self, entry: Entry) -> tuple[tuple[Any, ...], dict[str, Any]]:
        if entry.blob is None:
            args, kwargs = entry.items[0]
        else:
            args, kwargs = states.whole_again(entry.blob, [self.current(item) for item in entry.items])
        return args, kwargs

    def forget(self) -> None:
        """The program has restored a snapshot: what it had called is of the past, for it knows."""
        self.entries.clear()
        self.answers.clear()

    def current(self, item: Any) -> Any:
        """The ref that answers in place of this one; whatever else it is, as it is."""
        return self.answers.get(item.binary(), item) if self.answers and isinstance(item, ray.ObjectRef) else item

    def current_in(self, args: Any, kwargs: Any) -> tuple[Any, Any]:
        """The arguments of a call, with the refs that answer now."""
        if not self.answers:
            return args, kwargs
        named = {name: self.current(item) for name, item in kwargs.items()} if kwargs else kwargs
        return self.all_current(args) if args else args, named

    def all_current(self, items: Iterable[Any]) -> list[Any]:
        """`current` of each."""
        return [self.current(item) for item in items]


def _ids(refs: Any) -> list[bytes]:
    """The ids of results; a generator's items have none yet."""
    return [ref.binary() for ref in (refs if isinstance(refs, list) else [refs]) if isinstance(ref, ray.ObjectRef)]
