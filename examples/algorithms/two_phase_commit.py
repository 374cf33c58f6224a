"""Two-phase commit: all participants commit, or none does, though one of them fails and comes back.

Source: J. Gray, "Notes on data base operating systems", 1978; J. Gray, L. Lamport, "Consensus on transaction commit",
ACM TODS 31(1), 2006. The coordinator asks all participants to prepare. One that can writes so into its log, and votes
yes; from then on it may not decide alone. If all have voted yes the coordinator writes "commit" and tells all,
otherwise "abort". A participant that fails loses what is not in its log. When it comes back without a vote in its log,
it aborts; with one, it asks for the outcome.
Assumed of the network: nothing is lost or doubled; a participant that comes back gets what was sent to it meanwhile.
While the coordinator is down, participants that have voted yes can only wait (`crashes=1` shows it).

`broken`: a participant votes before it has written its vote down.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray_snapshot as rs


class Coordinator(rs.SnapshotMixin):
    """Asks, decides, tells."""

    def __init__(self, participants: list[Any]) -> None:
        self.participants = participants
        self.missing = len(participants)
        self.outcome: str | None = None

    def begin(self) -> None:
        """Ask all to prepare."""
        for participant in self.participants:
            participant.prepare.send(self.handle)

    def vote(self, yes: bool) -> None:
        """A participant votes."""
        self.missing -= 1
        if self.outcome is None and not yes:
            self._decide("aborted")
        elif self.outcome is None and self.missing == 0:
            self._decide("committed")

    def _decide(self, outcome: str) -> None:
        self.outcome = outcome
        for participant in self.participants:
            participant.learn.send(outcome)

    def ask(self, participant: Any) -> None:
        """A participant that came back asks for the outcome; it is told when there is one."""
        if self.outcome is not None:
            participant.learn.send(self.outcome)


class Participant(rs.SnapshotMixin):
    """Holds a part of the transaction. `log` outlives a failure, `memory` does not."""

    def __init__(self, coordinator: Any) -> None:
        self.coordinator = coordinator
        self.log: list[str] = []
        self.memory: str | None = None

    @property
    def outcome(self) -> str | None:
        """What has been decided here, for good."""
        return next((word for word in self.log if word in ("committed", "aborted")), None)

    def prepare(self, coordinator: Any) -> None:
        """Vote, if nothing is decided here: by chance, for whatever reason a part cannot be done."""
        yes = self.outcome is None and self.random.choice([True, False])
        if yes:
            self.note_vote()
        elif self.outcome is None:
            self.log.append("aborted")
        coordinator.vote.send(yes)

    def note_vote(self) -> None:
        """Remember a vote for yes, whatever happens."""
        self.log.append("yes")

    def learn(self, outcome: str) -> None:
        """The coordinator has decided."""
        if self.outcome is None:
            self.log.append(outcome)

    def fail(self) -> None:
        """Fail, and come back with nothing but the log."""
        self.memory = None
        if self.outcome is None and "yes" in self.log:
            self.coordinator.ask.send(self.handle)
        elif self.outcome is None:
            self.log.append("aborted")


class HastyParticipant(Participant):
    """Keeps its vote in memory."""

    def note_vote(self) -> None:
        self.memory = "yes"


def build(system: Any, kind: type[Participant] = Participant) -> None:
    """A coordinator and two participants, of which one fails once, at any moment."""
    coordinator = system.machine("coordinator")
    participants = [system.spawn(kind, coordinator, name=name) for name in ("p", "q")]
    system.spawn(Coordinator, participants, name="coordinator")
    coordinator.begin.send()
    participants[0].fail.send()


def broken(system: Any) -> None:
    """The same, of hasty participants."""
    build(system, HastyParticipant)


def all_or_none(states: Mapping[str, Any]) -> bool:
    """No machine has committed where another has aborted."""
    return len({machine.outcome for machine in states.values()} - {None}) <= 1


def all_decided(states: Mapping[str, Any]) -> bool:
    """Each machine that is there knows the outcome."""
    return all(machine.outcome is not None for machine in states.values())
