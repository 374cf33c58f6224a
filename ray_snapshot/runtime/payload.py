"""The arguments of a message, isolated at the moment of sending.

What lies in a mailbox or a recorded channel must not change when the sender goes on to mutate its objects. Arguments that
cannot change are kept as they are (and pickled with their whole batch, if the message leaves the process); everything
else is pickled at once and unpickled when the message is accepted, within one host too.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

from ray import cloudpickle

from ray_snapshot import redaction
from ray_snapshot.errors import UnpicklableMessageError
from ray_snapshot.runtime.faults import named
from ray_snapshot.runtime.handles import MachineHandle

ATOMS = frozenset({int, float, str, bool, bytes, complex, type(None), MachineHandle})
"""Types whose values never change."""


class Pickled(bytes):
    """(args, kwargs), pickled."""

    __slots__ = ()


class Foreign(Exception):
    """Met something that only cloudpickle ships right (a class or function may live in the caller's script)."""


class PlainPickler(pickle.Pickler):
    """The C pickler for containers of plain values, at a tenth of cloudpickle's price."""

    def reducer_override(self, item: Any) -> Any:
        if type(item) is MachineHandle or type(item).__module__ == "numpy":
            return NotImplemented
        raise Foreign


def dumps(value: Any, pickler: type[pickle.Pickler] = cloudpickle.CloudPickler) -> bytes:
    """Pickle a value, by cloudpickle (or such a pickler) if it holds more than plain values."""
    buffer = io.BytesIO()
    try:
        PlainPickler(buffer, protocol=5).dump(value)
    except Foreign:
        buffer = io.BytesIO()
        pickler(buffer, protocol=5).dump(value)
    return buffer.getvalue()


def isolate(machine: str, target: str, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What travels for (args, kwargs): the tuple itself if nothing in it can change, else `Pickled`.

    Raises `UnpicklableMessageError` naming sender, target and method; then nothing was sent.
    """
    if not kwargs and all(type(item) in ATOMS for item in args):
        return args
    try:
        return Pickled(dumps((args, kwargs)))
    except Exception as error:
        raise UnpicklableMessageError(
            f"{machine} -> {target}.{method}: an argument cannot be pickled ({named(error)});"
            " send plain values, or what pickle can rebuild",
            machine=machine,
            method=method,
        ) from error


def opened(payload: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """(args, kwargs) of a payload; each call gives fresh objects."""
    if type(payload) is tuple:
        return payload, {}
    args, kwargs = pickle.loads(payload)
    return args, kwargs


def recorded_args(payload: Any, method: str) -> tuple[list[Any], int]:
    """What the snapshot holds of a payload for a method, and its size in bytes; what cannot be rebuilt here is said so."""
    if type(payload) is tuple:
        return redaction.arguments(method, payload), sum(
            len(item) if isinstance(item, (str, bytes)) else 8 for item in payload
        )
    try:
        args, kwargs = opened(payload)
    except Exception as error:  # the recording goes on; the message itself is untouched
        return [{"$unreadable": named(error)}], len(payload)
    listed = redaction.arguments(method, args)
    return [*listed, {"$kwargs": redaction.keywords(method, kwargs)}] if kwargs else listed, len(payload)
