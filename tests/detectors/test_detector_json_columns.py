"""Reading a path of many states at once gives what reading each by itself gives; what paths and remembered values are."""

import json
import pickle
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json as pj
import pytest

import ray_snapshot as rs
from ray_snapshot import Snapshot
from ray_snapshot.adding import total
from ray_snapshot.detectors import Reached, TokenConservation, UniqueToken, holdings, json_column
from ray_snapshot.detectors.holdings import in_machines
from ray_snapshot.detectors.json_column import arrays_at
from ray_snapshot.detectors.json_path import MISSING, compile_path
from ray_snapshot.limits import LIMITS

COUNT = 1_500


def _texts(*odd: str) -> list[str]:
    return [json.dumps({"a": number, "b": {"c": number % 2 == 0}}) for number in range(COUNT)] + list(odd)


def array_at(texts: pa.Array, path: str) -> pa.Array:
    (found,) = arrays_at(texts, [compile_path(path)])
    return found


def _singly(texts: list[str], path: str) -> list[object]:
    return [compile_path(path).find(json.loads(text)) for text in texts]


@pytest.mark.parametrize("path", ["$.a", "$.b.c", "$.absent", "$.b.absent"])
def test_plain_states_are_read_at_once_and_give_the_same(path: str) -> None:
    texts = _texts('{"b":{}}', '{"a":-0,"\\u0061b":1}', f'{{"a":{2**63 - 1}}}', '{"\\u0061":7}')
    found = array_at(pa.array(texts), path)
    assert found is not None
    values = [MISSING if one is None else one for one in found.to_pylist()]
    assert [(type(one), one) for one in values] == [(type(one), one) for one in _singly(texts, path)]


@pytest.mark.parametrize(
    "odd",
    [
        f'{{"a":{2**63}}}', '{"a":1.0}', '{"a":1e3}', '{"a":true}', '{"a":"1"}', '{"a":[1]}',
        '{"a":{"$int":"5"}}', '{"a":1,"a":2}', '{"a":NaN}', '["a"]', "null", "3", "{", '{"a":1', '{"a":01}', "", " {}",
        '{"a":1}{"a":2}', '{"a":\n1}', '{"s":"}\n{","a":1}', '{"a":1} {"a":2}\n{"a":3}',
    ],
)  # fmt: skip
def test_a_state_that_is_none_of_these_sends_all_to_be_read_one_by_one(odd: str) -> None:
    assert array_at(pa.array(_texts(odd)), "$.a") is None


def test_texts_that_only_together_have_the_right_number_of_values_are_not_taken_for_each_other() -> None:
    apart = ['{"s":"}', '{","a":1}', '{"a":5}{"a":6}']
    assert array_at(pa.array(_texts(*apart)), "$.a") is None


def test_a_null_value_is_told_from_none_at_all() -> None:
    states: list[object] = [{"a": 1}] * COUNT + [{"a": None}, {}]
    machines = [{"machine": f"m{number}", "state": state} for number, state in enumerate(states)]
    found = in_machines(Snapshot.from_rows(machines=machines), "$.a")
    assert list(found.pairs()) == list(enumerate([1] * COUNT + [None, MISSING]))


def test_rows_that_are_left_out_do_not_move_the_others() -> None:
    machines = [
        {"machine": f"m{number}", "class_name": "One" if number % 3 else "Other", "state": {"a": number}}
        for number in range(2 * COUNT)
    ]
    found = in_machines(Snapshot.from_rows(machines=machines), {"One": "$.a"})
    assert list(found.pairs()) == [(number, number) for number in range(2 * COUNT) if number % 3]


def _whole(count: int, odd: object = None) -> Snapshot:
    states: list[object] = [{"a": number % 7, "b": {"c": number == 3}, "t": number} for number in range(count)]
    rows = [{"machine": f"m{number:05d}", "state": state} for number, state in enumerate([*states, odd][: count + 1])]
    return Snapshot.from_rows(machines=rows if odd is not None else rows[:count])


def test_equal_texts_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    read = json_column._of_different
    monkeypatch.setattr(
        json_column, "_of_different", lambda texts, paths: seen.append(len(texts)) or read(texts, paths)
    )
    texts = [f'{{"a":{number % 5}}}' for number in range(10_000)]
    assert array_at(pa.array(texts), "$.a").to_pylist() == [number % 5 for number in range(10_000)]
    assert seen == [5]


def test_a_driver_without_a_state_sends_none_to_be_read_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor does a machine that has nothing there."""
    rows = [{"machine": "a"}, *({"machine": f"m{number}", "state": {"a": number}} for number in range(COUNT))]
    rows += [{"machine": "driver", "state": None}]
    rows[0] |= {"state": {}}
    taken = Snapshot.from_rows(machines=rows[::-1])
    expected = sorted([*range(COUNT), -1])
    monkeypatch.setattr(holdings, "_parsed", lambda *_: pytest.fail("read one by one"))
    found = [-1 if value is MISSING else value for _, value in in_machines(taken, "$.a").pairs()]
    assert sorted(found) == expected


def test_a_few_long_texts_beside_many_short_ones_are_not_read_together() -> None:
    column = pa.chunked_array([["x"] * 50_000, ["y" * 3_000_000, None] * 9, ["x"] * 50_000])
    pieces = [*holdings._chunks(np.arange(len(column)), 1_000_000, holdings._lengths(column))]
    assert np.concatenate(pieces).tolist() == list(range(len(column)))
    lengths = [len(text or "") for text in column.to_pylist()]
    assert all(sum(lengths[row] for row in piece) <= LIMITS.holding_bytes + 3_000_000 for piece in pieces)


@pytest.mark.parametrize(
    "odd", ["{", '{"a":1.5}', '{"a":"x"}', '{"a":true}', f'{{"a":{2**63}}}', "", '{"a":1,"a":2}', '{"a":1,"b":NaN}']
)
def test_few_texts_of_which_one_is_odd_are_read_one_by_one(odd: str) -> None:
    assert array_at(pa.array(['{"a":1}', odd]), "$.a") is None


@pytest.mark.parametrize(
    "paths", [("$.a", "$.b.c", "$.x"), ("$.b", "$.b.c"), ("$.b.c", "$.b"), ("$.a", "$['a']"), ("$.a", "$.s")]
)
def test_several_paths_that_are_read_together_give_what_each_gives_by_itself(paths: tuple[str, ...]) -> None:
    texts = pa.array(
        [json.dumps({"a": n, "b": {"c": n % 2 == 0}, "s": n if n < COUNT - 1 else "odd"}) for n in range(COUNT)]
    )
    compiled = [compile_path(path) for path in paths]
    found = arrays_at(texts, compiled)
    alone = [array_at(texts, path) for path in paths]
    assert [one and one.to_pylist() for one in found] == [one and one.to_pylist() for one in alone]
    assert found[0 if paths[0] != "$.b" else 1] is not None


def test_from_the_second_snapshot_on_the_states_are_read_once_for_all_detectors(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    detectors = [TokenConservation(0, "$.a"), UniqueToken("$.b.c"), Reached("$.t", 5), Reached("$.a", 1)]
    first, second = _whole(COUNT), _whole(COUNT)
    expected = [detector.evaluate(first) for detector in detectors]
    read, times = pj.read_json, []
    monkeypatch.setattr(pj, "read_json", lambda *args, **settings: times.append(1) or read(*args, **settings))
    found = [detector.evaluate(second) for detector in detectors]
    assert len(times) == 1
    assert [(one.holds, one.evidence) for one in found] == [(one.holds, one.evidence) for one in expected]


@pytest.mark.parametrize(
    "odd", [None, {"a": 2.5}, {"a": None, "b": None}, {"a": {"$int": str(2**80)}, "t": -1}, {"a": "x", "t": True}, {}]
)
@pytest.mark.parametrize("count", [COUNT, 40], ids=["by-arrow", "by-json"])
def test_detectors_say_the_same_of_states_that_are_read_as_columns_and_one_by_one(
    odd: object, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    detectors = [
        TokenConservation(0, "$.a"), UniqueToken("$.b.c"), UniqueToken("$.a"), Reached("$.t", 5), Reached("$.a", 2**70),
        Reached("$.a", -(2**70)), Reached("$.b.c", 1), Reached("$.t", 3.5, machines="m000*"),
    ]  # fmt: skip
    whole = _whole(count, odd)
    fast = [detector.evaluate(whole) for detector in detectors]
    monkeypatch.setattr(holdings, "arrays_at", lambda texts, paths: [None] * len(paths))
    slow = [detector.evaluate(_whole(count, odd)) for detector in detectors]
    assert [(one.holds, one.evidence, one.sentence) for one in fast] == [
        (one.holds, one.evidence, one.sentence) for one in slow
    ]


@pytest.mark.contract
def test_sums_that_do_not_fit_64_bits_are_exact() -> None:
    machines = [{"machine": f"m{number}", "state": {"a": 2**62 + number}} for number in range(COUNT)]
    found = TokenConservation(0, "$.a").evaluate(Snapshot.from_rows(machines=machines))
    assert found.evidence["found"] == sum(2**62 + number for number in range(COUNT))


VALUE = {"balance": 7, "pots": [{"big one": 1}, {"big one": [2, 3]}], "a.b": 4, "0": 5, "none": None, "é": 6}


@pytest.mark.parametrize(
    ("path", "found"),
    [
        ("$", VALUE),
        ("$.balance", 7),
        ("$['balance']", 7),
        ('$["balance"]', 7),
        ("$.pots[1]['big one'][0]", 2),
        ("$['a.b']", 4),
        ("$['0']", 5),
        ("$.0", 5),
        ("$.é", 6),
        ("$.none", None),
        ("$.none.x", MISSING),
        ("$[0]", MISSING),
        ("$.pots.big", MISSING),
        ("$.pots[2]", MISSING),
        ("$.balance[0]", MISSING),
        ("$.Balance", MISSING),
    ],
)
def test_a_path_finds_what_it_leads_to(path: str, found: Any) -> None:
    assert compile_path(path).find(VALUE) is found or compile_path(path).find(VALUE) == found


@pytest.mark.parametrize(
    "path",
    ["", "balance", ".balance", "$balance", "$.", "$..a", "$.a.", "$[", "$[-1]", "$[*]", "$[1:2]", "$['a'",
     "$['']", "$['a?']", "$. a", "$.a[?(@.b)]", "$[0]x", "$[9999999999]", "$[\u0661]", None, 3],
)  # fmt: skip
def test_everything_else_is_refused_with_the_path_in_the_message(path: Any) -> None:
    with pytest.raises(rs.SettingError) as error:
        compile_path(path)
    assert repr(path) in str(error.value)


def test_a_compiled_path_and_what_it_does_not_find_survive_a_pickle() -> None:
    path = pickle.loads(pickle.dumps(compile_path("$.x[0]")))
    assert path.find({"x": [1]}) == 1
    assert pickle.loads(pickle.dumps(MISSING)) is MISSING


ROWS = [{"machine": "a"}, {"machine": "b"}]


@dataclass
class Count:
    """A user's own; what it adds up hangs on what it was made with."""

    times: int
    name: str = "count"
    is_timeless: bool = True

    def partial(self, part: Snapshot) -> int:
        return self.times * part.tables["machines"].num_rows

    def merge(self, one: int, other: int) -> int:
        return one + other


class Told(Count):
    """The same, which says what it was made with."""

    asked = 0

    @property
    def spec(self) -> dict[str, Any]:
        return {"times": self.times}

    def partial(self, part: Snapshot) -> int:
        Told.asked += 1
        return super().partial(part)


def test_two_detectors_that_tell_nothing_of_themselves_do_not_share_a_value() -> None:
    found = Snapshot.from_rows(machines=ROWS)
    assert total(Count(3), found) == 3 * total(Count(1), found) > 0


def test_what_tells_of_itself_is_asked_once() -> None:
    found = Snapshot.from_rows(machines=ROWS)
    assert total(Told(3), found) == 3 * total(Told(1), found) == total(Told(3), found)
    assert Told.asked == 2
