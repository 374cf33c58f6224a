"""The network between simulated hosts: batches on their way, in any order. Imports the standard library only."""

from __future__ import annotations

from dataclasses import dataclass, field

from ray_snapshot.protocol.links import Batch


@dataclass(slots=True)
class Carried:
    """A batch on its way."""

    source: str
    target: str
    batch: Batch
    was_delivered: bool = False
    generation: int = 0


@dataclass(slots=True)
class Network:
    """What is on its way from host to host."""

    batches: list[Carried] = field(default_factory=list)
