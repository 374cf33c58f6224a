"""Actors that send to machines of hosts, and what becomes of what they sent when their processes are gone.

A process that dies takes along what it had not reported and not sent yet, so nothing of its mail is waited for. What Ray still
carries of it may come later: until the second snapshot after the death is begun, this says so (a gap in the coverage).
Imports the standard library only.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ray_snapshot.protocol.coordinator import Coordinator


@dataclass
class Senders:
    """Those of one system."""

    coordinator: Coordinator
    known: set[str] = field(default_factory=set)
    """Actors that have sent, or may have."""
    lost: dict[str, int] = field(default_factory=dict)
    """Those of them that are gone, with the last snapshot that was begun before."""

    def gone(self, actor: str, lives: int) -> None:
        """The first so many lives of an actor are over."""
        self.coordinator.close_links(actor, lives)
        if actor in self.known:
            self.known.discard(actor)
            self.lost[actor] = self.coordinator.last

    def uncertain(self, number: int) -> tuple[str, ...]:
        """Actors of whose mail this snapshot, which is complete now, may lack some."""
        oldest = min((number, *self.coordinator.pending))  # a later one may be complete before an earlier one
        self.lost = {actor: last for actor, last in self.lost.items() if last + 1 >= oldest}
        return tuple(actor for actor, last in self.lost.items() if last + 1 >= number)

    def clear(self) -> None:
        """There are no hosts any more."""
        self.known.clear()
        self.lost.clear()
