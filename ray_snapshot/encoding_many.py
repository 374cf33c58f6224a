"""The texts of many small states of the same fields, made together: what `encoding` asks of each is asked of columns here.

Whether the encoder in C can take a state as it is depends on types, lengths and sizes only: of a thousand states, these are
looked at field by field. The texts of a field's values are made by what the encoder itself calls for each type, a field that is
the same object in all states has one text. Whatever does not fit has no text here. Only the standard library is imported.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from math import isfinite
from typing import Any

from ray_snapshot import redaction
from ray_snapshot.encoding import (
    MOST_BYTES,
    PLAIN_CHARACTERS,
    PLAIN_ITEMS,
    SIMPLE,
    dumped,
    name_function,
)
from ray_snapshot.plain import LARGEST_INTEGER

_Column = Sequence[Any]

_quoted: Callable[[str], str] = json.encoder.encode_basestring
_WORDS = {None: "null", True: "true", False: "false"}
_BETWEEN = "],["


def texts_of(states: Sequence[dict[str, Any]]) -> list[str] | None:
    """The text of `encoding.to_json` of each of these states, ASCII and whole; None if one must be looked at by itself.

    That is so unless all have the same fields in the same order, of small plain values. Some 1 us a state of four fields.
    """
    try:
        if redaction.is_active or not states[0] or (columns := _columns(states)) is None:
            return None
        names = [f"{_quoted(name)}:" for name in states[0]]
        return _checked(_filled(names, columns, len(states)))
    except Exception:  # not a number, or changed by another thread meanwhile: one by one it can be told
        return None


def _checked(texts: list[str]) -> list[str] | None:
    return texts if all(map(str.isascii, texts)) and max(map(len, texts)) <= MOST_BYTES else None


def _columns(states: Sequence[dict[str, Any]]) -> list[_Column] | None:
    """The values of each field; None if there is another field, or what the encoder cannot take as it is."""
    names = [*states[0]]
    every = [*chain.from_iterable(states)]
    if len(names) > PLAIN_ITEMS or {*map(type, every)} != {str}:  # others may equal texts, and be written otherwise
        return None
    # One after the other they are the same names over and over only if each has these: none has a name twice.
    if every != names * len(states) or max(map(len, names)) > PLAIN_CHARACTERS:
        return None
    columns: list[_Column] = [*zip(*map(dict.values, states), strict=True)]
    return columns if len(columns) == len(names) and all(map(fit, columns)) else None


def fit(column: _Column, *, is_inside: bool = False) -> bool:
    """Whether the encoder in C can take each of these values as it is; `is_inside`: they are items of lists."""
    kinds = {*map(type, column)}
    if len(kinds) == 1:
        return not SIMPLE.isdisjoint(kinds) or _fit_of_kind(next(iter(kinds)), column, is_inside)
    return all(_fit_of_kind(kind, [one for one in column if type(one) is kind], is_inside) for kind in kinds - SIMPLE)


def _fit_of_kind(kind: type, values: _Column, is_inside: bool) -> bool:
    if kind is int:
        return bool(min(values) >= -LARGEST_INTEGER and max(values) <= LARGEST_INTEGER)
    if kind is str:
        return max(map(len, values)) <= PLAIN_CHARACTERS
    if kind is list:
        return (
            not is_inside
            and max(map(len, values)) <= PLAIN_ITEMS
            and fit([*chain.from_iterable(values)], is_inside=True)
        )
    name = name_function(kind)
    return name is not None and max(len(name(value)) for value in values) <= PLAIN_CHARACTERS


def _filled(names: Sequence[str], columns: Sequence[_Column], count: int) -> list[str]:
    """So many texts, of columns that fit, each value behind its name; raises what the encoder raises."""
    pieces, common = list[Iterable[str]](), "{"
    for name, column in zip(names, columns, strict=True):
        common += name
        if len({*map(id, column)}) == 1:
            common += dumped(column[0]) + ","
        else:
            pieces += repeat(common), texts_of_values(column)
            common = ","
    end = common[:-1] + "}"
    if not pieces:
        return [end] * count
    return [*map("".join, zip(*pieces, repeat(end)))]


def texts_of_values(column: _Column) -> Iterable[str]:
    """The texts of values that fit."""
    kinds = {*map(type, column)}
    if len(kinds) > 1:
        return [*map(dumped, column)]
    (kind,) = kinds
    if kind is int:
        return map(int.__repr__, column)
    if kind is str:
        return map(_quoted, column)
    if kind is float:
        if not all(map(isfinite, column)):
            raise ValueError
        return map(float.__repr__, column)
    if kind is bool:
        return map(_WORDS.__getitem__, column)
    if kind is list:
        return _ragged(column)
    if (name := name_function(kind)) is not None:
        return [f'{{"$machine":{_quoted(name(value))}}}' for value in column]
    return [*map(dumped, column)]


def _ragged(column: _Column) -> list[str]:
    """The texts of lists of texts and numbers: `],[` stands between two of them, and elsewhere only in texts."""
    parts = dumped(list(column))[2:-2].split(_BETWEEN)
    if len(parts) != len(column):
        raise ValueError
    return [f"[{part}]" for part in parts]
