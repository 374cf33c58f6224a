"""Which function for which type. Imports the standard library only."""

from __future__ import annotations

import array
import collections
import datetime
import decimal
import enum
import fractions
import functools
import pathlib
import re
import types
import uuid

from ray_snapshot.fields import in_class
from ray_snapshot.plain import arrays, containers, objects, scalars
from ray_snapshot.plain.scalars import Handler

EXACT: dict[type, Handler] = {
    type(None): scalars.reduce_none,
    bool: scalars.reduce_none,
    int: scalars.reduce_integer,
    float: scalars.reduce_float,
    str: scalars.reduce_string,
    bytes: scalars.reduce_bytes,
    bytearray: scalars.reduce_bytes,
    memoryview: scalars.reduce_bytes,
    complex: scalars.reduce_complex,
    range: scalars.reduce_range,
    list: containers.reduce_list,
    tuple: containers.reduce_tuple,
    dict: containers.reduce_dict,
    set: containers.reduce_set,
    frozenset: containers.reduce_set,
    collections.deque: containers.reduce_deque,
    types.MappingProxyType: containers.reduce_mapping_proxy,
    type({}.keys()): containers.reduce_collection,
    type({}.values()): containers.reduce_collection,
    type({}.items()): containers.reduce_items,
    datetime.datetime: scalars.tagged("$datetime", lambda value: str(value.isoformat())),
    datetime.date: scalars.tagged("$date", lambda value: str(value.isoformat())),
    datetime.time: scalars.tagged("$time", lambda value: str(value.isoformat())),
    datetime.timedelta: scalars.tagged("$timedelta", str),
    decimal.Decimal: scalars.tagged("$decimal", str),
    fractions.Fraction: scalars.tagged("$fraction", str),
    uuid.UUID: scalars.tagged("$uuid", str),
    pathlib.PurePath: scalars.tagged("$path", str),
    re.Pattern: lambda reducer, value: {"$pattern": reducer.reduce(value.pattern)},
    array.array: arrays.reduce_array,
    types.FunctionType: objects.reduce_named,
    types.BuiltinFunctionType: objects.reduce_named,
    types.MethodType: objects.reduce_named,
    types.ModuleType: objects.reduce_named,
    type: objects.reduce_named,
    functools.partial: objects.reduce_partial,
    BaseException: objects.reduce_exception,
}

_BY_TYPE_NAME: dict[tuple[str, str], Handler] = {
    ("numpy", "ndarray"): arrays.reduce_numpy_array,
    ("numpy", "generic"): arrays.reduce_numpy_scalar,
    ("pydantic.main", "BaseModel"): objects.reduce_model,
    ("pydantic.types", "_SecretBase"): objects.reduce_redacted,
    ("ray._raylet", "ObjectRef"): scalars.tagged("$objectref", lambda value: str(value.hex())),
    ("ray", "ObjectRef"): scalars.tagged("$objectref", lambda value: str(value.hex())),
    ("ray_snapshot.runtime.staged_calls", "LoggedRef"): scalars.tagged("$objectref", lambda value: str(value.hex())),
    ("ray.actor", "ActorHandle"): scalars.tagged("$actor", lambda value: str(value._actor_id.hex())),
}

_SHAPED_MODULES = frozenset(
    {"pandas", "pyarrow", "polars", "torch", "tensorflow", "jax", "jaxlib", "scipy", "xarray", "dask"}
)


def handler_of(kind: type) -> Handler:
    """The function for a type that is none of the built-in ones itself: that of its nearest known base."""
    if in_class(kind, "__machine_name__") is not None:
        return objects.reduce_machine
    bases = type.__dict__["__mro__"].__get__(kind)
    if enum.Enum in bases:
        return scalars.reduce_enum
    for base in bases:
        known = EXACT.get(base) or _BY_TYPE_NAME.get((base.__module__, base.__name__))
        if known is not None:
            return known
    if any(str(base.__module__).partition(".")[0] in _SHAPED_MODULES for base in bases):
        return arrays.reduce_shaped if hasattr(kind, "shape") or hasattr(kind, "__len__") else objects.reduce_opaque
    return objects.reduce_object
