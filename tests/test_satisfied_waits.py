"""Waits whose end is already on its way: a deadlock must not be seen in them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from ray_snapshot import Snapshot
from ray_snapshot.runtime.assembly import _held_or_not
from ray_snapshot.schema import CALLS, CHANNELS, MACHINES, MESSAGES, WAITS
from ray_snapshot.snapshot import satisfy_waits


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
