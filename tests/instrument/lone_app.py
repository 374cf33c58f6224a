"""A watched app without Ray: ledgers and a coordinator, and the snapshot of them at one consistent moment."""

from collections.abc import Callable, Mapping
from typing import Any

from ray_snapshot import Snapshot, Verdict
from ray_snapshot.detectors import Deadlock
from ray_snapshot.instrument.process.reports import ProcessReport
from ray_snapshot.instrument.watcher.collected import CollectedCalls
from ray_snapshot.instrument.watcher.delayed_calls import DelayedCalls
from ray_snapshot.instrument.watcher.polls import Polls
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.calls import CallLedger, call_id_of
from ray_snapshot.protocol.coordinator import Coordinator
from ray_snapshot.runtime.collected import SnapshotHeader


def snapshot_of(
    coordinator: Coordinator,
    ledgers: Mapping[str, CallLedger],
    facts: Mapping[str, dict[str, Any]],
    *,
    known: Mapping[str, Mapping[str, Any]] | None = None,
    state_of: Callable[[str], Any] = lambda _: None,
    delayed: DelayedCalls | None = None,
    at: float = 0.0,
) -> Snapshot:
    """`known`: what the process of a machine knows besides its report; `delayed`: what the watcher compares with."""
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
    known_as = delayed or DelayedCalls()
    replies, unbegun = known_as.update(completed.calls, recorded, facts, at)
    answered = known_as.just_answered(completed.calls, recorded, at)
    told = {"delayed_replies": replies, "delayed_calls": unbegun, "just_answered": answered}
    told["happened"] = tuple(Polls().rows(completed.calls, recorded, {}, at))
    return CollectedCalls(header, completed.calls, recorded, dict(facts), **told).snapshot()


class Ledgers:
    """The ledgers of a driver and of actors, each of which runs `slots` calls at once."""

    def __init__(self, *actors: str, slots: int = 1, driver_acts: bool = True) -> None:
        self.coordinator, self.ledgers = Coordinator(), dict[str, CallLedger]()
        self.facts: dict[str, dict[str, Any]] = {}
        self.delayed = DelayedCalls()
        self.known: dict[str, dict[str, Any]] = {name: {} for name in (DRIVER, *actors)}
        for name in (DRIVER, *actors):
            acts = driver_acts and name == DRIVER
            self.ledgers[name] = CallLedger(name, colour=self.coordinator.join(name), acts_unasked=acts)
            self.facts[name] = {"shown": name, "max_concurrency": slots}

    def call(self, source: str, target: str, *, is_accepted: bool = True, **how: Any) -> str:
        """The id of a call that was made, and runs from now on if it is accepted."""
        header = self.ledgers[source].submit(target, "m", None, 0.0, **how)
        if is_accepted:
            return self.ledgers[target].accept(header, "m", 0.0)
        return call_id_of(source, header.incarnation, target, header.number)

    def wait(self, machine: str, call: str | None, *on: str | None, since: float = 0.0, **how: Any) -> int:
        """The call, or the machine beside its calls, waits for all of these."""
        return self.ledgers[machine].wait(call, on, len(on), since, **how)

    def park(self, machine: str, call: str, since: float = 0.0, **how: Any) -> int:
        """The call waits for what only its own process can bring."""
        return self.ledgers[machine].wait(call, (), 1, since, is_local=True, **how)

    def snapshot(self, at: float = 0.0) -> Snapshot:
        return snapshot_of(self.coordinator, self.ledgers, self.facts, known=self.known, delayed=self.delayed, at=at)

    def verdict(self, *at: float) -> Verdict:
        """Of a snapshot at each of these moments (none: at 0) the last one's."""
        snapshots = [self.snapshot(moment) for moment in at or (0.0,)]
        return Deadlock().evaluate(snapshots[-1])
