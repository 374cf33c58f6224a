"""Whole numbers and truth values at one path of many JSON texts at a time, as columns.

Equal texts are read once. Many different ones, if they are objects, are read by Arrow's reader of JSON lines, few by `json`.
It answers only where it is sure to give what `json` and `JsonPath.find` give for each text by itself; else None, and
`holdings` reads the texts one by one. Nothing here knows what the texts are.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.detectors.json_path import MISSING, JsonPath
from ray_snapshot.json_text import strictly_parsed

_FEW = 64
"""Fewer texts are read by `json`."""

_LOOKED_AT = 256
"""By so many it is guessed whether most texts are equal to others."""

_BLOCKS = 8
"""The texts are read in so many blocks, by several threads."""

_TYPES = {int: pa.int64(), bool: pa.bool_(), type(MISSING): pa.int64()}


def arrays_at(texts: Any, paths: Sequence[JsonPath]) -> list[Any]:
    """What each path finds in each of an Arrow array of texts, as an Arrow array of integers or of truth values: null where
    there is nothing, or JSON's null. None: read them otherwise."""
    if texts.null_count or not _repeats(texts):
        return _of_different(texts, paths)
    encoded = texts.dictionary_encode()
    found = _of_different(encoded.dictionary, paths)
    return [None if one is None else one.take(encoded.indices) for one in found]


def _repeats(texts: Any) -> bool:
    some = texts[:: len(texts) // _LOOKED_AT + 1]
    return 2 * len(some.unique()) <= len(some)


def _of_different(texts: Any, paths: Sequence[JsonPath]) -> list[Any]:
    if len(texts) < _FEW:
        return _by_json(texts, paths)
    if not _is_one_object_each(texts):
        return [None] * len(paths)
    example = _example(texts)
    if example is None:
        return [None] * len(paths)
    of_names = [bool(path.steps) and all(isinstance(step, str) for step in path.steps) for path in paths]
    kinds = [
        _TYPES.get(type(path.find(example))) if is_so else None for path, is_so in zip(paths, of_names, strict=True)
    ]
    types = {path: kind for path, kind in zip(paths, kinds, strict=True) if kind is not None}
    if not types:
        return [None] * len(paths)
    whole = pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts)
    lines = pc.binary_join(whole, "\n")[0].as_buffer()
    longest = int(np.diff(_offsets(texts)).max())
    found = _read(lines, types, len(texts), longest)
    if found is None and len(types) > 1:  # one of them is of another kind somewhere, or leads into another one
        singly = {path: _read(lines, {path: kind}, len(texts), longest) for path, kind in types.items()}
        found = {path: one[path] for path, one in singly.items() if one is not None}
    return [(found or {}).get(path) for path in paths]


def _by_json(texts: Any, paths: Sequence[JsonPath]) -> list[Any]:
    try:
        values = [strictly_parsed(text) for text in texts.to_pylist()]
    except (TypeError, ValueError):  # a null; no JSON
        return [None] * len(paths)
    return [_column([path.find(value) for value in values]) for path in paths]


def _column(found: list[Any]) -> Any:
    """An array of values that are all of one kind; else None."""
    kinds = set(map(type, found)) - {type(MISSING), type(None)}
    kind = _TYPES.get(kinds.pop()) if len(kinds) == 1 else None if kinds else pa.int64()
    if kind is None:
        return None
    try:
        return pa.array([None if value is MISSING else value for value in found], kind)
    except OverflowError:
        return None


def may_hold_nulls(texts: Any) -> bool:
    """Whether a null of `arrays_at` may be JSON's null, and not nothing."""
    return _data(texts).find(b"null") >= 0


def _data(texts: Any) -> bytes:
    """The bytes of all texts, one behind the other."""
    offsets, data = _offsets(texts), texts.buffers()[2]
    return b"" if data is None else data.slice(offsets[0], offsets[-1] - offsets[0]).to_pybytes()


def _offsets(texts: Any) -> Any:
    return np.frombuffer(texts.buffers()[1], np.int32)[texts.offset : texts.offset + len(texts) + 1]


def _is_one_object_each(texts: Any) -> bool:
    """Whether as many values as texts, read from all of them as lines, must be one from each.

    Where a text begins with `{`, ends with `}` and has no line end in it, no value can reach from one text into the
    next: `}` before `{` is no JSON but in a string, and a string with a line end in it is none.
    """
    if texts.null_count:
        return False
    data, offsets = _data(texts), _offsets(texts).astype(np.int64)
    if b"\n" in data or not (np.diff(offsets) > 0).all():
        return False
    places, letters = offsets - offsets[0], np.frombuffer(data, np.uint8)
    return bool((letters[places[:-1]] == ord("{")).all() and (letters[places[1:] - 1] == ord("}")).all())


def _example(texts: Any) -> Any:
    """The first value; None if it cannot be read."""
    try:
        return json.loads(texts[0].as_py())
    except (ValueError, RecursionError):
        return None


def _read(lines: Any, kinds: Mapping[JsonPath, Any], count: int, longest: int) -> dict[JsonPath, Any] | None:
    """What the paths find, as Arrow arrays: null where there is nothing or JSON's null; None if one is of another kind.

    `longest`: the bytes of the longest line; each is in one block.
    """
    import pyarrow.json as pj

    schema = _schema(kinds)
    if schema is None:
        return None
    try:
        table = pj.read_json(
            pa.BufferReader(lines),
            read_options=pj.ReadOptions(block_size=max(len(lines) // _BLOCKS, longest) + 1),
            parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
        )
    except pa.ArrowInvalid:
        return None
    if table.num_rows != count:
        return None
    found = {}
    for path in kinds:
        column = table[path.steps[0]].combine_chunks()
        found[path] = pc.struct_field(column, list(path.steps[1:])) if path.steps[1:] else column
    return found


def _schema(kinds: Mapping[JsonPath, Any]) -> Any:
    """An Arrow schema with a column of each kind where its path leads; None if a path leads into another one's value."""
    tree: dict[Any, Any] = {}
    for path, kind in kinds.items():
        place = tree
        for step in path.steps[:-1]:
            place = place.setdefault(step, {})
            if not isinstance(place, dict):
                return None
        if place.setdefault(path.steps[-1], kind) is not kind:
            return None
    return pa.schema(_fields(tree))


def _fields(tree: dict[Any, Any]) -> list[Any]:
    return [
        pa.field(name, pa.struct(_fields(inner)) if isinstance(inner, dict) else inner) for name, inner in tree.items()
    ]
