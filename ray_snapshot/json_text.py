"""Recorded JSON texts, parsed within bounds: a stranger's history may hold longer or deeper ones than any writer stores.

Imports the standard library only.
"""

from __future__ import annotations

import json
from typing import Any

LONGEST_JSON = 16_000_000
"""Bytes of one JSON text: no writer stores more than half of that (`encoding`), and parsed it takes many times as much."""

DEEPEST_JSON = 256
"""Lists and objects in one another: a writer stops at 64 of a value's own, of which each may take a few for its tag."""

MOST_IN_JSON = 3_000_000
"""Lists and objects in one JSON text: a writer stops at a million of a value's own."""


class NotStoredError(ValueError):
    """A JSON text that no writer of a history stores; the message says why."""


def parsed_json(text: str, **how: Any) -> Any:
    """What a JSON text holds, parsed as `json.loads` is told `how`; raises `ValueError` if it is none.

    Raises `NotStoredError` for what is longer, is nested deeper, or holds more lists and objects, than any value that a writer
    records: it could be parsed, and not be printed.
    """
    if len(text) > LONGEST_JSON:
        raise NotStoredError(f"a JSON text of {len(text)} characters, longer than any that is stored")
    try:
        found = json.loads(text, **how)
    except RecursionError:
        raise _too_deep() from None
    if text.count("[") + text.count("{") > DEEPEST_JSON and _is_too_deep(found):
        raise _too_deep()
    return found


def strictly_parsed(text: str, **how: Any) -> Any:
    """`parsed_json`, but `ValueError` also for what readers of JSON read unlike each other: a key twice, NaN, Infinity."""
    return parsed_json(text, object_pairs_hook=unique_keys, parse_constant=_refuse, **how)


def unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """For `object_pairs_hook`: the pairs as a dict; `ValueError` if a key occurs twice."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _too_deep() -> NotStoredError:
    return NotStoredError(f"a JSON text that is nested more than {DEEPEST_JSON} deep, or of too many lists and objects")


def _is_too_deep(value: Any) -> bool:
    level, count = [value], 0
    for _ in range(DEEPEST_JSON):
        count += len(level)
        if count > MOST_IN_JSON:
            return True
        level = [
            inner
            for item in level
            for inner in (item.values() if isinstance(item, dict) else item if isinstance(item, list) else ())
            if isinstance(inner, (dict, list))
        ]
    return bool(level)
