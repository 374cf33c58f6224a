"""Replies of calls: an envelope that turns into the bare value where it is read, and tells that process the colour.

A reply is no message on a link, so no marker goes before it; the machine that reads it may be white when its sender was
red. The colour in the envelope closes that: the reader's host turns red before the value is used. A result that can
change is pickled within the action that made it: what the reader gets is the result of that moment. Large buffers
(numpy) travel beside the pickle and are not copied again where they are read.
"""

from __future__ import annotations

import pickle
from typing import Any

from ray import cloudpickle

from ray_snapshot.protocol.colours import Colour
from ray_snapshot.runtime.faults import text_of
from ray_snapshot.runtime.handles import ENTRANCES, POSTS
from ray_snapshot.runtime.payload import ATOMS


class Reply:
    """A method's result on its way; pickles as a call that returns the bare value."""

    __slots__ = ("buffers", "colour", "run_id", "value")

    def __init__(self, run_id: str, colour: Colour, value: Any) -> None:
        """Raises what pickling the value raises."""
        self.run_id = run_id
        self.colour = colour
        self.buffers: list[bytes] | None = None
        self.value = value
        if type(value) not in ATOMS:
            found: list[pickle.PickleBuffer] = []
            self.value = cloudpickle.dumps(value, protocol=5, buffer_callback=found.append)
            self.buffers = [buffer.raw().tobytes() for buffer in found]

    def __reduce__(self) -> tuple[Any, ...]:
        if self.buffers is None:
            return accept, (self.run_id, self.colour, self.value)
        buffers = [pickle.PickleBuffer(item) for item in self.buffers]
        return accept_pickled, (self.run_id, self.colour, self.value, buffers)


class RaisedError(Exception):
    """What a called method raised, on its way; arrives as the bare exception, and does for it what `Reply` does for a value."""

    def __init__(self, run_id: str, colour: Colour, error: Exception) -> None:
        super().__init__(text_of(error))
        self.run_id = run_id
        self.colour = colour
        self.error = _picklable(error)
        self.__cause__ = error

    def __reduce__(self) -> tuple[Any, ...]:
        return accept, (self.run_id, self.colour, self.error)


def accept(run_id: str, colour: Colour, value: Any) -> Any:
    """A reply is read in this process: its colour first."""
    post: Any = POSTS.get(run_id)
    if post is not None:
        post.heard(colour)
    for entrance in ENTRANCES if post is None else ():
        entrance.heard(run_id, colour)
    return value


def accept_pickled(run_id: str, colour: Colour, blob: bytes, buffers: list[Any]) -> Any:
    """`accept` for a result that was pickled when it was made."""
    return accept(run_id, colour, pickle.loads(blob, buffers=buffers))


def _picklable(error: Exception) -> Exception:
    try:
        cloudpickle.loads(cloudpickle.dumps(error))
    except Exception:  # many exceptions cannot be rebuilt; their text still tells
        return RuntimeError(f"{type(error).__name__}: {text_of(error)}")
    return error
