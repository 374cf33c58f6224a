"""Numbers, text, bytes and enumerations as plain values. Imports the standard library only."""

from __future__ import annotations

import base64
import enum
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from ray_snapshot.plain.bounds import HASHED_BYTES, HEAD_ITEMS, LARGEST_INTEGER

if TYPE_CHECKING:
    from ray_snapshot.plain.reducer import Reducer


Handler = Callable[["Reducer", Any], Any]


def reduce_none(reducer: Reducer, value: Any) -> Any:
    reducer.left -= 4
    return value


def reduce_integer(reducer: Reducer, value: int) -> Any:
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


def reduce_float(reducer: Reducer, value: float) -> Any:
    value = float.__pos__(value)
    if math.isfinite(value):
        reducer.left -= len(repr(value))
        return value
    reducer.left -= 15
    return {"$float": str(value)}


def reduce_string(reducer: Reducer, value: str) -> Any:
    value = str.__str__(value)
    if len(value) > reducer.left and len(value) > HEAD_ITEMS:
        raw = value[:HASHED_BYTES].encode("utf-8", "surrogatepass")
        return reducer.cut("str", len(value), value[:HEAD_ITEMS], raw, characters=len(value))
    reducer.left -= 2 + (len(value) if value.isascii() else len(value.encode("utf-8", "surrogatepass")))
    return value


def reduce_bytes(reducer: Reducer, value: bytes | bytearray | memoryview) -> Any:
    view = value if isinstance(value, memoryview) else memoryview(value)
    if not view.c_contiguous:
        view = memoryview(view.tobytes())
    view = view.cast("B") if view.nbytes else memoryview(b"")
    size = 4 * view.nbytes // 3
    if size > reducer.left and size > HEAD_ITEMS:
        head = base64.b64encode(view[:HEAD_ITEMS]).decode()
        return reducer.cut("bytes", size, head, view[:HASHED_BYTES], bytes=view.nbytes)
    reducer.left -= 90 + size
    found = {"$bytes": base64.b64encode(view).decode()}
    start = bytes(view[:64])
    if start and start.isascii() and start.decode().isprintable():
        found["text"] = start.decode()
    return found


def tagged(tag: str, text: Callable[[Any], str]) -> Handler:
    def reduce(reducer: Reducer, value: Any) -> Any:
        return {tag: reduce_string(reducer, text(value))}

    return reduce


def reduce_complex(reducer: Reducer, value: complex) -> Any:
    return {"$complex": [reduce_float(reducer, value.real), reduce_float(reducer, value.imag)]}


def reduce_enum(reducer: Reducer, value: enum.Enum) -> Any:
    name = f"{type(value).__qualname__}.{value._name_}"
    return reducer.inside(
        value, lambda: {"$enum": reduce_string(reducer, name), "value": reducer.reduce(value._value_)}
    )


def reduce_range(reducer: Reducer, value: range) -> Any:
    return {"$range": [reduce_integer(reducer, number) for number in (value.start, value.stop, value.step)]}
