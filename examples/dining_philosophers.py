"""Five philosophers, five forks: each takes the fork on its left, then reaches for the one on its right.

What to look at: after a moment nothing moves, and no machine has failed. Every philosopher waits for a fork,
every fork for the philosopher who holds it. `Deadlock` finds the circle in the first snapshot after it has
closed and names its members; no timeout is involved, so it is no guess. With `--polite` the last philosopher
takes its forks in the other order: then the circle cannot close, all of them eat, and the same detector stays
silent to the proven end.

The circle is certain and not a matter of luck: a bell rings when every philosopher has heard from its first
fork, be it "take me" or "wait", and no philosopher reaches for the second one before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import ray_snapshot as rs
from ray_snapshot import detectors
from ray_snapshot.examples.program import run


class Fork(rs.SnapshotMixin):
    """Held by one philosopher at a time; keeps the others in the order in which they asked."""

    def __init__(self) -> None:
        self.holder: Any = None
        self.wanted_by: list[Any] = []

    def take(self, philosopher: Any) -> None:
        if self.holder is None:
            self.holder = philosopher
            philosopher.take_it.send()
        else:
            self.wanted_by.append(philosopher)
            philosopher.wait.send()

    def put_back(self) -> None:
        self.holder = self.wanted_by.pop(0) if self.wanted_by else None
        if self.holder is not None:
            self.holder.take_it.send()

    def waiting_for(self) -> Any:
        """A fork that other philosophers want waits for the one that holds it."""
        return rs.all_of(self.holder) if self.wanted_by else None


class Philosopher(rs.SnapshotMixin):
    """Takes its first fork, then its second, eats, puts both back."""

    def __init__(self, first: Any, second: Any, bell: Any, meals: int) -> None:
        self.first, self.second, self.bell = first, second, bell
        self.meals_left = meals
        self.meals_eaten = 0
        self.held = 0
        self.bell_has_rung = False
        self.reaches_for: Any = None

    def sit_down(self) -> None:
        self._reach_for(self.first)

    def take_it(self) -> None:
        self.held += 1
        self.reaches_for = None
        if self.held == 2:
            self._eat()
        elif self.bell_has_rung:
            self._reach_for(self.second)
        else:
            self.bell.heard.send()

    def wait(self) -> None:
        if not self.bell_has_rung:
            self.bell.heard.send()

    def bell_rings(self) -> None:
        self.bell_has_rung = True
        if self.held == 1:
            self._reach_for(self.second)

    def waiting_for(self) -> Any:
        return rs.all_of(self.reaches_for) if self.reaches_for else None

    def _reach_for(self, fork: Any) -> None:
        self.reaches_for = fork
        fork.take.send(self.handle)

    def _eat(self) -> None:
        self.meals_eaten += 1
        self.meals_left -= 1
        self.held = 0
        self.first.put_back.send()
        self.second.put_back.send()
        if self.meals_left:
            self._reach_for(self.first)


class Bell(rs.SnapshotMixin):
    """Rings once, when as many philosophers as there are have heard from their first fork."""

    def __init__(self, philosophers: list[Any]) -> None:
        self.philosophers = philosophers
        self.still_to_hear = len(philosophers)

    def heard(self) -> None:
        self.still_to_hear -= 1
        if self.still_to_hear == 0:
            for philosopher in self.philosophers:
                philosopher.bell_rings.send()


def play(
    *,
    history: str | None = None,
    every: float = 0.2,
    on_verdict: Callable[[rs.Verdict], None] | None = None,
    philosophers: int = 5,
    meals: int = 3,
    polite: bool = False,
) -> dict[str, Any]:
    """Dine until a deadlock or the end is proven; returns which, the members, and which philosophers have eaten."""
    watch = [detectors.Deadlock(), detectors.Termination()]
    with rs.System("dining_philosophers", history=history, every=every, detectors=watch) as system:
        if on_verdict:
            system.subscribe(on_verdict, repeat=True)
        seats = range(philosophers)
        names = [f"philosopher-{seat}" for seat in seats]
        people = [system.machine(name) for name in names]
        forks = system.spawn_many(
            Fork, args=[()] * philosophers, names=[f"fork-{seat}" for seat in seats], per_host=philosophers
        )
        bell = system.spawn(Bell, people, name="bell")
        hands = [(forks[seat], forks[(seat + 1) % philosophers]) for seat in seats]
        if polite:
            hands[-1] = hands[-1][::-1]
        arguments = [(first, second, bell, meals) for first, second in hands]
        system.spawn_many(Philosopher, args=arguments, names=names, per_host=philosophers)
        system.start()
        for person in people:
            person.sit_down.send()
        verdict = system.wait_for("termination" if polite else "deadlock", timeout=60)
        last = system.snapshot(timeout=30)
    return {
        "proven": verdict.detector,
        "sentence": verdict.sentence,
        "members": [member["machine"] for member in verdict.evidence.get("members", [])],
        "meals": {name: last.machines[name].state["meals_eaten"] for name in names},
    }


def tell(facts: dict[str, Any]) -> None:
    print(facts["sentence"])
    for name, meals in facts["meals"].items():
        print(f"{name} has eaten {meals} times.")


def main(argv: list[str] | None = None) -> int:
    return run(__doc__, play, tell, argv, polite="the last philosopher takes its forks in the other order")


if __name__ == "__main__":
    sys.exit(main())
