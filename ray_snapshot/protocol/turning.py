"""The colour of a party and the one that it is due: what every protocol does with numbers, before it does anything of its own.

A party turns red in two steps. It *hears* of numbers (a request, a marker, a header that is redder than it is): they are due
from then on. At its next boundary it *turns*: its colour becomes what is due, in one instant. Between the two it may accept
nothing that is red for a due number. Hosts under Chandy-Lamport and the observer turn as a whole, under barriers machine by
machine; each has one of these.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

from ray_snapshot.protocol.colours import Colour, Colours, Numbered


class Turning:
    """Of one party; `born` is the colour of the one that made it, by default white."""

    __slots__ = ("colour", "colours", "due", "must_turn")

    def __init__(self, colours: Colours | None = None, born: Colour | None = None) -> None:
        self.colours: Colours = Numbered() if colours is None else colours
        self.colour: Colour = self.colours.white if born is None else born
        self.due: Colour = self.colour
        """The colour to have at the next boundary."""
        self.must_turn = False
        """Whether the next boundary must record before anything is accepted: whether `due` is another colour."""

    def is_white(self, colour: Colour, number: int) -> bool:
        """Whether something of this colour was sent before its sender recorded `number`."""
        return not self.colours.is_red(colour, number)

    def hear(self, colour: Colour) -> tuple[int, ...]:
        """Something of this colour is known of; returns the numbers that are due from now on, rising."""
        due = self.colours.joined(self.due, colour)
        fresh = self.colours.newly_red(self.due, due)
        self.due = due
        self.must_turn = bool(due != self.colour)
        return fresh

    def request(self, number: int) -> tuple[int, ...]:
        """`number` is asked for; returns as `hear` does."""
        return self.hear(self.colours.recorded(self.due, (number,)))

    def turn(self) -> tuple[int, ...]:
        """The boundary: the party has the colour that was due; returns the numbers recorded by that, rising."""
        numbers = self.colours.newly_red(self.colour, self.due)
        self.colour = self.due
        self.must_turn = False
        return numbers

    def fingerprint(self) -> Hashable:
        """A value that is equal exactly for colours that behave alike."""
        return plain(self.colour), plain(self.due)


def plain(colour: Colour) -> Any:
    """A colour as something that can be hashed, compared and printed."""
    return tuple(sorted(colour)) if isinstance(colour, frozenset) else colour
