"""Whole numbers and truth values at one path of many JSON objects at a time, by Arrow's reader of JSON lines.

It answers only where it is sure to give what `json` and `JsonPath.find` give for each text by itself; else None, and
`holdings` reads the texts one by one. Nothing here knows what the texts are.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.detectors.json_path import MISSING, JsonPath

_FEW = 1_000
"""Below so many texts it costs more than it saves."""

_TYPES = {int: pa.int64(), bool: pa.bool_(), type(MISSING): pa.int64()}


def values_at(texts: Any, path: JsonPath) -> list[Any] | None:
    """What the path finds in each of an Arrow array of texts, `MISSING` where nothing; None: read them otherwise."""
    found = array_at(texts, path)
    if found is None:
        return None
    if found.null_count == 0:
        return _listed(found)
    return None if pc.any(pc.match_substring(texts, "null")).as_py() else _with_gaps(found)


def array_at(texts: Any, path: JsonPath) -> Any:
    """The same as an Arrow array, of integers or of truth values: null where there is nothing, or JSON's null."""
    if len(texts) < _FEW or not all(isinstance(step, str) for step in path.steps) or not _is_one_object_each(texts):
        return None
    kind = _TYPES.get(type(_first(texts, path)))
    if kind is None:
        return None
    whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    found = _read(pc.binary_join(whole, "\n")[0].as_buffer(), path, kind)
    return None if found is None or len(found) != len(texts) else found


def _is_one_object_each(texts: Any) -> bool:
    """Whether as many values as texts, read from all of them as lines, must be one from each.

    Where a text begins with `{`, ends with `}` and has no line end in it, no value can reach from one text into the
    next: `}` before `{` is no JSON but in a string, and a string with a line end in it is none.
    """
    if texts.null_count or pc.any(pc.match_substring(texts, "\n")).as_py():
        return False
    return bool(pc.all(pc.starts_with(texts, "{")).as_py() and pc.all(pc.ends_with(texts, "}")).as_py())


def _first(texts: Any, path: JsonPath) -> Any:
    try:
        return path.find(json.loads(texts[0].as_py()))
    except (ValueError, RecursionError):
        return None


def _read(lines: Any, path: JsonPath, kind: Any) -> Any:
    """The values as an Arrow array, null where there is nothing or JSON's null; None if one is of another kind."""
    import pyarrow.json as pj

    for step in reversed(path.steps):
        kind = pa.struct([(step, kind)])
    try:
        table = pj.read_json(
            pa.BufferReader(lines),
            read_options=pj.ReadOptions(use_threads=False, block_size=len(lines) + 1),
            parse_options=pj.ParseOptions(explicit_schema=pa.schema(kind), unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid:
        return None
    found = table[path.steps[0]].combine_chunks()
    return pc.struct_field(found, list(path.steps[1:])) if path.steps[1:] else found


def _listed(found: Any) -> list[Any]:
    values: list[Any] = found.to_numpy(zero_copy_only=False).tolist()
    return values


def _with_gaps(found: Any) -> list[Any]:
    values = np.full(len(found), MISSING, object)
    there = found.is_valid().to_numpy(zero_copy_only=False)
    values[there] = _listed(found.drop_null())
    return values.tolist()
