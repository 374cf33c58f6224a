"""What was recorded as JSON comes back as it was, or is said not to."""

import datetime
import decimal
import fractions
import json
import pathlib
import uuid
from collections import deque
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from ray_snapshot.decoding import NotDecodableError, decoded, exact, named
from ray_snapshot.encoding import to_json


@dataclass(frozen=True)
class Coin:
    value: int
    mint: tuple[str, ...] = ()


class Pair(NamedTuple):
    left: int
    right: Any


class Model(BaseModel):
    name: str
    items: list[int] = []


def find(name: str) -> Any:
    return named(name, lambda module: True)


def there_and_back(value: Any) -> Any:
    return decoded(json.loads(to_json(exact(value)).text), lambda name: f"<{name}>", find)


KEYS = st.one_of(
    st.text(max_size=5).filter(lambda text: not text.startswith("$")),
    st.integers(),
    st.tuples(st.integers(), st.text(max_size=3)),
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=5), st.binary(max_size=5)),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.lists(inner, max_size=4).map(deque),
        st.dictionaries(KEYS, inner, max_size=4),
        st.sets(st.tuples(st.integers(), st.integers()), max_size=3),
    ),
    max_leaves=12,
)  # fmt: skip


@given(VALUES)
def test_values_of_python_come_back_with_their_types(value: Any) -> None:
    assert repr(there_and_back(value)) == repr(value) or there_and_back(value) == value


@pytest.mark.parametrize(
    "value",
    [
        float("inf"),
        2**80,
        -(2**9_000),
        complex(1, float("inf")),
        range(1, 9, 2),
        datetime.datetime(2026, 3, 1, 12, 30, 1, 5, tzinfo=datetime.UTC),
        datetime.date(2026, 3, 1),
        datetime.time(12, 30),
        datetime.timedelta(days=-3, seconds=70, microseconds=12),
        datetime.timedelta(seconds=0.5),
        decimal.Decimal("1.10"),
        fractions.Fraction(1, 3),
        uuid.UUID(int=7),
        pathlib.Path("a/b"),
        Coin(3),
        Pair(1, [2]),
        Model(name="x", items=[1]),
        there_and_back,
        dict,
    ],
    ids=lambda value: getattr(value, "__name__", repr(value)),
)
def test_tagged_values_come_back(value: Any) -> None:
    found = there_and_back(value)
    assert (type(found), found) == (type(value), value)


def test_arrays_and_handles_come_back() -> None:
    found = there_and_back({"grid": np.arange(6, dtype=np.int16).reshape(2, 3)})["grid"]
    assert (found.dtype, found.tolist()) == (np.int16, [[0, 1, 2], [3, 4, 5]])
    assert decoded({"$machine": "a"}, lambda name: f"<{name}>", find) == "<a>"


@pytest.mark.parametrize(
    "value", [object(), lambda: None, iter([]), ValueError("x")], ids=lambda value: type(value).__name__
)
def test_what_says_too_little_is_refused(value: Any) -> None:
    with pytest.raises(NotDecodableError):
        there_and_back(value)


@pytest.mark.parametrize(
    "recorded",
    [
        {"$fraction": "1e1000000000"},
        {"$fraction": "1/0"},
        {"$fraction": "1/2/3"},
        {"$array": {"dtype": "S4096", "shape": [1_000_000], "values": [""] * 1_000_000}},
        {"$array": {"dtype": "int8", "shape": [-1], "values": [1]}},
    ],
    ids=["exponent", "nothing", "two", "wide", "no shape"],
)
def test_what_would_take_all_memory_or_time_is_refused(recorded: Any) -> None:
    with pytest.raises(NotDecodableError):
        decoded(recorded, str, find)
