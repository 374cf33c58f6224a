"""An actor's state, and the arguments of its calls, as bytes in which a handle stands for its actor by name.

Taken where the state is copied or the call is made, opened in the process that takes it back; both only in an app that is
watched with `checkpoint=True`. An ObjectRef is an obstacle and is never pickled: Ray would pin what it names for good.
Imports nothing of the process that uses it.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import ray
from ray import cloudpickle
from ray.actor import ActorHandle

from ray_snapshot.runtime.checkpointing import StatePickler, pickled
from ray_snapshot.runtime.payload import Foreign, PlainPickler

_ITEMS = (dict, list, set, frozenset, tuple, bytearray, BaseException)
"""Classes whose instances hold more than attributes; others say so by a `__reduce__` of their own (a deque, an array)."""


class SavedValue(NamedTuple):
    """A value as bytes, or why there are none."""

    blob: bytes | None
    names: tuple[str, ...] = ()
    """The actors of the handles in it."""
    obstacle: str | None = None


class _ByName(StatePickler):
    """Handles become names; what else lives only as long as its owner is refused."""

    def __init__(self, file: Any, name_of: Callable[[Any], str], found: dict[str, Any]) -> None:
        super().__init__(file, protocol=5)
        self.name_of = name_of
        self.found = found

    def persistent_id(self, item: Any) -> str | None:
        """The name that stands for a handle."""
        if not isinstance(item, ActorHandle):
            return None
        name = self.name_of(item)
        self.found[name] = item
        return name


def kept(value: Any, what: str, name_of: Callable[[Any], str]) -> tuple[SavedValue, dict[str, Any]]:
    """`value` as bytes, and the handles in it by name; `what` names the value in an obstacle. Raises nothing."""
    handles: dict[str, Any] = {}

    def dumps(item: Any) -> bytes:
        buffer = io.BytesIO()
        try:
            PlainPickler(buffer, protocol=5).dump(item)
        except Foreign:
            buffer = io.BytesIO()
            _ByName(buffer, name_of, handles).dump(item)
        return buffer.getvalue()

    blob, obstacle = pickled(value, what, dumps)
    return SavedValue(blob, tuple(handles), obstacle), handles


class _Whole(cloudpickle.CloudPickler):  # type: ignore[misc]
    """Handles and refs become numbers."""

    def __init__(self, file: Any, items: list[Any]) -> None:
        super().__init__(file, protocol=5)
        self.items = items

    def persistent_id(self, item: Any) -> int | None:
        """The number that stands for a handle or a ref."""
        if not isinstance(item, (ActorHandle, ray.ObjectRef)):
            return None
        self.items.append(item)
        return len(self.items) - 1


def whole(value: Any) -> tuple[bytes, list[Any]]:
    """`value` as bytes, and the handles and refs in it; for this process only. Raises what pickling it raises."""
    buffer, items = io.BytesIO(), list[Any]()
    try:
        PlainPickler(buffer, protocol=5).dump(value)
    except Foreign:
        buffer = io.BytesIO()
        _Whole(buffer, items).dump(value)
    return buffer.getvalue(), items


def whole_again(blob: bytes, items: Sequence[Any]) -> Any:
    """The value, with these handles and refs in it."""
    return _Opening(blob, items.__getitem__).load()


class _Opening(pickle.Unpickler):
    def __init__(self, blob: bytes, actor: Callable[[Any], Any]) -> None:
        super().__init__(io.BytesIO(blob))
        self.actor = actor

    def persistent_load(self, pid: Any) -> Any:
        """What that stands for."""
        return self.actor(pid)


def opened(blob: bytes, actor: Callable[[str], Any]) -> Any:
    """The value; `actor` finds the handle for a name."""
    return _Opening(blob, actor).load()


# ---- an actor's state ----------------------------------------------------------------------------------------------------


def state_of(body: Any) -> Any:
    """What an actor is restored from: what its `snapshot_state()` says, else what pickle would ask it for.

    Raises `TypeError` for one that holds more than that.
    """
    if _has_hooks(body):
        return body.snapshot_state()
    if (kind := _kind_with_items(body)) is not None and not _is_asked(body):
        raise TypeError(
            f"it is a {kind.__name__}, whose items are no attributes: give it __getstate__ and __setstate__"
        )
    return body.__getstate__()


def set_state(body: Any, state: Any) -> None:
    """Give an actor that state back.

    Attributes that came since are gone; those that its own `__getstate__` leaves out stay as the constructor made them.
    """
    if _has_hooks(body):
        body.restore_state(state)
        return
    if hasattr(type(body), "__setstate__"):
        body.__setstate__(state)
        return
    attributes, slots = state if isinstance(state, tuple) and len(state) == 2 else (state, None)
    own = getattr(body, "__dict__", {})
    if not _is_asked(body):
        own.clear()
    own.update(attributes or {})
    for name, value in (slots or {}).items():
        setattr(body, name, value)


def _kind_with_items(body: Any) -> type | None:
    """The class of its own that holds more than attributes; None if there is none."""
    kinds = (
        kind for kind in type(body).__mro__[:-1] if kind in _ITEMS or {"__reduce__", "__reduce_ex__"} & set(vars(kind))
    )
    return next(kinds, None)


def _has_hooks(body: Any) -> bool:
    return hasattr(type(body), "snapshot_state") and hasattr(type(body), "restore_state")


def _is_asked(body: Any) -> bool:
    """Whether the actor's class defines `__getstate__`, and so says itself what its state is."""
    own: Any = type(body).__getstate__
    return own is not object.__getstate__
