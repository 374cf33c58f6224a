"""A watched app without Ray: ledgers and a coordinator, and the snapshot of them at one consistent moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ray_snapshot import Snapshot
from ray_snapshot.instrument.process.reports import ProcessReport
from ray_snapshot.instrument.watcher.collected import CollectedCalls
from ray_snapshot.instrument.watcher.late import Late
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.protocol.coordinator import Coordinator
from ray_snapshot.runtime.collected import SnapshotHeader


def snapshot_of(
    coordinator: Coordinator,
    ledgers: Mapping[str, CallLedger],
    facts: Mapping[str, dict[str, Any]],
    *,
    known: Mapping[str, Mapping[str, Any]] | None = None,
    state_of: Callable[[str], Any] = lambda _: None,
    late: Late | None = None,
    at: float = 0.0,
) -> Snapshot:
    """`known`: what the process of a machine knows besides its report; `late`: what the watcher has kept of those before."""
    number = coordinator.start(at, 9)
    assert number is not None
    for machine, ledger in ledgers.items():
        ledger.request(number)
        ledger.record(lambda machine=machine: state_of(machine))  # type: ignore[misc]
        coordinator.report_calls(ledger.report(number))
    completed = coordinator.completed(number)
    assert completed is not None
    recorded = {
        machine: ProcessReport(ledger.report(number), 0.0, **(known or {}).get(machine, {}))
        for machine, ledger in ledgers.items()
    }
    header = SnapshotHeader(number, "app", "1", "calls", [], at)
    told = (late or Late()).told(completed.calls, recorded, facts, at)
    return CollectedCalls(header, completed.calls, recorded, dict(facts), **told).snapshot()
