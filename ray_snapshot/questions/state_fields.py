"""The fields on top of a recorded state, as texts: as Spark's `from_json` into a map of texts writes them.

A text stands for itself; a number, list or object is written as compact JSON, floats as Java writes them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from typing import Any

from ray_snapshot.json_text import parsed_json

WHOLE = "(state)"
"""Stands for a state that has no fields, such as a list."""

_PLAIN = 10_000_000
"""Java writes floats from a thousandth up to this without an exponent."""


def fields_of(state: str | None) -> dict[str, str | None]:
    """A state by field; one that is no object is a field of its own. Of a key that occurs twice the first counts."""
    if state is None:
        return {}
    if not state.startswith("{"):
        return {WHOLE: state}
    try:
        found = parsed_json(state, object_pairs_hook=_first_of_each)
    except ValueError:
        return {WHOLE: state}
    return {name: _text(value) for name, value in found.items()}


def _first_of_each(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else dict(reversed(pairs))


def _text(value: Any) -> str | None:
    if value is None or type(value) is str:
        return value
    return "".join(_parts(value))


def _parts(value: Any) -> Iterator[str]:
    """A JSON value as text, piece by piece."""
    match value:
        case None:
            yield "null"
        case bool():
            yield "true" if value else "false"
        case int():
            yield str(value)
        case float():
            yield javas(value)
        case str():
            yield json.dumps(value, ensure_ascii=False)
        case list():
            yield "["
            for place, item in enumerate(value):
                yield "," * (place > 0)
                yield from _parts(item)
            yield "]"
        case dict():
            yield "{"
            for place, (name, item) in enumerate(value.items()):
                yield "," * (place > 0) + json.dumps(name, ensure_ascii=False) + ":"
                yield from _parts(item)
            yield "}"


def javas(number: float) -> str:
    """A float as Java writes it: the shortest digits that tell it, with an exponent below 0.001 and from ten million on."""
    if not math.isfinite(number):
        return '"NaN"' if math.isnan(number) else '"Infinity"' if number > 0 else '"-Infinity"'
    if number == 0 or 1e-3 <= abs(number) < _PLAIN:
        return repr(number)
    sign = "-" if number < 0 else ""
    digits, exponent = _digits(abs(number))
    return f"{sign}{digits[0]}.{digits[1:] or '0'}E{exponent}"


def _digits(number: float) -> tuple[str, int]:
    """The shortest digits of a float, and the power of ten of the first of them."""
    mantissa, _, exponent = f"{number!r}".partition("e")
    whole, _, places = mantissa.partition(".")
    digits = whole + places
    first = len(digits) - len(digits.lstrip("0"))
    power = int(exponent or 0) + len(whole) - 1 - first
    return digits.strip("0"), power
