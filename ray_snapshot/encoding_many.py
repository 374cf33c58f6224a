"""The texts of many small states of the same fields, made together: what `encoding` asks of each is asked of columns here.

Whether the encoder in C can take a state as it is depends on types, lengths and sizes only: of a thousand states, these are
looked at field by field, and all of them go to the encoder at once. Its text is taken apart where one state ends and the next
begins: `},{"` stands nowhere else, for quotation marks in texts are escaped, and lists of dictionaries are not taken. Whatever
does not fit has no text here. Only the standard library is imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import Any

from ray_snapshot import redaction
from ray_snapshot.encoding import (
    MOST_BYTES,
    PLAIN_CHARACTERS,
    PLAIN_ITEMS,
    SIMPLE,
    Encoded,
    dumped,
    name_function,
)
from ray_snapshot.plain import LARGEST_INTEGER

_BETWEEN = '},{"'
_new = tuple.__new__


def texts_of(states: Sequence[dict[str, Any]]) -> list[Encoded] | None:
    """`encoding.to_json` of each of these states; None if one of them must be looked at by itself.

    That is so unless all have the same fields in the same order, of small plain values. Some 2 us a state of four fields.
    """
    try:
        if redaction.is_active or not _fit(states):
            return None
        parts = dumped(list(states))[3:-2].split(_BETWEEN)
    except Exception:  # not a number, or changed by another thread meanwhile: one by one it can be told
        return None
    if len(parts) != len(states):
        return None
    texts = ['{"' + part + "}" for part in parts]
    found = [_new(Encoded, (text, False, len(text))) for text in texts]
    if not all(map(str.isascii, texts)) or max(map(len, texts)) > MOST_BYTES:
        return None
    return found


def _fit(states: Sequence[dict[str, Any]]) -> bool:
    names = (*states[0],)
    if not names or len(names) > PLAIN_ITEMS or {*map(type, names)} != {str}:
        return False
    # One after the other they are the same names over and over only if each has these: none has a name twice.
    if [*chain.from_iterable(states)] != [*names] * len(states) or max(map(len, names)) > PLAIN_CHARACTERS:
        return False
    return all(map(_fits, zip(*map(dict.values, states), strict=True)))


def _fits(column: Sequence[Any], *, is_inside: bool = False) -> bool:
    """Whether the encoder in C can take each of these values as it is; `is_inside`: they are items of lists."""
    kinds = {*map(type, column)}
    if len(kinds) == 1:
        return not SIMPLE.isdisjoint(kinds) or _fit_of_kind(next(iter(kinds)), column, is_inside)
    return all(_fit_of_kind(kind, [one for one in column if type(one) is kind], is_inside) for kind in kinds - SIMPLE)


def _fit_of_kind(kind: type, values: Sequence[Any], is_inside: bool) -> bool:
    if kind is int:
        return bool(min(values) >= -LARGEST_INTEGER and max(values) <= LARGEST_INTEGER)
    if kind is str:
        return max(map(len, values)) <= PLAIN_CHARACTERS
    if is_inside:
        return False
    if kind is list:
        return max(map(len, values)) <= PLAIN_ITEMS and _fits([*chain.from_iterable(values)], is_inside=True)
    name = name_function(kind)
    return name is not None and max(len(name(value)) for value in values) <= PLAIN_CHARACTERS
