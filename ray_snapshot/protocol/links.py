"""Links: the batched FIFO transport between two hosts, which carries many channels.

What is put on a link is gathered into a batch while earlier batches are on their way. A batch is a plain tuple, so that
one pickle carries hundreds of messages:

    (source host, sequence on the link, new channels, segments, acknowledgements)

- A new channel is (index, source machine, target machine, kind); messages name their channel by its index on the link.
- A segment is (colour, messages). A marker is a change of colour: everything behind it has the new one, and a marker
  with nothing behind it is an empty segment.
- An acknowledgement is (index on the opposite link, messages accepted on that channel).

The transport may deliver batches in any order, and more than once; `InLink` puts them in order and drops the doubles.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ray_snapshot.protocol.colours import Colour
from ray_snapshot.protocol.mailbox import Mailbox, Message

Segment = tuple[Colour, list[Message]]
Batch = tuple[str, int, list[tuple[int, str, str, str]], list[Segment], list[tuple[int, int]]]

CREATION = 0
"""The index of the pseudo-channel of a link that carries creations: its messages make machines."""


@dataclass(slots=True, eq=False)
class OutLink:
    """The sending end: what waits to be put into the next batch for `target`."""

    source: str
    target: str
    colour: Colour
    sequence: int = 0
    channels: list[Any] = field(default_factory=lambda: [None])  # index 0 is CREATION
    created: int = 0
    """How many creations this link has carried."""
    declared: list[tuple[int, str, str, str]] = field(default_factory=list)
    segments: list[Segment] = field(default_factory=list)
    messages: list[Message] = field(default_factory=list)
    acknowledgements: dict[int, int] = field(default_factory=dict)
    dirty: bool = True  # a new link tells its colour at once
    in_flight: int = 0
    """Batches that the transport has not delivered yet; kept by the world."""

    def declare(self, channel: Any, source: str, target: str, kind: str) -> int:
        """Give a channel its index on this link."""
        index = len(self.channels)
        self.channels.append(channel)
        self.declared.append((index, source, target, kind))
        self.dirty = True
        return index

    def mark(self, colour: Colour) -> None:
        """Put a marker: what follows has `colour`."""
        if self.messages or not self.segments:
            self.segments.append((self.colour, self.messages))
            self.messages = []
        self.colour = colour
        self.dirty = True

    def attach(self, colour: Colour) -> None:
        """What follows has `colour`; unlike a marker, that is worth no batch of its own."""
        dirty = self.dirty or bool(self.messages)
        self.mark(colour)
        self.dirty = dirty

    def take(self) -> Batch | None:
        """The next batch, or None if there is nothing to say."""
        if not (self.messages or self.dirty or self.acknowledgements):
            return None
        segments = self.segments
        segments.append((self.colour, self.messages))
        batch = (self.source, self.sequence, self.declared, segments, list(self.acknowledgements.items()))
        self.sequence += 1
        self.declared, self.segments, self.messages, self.acknowledgements = [], [], [], {}
        self.dirty = False
        return batch


class InLink:
    """The receiving end: batches in order, and the mailboxes that the link's channels lead to."""

    __slots__ = ("colour", "created", "early", "mailboxes", "next", "source")

    def __init__(self, source: str, colour: Colour) -> None:
        self.source = source
        self.colour = colour
        self.next = 0
        self.early: dict[int, Batch] = {}
        self.mailboxes: list[Mailbox | None] = [None]
        self.created = 0
        """How many creations have arrived over this link."""

    def in_order(self, batch: Batch) -> list[Batch]:
        """The batches that this one makes deliverable, in order; none for a double or an early one."""
        if batch[1] != self.next:
            if batch[1] > self.next:
                self.early[batch[1]] = batch
            return []
        found = [batch]
        self.next += 1
        while self.early and self.next in self.early:
            found.append(self.early.pop(self.next))
            self.next += 1
        return found
