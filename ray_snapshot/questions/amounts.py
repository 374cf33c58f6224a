"""The amounts at a path of many JSON texts, and their exact sums: what `spark_jobs/engine/amounts.py` says in Spark's words.

What a number is, what is exact and what counts as nothing are as there, and a test holds the two together. Numbers that can be
seen in a text by a pattern are read many at a time by Arrow; only the other texts are parsed. Read `counting` next.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.detectors.json_column import array_at
from ray_snapshot.detectors.json_path import MISSING, JsonPath
from ray_snapshot.json_text import strictly_parsed

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Booleans = npt.NDArray[np.bool_]

UNIT = 10**12
"""Exact amounts are whole numbers of these parts of one: they have at most twelve places."""

MOST = 10**38
"""No exact amount, and no exact sum, is as large, in these parts."""

_LARGEST, _SMALLEST = 2**63 - 1, -(2**63)
_MOST_DIGITS = 38
_NUMBER = r"(?P<number>-?(?:0|[1-9][0-9]{0,17})(?:\.[0-9]{1,20})?)"
_DECIMAL = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,4})?\s*", re.ASCII)
_TAGS = ("$int", "$decimal")
_PRECISE = Context(prec=20_000)
_HALF = 32


@dataclass(slots=True)
class Amounts:
    """What each of some texts holds: a whole number, a float, an exact amount beyond 64 bits, nothing, or no number."""

    whole: Integers
    is_whole: Booleans
    rounded: Floats
    is_rounded: Booleans
    is_nothing: Booleans
    exact: dict[int, int] = field(default_factory=dict)
    """The exact amounts that are no `whole` ones, in parts of `UNIT`."""

    @property
    def is_unreadable(self) -> Booleans:
        """Where a number is due, and is none."""
        unreadable: Booleans = ~(self.is_whole | self.is_rounded | self.is_nothing)
        unreadable[list(self.exact)] = False
        return unreadable

    def as_floats(self) -> Floats:
        """Each amount as a float; 0 where there is none."""
        found = np.where(self.is_rounded, self.rounded, np.where(self.is_whole, self.whole.astype(np.float64), 0.0))
        for place, parts in self.exact.items():
            found[place] = parts / UNIT
        return found


class Sum(NamedTuple):
    """The amounts of one place added up: those that are exact, in parts of `UNIT`, and the floats; None where there is none."""

    exact: int | None = None
    rounded: float | None = None

    def plus(self, other: Sum) -> Sum:
        """Both added up."""
        return Sum(_added(self.exact, other.exact), _added(self.rounded, other.rounded))

    @property
    def total(self) -> float:
        """All of it, as a float."""
        return (self.exact or 0) / UNIT + (self.rounded or 0.0)


def _added(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else one + other


class _Read(NamedTuple):
    """What one text holds at the path: an exact number of parts, or a float, or nothing; if none of them, no number."""

    exact: int | None = None
    rounded: float | None = None
    is_nothing: bool = False


NO_NUMBER = _Read()


def amounts_at(texts: Any, path: JsonPath, *, nothing_is_nought: bool) -> Amounts:
    """What the path finds in an Arrow array of texts (null: not recorded whole).

    `nothing_is_nought`: a machine whose state has nothing there holds nothing; a message must have a number.
    """
    count = len(texts)
    found = Amounts(
        np.zeros(count, np.int64),
        np.zeros(count, np.bool_),
        np.zeros(count, np.float64),
        np.zeros(count, np.bool_),
        np.zeros(count, np.bool_),
    )
    is_recorded = texts.is_valid().to_numpy(zero_copy_only=False)
    places, recorded = np.flatnonzero(is_recorded), texts.drop_null()
    numbers = array_at(recorded, path)
    if numbers is not None:  # all of them are whole numbers, or all are truth values
        is_there = numbers.is_valid().to_numpy(zero_copy_only=False)
        found.whole[places[is_there]] = numbers.drop_null().cast(pa.int64()).to_numpy()
        found.is_whole[places] = is_there
        found.is_nothing[places] = ~is_there & nothing_is_nought
        return found
    _see(found, texts, path)
    unseen = np.flatnonzero(is_recorded & ~(found.is_whole | found.is_rounded))
    for place, text in zip(unseen.tolist(), texts.take(pa.array(unseen)).to_pylist(), strict=True):
        read = _read(text, path)
        if read.exact is not None:
            found.exact[place] = read.exact
        elif read.rounded is not None:
            found.rounded[place], found.is_rounded[place] = read.rounded, True
        else:
            found.is_nothing[place] = read.is_nothing and nothing_is_nought
    return found


def sums(amounts: Amounts, groups: Integers, count: int) -> list[Sum]:
    """The amounts of each of `count` groups added up; `groups`: to which each amount belongs."""
    # In two halves, so that no sum of 64 bits overflows.
    upper, lower, rounded = np.zeros(count, np.int64), np.zeros(count, np.int64), np.zeros(count, np.float64)
    of_whole, whole = groups[amounts.is_whole], amounts.whole[amounts.is_whole]
    np.add.at(upper, of_whole, whole >> _HALF)
    np.add.at(lower, of_whole, whole & (2**_HALF - 1))
    of_rounded = groups[amounts.is_rounded]
    np.add.at(rounded, of_rounded, amounts.rounded[amounts.is_rounded])
    exact: list[int | None] = [None] * count
    for group in _there(of_whole, count):
        exact[group] = ((int(upper[group]) << _HALF) + int(lower[group])) * UNIT
    for place, parts in amounts.exact.items():
        group = int(groups[place])
        exact[group] = (exact[group] or 0) + parts
    floats: list[float | None] = [None] * count
    for group in _there(of_rounded, count):
        floats[group] = float(rounded[group])
    return [Sum(*pair) for pair in zip(exact, floats, strict=True)]


def _there(groups: Integers, count: int) -> list[int]:
    """Which of `count` groups are among these."""
    found: list[int] = np.flatnonzero(np.bincount(groups, minlength=count)).tolist()
    return found


# ---- numbers that are seen ---------------------------------------------------------------------------------------------


def _see(found: Amounts, texts: Any, path: JsonPath) -> None:
    """Take the numbers that a pattern tells for sure; a text that is in any way special is left to the parser."""
    pattern = _pattern(path)
    if pattern is None or not len(texts):
        return
    number = pc.struct_field(pc.extract_regex(texts, pattern), "number")
    seen = pc.and_(_is_clear(texts, path), number.is_valid())
    seen = pc.fill_null(seen, False)
    has_places = pc.fill_null(pc.match_substring(number, "."), False)
    _take(found.whole, found.is_whole, number, pc.and_not(seen, has_places), pa.int64())
    # 2.0 is a whole number, and 2.5 is a float: the few texts of the first kind are left to the parser.
    is_float = pc.and_(has_places, pc.fill_null(pc.match_substring_regex(number, r"\.[0-9]*[1-9]"), False))
    _take(found.rounded, found.is_rounded, number, pc.and_(seen, is_float), pa.float64())


def _take(values: Any, mask: Booleans, number: Any, chosen: Any, kind: pa.DataType) -> None:
    chosen_mask = chosen.to_numpy(zero_copy_only=False)
    if chosen_mask.any():
        mask |= chosen_mask
        values[chosen_mask] = pc.cast(number.filter(chosen), kind).to_numpy(zero_copy_only=False)


def _pattern(path: JsonPath) -> str | None:
    """What JSON looks like that has a number at the path: a field of the whole, or its first element. None: too much does.

    In front of a field no object begins, and `_is_clear` excludes what is escaped: so each quote opens or closes a string, and
    what stands in quotes before a colon is a key of the whole.
    """
    match path.steps:
        case [0]:
            return rf"^\[{_NUMBER}[,\]]"
        case [str() as name] if re.fullmatch(r"[A-Za-z0-9_]+", name):
            return rf'^\{{[^{{]*"{name}":{_NUMBER}[,}}]'
    return None


def _is_clear(texts: Any, path: JsonPath) -> Any:
    """Whether a text is whole, and the name of the field stands in it once, and nothing that could be read as it."""
    (step,) = path.steps
    if step == 0:
        return pc.ends_with(texts, "]")
    once = pc.equal(pc.count_substring(texts, f'"{step}"'), 1)
    plain = pc.and_(pc.ends_with(texts, "}"), pc.invert(pc.match_substring(texts, "\\")))
    return pc.and_(once, plain)


# ---- texts that are parsed ---------------------------------------------------------------------------------------------


class _Written(str):
    """A number with places or an exponent, as it is written."""


def _read(text: str, path: JsonPath) -> _Read:
    """What one text holds; a text that is no JSON, or has a key twice, holds no number."""
    try:
        value = strictly_parsed(text, parse_float=_Written)
    except ValueError:
        return NO_NUMBER
    return _amount(path.find(value))


def _amount(value: Any) -> _Read:
    """A JSON value as an amount; numbers with places or an exponent come as they are written."""
    if value is MISSING or value is None:
        return _Read(is_nothing=True)
    if type(value) is bool or type(value) is int:
        return _whole(int(value))
    if type(value) is _Written:
        return _with_places(value)
    if type(value) is dict and len(value) == 1:
        ((tag, text),) = value.items()
        if tag in _TAGS and type(text) is str:
            return _tagged(text)
    return NO_NUMBER


def _whole(value: int) -> _Read:
    if _SMALLEST <= value <= _LARGEST:
        return _Read(exact=value * UNIT)
    if len(str(abs(value))) > _MOST_DIGITS:
        return _Read(rounded=float(str(value)))  # infinite where `float(value)` would raise
    return _bounded(value * UNIT)


def _with_places(text: str) -> _Read:
    digits, _, places = text.lstrip("-").partition(".")
    if "e" in text or "E" in text or len(digits) + len(places) > _MOST_DIGITS or places.strip("0"):
        return _Read(rounded=float(text))
    return _bounded(int(digits) * (-1 if text.startswith("-") else 1) * UNIT)


def _bounded(parts: int) -> _Read:
    return _Read(exact=parts) if abs(parts) < MOST else NO_NUMBER


def _tagged(text: str) -> _Read:
    """The number that was recorded as a text; no number if it has more places than an exact amount.

    From 10^20 on, Spark cannot tell whether it has, and rounds it.
    """
    if _DECIMAL.fullmatch(text) is None:
        return NO_NUMBER
    number = Decimal(text.strip())
    if number.adjusted() > _MOST_DIGITS:
        return NO_NUMBER
    parts = _PRECISE.multiply(number, UNIT)
    whole = parts.to_integral_value(ROUND_HALF_UP)
    if whole != parts and abs(number) < 10**20:
        return NO_NUMBER
    return _bounded(int(whole))
