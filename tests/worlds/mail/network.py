"""A network that loses batches, and what it carries in words.

It is one for all generations of a system that is rolled back. Imports the standard library and `ray_snapshot`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ray_snapshot.simulation.mail.network import Carried, Network


@dataclass(slots=True)
class LossyNetwork(Network):
    """What is on its way from host to host, and what was lost."""

    lost: list[Carried] = field(default_factory=list)
    """Batches that the network has lost; the transport has kept them, and will send them again."""

    def drop(self, index: int) -> Carried:
        """A fault: a batch is lost. The transport below the numbering has kept it if it was never delivered."""
        carried = self.batches.pop(index)
        if not carried.was_delivered:
            self.lost.append(carried)
        return carried

    def resend(self, index: int) -> Carried:
        """The transport sends what was lost again."""
        carried = self.lost.pop(index)
        self.batches.append(carried)
        return carried

    def copy(self) -> LossyNetwork:
        """Another network with the same batches on their way."""
        return LossyNetwork(self.batches.copy(), self.lost.copy())


def told_of(carried: Carried) -> str:
    """What a batch carries, for a person: a change of colour is a marker."""
    _, sequence, _, segments, acknowledgements = carried.batch
    parts = []
    for place, (colour, messages) in enumerate(segments):
        if place or (colour and not sequence):
            parts.append(f"marker {listed(sorted(colour)) if isinstance(colour, frozenset) else colour}")
        if messages:
            parts.append(f"{len(messages)} message{'s'[: len(messages) - 1]}")
    if acknowledgements:
        parts.append("acknowledgements")
    return f"{carried.source} to {carried.target} batch {sequence}: {', '.join(parts) or 'the link is open'}"


def listed(numbers: Iterable[int]) -> str:
    """Numbers for a person."""
    return ", ".join(map(str, numbers))
