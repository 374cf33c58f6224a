"""The ledger of a history is what the detector `TokenConservation` said live, whatever machines hold."""

import math
import random
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from asked_histories import judged, snapshot, write

from ray_snapshot import Snapshot
from ray_snapshot.detectors import TokenConservation
from ray_snapshot.questions import conservation

BANK = TokenConservation(total=300, state="$.balance", messages={"deposit": "$[0]"})

SEED = 20260301
VALUES = [0, 1, 7, -3, 2**53 + 1, 10**25, 0.5, 0.1, 1.0, 1e3, True, False, None, "5", [], {}]
VALUES += [
    Fraction(1, 3),
    Decimal("0.0000000000001"),
    10**30,
    Decimal("0.10"),
    Decimal("1E+2"),
    Decimal("-2.5"),
    Decimal("NaN"),
    math.nan,
    {"$int": 5},
]
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


def _ledger(path: Path, taken: list[Snapshot], verdicts: list[Any]) -> dict[str, dict[str, Any]]:
    return {row["snapshot_id"]: row for row in conservation(write(path, taken, verdicts))["ledger"].to_pylist()}


@pytest.mark.parametrize("seed", [SEED])
def test_the_ledger_is_what_was_said_live(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    taken, verdicts = _by_hand(), judged(_by_hand(), BANK)
    taken += _large()
    verdicts += judged(_large(), TokenConservation(total=10**12, state="$.balance"))
    assert [verdict.holds for verdict in verdicts[-3:]] == [False, True, True]
    for n in range(30):
        run = _some_run(chance, f"some-{n}")
        taken += run
        verdicts += judged(run, DETECTORS[n % len(DETECTORS)])
    ledger = _ledger(tmp_path / "some", taken, verdicts)
    assert len(ledger) == len(verdicts) == len(taken)
    answers = [verdict.holds for verdict in verdicts]
    assert min(answers.count(answer) for answer in (True, False, None)) > 12, "the runs should give every answer"
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


def test_a_state_that_names_a_field_twice_is_unreadable(tmp_path: Path) -> None:
    texts = '{"balance":300,"balance":7.5}', '{"a":{},"balance":300,"balance":7}', '{"balance":300,"bal\\u0061nce":7}'
    taken = [snapshot("twice-1", number, machines=[{"machine": "m", "state": {}}]) for number in range(len(texts))]
    for one, text in zip(taken, texts, strict=True):
        table = one.tables["machines"]
        one.tables["machines"] = table.set_column(table.schema.get_field_index("state"), "state", pa.array([text]))
    verdicts = judged(taken, TokenConservation(total=300, state="$.balance"))
    assert [verdict.holds for verdict in verdicts] == [None] * 3
    found = _ledger(tmp_path / "h", taken, verdicts).values()
    assert [(row["unreadable"], row["holds"]) for row in found] == [(1, None)] * 3


def test_an_amount_that_no_float_can_hold_is_counted(tmp_path: Path) -> None:
    held = [10**400, 10**400 - 1, Fraction(10**400, 3)]
    taken = [snapshot("odd-1", n, machines=[{"machine": "m", "state": {"tokens": one}}]) for n, one in enumerate(held)]
    rows = _ledger(tmp_path / "odd", taken, judged(taken, TokenConservation())).values()
    assert [(row["total"], row["holds"]) for row in rows] == [(math.inf, None), (math.inf, False), (math.inf, False)]
