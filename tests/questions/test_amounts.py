"""What a JSON text holds at a path, and exact sums: as Spark reads them, whichever way they are read here."""

from __future__ import annotations

import json
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ray_snapshot.detectors.json_path import compile_path
from ray_snapshot.questions import amounts
from ray_snapshot.questions.amounts import UNIT, amounts_at, sums

FIELD = compile_path("$.a")


def read(text: str | None, path: str = "$.a", *, nothing_is_nought: bool = True) -> Any:
    """The exact amount as a Decimal, a float, "nothing", or None for what is no number."""
    found = amounts_at(pa.array([text], pa.string()), compile_path(path), nothing_is_nought=nothing_is_nought)
    if found.is_whole[0]:
        return Decimal(int(found.whole[0]))
    if 0 in found.exact:
        return Decimal(found.exact[0]) / UNIT
    return float(found.rounded[0]) if found.is_rounded[0] else "nothing" if found.is_nothing[0] else None


READ = {
    '{"a":5}': Decimal(5),
    '{"a":-5,"b":{"a":7}}': Decimal(-5),
    '{"b":{"a":7},"a":5}': Decimal(5),
    '{"b":{"a":7},"a":2.5}': 2.5,
    '{"b":{"a":7},"a":2.0}': Decimal(2),
    '{"a":1.0}': Decimal(1),
    '{"a":-0.0}': Decimal(0),
    '{"a":1.50}': 1.5,
    '{"a":1e3}': 1000.0,
    '{"a":0.1e1}': 1.0,
    '{"a":1e999}': float("inf"),
    '{"a":true}': Decimal(1),
    '{"a":"5"}': None,
    '{"a":null}': "nothing",
    "{}": "nothing",
    "[1]": "nothing",
    '{"b":"\\"a\\":7,"}': "nothing",
    '{"\\u0061":7}': Decimal(7),
    '{"a":1,"a":2}': None,
    '{"a":NaN}': None,
    '{"a":': None,
    '{"a":9223372036854775808}': Decimal(2**63),
    '{"a":99999999999999999999999999}': Decimal(10**26 - 1),
    '{"a":100000000000000000000000000}': None,
    '{"a":12345678901234567890123456789012345678901234}': 1.2345678901234568e43,
    '{"a":{"$decimal":"1E+2"}}': Decimal(100),
    '{"a":{"$decimal":"-0.25"}}': Decimal("-0.25"),
    '{"a":{"$decimal":".5"}}': Decimal("0.5"),
    '{"a":{"$decimal":"0.0000000000001"}}': None,
    '{"a":{"$decimal":"123456789012345678901.0000000000001"}}': Decimal(123456789012345678901),
    '{"a":{"$decimal":"NaN"}}': None,
    '{"a":{"$int":" 5 "}}': Decimal(5),
    '{"a":{"$int":"1_0"}}': None,
    '{"a":{"$int":"0x10"}}': None,
    '{"a":{"$fraction":"1/3"}}': None,
    '{"a":{"$int":"5","$decimal":"6"}}': None,
}
"""Each as Spark's `try_variant_get` and `schema_of_variant` have it."""


@pytest.mark.parametrize("text", READ)
def test_a_number_is_read_as_spark_reads_it(text: str) -> None:
    assert read(text) == READ[text]
    assert type(read(text)) is type(READ[text])


def test_a_text_that_was_not_recorded_is_no_number_and_a_message_must_have_one() -> None:
    assert read(None) is None
    assert read("{}", nothing_is_nought=False) is None
    assert read("[7]", "$[0]", nothing_is_nought=False) == 7
    assert read('[2.5,"]"]', "$[0]", nothing_is_nought=False) == 2.5
    assert read('{"b":{"c":[0,3]}}', "$.b.c[1]") == 3


@pytest.mark.parametrize("texts", [['{"a":5}', '{"b":1}', '{"a":7}'], ['{"a":true}', '{"a":false}', '{"b":1}']])
def test_many_texts_alike_are_read_at_once_and_mean_the_same(texts: list[str]) -> None:
    many = pa.array([*texts, None] * 500)
    found = amounts_at(many, FIELD, nothing_is_nought=True)
    assert found.exact == {}, "one by one they would have been read by the parser"
    alone = [read(text) for text in [*texts, None]] * 500
    assert [None if not there else value for there, value in zip(found.is_whole, found.whole, strict=True)] == [
        value if isinstance(value, Decimal) else None for value in alone
    ]
    assert found.is_nothing.tolist() == [value == "nothing" for value in alone]


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(['"a":5,', "a", ",}", ""])
).map(json.dumps)
KEYS = st.sampled_from(['"a"', '"\\u0061"', '"b"', json.dumps('"a":7,'), json.dumps("\\"), '"{"'])


def _lists(inner: st.SearchStrategy[str], comma: str) -> st.SearchStrategy[str]:
    return st.lists(inner, max_size=3).map(lambda parts: f"[{comma.join(parts)}]")


def _objects(inner: st.SearchStrategy[str], comma: str, colon: str) -> st.SearchStrategy[str]:
    pairs = st.lists(st.tuples(KEYS, inner), max_size=4, unique_by=lambda pair: json.loads(pair[0]))
    return pairs.map(lambda found: f"{{{comma.join(map(colon.join, found))}}}")


def _texts(comma: str, colon: str) -> st.SearchStrategy[str]:
    return st.recursive(SCALARS, lambda inner: _lists(inner, comma) | _objects(inner, comma, colon))


@pytest.mark.filterwarnings("ignore:Generating overly large repr")
@given(_texts(",", ":"))
@example('{"a":-999999999999999999}')
@example('{"a":1.25,"b":{"a":7}}')
@example('{"b":[{"a":7}]}')
@example('[0,"]"]')
def test_a_number_that_is_seen_in_a_text_is_the_one_that_the_parser_finds(text: str) -> None:
    for path in ("$.a", "$[0]"):
        seen = read(text, path)
        parsed = amounts._read(text, compile_path(path))
        assert seen == (
            Decimal(parsed.exact) / UNIT
            if parsed.exact is not None
            else parsed.rounded
            if parsed.rounded is not None
            else "nothing"
            if parsed.is_nothing
            else None
        )


def test_sums_are_exact_beyond_64_bits_and_floats_are_added_apart() -> None:
    texts = ['{"a":9223372036854775807}'] * 3 + ['{"a":-1}', '{"a":0.5}', '{"a":{"$decimal":"0.1"}}', "{}"]
    found = amounts_at(pa.array(texts), FIELD, nothing_is_nought=True)
    groups = np.array([0, 0, 0, 1, 1, 1, 2])
    assert sums(found, groups, 4) == [
        ((3 * (2**63 - 1)) * UNIT, None),
        (-UNIT + UNIT // 10, 0.5),
        (None, None),
        (None, None),
    ]
