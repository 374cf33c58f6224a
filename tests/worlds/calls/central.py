"""The central point of a world of calls: the `Coordinator`, and what has come of the snapshots that it has begun.

Methods that end a snapshot return the control messages that it sends. Imports the standard library only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from ray_snapshot.protocol.calls import MachineReport
from ray_snapshot.protocol.collector import Answer
from ray_snapshot.protocol.coordinator import AbortedSnapshot, CompletedSnapshot, Coordinator
from worlds.calls.oracle import Seen
from worlds.calls.reports import seen_of

Step = tuple[Any, ...]
"""(kind, ...); see `CallWorld.enabled`."""


@dataclass(slots=True)
class CallCentral:
    """What the central point knows."""

    coordinator: Coordinator
    began: dict[int, tuple[int, bool]] = field(default_factory=dict)
    """Per snapshot: how many events there were when it was started, and whether nothing else was going on."""
    completed: list[Seen] = field(default_factory=list)
    aborted: list[AbortedSnapshot] = field(default_factory=list)
    answers: Counter[Answer] = field(default_factory=Counter)
    """To the reports that have come."""

    def begin(self, number: int, events: int, *, was_quiet: bool) -> list[Step]:
        """Every machine is asked for it."""
        self.began[number] = events, was_quiet
        return [("request", name, number) for name in self.coordinator.calls.machines]

    def collect(self, report: MachineReport) -> Answer:
        """A report has come."""
        answer = self.coordinator.report_calls(report)
        self.answers[answer] += 1
        return answer

    def newly_completed(self) -> Iterator[CompletedSnapshot]:
        """Snapshots that nothing is missing from any more."""
        for number in list(self.coordinator.pending):
            snapshot = self.coordinator.completed(number)
            if snapshot is not None:
                yield snapshot

    def complete(self, snapshot: CompletedSnapshot, events: int) -> list[Step]:
        """All reports are there: what they say of the calls is put together."""
        began, was_quiet = self.began[snapshot.number]
        self.completed.append(seen_of(snapshot.calls, began, events, was_quiet))
        parties = self.coordinator.calls
        ended, parties.ended_workers = frozenset(parties.ended_workers), set()
        held, unsettled = snapshot.calls.held, snapshot.calls.unsettled
        return [("complete", name, snapshot.number, held, ended, unsettled) for name in parties.machines]

    def give_up(self, aborted: AbortedSnapshot) -> list[Step]:
        """Every machine hears that nothing of it is wanted."""
        self.aborted.append(aborted)
        return [("close", name, aborted.number) for name in self.coordinator.calls.machines]
