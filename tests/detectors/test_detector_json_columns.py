"""Reading a path of many states at once gives what reading each by itself gives, whatever the states are."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

from ray_snapshot.detectors.holdings import in_machines
from ray_snapshot.detectors.json_column import values_at
from ray_snapshot.detectors.json_path import MISSING, compile_path
from ray_snapshot.snapshot import Snapshot

COUNT = 1_500


def _texts(*odd: str) -> list[str]:
    return [json.dumps({"a": number, "b": {"c": number % 2 == 0}}) for number in range(COUNT)] + list(odd)


def _singly(texts: list[str], path: str) -> list[object]:
    return [compile_path(path).find(json.loads(text)) for text in texts]


@pytest.mark.parametrize("path", ["$.a", "$.b.c", "$.absent", "$.b.absent"])
def test_plain_states_are_read_at_once_and_give_the_same(path: str) -> None:
    texts = _texts('{"b":{}}', '{"a":-0,"\\u0061b":1}', f'{{"a":{2**63 - 1}}}', '{"\\u0061":7}')

    found = values_at(pa.array(texts), compile_path(path))

    assert found is not None
    assert [(type(one), one) for one in found] == [(type(one), one) for one in _singly(texts, path)]


@pytest.mark.parametrize(
    "odd",
    [
        f'{{"a":{2**63}}}', '{"a":1.0}', '{"a":1e3}', '{"a":true}', '{"a":"1"}', '{"a":null}', '{"a":[1]}',
        '{"a":{"$int":"5"}}', '{"a":1,"a":2}', '{"a":NaN}', '["a"]', "null", "3", "{", '{"a":1', '{"a":01}', "", " {}",
        '{"a":1}{"a":2}', '{"a":\n1}', '{"s":"}\n{","a":1}', '{"a":1} {"a":2}\n{"a":3}',
    ],
)  # fmt: skip
def test_a_state_that_is_none_of_these_sends_all_to_be_read_one_by_one(odd: str) -> None:
    assert values_at(pa.array(_texts(odd)), compile_path("$.a")) is None


def test_texts_that_only_together_have_the_right_number_of_values_are_not_taken_for_each_other() -> None:
    apart = ['{"s":"}', '{","a":1}', '{"a":5}{"a":6}']

    assert values_at(pa.array(_texts(*apart)), compile_path("$.a")) is None


def test_a_null_value_is_told_from_none_at_all() -> None:
    states: list[object] = [{"a": 1}] * COUNT + [{"a": None}, {}]
    machines = [{"machine": f"m{number}", "state": state} for number, state in enumerate(states)]

    found = in_machines(Snapshot.from_rows(machines=machines), "$.a")

    assert found.values == [1] * COUNT + [None, MISSING]
    assert found.rows == list(range(COUNT + 2))


def test_rows_that_are_left_out_do_not_move_the_others() -> None:
    machines = [
        {"machine": f"m{number}", "class_name": "One" if number % 3 else "Other", "state": {"a": number}}
        for number in range(2 * COUNT)
    ]

    found = in_machines(Snapshot.from_rows(machines=machines), {"One": "$.a"})

    assert found.rows == found.values == [number for number in range(2 * COUNT) if number % 3]
