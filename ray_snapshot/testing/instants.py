"""When the timers of one machine were set, as far as it matters: which of two timers may come first.

A *clock of bounds* (a difference bound matrix; Dill 1989, "Timing assumptions and verification of finite-state concurrent
systems") holds, of some instants of a machine and of now, how much later one is at least than the other. A message may take
any time, so what a machine does next may be any time later: a timer of 1 s that is set first comes before one of 0.5 s that
another action sets, or behind it. Once one has come first, that says something of the instants, and so of all other timers.

Bounds are integers: nanoseconds times two, plus one where the difference is larger than that, not equal. The last instant is
now. No bounds hold between instants of unlike machines: their timers are in unlike channels.
"""

from __future__ import annotations

from collections.abc import Sequence

Bounds = tuple[tuple[int, ...], ...]
"""`bounds[a][b]`: instant b is at least so much later than a."""

ANY = -(1 << 62)
"""No bound."""
NOW_ALONE: Bounds = ((0,),)


def bound(seconds: float, *, is_more: bool = False) -> int:
    """A bound; `is_more`: the difference is larger, not equal."""
    return 2 * round(seconds * 1e9) + is_more


def _plus(one: int, other: int) -> int:
    if ANY in (one, other):
        return ANY
    return ((one & ~1) + (other & ~1)) | ((one | other) & 1)


def begun(bounds: Bounds) -> Bounds:
    """One more instant in front of now, at which a machine acts: now, until more time passes."""
    rows = [(*row[:-1], row[-1], row[-1]) for row in bounds[:-1]]
    return (*rows, (*[ANY] * len(rows), 0, 0), (*[ANY] * len(rows), ANY, 0))


def passed(bounds: Bounds, instant: int, seconds: float) -> Bounds:
    """Now is so many seconds behind an instant, or more."""
    least = bound(seconds)
    return (*((*row[:-1], max(row[-1], _plus(row[instant], least))) for row in bounds[:-1]), bounds[-1])


def behind(bounds: Bounds, early: int, late: int, seconds: float, *, is_more: bool) -> Bounds | None:
    """`late` is `seconds` later than `early`, or more; None if that cannot be."""
    least = bound(seconds, is_more=is_more)
    if _plus(least, bounds[late][early]) > 0:
        return None
    return tuple(
        tuple(max(item, _plus(_plus(row[early], least), bounds[late][place])) for place, item in enumerate(row))
        for row in bounds
    )


def kept(bounds: Bounds, longest: Sequence[float | None]) -> Bounds:
    """Only the instants that something is still set at, each with its longest duration; None: nothing is.

    That an instant lies farther back than its longest timer takes tells nothing more: that timer is due.
    """
    places = [place for place, most in enumerate(longest) if most is not None]
    rows = []
    for place in places:
        most = bound(longest[place] or 0.0)
        row = bounds[place]
        rows.append(tuple(0 if other == place else min(row[other], most) for other in (*places, len(bounds) - 1)))
    return (*rows, (*[ANY] * len(places), 0))
