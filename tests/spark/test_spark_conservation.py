"""The job `conservation` on the known history, and side by side with the detector that asks the same question."""

from __future__ import annotations

import json
import math
import random
import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from small_histories import BANK, bank, live, rows, snapshot, write

from ray_snapshot import Snapshot
from ray_snapshot.detectors import TokenConservation
from ray_snapshot.errors import SettingError

pytestmark = pytest.mark.spark


@pytest.fixture(scope="module")
def frames(spark: Any, history: Any) -> dict[str, Any]:
    from ray_snapshot.spark_jobs import conservation

    found: dict[str, Any] = conservation.run(spark, history)
    return found


def test_the_ledger_counts_money_in_machines_and_in_flight(frames: dict[str, Any]) -> None:
    ledger = rows(frames["ledger"], "snapshot_id")
    assert len(ledger) == 7  # the aborted snapshot is none of them
    at_1, at_6 = ledger["bank-1-0001"], ledger["bank-1-0006"]
    assert (at_1["in_machines"], at_1["in_flight"], at_1["total"], at_1["difference"], at_1["holds"]) == (
        293,
        7,
        300,
        0,
        True,
    )
    assert (at_6["in_machines"], at_6["in_flight"], at_6["total"], at_6["difference"], at_6["holds"]) == (
        290,
        0,
        290,
        -10,
        False,
    )


def test_the_break_is_named_with_the_last_snapshot_that_was_right(frames: dict[str, Any]) -> None:
    (row,) = rows(frames["breaks"], "run_id").values()
    assert (row["snapshots"], row["held"], row["broken"], row["unknown"]) == (7, 4, 3, 0)
    assert (row["first_broken"], row["last_right"], row["difference"]) == ("bank-1-0005", "bank-1-0004", -10)


def ledger_of(spark: Any, history: Any, **given: Any) -> dict[Any, dict[str, Any]]:
    from ray_snapshot.spark_jobs import conservation

    return rows(conservation.run(spark, history, **conservation.options(**given))["ledger"], "snapshot_id")


@pytest.mark.nightly
def test_a_ledger_of_ones_own_needs_no_stored_detector(spark: Any, tmp_path: Path) -> None:
    ledger = ledger_of(spark, write(tmp_path / "h", bank()), state="$.balance", total=293.0)
    # Without the deposits in flight, the machines hold 293 exactly where one is on its way.
    assert [key for key, row in ledger.items() if row["holds"]] == ["bank-1-0001"]


@pytest.mark.nightly
def test_what_is_given_takes_the_place_of_what_is_stored_each_of_itself_only(spark: Any, history: Any) -> None:
    ledger = ledger_of(spark, history, total=290.0)
    assert [key for key, row in ledger.items() if row["holds"]] == ["bank-1-0005", "bank-1-0006", "bank-1-0007"]
    assert {row["system"] for row in ledger.values()} == {"bank"}, "a total says nothing of runs without a ledger"
    unread = ledger_of(spark, history, messages=["deposit=$[1]"])
    assert unread["bank-1-0001"]["unreadable"] == 1
    assert unread["bank-1-0000"]["holds"] is True
    more = ledger_of(spark, history, messages=["gift=$[1]"])
    assert [row["in_flight"] for row in more.values() if row["system"] == "bank"][:2] == [0, 7], "deposits still count"


def test_options_that_make_no_ledger_are_refused_before_spark_starts() -> None:
    from ray_snapshot.spark_jobs import conservation

    with pytest.raises(SettingError, match="METHOD=PATH"):
        conservation.options(messages=["deposit"])
    with pytest.raises(SettingError, match="JSON path"):
        conservation.options(state="balance")


# Side by side with the detector

SEED = 20260301
VALUES = [0, 1, 7, -3, 2**53 + 1, 10**25, 0.5, 0.1, 1.0, 1e3, True, False, None, "5", [], {}]
VALUES += [Decimal("0.10"), Decimal("1E+2"), Decimal("-2.5"), Decimal("NaN"), math.nan, {"$int": 5}]
PLAIN = [1, 2, 3]
DETECTORS = [
    BANK,
    TokenConservation(total=3, state="$.balance", messages={"deposit": "$[0]"}),
    TokenConservation(total=None, state="$.balance", messages={"deposit": "$[0]"}),
    TokenConservation(total=0.3, state="$.balance", tolerance=0.11),
    TokenConservation(total=0, state="$.pots['big one'][1]"),
    TokenConservation(total=2**53 + 1, state={"Account": "$.balance", "Other": "$.pots['big one'][0]"}),
    TokenConservation(state={"Account": "$.balance"}, messages={"deposit": "$[0]", "give": "$[0].amount"}),
    TokenConservation(total=3, state="$.balance", messages={"deposit": "$[0]", "__init__": "$[0]"}),
]


def _some_machine(chance: random.Random, name: str, values: list[Any]) -> dict[str, Any]:
    state: Any = {"balance": chance.choice(values), "pots": {"big one": [chance.choice(values), 0]}}
    if chance.random() < 0.1:
        del state["balance"]
    return {"machine": name, "class_name": chance.choice(["Account", "Other", "Third"]), "state": state}


def _some_message(chance: random.Random, values: list[Any]) -> dict[str, Any]:
    method = chance.choice(["deposit", "deposit", "deposit", "give", "nothing", "__init__"])
    args = {"give": [{"amount": chance.choice(values)}], "nothing": []}.get(method, [chance.choice(values)])
    return {"source": "m0", "target": "m1", "method": method, "args": args}


def _some_run(chance: random.Random, run: str) -> list[Snapshot]:
    """Six snapshots: plain small numbers in most, everything a state can hold in some, and what makes a cut unusable."""
    taken = []
    for n in range(6):
        values = VALUES if chance.random() < 0.4 else PLAIN
        machines = [_some_machine(chance, f"m{i}", values) for i in range(chance.randint(0, 3))]
        machines += [{"machine": "driver", "state": None}] * chance.randint(0, 1)
        messages = [_some_message(chance, values) for _ in range(chance.randint(0, 2))]
        more: dict[str, Any] = {}
        if machines and chance.random() < 0.1:
            more["calls"] = [{"machine": machines[0]["machine"], "call_id": "c", "method": "__init__"}]
        if chance.random() < 0.1:
            more["consistent"] = False
        if chance.random() < 0.1:
            more["coverage"] = chance.choice([{"uncovered": ["a thread"]}, {}, {"uncovered": [{"kind": "task"}]}])
        taken.append(snapshot(run, n, machines=machines, messages=messages, **more))
    return taken


TEXTS = [
    '{"balance":',
    "7",
    '{"balance":300',
    '{"balance":300,"a":',
    '{"balance": 300}',
    '{"a":{"balance":300},"b":[300]}',
    '{"a":"\\"balance\\":300,","b":0}',
    '{"a":"","balance":300}',
    '{"balance":0,"balance":300}',
    '{"balance":300,"a":{"b":"\\\\"}}',
    '{"balance":300.5}',
    '{"balance":"300"}',
    '{"balance":3e2}',
    '{"balance":-300}',
    '{"balance":[300]}',
    '{"bal\\u0061nce":300}',
]
"""How a state could be written, though our own writer writes none of some of these."""


def _by_hand() -> list[Snapshot]:
    """States that were cut off, not recorded, written otherwise than we write them, or are no JSON at all."""
    by_hand = [("state_truncated", True), ("state", None), *(("state", text) for text in TEXTS)]
    taken = [
        snapshot("cut-1", n, machines=[{"machine": "m", "state": {"balance": 300}}]) for n in range(len(by_hand) + 1)
    ]
    for n, (column, value) in enumerate(by_hand):
        table = taken[n].tables["machines"]
        place = table.schema.get_field_index(column)
        taken[n].tables["machines"] = table.set_column(
            place, column, pa.array([value], table.schema.field(column).type)
        )
    held = {"machine": "m", "state": {"balance": 300}}
    for n, (text, is_truncated) in enumerate([(None, False), ("null", False), ('{"balance":0}', True)]):
        one = snapshot("driver-1", n, machines=[held, {"machine": "driver", "state": {}}])
        for column, value in (("state", text), ("state_truncated", is_truncated)):
            table = one.tables["machines"]
            place = table.schema.get_field_index(column)
            values = pa.array([table[column][0].as_py(), value], table.schema.field(column).type)
            one.tables["machines"] = table.set_column(place, column, values)
        taken.append(one)
    return taken


def _large() -> list[Snapshot]:
    """One token of a million million is missing, then a float makes the sums rounded, then nothing is missing."""
    held: list[list[Any]] = [[10**12 - 1], [10**12 - 1.5, 0.5], [Decimal("0.1"), 10**12 - Decimal("0.1")]]
    return [
        snapshot(
            "large-1", n, machines=[{"machine": f"m{i}", "state": {"balance": value}} for i, value in enumerate(values)]
        )
        for n, values in enumerate(held)
    ]


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(['"balance":5,', "balance", ",}", ""])
).map(json.dumps)
KEYS = st.sampled_from(['"balance"', '"bal\\u0061nce"', '"a"', json.dumps('"balance":7,'), json.dumps("\\"), '"{"'])


def _lists(inner: st.SearchStrategy[str], comma: str) -> st.SearchStrategy[str]:
    return st.lists(inner, max_size=3).map(lambda parts: f"[{comma.join(parts)}]")


def _objects(inner: st.SearchStrategy[str], comma: str, colon: str) -> st.SearchStrategy[str]:
    """A key may come twice."""
    pairs = st.tuples(KEYS, inner).map(colon.join)
    return st.lists(pairs, max_size=4).map(lambda parts: f"{{{comma.join(parts)}}}")


def _texts(comma: str, colon: str) -> st.SearchStrategy[str]:
    return st.recursive(SCALARS, lambda inner: _lists(inner, comma) | _objects(inner, comma, colon))


@given(_texts(",", ":") | _texts(", ", ": ") | _texts(" ,\n", " :"))
@example('{"balance":-999999999999999999}')
@example('[0,"\\""]')
@example('{"balance":300,"balance":7.5}')
@example('{"balance":300,"a":{},"balance":7}')
@example('{"balance":300,"bal\\u0061nce":7}')
def test_a_number_that_is_seen_in_a_text_is_the_one_that_json_has_there(text: str) -> None:
    from ray_snapshot.spark_jobs.engine.amounts import _pattern

    value = json.loads(text)
    for path, found in (
        ("$.balance", value.get("balance") if isinstance(value, dict) else None),
        ("$[0]", value[0] if isinstance(value, list) and value else None),
    ):
        seen = re.search(_pattern(path) or "", text)
        is_small = type(found) is int and abs(found) < 10**18
        if seen:
            assert is_small
            assert int(seen[1]) == found
        elif text.count("{") + text.count("[") == 1 and text.count('"balance"') < 2 and not {*text} & {*"\\ "}:
            assert not is_small, f"it is quick for what is simple: {text}"


@pytest.mark.parametrize("path", ["$", "$.a.balance", "$['big one']", "$['a|b']", "$[1]"])
def test_other_paths_are_left_to_spark(path: str) -> None:
    from ray_snapshot.spark_jobs.engine.amounts import _pattern

    assert _pattern(path) is None


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [SEED])
def test_the_job_and_the_detector_keep_the_same_ledger(spark: Any, tmp_path: Path, seed: int) -> None:
    from ray_snapshot.spark_jobs import conservation

    chance = random.Random(seed)
    taken, verdicts = _by_hand(), live(_by_hand(), BANK)
    taken += _large()
    verdicts += live(_large(), TokenConservation(total=10**12, state="$.balance"))
    assert [verdict.holds for verdict in verdicts[-3:]] == [False, True, True]
    for n in range(70):
        run = _some_run(chance, f"some-{n}")
        taken += run
        verdicts += live(run, DETECTORS[n % len(DETECTORS)])
    ledger = rows(conservation.run(spark, write(tmp_path / "some", taken, verdicts))["ledger"], "snapshot_id")
    assert len(ledger) == len(verdicts) == len(taken)
    answers = [verdict.holds for verdict in verdicts]
    assert min(answers.count(answer) for answer in (True, False, None)) > 30, "the runs should give every answer"
    for verdict in verdicts:
        _assert_same(verdict.holds, verdict.evidence, ledger[verdict.snapshot_id], f"{verdict.sentence} (seed {seed})")


def _assert_same(holds: bool | None, evidence: Mapping[str, Any], row: Mapping[str, Any], sentence: str) -> None:
    assert row["holds"] is holds, f"{sentence} {row}"
    if holds is None:
        return
    for figure, column in (
        ("in_machines", "in_machines"),
        ("in_flight", "in_flight"),
        ("found", "total"),
        ("expected", "expected"),
        ("difference", "difference"),
    ):
        assert row[column] == pytest.approx(evidence[figure], rel=1e-12, abs=1e-9), f"{column}: {sentence} {row}"


@pytest.mark.nightly
def test_a_state_that_names_a_field_twice_is_unreadable(spark: Any, tmp_path: Path) -> None:
    from ray_snapshot.spark_jobs import conservation

    texts = '{"balance":300,"balance":7.5}', '{"a":{},"balance":300,"balance":7}', '{"balance":300,"bal\\u0061nce":7}'
    taken = [snapshot("twice-1", number, machines=[{"machine": "m", "state": {}}]) for number in range(len(texts))]
    for one, text in zip(taken, texts, strict=True):
        table = one.tables["machines"]
        one.tables["machines"] = table.set_column(table.schema.get_field_index("state"), "state", pa.array([text]))
    total = TokenConservation(total=300, state="$.balance")
    found = rows(conservation.run(spark, write(tmp_path / "h", taken, live(taken, total)))["ledger"], "sequence")
    assert [(found[number]["unreadable"], found[number]["holds"]) for number in range(len(texts))] == [(1, None)] * 3


@pytest.mark.nightly
def test_what_spark_cannot_add_exactly_is_unreadable_and_never_wrong(spark: Any, tmp_path: Path) -> None:
    from ray_snapshot.spark_jobs import conservation

    values = [Fraction(1, 3), Decimal("0.0000000000001"), 10**30, Decimal("1.000000000000000")]
    taken = [
        snapshot("odd-1", n, machines=[{"machine": "m", "state": {"tokens": value}}]) for n, value in enumerate(values)
    ]
    history = write(tmp_path / "odd", taken, live(taken, TokenConservation(total=1)))
    ledger = rows(conservation.run(spark, history)["ledger"], "sequence")
    assert [(ledger[n]["unreadable"], ledger[n]["holds"]) for n in range(4)] == [(1, None)] * 3 + [(0, True)]
