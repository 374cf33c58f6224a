"""Values as bytes: equal values give equal bytes, in every process, and each `decoded` gives fresh objects.

A pickle is nearly that. What is missing: sets are written in the order of their hashes, attributes in the order in which they
were first set, and whether two equal texts are one object shows. So plain values go through the C pickler without its memo,
all others through a pickler in Python that sorts sets and attributes and remembers only what can change. What cannot be
pickled at all is kept by reference and named (`Encoded.opaque`); classes and functions that no module holds are kept by
reference, too. Never imports Ray.
"""

from __future__ import annotations

import datetime
import decimal
import enum
import fractions
import io
import pickle
import sys
import types
from dataclasses import dataclass
from typing import Any

from ray_snapshot.runtime.handles import MachineHandle
from ray_snapshot.testing.refs import CallRef

_ATOMS = frozenset({int, float, str, bool, bytes, complex, type(None), MachineHandle})
_UNCHANGING = _ATOMS | {
    tuple, frozenset, range, type, enum.EnumType, types.FunctionType, types.BuiltinFunctionType, CallRef,
    decimal.Decimal, fractions.Fraction, datetime.datetime, datetime.date, datetime.time, datetime.timedelta,
}  # fmt: skip
"""Whether two of these are one object shows nowhere."""


@dataclass(frozen=True, slots=True)
class Encoded:
    """A value as bytes."""

    data: bytes
    refs: frozenset[tuple[str, int]] = frozenset()
    """The calls whose results it refers to: (caller, number)."""
    opaque: tuple[str, ...] = ()
    """The types of what could not be pickled and is shared between all copies."""


_KEPT: list[Any] = []
"""What is kept by reference."""
_PLACES: dict[int, int] = {}
"""By `id` of what is kept: its place."""


def kept(place: int) -> Any:
    """What is kept by reference there."""
    return _KEPT[place]


def _place(item: Any) -> int:
    found = _PLACES.get(id(item))
    if found is None:
        found = _PLACES[id(item)] = len(_KEPT)
        _KEPT.append(item)
    return found


class _Canonical(pickle._Pickler):
    """The pickler in Python."""

    def __init__(self, buffer: io.BytesIO) -> None:
        super().__init__(buffer, 5)
        self.refs: set[tuple[str, int]] = set()
        self.opaque: list[str] = []

    def memoize(self, item: Any) -> None:
        """Remember what can change, and nothing else."""
        if type(item) not in _UNCHANGING:
            super().memoize(item)  # type: ignore[misc]

    def reducer_override(self, item: Any) -> Any:
        """How what is no plain value is built again."""
        kind = type(item)
        if kind in _ATOMS or kind in (list, dict, tuple):
            return NotImplemented
        if kind is set or kind is frozenset:
            return kind, (_sorted(item),)
        if kind is CallRef:
            self.refs.add(item.key)
            return NotImplemented
        if isinstance(item, type | types.FunctionType):
            return NotImplemented if _is_importable(item) else (kept, (_place(item),))
        try:
            reduced = item.__reduce_ex__(5)
        except Exception:  # a lock, a file, a generator
            self.opaque.append(kind.__qualname__)
            return kept, (_place(item),)
        return _without_order(item, reduced)


def _sorted(items: Any) -> list[Any]:
    return sorted(items, key=lambda one: encoded(one).data)


def _without_order(item: Any, reduced: Any) -> Any:
    """How an object is built again: the items of a set of a class of its own, and attributes, are sorted."""
    if not isinstance(reduced, tuple):
        return NotImplemented
    parts = [*reduced]
    if isinstance(item, set | frozenset) and len(parts[1]) == 1 and isinstance(parts[1][0], list):
        parts[1] = (_sorted(parts[1][0]),)
    if (
        len(parts) > 2
        and getattr(type(item), "__getstate__", None) is object.__getstate__
        and not hasattr(item, "__setstate__")
    ):
        parts[2] = _by_name(parts[2])
    return tuple(parts)


def _by_name(state: Any) -> Any:
    """Attributes in the order of their names: the order in which they were set is no part of a state."""
    if isinstance(state, tuple):
        return tuple(_by_name(part) for part in state)
    return (
        dict(sorted(state.items()))
        if isinstance(state, dict) and all(isinstance(name, str) for name in state)
        else state
    )


def _is_importable(item: Any) -> bool:
    found: Any = sys.modules.get(getattr(item, "__module__", None) or "")
    for part in item.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is item


def _is_plain(value: Any, seen: set[int]) -> bool:
    """Whether a value is made of plain values, no list or dict of which is in it twice."""
    kind = type(value)
    if kind in _ATOMS:
        return True
    if kind is dict:
        if id(value) in seen or not all(type(key) in _ATOMS for key in value):
            return False
        seen.add(id(value))
        return all(type(item) in _ATOMS or _is_plain(item, seen) for item in value.values())
    if kind is list:
        if id(value) in seen:
            return False
        seen.add(id(value))
    elif kind is not tuple:
        return False
    return all(type(item) in _ATOMS or _is_plain(item, seen) for item in value)


def encoded(value: Any) -> Encoded:
    """A value as bytes; raises what its own pickling hooks raise."""
    buffer = io.BytesIO()
    if _is_plain(value, set()):
        plain = pickle.Pickler(buffer, 5)
        plain.fast = True
        plain.dump(value)
        return Encoded(buffer.getvalue())
    pickler = _Canonical(buffer)
    pickler.dump(value)
    return Encoded(buffer.getvalue(), frozenset(pickler.refs), tuple(pickler.opaque))


def decoded(data: bytes) -> Any:
    """Fresh objects."""
    return pickle.loads(data)


def state_of(body: Any) -> Any:
    """All attributes of a machine, by name: its dict, or (dict, slots)."""
    return _by_name(object.__getstate__(body))


def fill(body: Any, state: Any) -> None:
    """Give an empty machine its attributes."""
    plain, slots = state if isinstance(state, tuple) else (state, None)
    if plain:
        body.__dict__.update(plain)
    for name, value in (slots or {}).items():
        setattr(body, name, value)
