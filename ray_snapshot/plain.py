"""Any Python value reduced to plain lists, dictionaries, strings and numbers that strict JSON can hold.

One small function per kind of value; `_handler` chooses among them by type, and `Reducer` carries what bounds
the work: bytes left, depth, the containers that enclose this one. Numpy, pydantic and the like are recognised
by the names of their types, so nothing but the standard library is ever imported. No code of the program is
called: fields are read from `__dict__` and slots, subclasses of built-in types by the built-in's own methods.
"""

from __future__ import annotations

import array
import base64
import collections
import datetime
import decimal
import enum
import fractions
import functools
import hashlib
import itertools
import json
import math
import pathlib
import re
import types
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any

from ray_snapshot import redaction

LARGEST_INTEGER = 2**63 - 1
"""Integers up to here stay JSON numbers: beyond 64 bits many readers fail or round."""

MOST_DEPTH = 64
MOST_CONTAINERS = 1_000_000
"""Lists and dictionaries in one value, those that are shared counted each time: what bounds the time."""

HASHED_BYTES = 8_000_000
"""A digest of what was cut covers its first so many bytes; after eight digests a value gets no more."""

_HEAD_ITEMS = 1_000
_HEAD_REPR = 200
_CHUNK = 10_000
_FEW = 64
_MOST_SORTED = 100_000
_LONG = 1_000
_LONGEST_KEY = 10_000

Handler = Callable[["Reducer", Any], Any]


class Reducer:
    """Reduces one value; afterwards `truncated` tells whether something was left out.

    `bytes_cut`: about how much. `overflowed`: a container had more items than fit, and ends in a `$cut`.
    """

    __slots__ = (
        "above",
        "bytes_cut",
        "containers_left",
        "handlers",
        "hash_left",
        "left",
        "overflowed",
        "truncated",
    )

    def __init__(self, most_bytes: int) -> None:
        self.left = most_bytes
        self.truncated = False
        self.overflowed = False
        self.bytes_cut = 0
        self.hash_left = 8 * HASHED_BYTES
        self.containers_left = MOST_CONTAINERS
        self.above: dict[int, int] = {}
        self.handlers = _EXACT.copy()

    def reduce(self, value: Any) -> Any:
        """The plain form of `value`; what cannot be read becomes `{"$unreadable": type}`."""
        kind = type(value)
        try:
            handler = self.handlers.get(kind)
            if handler is None:
                handler = self.handlers[kind] = _handler(kind)
            return handler(self, value)
        except Exception as error:  # the value's fault, whatever it is: the rest must still be written
            self.truncated = True
            self.left -= 100
            return {"$unreadable": type_name(kind), "error": type(error).__name__}

    def inside(self, value: Any, reduce: Callable[[], Any]) -> Any:
        """`reduce()` with `value` as the container around it, unless it is its own ancestor or too deep."""
        self.left -= 2
        self.containers_left -= 1
        if self.containers_left < 0:
            self.left = 0
        identity, depth = id(value), len(self.above)
        if identity in self.above:
            return {"$cycle": depth - self.above[identity]}
        if depth >= MOST_DEPTH:
            self.truncated = True
            return {"$cut": "depth", "type": type_name(type(value))}
        self.above[identity] = depth
        try:
            return reduce()
        finally:
            del self.above[identity]

    def items(self, items: Iterable[Any], count: int) -> list[Any]:
        """The plain forms of `count` items, as many as fit."""
        found: list[Any] = []
        before = self.left
        for chunk in _chunks(items) if count > _CHUNK else (list(items),):
            cost = None if redaction.is_active else _plain_cost(chunk)
            if cost is not None and cost <= self.left:
                found += chunk
                self.left -= cost
                continue
            for item in chunk:
                if self.left <= 0:
                    break
                found.append(self.reduce(item))
                self.left -= 1
            if self.left <= 0:
                break
        if len(found) < count:
            found.append(self.overflow(count - len(found), len(found), before))
        return found

    def entries(self, pairs: Iterable[tuple[Any, Any]], count: int) -> dict[str, Any]:
        """The plain form of a dictionary's pairs; `{"$dict": [[key, value], ...]}` if its keys are no plain
        names.
        """
        keys: list[Any] = []
        values: list[Any] = []
        before = self.left
        listed = itertools.chain.from_iterable(_chunks(pairs)) if count > _CHUNK else list(pairs)
        for key, value in listed:
            if self.left <= 0:
                break
            keys.append(key)
            values.append(self.entry(key, value))
            self.left -= 4
        names = [_key_text(key) for key in keys]
        self.left -= sum(len(name) for name in names if name is not None)
        if None in names or len(set(names)) < len(names):
            entries = [[self.reduce(key), value] for key, value in zip(keys, values, strict=True)]
            found: dict[str, Any] = {"$dict": entries}
        else:
            found = dict(zip(names, values, strict=True))  # type: ignore[arg-type]
        if len(keys) < count:
            found["$cut"] = self.overflow(count - len(keys), len(keys), before)
        return found

    def entry(self, key: Any, value: Any) -> Any:
        """The plain form of what stands under a name."""
        if not redaction.is_active or not redaction.is_redacted(key):
            return self.reduce(value)
        redaction.learn(value)
        self.left -= 30
        return redaction.mark(key)

    def overflow(self, missing: int, done: int, left_before: int) -> dict[str, Any]:
        """What stands for `missing` items of a container after `done` of them used up the room."""
        self.truncated = self.overflowed = True
        self.bytes_cut += missing * max(2, (left_before - self.left) // max(1, done))
        return {"$cut": "items", "count": missing}

    def cut(self, kind: str, size: int, head: Any, raw: bytes | memoryview | None, **more: Any) -> dict[str, Any]:
        """What stands for one long string, blob or array; `size` is what its text would have taken, in
        bytes.
        """
        self.truncated = True
        self.bytes_cut += size
        self.left -= 2 * _HEAD_ITEMS
        digest = None
        if raw is not None and self.hash_left > 0:
            self.hash_left -= len(raw)
            digest = hashlib.sha256(raw).hexdigest()
        return {"$cut": kind, "head": head, "sha256": digest, **more}


def _chunks(items: Iterable[Any]) -> Iterator[list[Any]]:
    iterator = iter(items)
    while chunk := list(itertools.islice(iterator, _CHUNK)):
        yield chunk


def _plain_cost(chunk: list[Any]) -> int | None:
    """The length of the text of numbers or short strings that need no change; None for anything else."""
    kinds = set(map(type, chunk))
    if kinds == {int}:
        return len(str(chunk)) if min(chunk) >= -LARGEST_INTEGER and max(chunk) <= LARGEST_INTEGER else None
    if kinds == {float}:
        return len(str(chunk)) if all(map(math.isfinite, chunk)) else None
    if kinds == {str}:
        return sum(map(len, chunk)) + 3 * len(chunk)
    return None


def _plain_dict_cost(value: dict[Any, Any]) -> int | None:
    """The same of a small dictionary of ASCII names to numbers and short strings."""
    if dict.__len__(value) > _FEW:
        return None
    cost = 2
    for key, item in dict.items(value):
        kind = type(item)
        if type(key) is not str or not key.isascii() or len(key) > _LONG:
            return None
        if kind is int:
            cost += len(key) + 24
            if not -LARGEST_INTEGER <= item <= LARGEST_INTEGER:
                return None
        elif kind is str:
            cost += len(key) + 6 + len(item)
            if len(item) > _LONG:
                return None
        elif kind is bool or item is None:
            cost += len(key) + 9
        else:
            return None
    return cost


def _key_text(key: Any) -> str | None:
    kind = type(key)
    if kind is int and -LARGEST_INTEGER <= key <= LARGEST_INTEGER:
        return str(key)
    if not issubclass(kind, str) or issubclass(kind, enum.Enum) or len(key) > _LONGEST_KEY:
        return None
    text = redaction.scrubbed(str.__str__(key))
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


# Numbers and text


def _none(reducer: Reducer, value: Any) -> Any:
    reducer.left -= 4
    return value


def _integer(reducer: Reducer, value: int) -> Any:
    value = int.__pos__(value)
    bits = value.bit_length()
    if bits <= 63 and value >= -LARGEST_INTEGER:
        reducer.left -= 1 + bits // 3
        return value
    if bits // 3 > reducer.left:
        top = value >> (bits - 256)
        return reducer.cut("int", bits // 3, hex(top), None, bits=bits)
    reducer.left -= 12 + bits // 3
    return {"$int": str(value) if bits <= 2_000 else hex(value)}


def _float(reducer: Reducer, value: float) -> Any:
    value = float.__pos__(value)
    if math.isfinite(value):
        reducer.left -= len(repr(value))
        return value
    reducer.left -= 15
    return {"$float": str(value)}


def _string(reducer: Reducer, value: str) -> Any:
    value = redaction.scrubbed(str.__str__(value))
    if len(value) > reducer.left and len(value) > _HEAD_ITEMS:
        raw = value[:HASHED_BYTES].encode("utf-8", "surrogatepass")
        return reducer.cut("str", len(value), value[:_HEAD_ITEMS], raw, characters=len(value))
    reducer.left -= 2 + (len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass")))
    return value


def _bytes(reducer: Reducer, value: bytes | bytearray | memoryview) -> Any:
    view = value if isinstance(value, memoryview) else memoryview(value)
    if not view.c_contiguous:
        view = memoryview(view.tobytes())
    view = view.cast("B") if view.nbytes else memoryview(b"")
    size = 4 * view.nbytes // 3
    is_cut = size > reducer.left and size > _HEAD_ITEMS
    if redaction.is_active and redaction.holds_secret(view[:_HEAD_ITEMS] if is_cut else view):
        return redaction.mark("bytes")
    if is_cut:
        head = base64.b64encode(view[:_HEAD_ITEMS]).decode()
        return reducer.cut("bytes", size, head, view[:HASHED_BYTES], bytes=view.nbytes)
    reducer.left -= 90 + size
    found = {"$bytes": base64.b64encode(view).decode()}
    start = bytes(view[:64])
    if start and start.isascii() and start.decode().isprintable():
        found["text"] = start.decode()
    return found


def _tagged(tag: str, text: Callable[[Any], str]) -> Handler:
    def reduce(reducer: Reducer, value: Any) -> Any:
        return {tag: _string(reducer, text(value))}

    return reduce


def _complex(reducer: Reducer, value: complex) -> Any:
    return {"$complex": [_float(reducer, value.real), _float(reducer, value.imag)]}


def _enum(reducer: Reducer, value: enum.Enum) -> Any:
    name = f"{type(value).__qualname__}.{value._name_}"
    return reducer.inside(value, lambda: {"$enum": _string(reducer, name), "value": reducer.reduce(value._value_)})


def _range(reducer: Reducer, value: range) -> Any:
    return {"$range": [_integer(reducer, number) for number in (value.start, value.stop, value.step)]}


# Containers


def _list(reducer: Reducer, value: list[Any]) -> Any:
    return reducer.inside(value, lambda: reducer.items(list.__iter__(value), list.__len__(value)))


def _tuple(reducer: Reducer, value: tuple[Any, ...]) -> Any:
    fields = getattr(type(value), "_fields", None)
    count = tuple.__len__(value)
    if type(value) is tuple or not isinstance(fields, tuple) or len(fields) != count:
        return reducer.inside(value, lambda: reducer.items(tuple.__iter__(value), count))
    pairs = zip(fields, tuple.__iter__(value), strict=True)
    return reducer.inside(value, lambda: _typed(reducer, value, pairs, count))


def _deque(reducer: Reducer, value: collections.deque[Any]) -> Any:
    return reducer.inside(
        value, lambda: reducer.items(collections.deque.__iter__(value), collections.deque.__len__(value))
    )


def _collection(reducer: Reducer, value: Collection[Any]) -> Any:
    return reducer.inside(value, lambda: reducer.items(value, len(value)))


def _dict(reducer: Reducer, value: dict[Any, Any]) -> Any:
    cost = None if redaction.is_active else _plain_dict_cost(value)
    if cost is not None and cost <= reducer.left:
        reducer.left -= cost
        return dict.copy(value)
    return reducer.inside(value, lambda: reducer.entries(dict.items(value), dict.__len__(value)))


def _mapping_proxy(reducer: Reducer, value: types.MappingProxyType[Any, Any]) -> Any:
    return reducer.inside(value, lambda: reducer.entries(value.items(), len(value)))


def _set(reducer: Reducer, value: Any) -> Any:
    base = set if isinstance(value, set) else frozenset
    return reducer.inside(value, lambda: {"$set": _set_items(reducer, base.__iter__(value), base.__len__(value))})


def _set_items(reducer: Reducer, items: Iterable[Any], count: int) -> list[Any]:
    """Sorted where the items can be compared, else by their text, so that equal sets look equal.

    Those of more than 100,000 items come as they are.
    """
    if count > _MOST_SORTED or 2 * count > reducer.left:
        return reducer.items(items, count)
    listed = list(items)
    kinds = set(map(type, listed))
    if len(kinds) == 1 and kinds <= {int, float, str, bytes}:
        return reducer.items(sorted(listed), count)
    found = reducer.items(listed, count)
    return found if reducer.overflowed else sorted(found, key=json.dumps)


# Objects


def _typed(reducer: Reducer, value: Any, pairs: Iterable[tuple[Any, Any]], count: int) -> Any:
    name = type_name(type(value))
    reducer.left -= len(name) + 12
    fields = reducer.entries(pairs, count)
    fields.pop("$type", None)
    return {"$type": name, **fields}


def _object(reducer: Reducer, value: Any) -> Any:
    kind = type(value)
    if kind.__module__.partition(".")[0] in _BY_NAME_ONLY:
        return {"$type": _string(reducer, type_name(kind))}
    fields = _fields(value)
    if fields is None:
        return _opaque(reducer, value)
    return reducer.inside(value, lambda: _typed(reducer, value, fields.items(), len(fields)))


def _fields(value: Any) -> dict[Any, Any] | None:
    """What `__slots__` and `__dict__` hold, whatever the class overrides; None if it has neither."""
    found: dict[Any, Any] | None = None
    for base in reversed(type(value).__mro__):
        if "__slots__" not in base.__dict__:
            continue
        found = {} if found is None else found
        for name, member in base.__dict__.items():
            if isinstance(member, types.MemberDescriptorType):
                try:
                    found[name] = member.__get__(value)
                except AttributeError:  # a slot that was never set
                    continue
    try:
        own = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return found
    return {**(found or {}), **own} if isinstance(own, dict) else found


def _opaque(reducer: Reducer, value: Any) -> Any:
    """A type written in C, of which only the text it gives of itself can be shown; addresses left out."""
    name = _string(reducer, type_name(type(value)))
    if getattr(type(value), "__repr__", None) is object.__repr__:
        return {"$type": name}
    text = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value)[:_HEAD_REPR])
    return {"$type": name, "repr": _string(reducer, text)}


def _named(reducer: Reducer, value: Any) -> Any:
    """Functions, classes and modules: where they are defined."""
    if isinstance(value, types.ModuleType):
        return {"$name": _string(reducer, value.__name__)}
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    return {"$name": _string(reducer, f"{module or 'builtins'}.{name}")}


def _partial(reducer: Reducer, value: functools.partial[Any]) -> Any:
    pairs = {"func": value.func, "args": value.args, "keywords": value.keywords}
    return reducer.inside(value, lambda: _typed(reducer, value, pairs.items(), 3))


def _exception(reducer: Reducer, value: BaseException) -> Any:
    pairs = {"args": value.args, **(_fields(value) or {})}
    return reducer.inside(value, lambda: _typed(reducer, value, pairs.items(), len(pairs)))


def _machine(reducer: Reducer, value: Any) -> Any:
    name = type(value).__machine_name__
    return {"$machine": _string(reducer, str(name(value)))}


def _redacted(reducer: Reducer, value: Any) -> Any:
    """A pydantic secret; its value is read where pydantic keeps it, so that it is known wherever else it stands."""
    redaction.learn(vars(value).get("_secret_value"))
    return {"$redacted": _string(reducer, type(value).__qualname__)}


def _model(reducer: Reducer, value: Any) -> Any:
    """A pydantic model: its fields, the extra and the private ones included; no serializer of its own is
    called.
    """
    fields = dict(object.__getattribute__(value, "__dict__"))
    for more in ("__pydantic_extra__", "__pydantic_private__"):
        fields.update(object.__getattribute__(value, more) or {})
    return reducer.inside(value, lambda: _typed(reducer, value, fields.items(), len(fields)))


# Arrays and frames


def _numpy_scalar(reducer: Reducer, value: Any) -> Any:
    if value.dtype.kind in "mM":
        return {"$datetime64" if value.dtype.kind == "M" else "$timedelta64": _string(reducer, str(value))}
    item = value.item()
    if type(item) is type(value):  # longdouble: wider than any number of Python's
        return {"$float": _string(reducer, str(value))}
    return reducer.reduce(item)


def _numpy_array(reducer: Reducer, value: Any) -> Any:
    kind = value.dtype.kind
    about = {"dtype": _string(reducer, str(value.dtype)), "shape": list(value.shape)}
    size = value.size * _element_bytes(value)
    if size > reducer.left and value.size > _HEAD_ITEMS // 10:
        head = value.flat[: _HEAD_ITEMS // 10]
        raw = None if value.dtype.hasobject else value.flat[: max(1, HASHED_BYTES // max(1, value.itemsize))].tobytes()
        shown = reducer.reduce((head.astype(str) if kind in "mM" else head).tolist())
        return reducer.cut("array", size, shown, raw, **about)
    values = value.astype(str).tolist() if kind in "mM" else value.tolist()
    return {"$array": {**about, "values": reducer.reduce(values)}}


def _element_bytes(value: Any) -> int:
    """About how many bytes of text one element takes."""
    kind: str = value.dtype.kind
    if kind in "iu" and value.size:
        return max(len(str(value.min())), len(str(value.max()))) + 1
    widths = {
        "b": 6,
        "f": 20,
        "c": 50,
        "m": 24,
        "M": 30,
        "U": int(value.itemsize) // 4 + 3,
        "S": 2 * int(value.itemsize) + 20,
    }
    return widths.get(kind, 8)


def _array(reducer: Reducer, value: array.array[Any]) -> Any:
    about = {"dtype": value.typecode, "shape": [len(value)]}
    size = 8 * len(value)
    if size > reducer.left:
        raw = memoryview(value).cast("B")[:HASHED_BYTES]
        return reducer.cut("array", size, reducer.reduce(value[: _HEAD_ITEMS // 10].tolist()), raw, **about)
    return {"$array": {**about, "values": reducer.reduce(value.tolist())}}


def _shaped(reducer: Reducer, value: Any) -> Any:
    """Frames, tables and tensors of other libraries: their type, shape and columns, not their contents."""
    found: dict[str, Any] = {"$type": _string(reducer, type_name(type(value)))}
    shape = getattr(value, "shape", None)
    found["shape"] = [int(length) for length in (shape if shape is not None else (len(value),))]
    columns = getattr(value, "column_names", None) or getattr(value, "columns", None)
    if columns is not None and len(found["shape"]) == 2:
        found["columns"] = [str(name)[:_HEAD_REPR] for name in itertools.islice(columns, 100)]
    kind = getattr(value, "dtype", None) or getattr(value, "type", None)
    if kind is not None:
        found["dtype"] = str(kind)[:_HEAD_REPR]
    reducer.left -= 50 + sum(map(len, found.get("columns", ())))
    return found


# Which function for which type


_EXACT: dict[type, Handler] = {
    type(None): _none,
    bool: _none,
    int: _integer,
    float: _float,
    str: _string,
    bytes: _bytes,
    bytearray: _bytes,
    memoryview: _bytes,
    complex: _complex,
    range: _range,
    list: _list,
    tuple: _tuple,
    dict: _dict,
    set: _set,
    frozenset: _set,
    collections.deque: _deque,
    types.MappingProxyType: _mapping_proxy,
    type({}.keys()): _collection,
    type({}.values()): _collection,
    type({}.items()): _collection,
    datetime.datetime: _tagged("$datetime", lambda value: str(value.isoformat())),
    datetime.date: _tagged("$date", lambda value: str(value.isoformat())),
    datetime.time: _tagged("$time", lambda value: str(value.isoformat())),
    datetime.timedelta: _tagged("$timedelta", str),
    decimal.Decimal: _tagged("$decimal", str),
    fractions.Fraction: _tagged("$fraction", str),
    uuid.UUID: _tagged("$uuid", str),
    pathlib.PurePath: _tagged("$path", str),
    re.Pattern: lambda reducer, value: {"$pattern": reducer.reduce(value.pattern)},
    array.array: _array,
    types.FunctionType: _named,
    types.BuiltinFunctionType: _named,
    types.MethodType: _named,
    types.ModuleType: _named,
    type: _named,
    functools.partial: _partial,
    BaseException: _exception,
}

_BY_TYPE_NAME: dict[tuple[str, str], Handler] = {
    ("numpy", "ndarray"): _numpy_array,
    ("numpy", "generic"): _numpy_scalar,
    ("pydantic.main", "BaseModel"): _model,
    ("pydantic.types", "_SecretBase"): _redacted,
    ("ray._raylet", "ObjectRef"): _tagged("$objectref", lambda value: str(value.hex())),
    ("ray.actor", "ActorHandle"): _tagged("$actor", lambda value: str(value._actor_id.hex())),
}

_SHAPED_MODULES = frozenset(
    {"pandas", "pyarrow", "polars", "torch", "tensorflow", "jax", "jaxlib", "scipy", "xarray", "dask"}
)

_BY_NAME_ONLY = frozenset(
    {"_asyncio", "_io", "_thread", "_ctypes", "asyncio", "concurrent", "contextvars", "io", "logging", "mmap"}
    | {"multiprocessing", "selectors", "socket", "sqlite3", "ssl", "subprocess", "threading", "weakref"}
)
"""Libraries whose objects are plumbing: their fields lead to locks, loops and other people's data."""


def _handler(kind: type) -> Handler:
    """The function for a type that is none of the built-in ones itself: that of its nearest known base."""
    if getattr(kind, "__machine_name__", None) is not None:
        return _machine
    bases = type.__dict__["__mro__"].__get__(kind)
    if enum.Enum in bases:
        return _enum
    for base in bases:
        known = _EXACT.get(base) or _BY_TYPE_NAME.get((base.__module__, base.__name__))
        if known is not None:
            return known
    if any(str(base.__module__).partition(".")[0] in _SHAPED_MODULES for base in bases):
        return _shaped if hasattr(kind, "shape") or hasattr(kind, "__len__") else _opaque
    return _object


def type_name(kind: type) -> str:
    try:
        return f"{kind.__module__}.{kind.__qualname__}"[:_HEAD_REPR]
    except Exception:  # a metaclass that answers strangely
        return "unknown"
