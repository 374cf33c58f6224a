"""Objects, models, functions and exceptions as plain values; no code of theirs is called. Imports the standard library only."""

from __future__ import annotations

import functools
import re
import types
from typing import TYPE_CHECKING, Any

from ray_snapshot.fields import fields_of
from ray_snapshot.plain.bounds import HEAD_REPR, type_name
from ray_snapshot.plain.containers import typed
from ray_snapshot.plain.scalars import reduce_string

if TYPE_CHECKING:
    from ray_snapshot.plain.reducer import Reducer


_BY_NAME_ONLY = frozenset(
    {"_asyncio", "_io", "_thread", "_ctypes", "asyncio", "concurrent", "contextvars", "io", "logging", "mmap"}
    | {"multiprocessing", "selectors", "socket", "sqlite3", "ssl", "subprocess", "threading", "weakref"}
)
"""Libraries whose objects are shown by name only: their fields lead to locks, event loops and data of other code."""


def reduce_object(reducer: Reducer, value: Any) -> Any:
    kind = type(value)
    if kind.__module__.partition(".")[0] in _BY_NAME_ONLY:
        return {"$type": reduce_string(reducer, type_name(kind))}
    fields = fields_of(value)
    if fields is None:
        return reduce_opaque(reducer, value)
    return reducer.inside(value, lambda: typed(reducer, value, fields.items(), len(fields)))


def reduce_opaque(reducer: Reducer, value: Any) -> Any:
    """A type written in C, of which only the text it gives of itself can be shown; addresses left out."""
    name = reduce_string(reducer, type_name(type(value)))
    if getattr(type(value), "__repr__", None) is object.__repr__:
        return {"$type": name}
    shown = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value)[:HEAD_REPR])
    return {"$type": name, "repr": reduce_string(reducer, shown)}


def reduce_named(reducer: Reducer, value: Any) -> Any:
    """Functions, classes and modules: where they are defined."""
    if isinstance(value, types.ModuleType):
        return {"$name": reduce_string(reducer, value.__name__)}
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    return {"$name": reduce_string(reducer, f"{module or 'builtins'}.{name}")}


def reduce_partial(reducer: Reducer, value: functools.partial[Any]) -> Any:
    pairs = {"func": value.func, "args": value.args, "keywords": value.keywords}
    return reducer.inside(value, lambda: typed(reducer, value, pairs.items(), 3))


def reduce_exception(reducer: Reducer, value: BaseException) -> Any:
    pairs = {"args": value.args, **(fields_of(value) or {})}
    return reducer.inside(value, lambda: typed(reducer, value, pairs.items(), len(pairs)))


def reduce_machine(reducer: Reducer, value: Any) -> Any:
    name = type(value).__machine_name__
    return {"$machine": reduce_string(reducer, str(name(value)))}


def reduce_redacted(reducer: Reducer, value: Any) -> Any:
    """A pydantic secret."""
    return {"$redacted": reduce_string(reducer, type(value).__qualname__)}


def reduce_model(reducer: Reducer, value: Any) -> Any:
    """A pydantic model: its fields, the extra and the private ones included; no serializer of its own is
    called.
    """
    fields = dict(object.__getattribute__(value, "__dict__"))
    for more in ("__pydantic_extra__", "__pydantic_private__"):
        fields.update(object.__getattribute__(value, more) or {})
    return reducer.inside(value, lambda: typed(reducer, value, fields.items(), len(fields)))
