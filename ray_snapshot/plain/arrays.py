"""Arrays, and frames and tensors of other libraries, as plain values. Imports the standard library only."""

from __future__ import annotations

import array
import itertools
from typing import TYPE_CHECKING, Any

from ray_snapshot.plain.bounds import HASHED_BYTES, HEAD_ITEMS, HEAD_REPR, MOST_ELEMENTS, type_name
from ray_snapshot.plain.scalars import reduce_string

if TYPE_CHECKING:
    from ray_snapshot.plain.reducer import Reducer


def reduce_numpy_scalar(reducer: Reducer, value: Any) -> Any:
    if value.dtype.kind in "mM":
        return {"$datetime64" if value.dtype.kind == "M" else "$timedelta64": reduce_string(reducer, str(value))}
    item = value.item()
    if type(item) is type(value):  # longdouble: wider than any number of Python's
        return {"$float": reduce_string(reducer, str(value))}
    return reducer.reduce(item)


def reduce_numpy_array(reducer: Reducer, value: Any) -> Any:
    kind = value.dtype.kind
    about = {"dtype": reduce_string(reducer, str(value.dtype)), "shape": list(value.shape)}
    size = value.size * _element_bytes(value)
    if value.size > MOST_ELEMENTS or (size > reducer.left and value.size > HEAD_ITEMS // 10):
        head = value.flat[: HEAD_ITEMS // 10]
        raw = None if value.dtype.hasobject else value.flat[: max(1, HASHED_BYTES // max(1, value.itemsize))].tobytes()
        shown = reducer.reduce((head.astype(str) if kind in "mM" else head).tolist())
        return reducer.cut("array", size, shown, raw, **about)
    values = value.astype(str).tolist() if kind in "mM" else value.tolist()
    return {"$array": {**about, "values": reducer.reduce(values)}}


def _element_bytes(value: Any) -> int:
    """About how many bytes of text one element takes."""
    kind: str = value.dtype.kind
    if kind in "iu" and 0 < value.size <= MOST_ELEMENTS:
        return max(len(str(value.min())), len(str(value.max()))) + 1
    widths = {
        "b": 6,
        "i": 5 * int(value.itemsize) // 2 + 1,
        "u": 5 * int(value.itemsize) // 2 + 1,
        "f": 20,
        "c": 50,
        "m": 24,
        "M": 30,
        "U": int(value.itemsize) // 4 + 3,
        "S": 2 * int(value.itemsize) + 20,
    }
    return widths.get(kind, 8)


def reduce_array(reducer: Reducer, value: array.array[Any]) -> Any:
    about = {"dtype": value.typecode, "shape": [len(value)]}
    size = 8 * len(value)
    if len(value) > MOST_ELEMENTS or size > reducer.left:
        raw = memoryview(value).cast("B")[:HASHED_BYTES]
        return reducer.cut("array", size, reducer.reduce(value[: HEAD_ITEMS // 10].tolist()), raw, **about)
    return {"$array": {**about, "values": reducer.reduce(value.tolist())}}


def reduce_shaped(reducer: Reducer, value: Any) -> Any:
    """Frames, tables and tensors of other libraries: their type, shape and columns, not their contents."""
    found: dict[str, Any] = {"$type": reduce_string(reducer, type_name(type(value)))}
    shape = getattr(value, "shape", None)
    found["shape"] = [int(length) for length in (shape if shape is not None else (len(value),))]
    columns = getattr(value, "column_names", None) or getattr(value, "columns", None)
    if columns is not None and len(found["shape"]) == 2:
        found["columns"] = [str(name)[:HEAD_REPR] for name in itertools.islice(columns, 100)]
    kind = getattr(value, "dtype", None) or getattr(value, "type", None)
    if kind is not None:
        found["dtype"] = str(kind)[:HEAD_REPR]
    reducer.left -= 50 + sum(map(len, found.get("columns", ())))
    return found
