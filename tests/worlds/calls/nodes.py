"""Nodes with room: actors take of it when they are created and keep it, plain tasks while they run.

As Ray does it: a plain task that waits gives back its CPU and nothing else, and takes it again when it goes on, if need be more
than there is; an actor gives back nothing before it ends. Not here: actors that start again, and placement groups. Imports the
standard library only; read `protocol.demands` first and `world` next.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ray_snapshot.protocol.demands import NOTHING, Demand, Held

Amounts = Mapping[str, float]

CPU = "CPU"


@dataclass
class Nodes:
    """The nodes of one world; without any, there is one on which everything finds room."""

    amounts: dict[str, Amounts] = field(default_factory=lambda: {"": {}})
    """By node, all that it has."""
    coming: dict[str, Amounts] = field(default_factory=dict)
    """Nodes that may join."""
    places: dict[str, str] = field(default_factory=dict)
    """By actor or worker: its node."""
    held: dict[str, Demand] = field(default_factory=dict)
    """By actor, or worker that runs a task: what it has there."""
    waiting: set[str] = field(default_factory=set)
    """Workers whose tasks wait: their CPUs are free."""

    def fits(self, node: str, demand: Demand | None) -> bool:
        """Whether there is room for this now; None: nothing is demanded."""
        wanted = demand or NOTHING
        if wanted.node not in (None, node):
            return False
        return all(self._free(node, name) >= amount for name, amount in wanted.needs)

    def fitting(self, demand: Demand | None) -> list[str]:
        """The nodes where there is."""
        return [node for node in self.amounts if self.fits(node, demand)]

    def _free(self, node: str, resource: str) -> float:
        holders = [name for name in self.held if self.places[name] == node]
        if resource == CPU:
            holders = [name for name in holders if name not in self.waiting]
        return self.amounts[node].get(resource, 0.0) - sum(
            dict(self.held[name].needs).get(resource, 0.0) for name in holders
        )

    def take(self, machine: str, node: str, demand: Demand | None) -> None:
        """An actor is created there, or a worker begins a task."""
        self.places[machine] = node
        self.held[machine] = demand or NOTHING

    def give_back(self, worker: str) -> None:
        """A task has ended; its worker stays where it is."""
        self.held.pop(worker, None)
        self.waiting.discard(worker)

    def leave(self, machine: str) -> None:
        """A process is gone."""
        self.give_back(machine)
        self.places.pop(machine, None)

    def report(self, machine: str, *, is_clean: bool) -> Held:
        """What a process has, in its own eyes: a task that waits has its CPU, too."""
        amounts = dict(self.held.get(machine, NOTHING).needs)
        return Held(self.places.get(machine, ""), amounts, is_clean)

    def join(self, node: str) -> None:
        """One node more."""
        self.amounts[node] = self.coming.pop(node)

    def look(self) -> dict[str, Amounts]:
        """What Ray's control store lists now."""
        return dict(self.amounts)
