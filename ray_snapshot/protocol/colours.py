"""White and red, when several snapshots may be open at once.

EWD864a colours machines, actions and messages for one snapshot. For several, a colour is the answer to "which snapshots
had the sender recorded when it sent this?", attached to every message and carried by every marker. Two schemes:

- `Numbered`: numbers come from one coordinator in rising order, and who records n records every lower number at the
  same instant. Then one number says it all, and it may travel on things that are not FIFO with the channels (replies,
  creations): a message is white for n if its number is below n.
- `Independent`: each snapshot spreads by its own markers alone, as in the 1985 paper; a colour is the set of snapshots
  recorded. Needs FIFO for everything, and no coordinator.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

Colour = Any
"""An int under `Numbered`, a frozenset of ints under `Independent`."""


class Colours(Protocol):
    """What the protocol asks of a colour scheme."""

    @property
    def white(self) -> Any:
        """The colour of a party that has recorded nothing."""

    def is_red(self, colour: Colour, number: int) -> bool: ...

    def joined(self, one: Colour, other: Colour) -> Colour: ...

    def recorded(self, colour: Colour, numbers: Iterable[int]) -> Colour: ...

    def newly_red(self, old: Colour, new: Colour) -> tuple[int, ...]: ...


class Numbered:
    """A colour is the highest number recorded; recording n records every lower number too."""

    white = 0

    def is_red(self, colour: int, number: int) -> bool:
        """Whether a message of this colour was sent after its sender recorded snapshot `number`."""
        return colour >= number

    def joined(self, one: int, other: int) -> int:
        """The colour that has recorded whatever either has."""
        return max(one, other)

    def recorded(self, colour: int, numbers: Iterable[int]) -> int:
        """The colour after recording `numbers`."""
        return max(colour, *numbers)

    def newly_red(self, old: int, new: int) -> tuple[int, ...]:
        """The numbers that are red in `new` and white in `old`, rising."""
        return tuple(range(old + 1, new + 1))


class Independent:
    """A colour is the set of numbers recorded; each is recorded by its own marker."""

    white: frozenset[int] = frozenset()

    def is_red(self, colour: frozenset[int], number: int) -> bool:
        """Whether a message of this colour was sent after its sender recorded snapshot `number`."""
        return number in colour

    def joined(self, one: frozenset[int], other: frozenset[int]) -> frozenset[int]:
        """The colour that has recorded whatever either has."""
        return one | other

    def recorded(self, colour: frozenset[int], numbers: Iterable[int]) -> frozenset[int]:
        """The colour after recording `numbers`."""
        return colour.union(numbers)

    def newly_red(self, old: frozenset[int], new: frozenset[int]) -> tuple[int, ...]:
        """The numbers that are red in `new` and white in `old`, rising."""
        return tuple(sorted(new - old))
