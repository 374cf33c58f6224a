"""Values as bytes: equal values give equal bytes, in every process, and each `decoded` gives fresh objects.

A pickle is nearly that. What is missing: sets are written in the order of their hashes, attributes in the order in which they
were first set, and whether two equal texts are one object shows. So plain values go through the C pickler without its memo,
all others through a pickler in Python that sorts sets and attributes and remembers only what can change. What cannot be
pickled at all is kept by reference and named (`Encoded.opaque`). A function that no module holds is pickled by value, as
cloudpickle does on Ray: its code, defaults and closure. A class that no module holds stands for all that were made by the same
lines with the same values. Never imports Ray.
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
import weakref
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ray_snapshot.runtime.handles import MachineHandle
from ray_snapshot.runtime.staged_calls import CallRef

_ATOMS = frozenset({int, float, str, bool, bytes, complex, type(None), MachineHandle})
_UNCHANGING = _ATOMS | {
    tuple, frozenset, range, type, enum.EnumType, types.FunctionType, types.BuiltinFunctionType, CallRef,
    decimal.Decimal, fractions.Fraction, datetime.datetime, datetime.date, datetime.time, datetime.timedelta,
}  # fmt: skip
"""Whether two of these are one object shows nowhere."""


@dataclass(slots=True, unsafe_hash=True)
class Encoded:
    """A value as bytes."""

    data: bytes
    refs: frozenset[tuple[str, int]] = frozenset()
    """The calls whose results it refers to: (caller, number)."""
    opaque: tuple[str, ...] = ()
    """The types of what could not be pickled and is shared between all copies."""


Loose = bytes | tuple[Any, ...] | dict[str, Any]
"""A value as bytes; or atoms themselves: the arguments of a message, or a machine's attributes in the order of their names.

In one run most values are never compared, so their bytes are made where somebody asks for them (`as_bytes`)."""

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


_CODES: dict[types.CodeType, int] = {}
_CLASSES: weakref.WeakKeyDictionary[type, int] = weakref.WeakKeyDictionary()
_LIKE: dict[bytes, int] = {}
"""By what a class is made of: the place of the first such class."""
_BEING_READ: dict[type, int] = {}
"""Classes that are being looked at: their own methods may name them."""
_OF_EVERY_CLASS = frozenset(
    {"__dict__", "__weakref__", "__doc__", "__annotations__", "__annotate__", "__annotate_func__", "_abc_impl"}
)


def canonical(kind: type) -> type:
    """The class that stands for all that were made by the same lines with the same values; itself, if a module holds it."""
    found: type = kind if _is_importable(kind) else kept(_place_of_class(kind))
    return found


def _place_of_class(kind: type) -> int:
    found = _CLASSES.get(kind)
    if found is None:
        place = len(_KEPT)
        _KEPT.append(kind)
        made = _made_of(kind)
        found = _CLASSES[kind] = place if made is None else _LIKE.setdefault(made, place)
    return found


def _made_of(kind: type) -> bytes | None:
    """What tells a class that no module holds from others; None if that cannot be told."""
    parts = {
        name: value
        for name, value in vars(kind).items()
        if name not in _OF_EVERY_CLASS
        and not isinstance(value, types.MemberDescriptorType | types.GetSetDescriptorType)
    }
    _BEING_READ[kind] = len(_BEING_READ)
    try:
        made = encoded((kind.__module__, kind.__qualname__, kind.__bases__, _by_name(parts)))
    except Exception:  # pickling hooks of what it holds
        return None
    finally:
        del _BEING_READ[kind]
    return None if made.opaque else made.data


def _itself(depth: int) -> int:
    """Stands for a class in what it is made of."""
    return depth


def _by_value(function: types.FunctionType) -> tuple[Any, ...]:
    """How a function that no module holds is built again."""
    made = function.__code__, _place(function.__globals__), function.__name__, function.__closure__
    state = (
        function.__defaults__,
        function.__kwdefaults__,
        function.__qualname__,
        function.__module__,
        function.__dict__,
    )
    return _function, made, state, None, None, _fill_function


def _function(
    code: types.CodeType, place: int, name: str, closure: tuple[types.CellType, ...] | None
) -> types.FunctionType:
    return types.FunctionType(code, kept(place), name, None, closure)


def _fill_function(function: types.FunctionType, state: tuple[Any, ...]) -> None:
    function.__defaults__, function.__kwdefaults__, function.__qualname__, function.__module__, more = state
    function.__dict__.update(more)


def _contents(cell: types.CellType) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:  # it is still empty
        return ()


def _fill_cell(cell: types.CellType, contents: tuple[Any, ...]) -> None:
    for item in contents:
        cell.cell_contents = item


def _place_of_code(code: types.CodeType) -> int:
    found = _CODES.get(code)
    if found is None:
        found = _CODES[code] = len(_KEPT)
        _KEPT.append(code)
    return found


class _Canonical(pickle._Pickler):
    """The pickler in Python."""

    def __init__(self, buffer: io.BytesIO) -> None:
        super().__init__(buffer, 5)
        self.refs: set[tuple[str, int]] = set()
        self.opaque: list[str] = []

    def memoize(self, item: Any) -> None:
        """Remember what can change, and nothing else."""
        kind = type(item)
        if kind not in _UNCHANGING or (kind is types.FunctionType and not _is_importable(item)):
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
        if isinstance(item, type):
            if item in _BEING_READ:
                return _itself, (_BEING_READ[item],)
            return NotImplemented if _is_importable(item) else (kept, (_place_of_class(item),))
        if kind is types.FunctionType:
            return NotImplemented if _is_importable(item) else _by_value(item)
        if kind is types.CellType:
            return types.CellType, (), _contents(item), None, None, _fill_cell
        if kind is types.CodeType:
            return kept, (_place_of_code(item),)
        if kind in (staticmethod, classmethod):
            return kind, (item.__func__,)
        if kind is types.MappingProxyType:
            return kind, (dict(item),)
        if kind is property:
            return kind, (item.fget, item.fset, item.fdel)
        try:
            reduced = item.__reduce_ex__(5)
        except Exception:  # a lock, a file, a generator
            self.opaque.append(kind.__qualname__)
            return kept, (_place(item),)
        return _without_order(item, reduced)


def _sorted(items: Any) -> list[Any]:
    return sorted(items, key=lambda one: encoded(one).data)


_GETSTATE: Any = object.__getstate__


def _without_order(item: Any, reduced: Any) -> Any:
    """How an object is built again: the items of a set of a class of its own, and attributes, are sorted."""
    if not isinstance(reduced, tuple):
        return NotImplemented
    parts = [*reduced]
    if isinstance(item, set | frozenset) and len(parts[1]) == 1 and isinstance(parts[1][0], list):
        parts[1] = (_sorted(parts[1][0]),)
    if len(parts) > 2 and type(item).__getstate__ is _GETSTATE and not hasattr(item, "__setstate__"):
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
    items: Any = value
    if kind is dict:
        if id(value) in seen or not _ATOMS.issuperset(map(type, value)):
            return False
        seen.add(id(value))
        items = value.values()
    elif kind is list:
        if id(value) in seen:
            return False
        seen.add(id(value))
    elif kind is not tuple:
        return False
    if _ATOMS.issuperset(map(type, items)):
        return True
    return all(type(item) in _ATOMS or _is_plain(item, seen) for item in items)


def encoded(value: Any) -> Encoded:
    """A value as bytes; raises what its own pickling hooks raise."""
    if _is_plain(value, set()):
        return Encoded(_dumped(value))
    buffer = io.BytesIO()
    pickler = _Canonical(buffer)
    pickler.dump(value)
    return Encoded(buffer.getvalue(), frozenset(pickler.refs), tuple(pickler.opaque))


def are_atoms(values: Iterable[Any]) -> bool:
    """Whether these are texts, numbers, handles and the like: then nothing tells one that is shared from a copy."""
    return _ATOMS.issuperset(map(type, values))


def opened(value: Loose) -> Any:
    """Fresh objects of what may be bytes; arguments as (args, kwargs)."""
    kind = type(value)
    if kind is bytes:
        return pickle.loads(value)  # type: ignore[arg-type]
    return (value, {}) if kind is tuple else dict(value)  # type: ignore[arg-type]


def as_bytes(value: Loose) -> bytes:
    """The bytes of what may be bytes: of arguments those of (args, kwargs)."""
    kind = type(value)
    if kind is bytes:
        return value  # type: ignore[return-value]
    return _dumped((value, {}) if kind is tuple else value)


def _dumped(value: Any) -> bytes:
    buffer = io.BytesIO()
    plain = pickle.Pickler(buffer, 5)
    plain.fast = True
    plain.dump(value)
    return buffer.getvalue()


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
