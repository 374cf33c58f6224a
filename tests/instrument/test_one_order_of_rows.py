"""What is said of a watched app is said in one order, whichever of its processes reports first. No Ray in here."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from lone_app import snapshot_of

from ray_snapshot.detectors import Deadlock
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.protocol.coordinator import Coordinator

SHOWN = {"driver": "driver", "z": "Cook-0", "y": "Waiter-0", "x": "Waiter-1"}
"""Names for people, in another order than Ray's ids."""


def told(order: list[str]) -> tuple[dict[str, list[dict[str, Any]]], dict[str, Any]]:
    """All rows, and the evidence of the deadlock, of an app whose processes report in this order.

    Each waiter asks the cook, which asks the one back that it serves; the other's order waits in line.
    """
    coordinator = Coordinator()
    ledgers = {machine: CallLedger(machine, colour=coordinator.join(machine)) for machine in sorted(SHOWN)}
    for waiter in ("x", "y"):
        asked = ledgers["driver"].submit(waiter, "order", ("soup",), 0.0)
        call = ledgers[waiter].accept(asked, "order", 0.0)
        wanted = ledgers[waiter].submit("z", "prepare", ("soup",), 0.0)
        ledgers[waiter].wait(call, (f"{waiter}/0/z/{wanted.number}",), 1, 0.0)
        ledgers["driver"].wait(None, (call,), 1, 0.0)
        if waiter == "y":
            served = ledgers["z"].accept(wanted, "prepare", 0.0)
            back = ledgers["z"].submit("y", "table_of", ("soup",), 0.0)
            ledgers["z"].wait(served, (f"z/0/y/{back.number}",), 1, 0.0)
    facts = {name: {"shown": shown, "max_concurrency": 1} for name, shown in SHOWN.items()}
    found = snapshot_of(coordinator, {name: ledgers[name] for name in order}, facts)
    rows = {name: found.tables[name].to_pylist() for name in ("machines", "channels", "messages", "calls", "waits")}
    for one in (row for table in rows.values() for row in table):
        one.pop("recorded_at", None), one.pop("record_delay_ms", None)
        one.pop("snapshot_id"), one.pop("run_id")
    return rows, Deadlock().evaluate(found).evidence


@given(st.permutations(sorted(SHOWN)))
def test_rows_and_evidence_are_the_same_whichever_process_reports_first(order: list[str]) -> None:
    rows, evidence = told(order)
    assert (rows, evidence) == told(sorted(SHOWN))
    assert [row["machine"] for row in rows["machines"]] == ["Cook-0", "Waiter-0", "Waiter-1", "driver"]
    assert [record["machine"] for record in evidence["members"]] == ["Cook-0", "Waiter-0"]
