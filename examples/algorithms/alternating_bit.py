"""The alternating bit protocol: every item once and in order, over wires that lose some.

Source: K. A. Bartlett, R. A. Scantlebury, P. T. Wilkinson, "A note on reliable full-duplex transmission over
half-duplex links", CACM 12(5), 1969. The sender sends an item with a bit, again and again, until an answer with that
bit comes; then the next one, with the other bit. The receiver takes an item that has the bit it waits for, and answers
each with its bit.
Assumed of the wires: they lose, but not for ever, and keep the order of what they do not lose. Here each is a machine
that loses at most one message, so no item needs to be sent more than three times.

`broken`: the sender takes any answer for the one to its last item.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray_snapshot as rs

ITEMS = ["x", "y", "z"]
PATIENCE_S = 1.0
LOSSES = 2
"""How many messages are lost at most, by both wires."""


class Sender(rs.SnapshotMixin):
    """Sends the items through a wire."""

    def __init__(self, wire: Any) -> None:
        self.wire = wire
        self.answered = 0
        """How many items were answered for; whether that is odd is the bit."""
        self.tries = 0
        self.handle.send_item.send(0)

    def send_item(self, place: int) -> None:
        """Send an item, and again while no answer comes."""
        if place == self.answered and place < len(ITEMS):
            self.wire.carry.send("item", place % 2, ITEMS[place])
            self.tries += 1
            if self.tries <= LOSSES:
                self.handle.send_item.send_after(PATIENCE_S, place)

    def answer(self, bit: int, _: str) -> None:
        """The receiver has got an item with this bit."""
        if self.is_right(bit):
            self.answered += 1
            self.tries = 0
            self.handle.send_item.send(self.answered)

    def is_right(self, bit: int) -> bool:
        """Whether it is the answer to the item that is being sent."""
        return self.answered < len(ITEMS) and bit == self.answered % 2


class Receiver(rs.SnapshotMixin):
    """Takes each item once, and answers every one."""

    def __init__(self, wire: Any) -> None:
        self.wire = wire
        self.taken: list[str] = []

    def item(self, bit: int, item: str) -> None:
        """An item comes."""
        if bit == len(self.taken) % 2:
            self.taken.append(item)
        self.wire.carry.send("answer", bit, "")


class Wire(rs.SnapshotMixin):
    """Carries in one direction, and may lose."""

    def __init__(self, end: Any, losses: int = LOSSES // 2) -> None:
        self.end = end
        self.losses = losses

    def carry(self, method: str, bit: int, item: str) -> None:
        """Hand on, or lose."""
        if self.losses and self.random.choice([False, True]):
            self.losses -= 1
        else:
            getattr(self.end, method).send(bit, item)


class TrustingSender(Sender):
    """Takes any answer."""

    def is_right(self, bit: int) -> bool:  # noqa: ARG002 - that is the mistake
        return self.answered < len(ITEMS)


def build(system: Any, kind: type[Sender] = Sender) -> None:
    """A sender, a receiver, and a wire for each direction."""
    system.spawn(Wire, system.machine("receiver"), name="there")
    system.spawn(Wire, system.machine("sender"), name="back")
    system.spawn(Receiver, system.machine("back"), name="receiver")
    system.spawn(kind, system.machine("there"), name="sender")


def broken(system: Any) -> None:
    """The same, with a trusting sender."""
    build(system, TrustingSender)


def once_and_in_order(states: Mapping[str, Any]) -> bool:
    """What was taken is the beginning of what was to be sent."""
    taken = states["receiver"].taken
    return bool(taken == ITEMS[: len(taken)])


def answered_means_taken(states: Mapping[str, Any]) -> bool:
    """The sender never believes more than is so."""
    return bool(states["sender"].answered <= len(states["receiver"].taken))


def all_taken(states: Mapping[str, Any]) -> bool:
    """Every item has come."""
    return bool(states["receiver"].taken == ITEMS)
