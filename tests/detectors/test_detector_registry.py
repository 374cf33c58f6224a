"""Detectors by name, from their stored form, and on tables as other readers give them."""

import json
import pickle
import sys
from types import ModuleType
from typing import Any

import pyarrow as pa
import pytest

import ray_snapshot as rs
from ray_snapshot import detectors
from ray_snapshot.verdicts import check_detector, evaluate, load_detector

ALL = [
    detectors.Termination(name="done"),
    detectors.Deadlock(name="stuck"),
    detectors.TokenConservation(30, state="$.balance", messages={"deposit": "$[0]"}, name="money"),
    detectors.UniqueToken("$.balance", {"deposit": None}, name="right"),
    detectors.Termination(machines=["a", "c*"], senders=["b"], name="part"),
    detectors.Reached("$.balance", 10, name="rich"),
    detectors.Infeasible(name="too much"),
    detectors.Restarting(name="never there"),
    detectors.Reached({"Machine": "$.phase"}, phases=["born", "done"], machines="?", name="all done"),
]


def busy() -> rs.Snapshot:
    return rs.Snapshot.from_rows(
        machines=[
            {"machine": "a", "state": {"balance": 10}, "waits_for": ["b"]},
            {"machine": "b", "state": {"balance": 0}, "waits_for": ["c", "a"], "wait_mode": "any"},
            {"machine": "c", "state": {}, "status": "stopped"},
        ],
        messages=[{"source": "c", "target": "a", "method": "deposit", "args": [20]}],
        waits=[
            {"machine": "a", "on_machine": "b"},
            {"machine": "b", "alternative": 1, "on_machine": "a"},
            {"machine": "b", "alternative": 2, "on_machine": "c"},
        ],
    )


@pytest.mark.parametrize("name", ["termination", "deadlock", "unique-token"])
def test_a_ready_made_detector_is_found_by_its_own_name(name: str) -> None:
    assert detectors.by_name(name).name == name
    assert load_detector(name).name == name


def test_termination_of_a_group_is_found_by_name() -> None:
    found = load_detector("termination(worker-*)")
    assert found.name == "termination(worker-*)"
    assert found.spec == {"type": "termination", "name": found.name, "machines": ["worker-*"]}  # type: ignore[attr-defined]


@pytest.mark.contract
@pytest.mark.parametrize("name", ["conservation", "token-conservation", "reached"])
def test_detectors_without_defaults_say_by_name_what_they_need(name: str) -> None:
    with pytest.raises(rs.DetectorError, match="needs settings: pass detectors"):
        detectors.by_name(name)


@pytest.mark.contract
@pytest.mark.parametrize("name", ["terminated", "", None, 3])
def test_an_unknown_name_is_answered_with_the_known_ones(name: Any) -> None:
    with pytest.raises(rs.DetectorError, match="there are termination, deadlock, token-conservation, unique-token"):
        detectors.by_name(name)


@pytest.mark.contract
@pytest.mark.parametrize("spec", [{}, {"type": "x"}, {"type": "deadlock", "depth": 3}, {"type": "callable"}])
def test_a_spec_that_is_not_understood_is_refused(spec: dict[str, Any]) -> None:
    with pytest.raises(rs.DetectorError):
        detectors.from_spec(spec)


def test_a_callable_is_found_again_by_module_and_name(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("their_detectors")
    module.busy = rs.detector(stable=False)(lambda snapshot: snapshot.in_flight_count > 0)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "their_detectors", module)
    spec = {"type": "callable", "name": "their_detectors:busy"}
    found = detectors.from_spec(spec)
    verdict = evaluate(found, busy())
    assert verdict.holds is True
    assert verdict.detector_spec == spec


@pytest.mark.parametrize("detector", ALL, ids=lambda detector: detector.name)
class TestEveryDetector:
    def test_is_one_by_the_contract_and_its_name_is_the_one_given(self, detector: Any) -> None:
        assert check_detector(detector) is detector
        verdict = evaluate(detector, busy())
        assert verdict.detector == detector.name == detector.spec["name"]
        assert "error" not in verdict.evidence

    def test_survives_its_own_stored_form_and_a_pickle(self, detector: Any) -> None:
        expected = evaluate(detector, busy())
        for again in (detectors.from_spec(json.loads(json.dumps(detector.spec))), pickle.loads(pickle.dumps(detector))):
            verdict = evaluate(again, busy())
            assert (verdict.holds, verdict.evidence, verdict.sentence) == (
                expected.holds,
                expected.evidence,
                expected.sentence,
            )

    def test_gives_evidence_that_is_plain_json(self, detector: Any) -> None:
        evidence = detector.evaluate(busy()).evidence
        assert json.loads(json.dumps(evidence, allow_nan=False)) == evidence

    @pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int32(), pa.string())])
    def test_answers_the_same_on_strings_of_another_arrow_type(self, detector: Any, kind: pa.DataType) -> None:
        snapshot = busy()
        tables = {name: recast(table, kind) for name, table in snapshot.tables.items()}
        one, other = detector.evaluate(snapshot), detector.evaluate(rs.Snapshot(tables))
        assert (one.holds, one.evidence, one.sentence) == (other.holds, other.evidence, other.sentence)

    def test_answers_the_same_on_tables_in_many_pieces(self, detector: Any) -> None:
        snapshot = busy()
        pieces = {name: cut(table) for name, table in snapshot.tables.items()}
        one, other = detector.evaluate(snapshot), detector.evaluate(rs.Snapshot(pieces))
        assert (one.holds, one.evidence) == (other.holds, other.evidence)

    def test_answers_on_a_snapshot_without_a_single_row(self, detector: Any) -> None:
        verdict = evaluate(detector, rs.Snapshot.from_rows())
        assert "error" not in verdict.evidence
        assert verdict.sentence


def recast(table: pa.Table, kind: pa.DataType) -> pa.Table:
    """The strings of a table in another physical type."""
    for index, column in enumerate(table.schema):
        if column.type == pa.string():
            table = table.set_column(index, column.name, table[column.name].cast(kind))
    return table


def cut(table: pa.Table) -> pa.Table:
    rows = [table.slice(row, 1) for row in range(table.num_rows)]
    return pa.concat_tables(rows) if rows else table
