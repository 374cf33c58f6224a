"""The central point of a simulated system: the `Coordinator`, and what has come of the snapshots that it has begun.

Its methods return the control messages that it sends. Imports the standard library only.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from ray_snapshot.protocol.collector import Answer
from ray_snapshot.protocol.coordinator import AbortedSnapshot, CompletedSnapshot, Coordinator
from ray_snapshot.simulation.mail.hosts import Step
from ray_snapshot.simulation.mail.oracle import RecordedSnapshot
from ray_snapshot.simulation.mail.reports import Part, assembled


@dataclass(slots=True)
class Central:
    """What the central point knows."""

    coordinator: Coordinator
    now: int = 0
    parts: dict[int, list[Part]] = field(default_factory=dict)
    """What has come of pending snapshots."""
    completed: list[RecordedSnapshot] = field(default_factory=list)
    surplus: dict[int, Any] = field(default_factory=dict)
    """Completed snapshots that have more in their cut than was sent: none, if all is right."""
    aborted: list[AbortedSnapshot] = field(default_factory=list)
    answers: Counter[Answer] = field(default_factory=Counter)
    """To the parts that have come."""

    def start(self, timeout: int) -> int | None:
        """The number of a new snapshot; None if too many are open."""
        number = self.coordinator.start(self.now, timeout)
        if number is not None:
            self.parts[number] = []
        return number

    def give_up(self, aborted: AbortedSnapshot) -> list[Step]:
        """Every host hears that nothing of the snapshot is wanted."""
        self.aborted.append(aborted)
        del self.parts[aborted.number]
        return [("abort", host, aborted.number) for host in self.coordinator.hosts]

    def welcome(self, host: str) -> Step:
        """A new host registers."""
        return ("welcome", host, self.coordinator.register(host), self.coordinator.last)

    def report(self, number: int, part: Part) -> Answer:
        """A part has come."""
        answer = self.coordinator.report(number, part.counts, part.calls)
        self.answers[answer] += 1
        if answer is Answer.SUCCESS:
            self.parts[number].append(part)
        return answer

    def complete(self, snapshot: CompletedSnapshot, *, is_fifo: bool) -> list[Step]:
        """All parts are there: what they say of the hosts is put together, and the hosts may close the snapshot."""
        number = snapshot.number
        if snapshot.surplus:
            self.surplus[number] = dict(snapshot.surplus)
        self.completed.append(assembled(number, self.parts.pop(number), is_fifo))
        return [("close", host, number) for host in self.coordinator.hosts]
