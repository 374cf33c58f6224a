"""Which numbers of a channel have been accepted, when they come in any order, with holes, and more than once.

A set of numbers kept as ranges, and a floor: everything below the floor is forgotten, because the sender has said that it
knows the fate of all of it. In order, a million numbers are one range. Imports the standard library only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator

Ranges = tuple[tuple[int, int], ...]
"""(first, last) pairs, both inside, rising, none touching the next."""


class Numbers:
    """A set of whole numbers, small where they lie close together."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self, numbers: Iterable[int] = ()) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        for number in numbers:
            self.add(number)

    def add(self, number: int) -> bool:
        """Put it in; False if it was in. Constant time in order, else as long as there are ranges."""
        lasts = self._lasts
        if lasts and lasts[-1] == number - 1:
            lasts[-1] = number
            return True
        at = bisect_right(self._firsts, number)
        if at and lasts[at - 1] >= number:
            return False
        touches_left = at > 0 and lasts[at - 1] == number - 1
        touches_right = at < len(lasts) and self._firsts[at] == number + 1
        if touches_left and touches_right:
            lasts[at - 1] = lasts[at]
            del self._firsts[at], lasts[at]
        elif touches_left:
            lasts[at - 1] = number
        elif touches_right:
            self._firsts[at] = number
        else:
            self._firsts.insert(at, number)
            lasts.insert(at, number)
        return True

    def forget_below(self, floor: int) -> None:
        """Take out every number below `floor`."""
        firsts, lasts = self._firsts, self._lasts
        if not firsts or firsts[0] >= floor:
            return
        at = bisect_right(firsts, floor - 1)
        if lasts[at - 1] >= floor:
            at -= 1
            firsts[at] = floor
        del firsts[:at], lasts[:at]

    def __contains__(self, number: int) -> bool:
        at = bisect_right(self._firsts, number)
        return at > 0 and self._lasts[at - 1] >= number

    def __bool__(self) -> bool:
        return bool(self._firsts)

    def ranges(self) -> Ranges:
        """The set, as (first, last) pairs."""
        return tuple(zip(self._firsts, self._lasts, strict=True))


MOST_RANGES = 100


class Errors:
    """Which calls of one channel have ended in an error: the latest, in at most a hundred ranges."""

    __slots__ = ("numbers", "since")

    def __init__(self) -> None:
        self.numbers = Numbers()
        self.since = 0
        """What lies below and is not among the numbers may be an error or a reply: it is not known."""

    def add(self, number: int) -> None:
        """This call has ended in an error."""
        if number < self.since:
            return
        self.numbers.add(number)
        firsts = self.numbers._firsts
        if len(firsts) > MOST_RANGES:
            self.since = max(self.since, firsts[MOST_RANGES // 2])
            self.numbers.forget_below(self.since)

    def may_be(self, number: int) -> None:
        """This call has ended in an error, and may be run again: how it ends is not known, nor of those before it."""
        self.since = max(self.since, number + 1)


def told(errors: Errors | None) -> tuple[Ranges, int]:
    """What a report says of them: (calls that have ended in one, the number below which it is not known)."""
    return ((), 0) if errors is None else (errors.numbers.ranges(), errors.since)


class Acceptance:
    """The receiving end of one channel: what was accepted at or above the floor, and how many in all."""

    __slots__ = ("accepted", "count", "errors", "floor")

    def __init__(self) -> None:
        self.accepted = Numbers()
        self.floor = 0
        self.count = 0
        """Different numbers accepted; one that was settled, and arrives below the floor, is not among them."""
        self.errors: Errors | None = None
        """Of the calls that were accepted; None: there was none."""

    def accept(self, number: int, floor: int) -> bool:
        """Accept `number`, sent when the sender's floor was `floor`; False if it is a repetition, or settled long ago."""
        is_new = number >= self.floor and self.accepted.add(number)
        self.count += is_new
        if floor > self.floor:
            self.floor = floor
            self.accepted.forget_below(floor)
        return is_new


def numbers_in(ranges: Iterable[tuple[int, int]]) -> Iterator[int]:
    """Every number of the ranges, rising."""
    for first, last in ranges:
        yield from range(first, last + 1)


def is_in(ranges: Ranges, number: int) -> bool:
    """Whether one of the ranges has it."""
    at = bisect_right(ranges, (number, number))
    return (at > 0 and ranges[at - 1][1] >= number) or (at < len(ranges) and ranges[at][0] == number)
