"""The right to enter is held by exactly one, in transit included."""

import json
from typing import Any

import pytest

import ray_snapshot as rs
from ray_snapshot.detectors import UniqueToken, from_spec

pytestmark = pytest.mark.contract

PASS = {"source": "n1", "target": "n2", "method": "token", "args": []}


def ring(*holders: str, **more: Any) -> rs.Snapshot:
    machines = [{"machine": name, "state": {"has_token": name in holders}} for name in ("n1", "n2", "n3")]
    return rs.Snapshot.from_rows(machines=machines, **more)


def test_one_machine_that_holds_it_is_right() -> None:
    verdict = UniqueToken().evaluate(ring("n2"))
    assert verdict.holds is True
    assert verdict.sentence == "One token: held by n2."


def test_the_token_in_transit_is_not_lost() -> None:
    verdict = UniqueToken().evaluate(ring(messages=[PASS]))
    assert verdict.holds is True
    assert verdict.evidence["messages"] == [
        {"source": "n1", "target": "n2", "kind": "mail", "method": "token", "number": 1}
    ]
    assert verdict.sentence == "One token: in flight from n1 to n2."


@pytest.mark.parametrize(("holders", "messages"), [(("n1", "n3"), []), (("n1",), [PASS]), ((), [PASS, PASS])])
def test_two_tokens_are_an_alarm_wherever_they_are(holders: tuple[str, ...], messages: list[Any]) -> None:
    verdict = UniqueToken().evaluate(ring(*holders, messages=messages))
    assert verdict.holds is False
    assert verdict.alarm
    assert verdict.evidence["count"] == 2


def test_a_lost_token_is_an_alarm_that_names_its_last_holder() -> None:
    verdict = UniqueToken().evaluate(ring(), earlier=ring("n3", snapshot_id="s7"))
    assert verdict.holds is False
    assert verdict.sentence == "The token is lost: nothing holds it; in s7 it was held by n3."
    assert UniqueToken().evaluate(ring()).sentence.startswith("The token is lost: no machine")


BORN = {"source": "driver", "target": "n4", "method": "__init__", "args": [True]}


def test_no_token_is_lost_before_the_machine_that_brings_it_is_made() -> None:
    verdict = UniqueToken().evaluate(ring(messages=[BORN]))
    assert verdict.holds is None
    assert "0 found, but not read or observed: n4 is being created" in verdict.sentence
    assert UniqueToken().evaluate(ring("n1", messages=[BORN])).holds is True
    inside = [{"machine": "n3", "call_id": "driver/0/n3/0", "method": "__init__"}]
    assert UniqueToken().evaluate(ring(calls=inside)).holds is None
    assert UniqueToken(messages={"__init__": "$[0]"}).evaluate(ring(messages=[BORN])).holds is True
    assert UniqueToken(messages={"__init__": "$[1]"}).evaluate(ring(messages=[BORN])).alarm


def test_before_anything_is_made_no_token_is_lost() -> None:
    assert UniqueToken().evaluate(rs.Snapshot.from_rows(machines=[{"machine": "driver", "state": None}])).holds is None
    channels = [{"source": "driver", "target": "n1", "sent_count": 1, "accepted_count": 1}]
    assert UniqueToken().evaluate(rs.Snapshot.from_rows(machines=[], channels=channels)).alarm


def test_a_path_into_the_arguments_tells_which_messages_carry_it() -> None:
    detector = UniqueToken(messages={"token": "$[0].real"})
    assert detector.evaluate(ring(messages=[{**PASS, "args": [{"real": True}]}, {**PASS, "args": [{}]}])).holds is True
    assert detector.evaluate(ring(messages=[{**PASS, "args": [{"real": 0}]}])).holds is False


@pytest.mark.parametrize(
    ("value", "holds"), [(1, True), ("x", True), ([0], True), (0, False), ("", False), (None, False)]
)
def test_what_is_empty_in_json_holds_nothing(value: Any, holds: bool) -> None:
    snapshot = rs.Snapshot.from_rows(machines=[{"machine": "n1", "state": {"has_token": value}}, {"machine": "n2"}])
    assert UniqueToken().evaluate(snapshot).holds is holds


def test_two_are_two_even_if_something_was_not_observed_and_one_or_none_is_unknown() -> None:
    for holders, holds in ((("n1", "n2"), False), (("n1",), None), ((), None)):
        assert UniqueToken().evaluate(ring(*holders, coverage={"uncovered": ["plain tasks"]})).holds is holds


def test_a_state_that_was_cut_off_may_hide_a_token() -> None:
    snapshot = ring("n1")
    table = snapshot.tables["machines"]
    cut = table.set_column(table.schema.get_field_index("state_truncated"), "state_truncated", [[False, False, True]])
    assert UniqueToken().evaluate(rs.Snapshot({**snapshot.tables, "machines": cut})).holds is None


def test_the_detector_stored_as_data_answers_the_same() -> None:
    detector = UniqueToken("$.has_token", {"token": None}, name="right")
    again = from_spec(json.loads(json.dumps(detector.spec)))
    assert again.evaluate(ring("n1")).model_dump(exclude={"evaluated_at"}) == detector.evaluate(ring("n1")).model_dump(
        exclude={"evaluated_at"}
    )
