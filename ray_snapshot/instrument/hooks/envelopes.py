"""How a reply carries the colour of its end: a result in an envelope, an exception with an attribute.

`calls` puts them on, `tracking` reads them; imports neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ray_snapshot.instrument.guard import ours
from ray_snapshot.instrument.here import hear_early, here


class Enveloped:
    """A result on its way: unpickled, it is the bare result, and the reading process has heard its colour."""

    __slots__ = ("colour", "value")

    def __init__(self, value: Any, colour: int) -> None:
        self.value = value
        self.colour = colour

    def __reduce__(self) -> tuple[Any, ...]:
        return opened, (self.value, self.colour)


def enveloped(result: Any, results: Any, colour: int) -> Any:
    """What a call gives, so that it carries the colour; `results`: its `num_returns`. What Ray iterates over stays as it is."""
    if results in (None, 1) and not isinstance(result, Iterator):
        return Enveloped(result, colour)
    if isinstance(results, int) and isinstance(result, (tuple, list)):
        return [Enveloped(item, colour) for item in result]
    return result


def opened(value: Any, colour: int) -> Any:
    """What a result is where it is read."""
    ours(_heard, colour)
    return value


def _heard(colour: int) -> None:
    process = here()
    if process is not None:
        process.heard(colour)
    else:
        hear_early(colour)


_COLOUR = "_ray_snapshot_colour"


def colour_error(error: BaseException, colour: int) -> None:
    """Let an exception carry a colour to the process that reads it."""
    try:
        setattr(error, _COLOUR, colour)
    except (
        Exception
    ):  # an exception with slots, or whose class forbids it: its reader hears of it with the next message
        return


def colour_of_error(error: BaseException) -> int:
    """The colour that an exception brought along."""
    cause = getattr(error, "cause", None)
    return int(max(getattr(error, _COLOUR, 0), getattr(cause, _COLOUR, 0)))
