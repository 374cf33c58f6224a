"""Recorded JSON back into Python values, as far as that can be done without executing or unpickling anything.

The other way of `ray_snapshot.encoding`. JSON does not know a tuple from a list, nor 1 from "1" as a key: `exact` tags what
would be lost, for a recorder of values that must be built again. Only the standard library is imported, and
numpy; the caller that decodes supplies the classes of dataclasses and the like.
"""

from __future__ import annotations

import base64
import collections
import dataclasses
import datetime
import decimal
import fractions
import importlib
import math
import pathlib
import re
import uuid
from collections.abc import Callable
from dataclasses import is_dataclass
from typing import Any

import numpy as np

from ray_snapshot.plain import type_name
from ray_snapshot.redaction import under

NamedMachine = Callable[[str], Any]
"""Gives the handle of a machine by name."""

Find = Callable[[str], Any]
"""Gives the class or function of a name; raises `NotDecodableError` for one that may not be used."""


_WIDEST_ITEM = 4_096
"""Bytes of one item of an array; a forged width would take all memory."""

_LARGEST_ARRAY = 256_000_000
"""Bytes of one array."""


class NotDecodableError(ValueError):
    """A recorded value does not say enough to be built again."""


def exact(value: Any) -> Any:
    """`value` with tuples, deques and keys that are no strings tagged, so that `decoded` gives them back as they were."""
    kind = type(value)
    if kind is tuple:
        return {"$tuple": [exact(item) for item in value]}
    if kind is collections.deque:
        return {"$deque": [exact(item) for item in value]}
    if kind is list:
        return [exact(item) for item in value]
    if kind is dict:
        if all(type(key) is str for key in value):
            return {key: exact(item) for key, item in value.items()}
        return {"$dict": [[exact(key), under(key, exact(item))] for key, item in value.items()]}
    fields = _fields(value)
    if fields is not None:
        return {
            "$type": type_name(kind),
            **{name: exact(getattr(value, name)) for name in fields if hasattr(value, name)},
        }
    return value


def _fields(value: Any) -> tuple[str, ...] | None:
    """The fields of a dataclass or a named tuple."""
    if is_dataclass(value) and not isinstance(value, type):
        return tuple(field.name for field in dataclasses.fields(value))
    return getattr(type(value), "_fields", None) if isinstance(value, tuple) else None


def decoded(value: Any, machine: NamedMachine, find: Find) -> Any:
    """The value that `to_json` has written as `value` (parsed); raises `NotDecodableError`.

    `machine` gives the handle of a machine by name, `find` a class or function: so the caller decides what may be
    imported. Where `exact` has not tagged them, tuples and deques come back as lists.
    """
    if isinstance(value, list):
        return [decoded(item, machine, find) for item in value]
    if not isinstance(value, dict):
        return value
    tag = next((key for key in value if key.startswith("$")), None)
    if tag is None:
        return {key: decoded(item, machine, find) for key, item in value.items()}
    try:
        if tag == "$machine":
            return machine(value[tag])
        if tag in _CONTAINERS:
            return _CONTAINERS[tag](value[tag], machine, find)
        if tag == "$type":
            return _object(value, machine, find)
        if tag == "$name":
            return find(value[tag])
        if tag not in _SCALARS:
            raise NotDecodableError(f"{tag} ({_shown(value)}) cannot be built again from what is recorded of it")
        return _SCALARS[tag](value[tag])
    except NotDecodableError:
        raise
    except Exception as error:
        raise NotDecodableError(f"{_shown(value)}: {type(error).__name__}: {error}") from None


def _hashable(value: Any) -> Any:
    """Items of sets and keys were hashable: what has become a list was a tuple."""
    return tuple(_hashable(item) for item in value) if isinstance(value, list) else value


def _pairs(pairs: list[list[Any]], machine: NamedMachine, find: Find) -> dict[Any, Any]:
    return {_hashable(decoded(key, machine, find)): decoded(item, machine, find) for key, item in pairs}


def _object(value: dict[str, Any], machine: NamedMachine, find: Find) -> Any:
    """A dataclass, named tuple or pydantic model, its fields put back without its constructor."""
    kind = find(value["$type"])
    fields = {key: decoded(item, machine, find) for key, item in value.items() if key != "$type"}
    if isinstance(kind, type) and issubclass(kind, tuple) and hasattr(kind, "_make"):
        return kind(**fields)
    if isinstance(kind, type) and hasattr(kind, "model_construct"):
        return kind.model_construct(**fields)
    if isinstance(kind, type) and is_dataclass(kind):
        found = object.__new__(kind)
        for name, item in fields.items():
            object.__setattr__(found, name, item)
        return found
    raise NotDecodableError(
        f"an object of {value['$type']} cannot be built again from its fields (dataclasses, named tuples and pydantic"
        " models can)"
    )


def named(name: str, allows: Callable[[str], bool]) -> Any:
    """What stands under "module.name" or "module:name"; imports the module, if it is allowed.

    Raises `NotDecodableError`.
    """
    reason = ""
    for place, inner in filter(lambda found: allows(found[0]), places_of(name)):
        try:
            found: Any = importlib.import_module(place)
            for part in inner.split("."):
                found = getattr(found, part)
        except BaseException as error:  # a script may do anything when it is imported, sys.exit() too
            if isinstance(error, KeyboardInterrupt):
                raise
            reason = reason or f"{type(error).__name__}: {error}"
            continue
        return found
    raise NotDecodableError(f"{name} cannot be imported ({reason})")


def places_of(name: Any) -> list[tuple[str, str]]:
    """(module, what in it) that a name may mean; empty if it is no such name."""
    if not isinstance(name, str):
        return []
    module, colon, path = name.partition(":")
    parts = name.split(".")
    return (
        [(module, path)]
        if colon
        else [(".".join(parts[:at]), ".".join(parts[at:])) for at in range(len(parts) - 1, 0, -1)]
    )


def _timedelta(text: str) -> datetime.timedelta:
    found = re.fullmatch(r"(?:(-?\d+) days?, )?(\d+):(\d\d):(\d\d)(?:\.(\d+))?", text)
    if found is None:
        raise NotDecodableError(f"{text!r} is no timedelta")
    days, hours, minutes, seconds, micros = (int(part or 0) for part in found.groups())
    return datetime.timedelta(days, seconds, micros, hours=hours, minutes=minutes)


def _fraction(text: str) -> fractions.Fraction:
    """Whole numbers only, as they are recorded: of `1e1000000000` Python would make a number of that many digits."""
    numerator, _, denominator = text.partition("/")
    return fractions.Fraction(int(numerator), int(denominator or 1))


def _array(about: dict[str, Any]) -> Any:
    kind = np.dtype(about["dtype"])
    count = math.prod(map(int, about["shape"]))
    if kind.itemsize > _WIDEST_ITEM or not 0 <= kind.itemsize * count <= _LARGEST_ARRAY:
        raise NotDecodableError(f"an array of {count} items of {kind.itemsize} bytes each")
    return np.array(about["values"], dtype=kind).reshape(about["shape"])


def _shown(value: Any) -> str:
    return str(value)[:120]


_CONTAINERS: dict[str, Callable[[Any, NamedMachine, Find], Any]] = {
    "$tuple": lambda items, *how: tuple(decoded(item, *how) for item in items),
    "$deque": lambda items, *how: collections.deque(decoded(item, *how) for item in items),
    "$dict": _pairs,
    "$set": lambda items, *how: {_hashable(decoded(item, *how)) for item in items},
}

_SCALARS: dict[str, Callable[[Any], Any]] = {
    "$bytes": base64.b64decode,
    "$int": lambda text: int(text, 0),
    "$float": float,
    "$complex": lambda parts: complex(*(_SCALARS["$float"](p["$float"]) if isinstance(p, dict) else p for p in parts)),
    "$range": lambda parts: range(*parts),
    "$datetime": datetime.datetime.fromisoformat,
    "$date": datetime.date.fromisoformat,
    "$time": datetime.time.fromisoformat,
    "$timedelta": _timedelta,
    "$decimal": decimal.Decimal,
    "$fraction": _fraction,
    "$uuid": uuid.UUID,
    "$path": pathlib.Path,
    "$pattern": re.compile,
    "$array": _array,
}
