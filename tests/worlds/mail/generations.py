"""The generations of one simulated system: which one each host is in, and what has arrived before its time.

While a system is rolled back, two generations are there at once, over the same hosts and the same network; a host acts in the
one that it is in. Imports the standard library and `ray_snapshot`; read `rollback/restoring` next.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ray_snapshot.protocol.rollback import Judgement, Phase, RollbackHost

if TYPE_CHECKING:
    from worlds.mail.world import World


@dataclass(slots=True)
class Lineage:
    """The generations of one system; empty if it is never rolled back."""

    generations: dict[int, World] = field(default_factory=dict)
    gates: dict[str, RollbackHost] = field(default_factory=dict)
    """By host: in which generation it is."""
    held: dict[str, list[Callable[[], str]]] = field(default_factory=dict)
    """By host: what has arrived before its time."""
    newborn: list[tuple[str, int]] = field(default_factory=list)
    """(host, generation): made by machines; the coordinator of rollbacks has not heard of them."""

    def runs(self, name: str, generation: int) -> bool:
        """Whether the host acts in this generation now."""
        gate = self.gates.get(name)
        if gate is None:
            return not self.generations
        return gate.generation == generation and gate.phase is Phase.RUNNING

    def is_past(self, generation: int) -> bool:
        """Whether a later one has begun: the coordinator of snapshots listens to this one no more."""
        return bool(self.generations) and generation < max(self.generations)

    def judge(self, name: str, own: World, generation: int, again: Callable[[], str]) -> tuple[World | None, str]:
        """In which world something of a generation is accepted by a host of `own`; none, and why, if it is not (now).

        What comes before its time is held, and `again` called when the host has started.
        """
        gate = self.gates.get(name)
        if gate is None:
            return (None, f"{name} is no more: lost") if self.generations else (own, "")
        match gate.judge(generation):
            case Judgement.REFUSE:
                return None, f"of generation {generation}: refused"
            case Judgement.HOLD:
                self.held.setdefault(name, []).append(again)
                return None, f"of generation {generation}: held"
        return self.generations[gate.generation], ""

    def started(self, name: str) -> None:
        """The host has entered its generation: what it held is looked at again."""
        for again in self.held.pop(name, ()):
            again()

    def bear(self, name: str, generation: int) -> None:
        """A machine has made this host."""
        if self.generations and name not in self.gates:
            self.gates[name] = RollbackHost(generation, Phase.LOADED)
            self.newborn.append((name, generation))
