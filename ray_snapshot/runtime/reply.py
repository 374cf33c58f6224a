"""Replies of calls: an envelope that turns into the bare value where it is read, and tells that process the colour.

A reply is no message on a link, so no marker goes before it; whoever reads it may still be white when its sender was red.
The colour in the envelope closes that: the reader's host turns red before the value is used.
"""

from __future__ import annotations

from typing import Any

from ray_snapshot.protocol.colours import Colour
from ray_snapshot.runtime.handles import POSTS


class Reply:
    """A method's result on its way; pickles as a call that returns the bare value."""

    __slots__ = ("colour", "run_id", "value")

    def __init__(self, run_id: str, colour: Colour, value: Any) -> None:
        self.run_id = run_id
        self.colour = colour
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        return accept, (self.run_id, self.colour, self.value)


class Mark:
    """Rides on an exception's attributes and does for it what `Reply` does for a value."""

    def __init__(self, run_id: str, colour: Colour) -> None:
        self.run_id = run_id
        self.colour = colour

    def __reduce__(self) -> tuple[Any, ...]:
        return accept, (self.run_id, self.colour, None)


def accept(run_id: str, colour: Colour, value: Any) -> Any:
    """A reply is read in this process: its colour first."""
    post: Any = POSTS.get(run_id)
    if post is not None:
        post.heard(colour)
    return value


def marked(error: Exception, run_id: str, colour: Colour) -> Exception:
    """The exception, with its sender's colour on it; as it is where it takes no attributes."""
    try:
        error.__dict__["__ray_snapshot__"] = Mark(run_id, colour)
    except AttributeError:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
