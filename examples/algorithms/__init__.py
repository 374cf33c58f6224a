"""Published algorithms as machines, each explored whole, and each with a mistake that exploring finds.

`python -m ray_snapshot.examples.algorithms` explores them all; `--draw FOLDER` draws what is wrong with the broken ones. Each
module has `build`, `broken` and its properties; which are to hold always, and which in the end, is said here.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray_snapshot.testing import Exploration


@dataclass(frozen=True)
class Algorithm:
    """One of them."""

    name: str
    always: tuple[str, ...] = ()
    """Properties of its module that hold in every state."""
    eventually: tuple[str, ...] = ()
    """Properties that come to hold on every fair run."""
    crashes: int = 0

    @property
    def module(self) -> ModuleType:
        """Where its machines are."""
        return import_module(f"{__name__}.{self.name}")

    def explore(self, build: str = "build") -> Exploration:
        """Every order of `build`, or of `broken`. Deadlocks are looked for, too, and each is to come to its end."""
        from ray_snapshot import detectors, testing

        module = self.module
        goals: list[Any] = [getattr(module, name) for name in self.eventually]
        return testing.explore(
            getattr(module, build),
            always=[getattr(module, name) for name in self.always],
            never=[detectors.Deadlock()],
            eventually=[*goals, detectors.Termination()],
            crashes=self.crashes,
        )


ALGORITHMS = (
    Algorithm("dijkstra_scholten", ("no_early_announcement",), ("announced",)),
    Algorithm("safra", ("no_early_announcement",), ("announced",)),
    Algorithm("ricart_agrawala", ("one_at_a_time",), ("all_have_entered",)),
    Algorithm("suzuki_kasami", ("one_at_a_time",), ("all_have_entered",)),
    Algorithm("lamport_mutex", ("one_at_a_time",), ("all_have_entered",)),
    Algorithm("chang_roberts", ("only_the_highest_leads",), ("all_know_the_leader",)),
    Algorithm("bully", ("only_the_highest_leads",), ("all_know_a_leader",), crashes=1),
    Algorithm("raft_election", ("one_leader_a_term",)),
    Algorithm("two_phase_commit", ("all_or_none",), ("all_decided",)),
    Algorithm("transaction_commit", ("consistent",)),
    Algorithm("alternating_bit", ("once_and_in_order", "answered_means_taken"), ("all_taken",)),
    Algorithm("gossip", (), ("all_agree",)),
    Algorithm("echo", ("parents_and_children_agree",), ("all_are_done",)),
)
