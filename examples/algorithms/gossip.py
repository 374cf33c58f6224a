"""Gossip: all replicas come to hold the same value, whoever wrote last.

Source: A. Demers and others, "Epidemic algorithms for replicated database maintenance", PODC 1987. A replica that
learns of a newer value tells it to another one that it draws by chance. As drawing alone may leave a replica out, it
tells its neighbour, too. Which of two values is newer is told by their versions, and by the names of their writers
where those are equal.
Assumed of the network: nothing is lost; any order, any delay; doubling does no harm.

`broken`: a replica takes what comes last, newer or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray_snapshot as rs

Value = tuple[int, str]
"""(version, writer)."""


class Replica(rs.SnapshotMixin):
    """Holds one value."""

    def __init__(self, neighbour: Any, others: list[Any]) -> None:
        self.neighbour = neighbour
        self.others = others
        self.value: Value = (0, "")

    def write(self) -> None:
        """A client writes."""
        self.value = (self.value[0] + 1, self.machine_name)
        self._tell()

    def hear(self, value: Value) -> None:
        """Another replica tells its value."""
        if value > self.value:
            self.value = value
            self._tell()

    def _tell(self) -> None:
        self.neighbour.hear.send(self.value)
        self.random.choice(self.others).hear.send(self.value)


class GullibleReplica(Replica):
    """Does not look at what it has."""

    def hear(self, value: Value) -> None:
        super().hear(value)
        self.value = value


def build(system: Any, kind: type[Replica] = Replica) -> None:
    """Three replicas, of which two are written to at the same time."""
    names = ["a", "b", "c"]
    replicas = [system.machine(name) for name in names]
    for place, name in enumerate(names):
        others = [other for other in replicas if other is not replicas[place]]
        system.spawn(kind, replicas[(place + 1) % 3], others, name=name)
    system.machine("a").write.send()
    system.machine("b").write.send()


def broken(system: Any) -> None:
    """The same, of gullible replicas."""
    build(system, GullibleReplica)


def all_agree(states: Mapping[str, Replica]) -> bool:
    """All replicas hold the same value, and one was written."""
    return len({replica.value for replica in states.values()}) == 1 and states["a"].value[0] > 0
