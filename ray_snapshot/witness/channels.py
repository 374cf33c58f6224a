"""The strings of messages between machines that act again: what was sent and is not accepted yet, and the counts of both."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ray_snapshot.witness.log import Action, ChannelId, DiffersError, Message, differs, same, told_channel

Arguments = tuple[tuple[Any, ...], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Held:
    """A message that was sent here."""

    message: Message
    """As it would be recorded."""
    objects: Callable[[], Arguments]
    """Gives what the method is called with; may raise `NotDecodableError`."""


@dataclass(slots=True)
class Channels:
    """All channels of a run."""

    held: dict[ChannelId, list[Held]] = field(default_factory=lambda: defaultdict(list))
    sent: Counter[ChannelId] = field(default_factory=Counter)
    """How many messages, creations left out."""
    accepted: Counter[ChannelId] = field(default_factory=Counter)

    def put(self, one: Held) -> None:
        """A message is in flight; it was counted when it was sent."""
        self.held[one.message.channel].append(one)

    def accept(self, action: Action, message: Message) -> Held:
        """An action accepts a message; raises `DiffersError` where it is not there, or another one is."""
        waiting = self.held[message.channel]
        place = _place(waiting, message)
        if place is None:
            raise _impossible(action, message, waiting)
        found = waiting.pop(place)
        self.accepted[message.channel] += not message.is_creation
        sent = found.message
        is_same = sent.method == message.method and sent.class_name == message.class_name
        if not (is_same and same(sent.args, message.args)):
            what = f"accepted {_with_class(message)} from {message.key[0]}, but what was sent is {_with_class(sent)}"
            raise differs(action, what)
        return found

    def in_flight(self) -> list[Message]:
        """What is in the channels: channel by channel, by number."""
        return sorted((one.message for held in self.held.values() for one in held), key=lambda message: message.key)

    def strings(self) -> dict[ChannelId, list[tuple[int, str, list[Any]]]]:
        """The same: (number, method, args), by channel."""
        found: dict[ChannelId, list[tuple[int, str, list[Any]]]] = {}
        for message in self.in_flight():
            found.setdefault(message.channel, []).append((message.key[3], message.method, message.args))
        return found


def _place(waiting: list[Held], message: Message) -> int | None:
    """Where the message stands in its channel; None if it cannot be accepted now.

    Mail and calls come first in, first out; timers by time, and a creation before or behind mail to the same name.
    """
    for place, held in enumerate(waiting):
        if held.message.key == message.key:
            return place
        if not (held.message.is_creation or message.is_creation or message.channel[2] == "timer"):
            return None
    return None


def _impossible(action: Action, message: Message, waiting: list[Held]) -> DiffersError:
    first = next((held.message.key[3] for held in waiting if not held.message.is_creation), None)
    there = "is empty" if first is None else f"begins with number {first}"
    what = "its creation" if message.is_creation else f"number {message.key[3]} ({message})"
    return differs(
        action, f"is impossible here: it accepts {what}, and the channel {told_channel(message.channel)} {there}"
    )


def _with_class(message: Message) -> str:
    return str(message) if message.class_name is None else f"{message} of {message.class_name}"
