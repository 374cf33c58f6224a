"""A ring: one right to enter goes round, and the member that has it may use what only one may use at a time.

What to look at: in most snapshots no member has the right. A program that looks at the members alone would call
it lost and hand out a second one. The snapshot finds it in the channel between two members, as the message
that carries it, and `UniqueToken` says so: one right, held by a member or in transit, in every snapshot,
never none and never two.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from itertools import chain
from typing import Any

import ray_snapshot as rs
from ray_snapshot import detectors
from ray_snapshot.examples.program import run


class Member(rs.SnapshotMixin):
    """Enters when it gets the right, and leaves in an action of its own: so a snapshot may find it inside."""

    def __init__(self, next_member: Any) -> None:
        self.next_member = next_member
        self.right: str | None = None
        self.turns_left = 0
        self.entered = 0

    def enter(self, right: str, turns_left: int) -> None:
        self.right = right
        self.turns_left = turns_left
        self.entered += 1
        if turns_left:
            self.handle.leave.send()

    def leave(self) -> None:
        self.next_member.enter.send(self.right, self.turns_left - 1)
        self.right = None


def place_of_right(snapshot: rs.Snapshot) -> str:
    """Where the snapshot found the right: a member, or the channel that it travels on."""
    held = [name for name, machine in snapshot.machines.items() if machine.state and machine.state.get("right")]
    sent = [f"{m.source} -> {m.target}" for m in snapshot.messages if m.method == "enter"]
    return " and ".join(held + sent)


def play(
    *,
    history: str | None = None,
    every: float = 0.2,
    on_verdict: Callable[[rs.Verdict], None] | None = None,
    members: int = 10,
    laps: int = 200,
) -> dict[str, Any]:
    """Let the right go round `laps` times; returns where each snapshot that the driver took found it."""
    unique = detectors.UniqueToken(state="$.right", messages={"enter": "$[0]"})
    with rs.System("token_ring", history=history, every=every, detectors=[unique, detectors.Termination()]) as system:
        if on_verdict:
            system.subscribe(on_verdict, repeat=True)
        names = [f"member-{number}" for number in range(members)]
        half = (members + 1) // 2
        # Neighbours live on different hosts: every hand-over crosses from one process to another.
        ring = [name for name in chain.from_iterable(zip(names[:half], [*names[half:], ""], strict=False)) if name]
        following = {name: system.machine(ring[place - len(ring) + 1]) for place, name in enumerate(ring)}
        system.spawn_many(Member, args=[(following[name],) for name in names], names=names, per_host=half)
        system.start()
        system.machine(ring[0]).enter.send("the right to enter", laps * members)
        snapshots = [system.snapshot(timeout=30) for _ in range(10)]
        ended = system.wait_for("termination", timeout=120)
        snapshots.append(system.snapshot(timeout=30))
    last = snapshots[-1]
    return {
        "places": [place_of_right(snapshot) for snapshot in snapshots],
        "unique": [unique.evaluate(snapshot).holds for snapshot in snapshots],
        "entered": sum(last.machines[name].state["entered"] for name in names),
        "terminated": ended.holds,
    }


def tell(facts: dict[str, Any]) -> None:
    for place in facts["places"]:
        print(f"The right was found at {place}.")
    print(f"Members entered {facts['entered']} times, one at a time; the ring has ended: {facts['terminated']}.")


def main(argv: list[str] | None = None) -> int:
    return run(__doc__, play, tell, argv)


if __name__ == "__main__":
    sys.exit(main())
