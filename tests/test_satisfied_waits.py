"""Waits whose end is already on its way, in which no deadlock may be seen; and the short form of a machine's waits."""

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ray_snapshot import Snapshot
from ray_snapshot.runtime.assembly import _held_or_not
from ray_snapshot.schema import CALLS, CHANNELS, MACHINES, MESSAGES, WAITS
from ray_snapshot.snapshot import satisfy_waits
from ray_snapshot.waits import SEE_WAITS, short_form_of


def table(schema: pa.Schema, *rows: dict[str, Any]) -> pa.Table:
    return pa.Table.from_pylist(list(rows), schema=schema)


@pytest.mark.parametrize(("accepted", "satisfied"), [(0, False), (4, False), (5, True), (15, True)])
def test_a_sender_is_held_only_as_long_as_the_cut_itself_has_more_in_flight_than_the_bound(
    accepted: int, satisfied: bool
) -> None:
    channels = table(CHANNELS, {"source": "s", "target": "r", "sent_count": 15, "accepted_count": accepted})
    (row,) = _held_or_not([{"machine": "s", "on_machine": "r", "bound": 10}], channels)
    assert row["satisfied"] is satisfied


@pytest.mark.parametrize(("status", "satisfied"), [("passive", False), ("stopped", True)])
def test_a_call_that_lies_before_a_stopped_machine_has_been_refused(status: str, satisfied: bool) -> None:
    waits = table(WAITS, {"machine": "a", "on_machine": "x", "on_call_id": "A/1", "k": 1, "alternative": 0})
    messages = table(MESSAGES, {"source": "a", "target": "x", "kind": "call", "call_id": "A/1"})
    machines = table(MACHINES, {"machine": "x", "status": status})
    found = satisfy_waits(waits, messages, table(CALLS), machines)
    assert found["satisfied"].to_pylist() == [satisfied]


def test_a_call_that_a_stopped_machine_had_accepted_is_still_waited_for() -> None:
    waits = table(WAITS, {"machine": "a", "on_machine": "x", "on_call_id": "A/1", "k": 1, "alternative": 0})
    calls = table(CALLS, {"machine": "x", "call_id": "A/1"})
    machines = table(MACHINES, {"machine": "x", "status": "stopped"})
    found = satisfy_waits(waits, table(MESSAGES), calls, machines)
    assert found["satisfied"].to_pylist() == [False]


@pytest.mark.parametrize(("actions", "satisfied"), [([], True), ([{"machine": "x", "method": "held"}], False)])
def test_a_call_to_a_machine_that_waits_for_others_between_its_actions_will_be_answered(
    actions: list[dict[str, Any]], satisfied: bool
) -> None:
    waits = table(WAITS, {"machine": "a", "on_machine": "x", "on_call_id": "A/1", "k": 1, "alternative": 0})
    messages = table(MESSAGES, {"source": "a", "target": "x", "kind": "call", "call_id": "A/1"})
    machines = table(MACHINES, {"machine": "x", "status": "blocked"})
    found = satisfy_waits(waits, messages, table(CALLS, *actions), machines)
    assert found["satisfied"].to_pylist() == [satisfied]


def test_by_hand_a_wait_for_a_call_is_not_satisfied_by_another_call_between_the_same_machines() -> None:
    snapshot = Snapshot.from_rows(
        machines=[{"machine": name, "status": "blocked"} for name in "ab"],
        calls=[{"machine": "b", "call_id": "a/0/b/1", "method": "ask"}],
        messages=[{"source": "b", "target": "a", "kind": "call", "number": 1, "call_id": "b/0/a/1", "method": "back"}],
        waits=[{"machine": "a", "on_machine": "b", "on_call_id": "a/0/b/1"}],
    )
    assert [row["satisfied"] for row in snapshot.waits] == [False]


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "call_id": st.sampled_from([None, "c/1"]),
            "alternative": st.integers(0, 1),
            "k": st.integers(1, 3),
            "on_machine": st.sampled_from(["a", "b", "c", None]),
        }
    ),
    max_size=4,
)


def _grouped(rows: list[dict[str, Any]]) -> dict[tuple[Any, ...], list[dict[str, Any]]]:
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        group = groups.setdefault((row["call_id"], row["alternative"]), [])
        group.append({**row, "k": group[0]["k"] if group else row["k"]})
    return groups


@given(ROWS)
def test_the_short_form_agrees_with_the_rows_or_says_to_see_them(rows: list[dict[str, Any]]) -> None:
    groups = _grouped(rows)
    rows = [row for group in groups.values() for row in group]
    mode, k, names = short_form_of(rows)
    assert set(names) == {row["on_machine"] for row in rows} - {None}
    if mode in (None, SEE_WAITS):
        assert k is None
        assert (mode is None) == (not rows)
        return
    ((group),) = groups.values()
    on = [row["on_machine"] for row in group]
    assert None not in on
    assert k == group[0]["k"]
    assert {"all": k == len(on), "any": k == 1, "k_of_n": list(names) == on}[mode]


def test_one_list_of_machines_has_a_short_form() -> None:
    def row(on: str, k: int) -> dict[str, Any]:
        return {"call_id": None, "alternative": 0, "k": k, "on_machine": on}

    assert short_form_of([row("a", 1), row("b", 1)]) == ("any", 1, ("a", "b"))
    assert short_form_of([row("a", 2), row("b", 2)]) == ("all", 2, ("a", "b"))
    assert short_form_of([row("a", 2), row("b", 2), row("c", 2)]) == ("k_of_n", 2, ("a", "b", "c"))
