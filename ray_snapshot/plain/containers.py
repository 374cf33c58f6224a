"""Lists, dictionaries, sets and what is like them as plain values. Imports the standard library only."""

from __future__ import annotations

import collections
import json
import types
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING, Any

from ray_snapshot import redaction
from ray_snapshot.plain.bounds import FEW, LARGEST_INTEGER, LONG, MOST_SORTED, type_name

if TYPE_CHECKING:
    from ray_snapshot.plain.reducer import Reducer


def reduce_list(reducer: Reducer, value: list[Any]) -> Any:
    return reducer.inside(value, lambda: reducer.items(list.__iter__(value), list.__len__(value)))


def reduce_tuple(reducer: Reducer, value: tuple[Any, ...]) -> Any:
    fields = getattr(type(value), "_fields", None)
    count = tuple.__len__(value)
    if type(value) is tuple or not isinstance(fields, tuple) or len(fields) != count:
        return reducer.inside(value, lambda: reducer.items(tuple.__iter__(value), count))
    pairs = zip(fields, tuple.__iter__(value), strict=True)
    return reducer.inside(value, lambda: typed(reducer, value, pairs, count))


def reduce_deque(reducer: Reducer, value: collections.deque[Any]) -> Any:
    return reducer.inside(
        value, lambda: reducer.items(collections.deque.__iter__(value), collections.deque.__len__(value))
    )


def reduce_collection(reducer: Reducer, value: Collection[Any]) -> Any:
    return reducer.inside(value, lambda: reducer.items(value, len(value)))


def reduce_items(reducer: Reducer, value: Collection[tuple[Any, Any]]) -> Any:
    pairs = ([key, redaction.under(key, item)] for key, item in value)
    return reducer.inside(value, lambda: reducer.items(pairs, len(value)))


def reduce_dict(reducer: Reducer, value: dict[Any, Any]) -> Any:
    cost = _plain_dict_cost(value)
    if cost is not None and redaction.is_active and any(map(redaction.is_redacted, dict.__iter__(value))):
        cost = None
    if cost is not None and cost <= reducer.left:
        reducer.left -= cost
        return dict.copy(value)
    return reducer.inside(value, lambda: reducer.entries(dict.items(value), dict.__len__(value)))


def reduce_mapping_proxy(reducer: Reducer, value: types.MappingProxyType[Any, Any]) -> Any:
    return reducer.inside(value, lambda: reducer.entries(value.items(), len(value)))


def reduce_set(reducer: Reducer, value: Any) -> Any:
    base = set if isinstance(value, set) else frozenset
    return reducer.inside(value, lambda: {"$set": _set_items(reducer, base.__iter__(value), base.__len__(value))})


def _set_items(reducer: Reducer, items: Iterable[Any], count: int) -> list[Any]:
    """Sorted where the items can be compared, else by their text, so that equal sets look equal.

    Those of more than 100,000 items come as they are.
    """
    if count > MOST_SORTED or 2 * count > reducer.left:
        return reducer.items(items, count)
    listed = list(items)
    kinds = set(map(type, listed))
    if len(kinds) == 1 and kinds <= {int, float, str, bytes}:
        return reducer.items(sorted(listed), count)
    found = reducer.items(listed, count)
    return found if reducer.overflowed else sorted(found, key=json.dumps)


def typed(reducer: Reducer, value: Any, pairs: Iterable[tuple[Any, Any]], count: int) -> Any:
    name = type_name(type(value))
    reducer.left -= len(name) + 12
    fields = reducer.entries(pairs, count)
    fields.pop("$type", None)
    return {"$type": name, **fields}


def _plain_dict_cost(value: dict[Any, Any]) -> int | None:
    """Upper bound in bytes of the JSON of a small dict of ASCII names to integers, short strings, bools and None; None
    if it holds anything else, or is large."""
    if dict.__len__(value) > FEW:
        return None
    cost = 2
    for key, item in dict.items(value):
        kind = type(item)
        if type(key) is not str or not key.isascii() or len(key) > LONG:
            return None
        if kind is int:
            cost += len(key) + 24
            if not -LARGEST_INTEGER <= item <= LARGEST_INTEGER:
                return None
        elif kind is str:
            cost += len(key) + 6 + len(item)
            if len(item) > LONG:
                return None
        elif kind is bool or item is None:
            cost += len(key) + 9
        else:
            return None
    return cost
