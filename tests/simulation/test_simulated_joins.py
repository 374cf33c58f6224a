"""Machines written with joins only: who is stuck is found in any order, without any declaration of waits."""

import random
from dataclasses import dataclass
from typing import Any

from worlds.mail.every_order import calm
from worlds.mail.machines import Input, Output, Send
from worlds.mail.rows import rows_of
from worlds.mail.theorem import check_run
from worlds.mail.world import World

from ray_snapshot import Snapshot, Verdict
from ray_snapshot.detectors import Deadlock, Termination

Dealt = tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Philosopher:
    """Eats with both forks, each of which is a message, and hands both on; unasked, it deals out the forks given to it."""

    left: str
    right: str
    dealt: Dealt
    joins = (("left", "right"),)

    def react(self, name: str, state: int, inputs: tuple[Input, ...], choice: int, /) -> tuple[int, tuple[Output, ...]]:
        """Its state is how often it has eaten; -1: it has not dealt yet."""
        if not inputs:
            return 0, tuple(Send(target, port, 0) for target, port in self.dealt)
        return state + 1, (Send(self.left, "right", 0), Send(self.right, "left", 0))


CIRCLE: tuple[Dealt, ...] = ((("p1", "left"),), (("p2", "left"),), (("p0", "left"),))
"""Each has one fork, and waits for the other of its neighbour."""
NO_CIRCLE: tuple[Dealt, ...] = ((("p2", "left"),), (("p0", "right"),), (("p0", "left"),))
"""One has both forks, the next one, the last none."""


def table(dealt: tuple[Dealt, ...], is_declared: bool = True) -> World:
    sides = {"p0": ("p2", "p1"), "p1": ("p0", "p2"), "p2": ("p1", "p0")}
    world = World(
        {name: (f"h{name}", Philosopher(*sides[name], dealt[at]), -1) for at, name in enumerate(sides)}, is_atomic=True
    )
    for name, (left, right) in sides.items() if is_declared else ():
        world.declared.declare(left, name, "left")
        world.declared.declare(right, name, "right")
    return world


def judged(world: World, recorded: Any, detector: Any = None) -> Verdict:
    snapshot = Snapshot.from_rows(**rows_of(world, recorded))
    assert snapshot.problems() == []
    return (detector or Deadlock()).evaluate(snapshot)


def dine(dealt: tuple[Dealt, ...], seed: int, steps: int) -> World:
    """Everybody deals, then chance takes steps and snapshots; every snapshot is checked by the oracle."""
    world, chance = table(dealt), random.Random(seed)
    for name in ("p0", "p1", "p2"):
        world.perform(("act", name), 1)
    for step in range(steps):
        enabled = world.enabled()
        if step % 25 == 0:
            world.perform(("snapshot",))
        elif enabled:
            world.perform(chance.choice(enabled))
    check_run(world.log, world.central.completed, world.states())
    return world


def test_forks_in_a_circle_are_found_as_soon_as_a_snapshot_starts_behind_the_dealing() -> None:
    for seed in range(5):
        world = dine(CIRCLE, seed, 200)
        assert world.central.completed, f"seed {seed}"
        for recorded in world.central.completed:
            verdict = judged(world, recorded)
            assert verdict.holds is True, f"seed {seed}"
            assert {one["machine"] for one in verdict.evidence["members"]} == {"p0", "p1", "p2"}, f"seed {seed}"
            assert judged(world, recorded, Termination()).holds is False


def test_forks_in_no_circle_are_never_reported() -> None:
    meals = 0
    for seed in range(5):
        world = dine(NO_CIRCLE, seed, 400)
        assert [judged(world, one).holds for one in world.central.completed] == [False] * len(
            world.central.completed
        ), f"seed {seed}"
        meals += max(world.states().values())
    assert meals > 13


# ---- what is in flight, and what is missing ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Pair:
    """Joins left and right; unasked, it sends what `choice` - 1 says."""

    sends: tuple[tuple[str, str], ...] = ()
    joins = (("left", "right"), ("up", "down"))

    def react(self, name: str, state: int, inputs: tuple[Input, ...], choice: int, /) -> tuple[int, tuple[Output, ...]]:
        """Its state counts its actions."""
        return state + 1, () if inputs else (Send(*self.sends[choice - 1], 0),)


def half_fed(*sent: tuple[str, str]) -> Verdict:
    """`a` and `b` are stuck in each other; `a` has a left, and on its way are these besides: (source, port)."""
    sends = {name: tuple(("a", port) for port in ("left", "right", "up", "poke")) for name in "bc"}
    world = World({name: (name, Pair(sends.get(name, (("b", "left"),))), 0) for name in "abc"}, is_atomic=True)
    for target, source in (("a", "b"), ("b", "a")):
        for port in ("left", "right", "up", "down"):
            world.declared.declare(source, target, port)
    world.perform(("act", "a"), 1)
    world.perform(("act", "b"), 1)
    calm(world)
    for source, port in sent:
        world.perform(("act", source), 1 + ("left", "right", "up", "poke").index(port))
    world.perform(("snapshot",))
    calm_but_for_actions(world)
    return judged(world, world.central.completed[-1])


def calm_but_for_actions(world: World) -> None:
    while steps := [step for step in world.enabled() if step[0] != "accept"]:
        world.perform(steps[0])


def test_forks_in_a_circle_of_which_nobody_said_who_sends_them_are_unknown_and_the_remedy_is_told() -> None:
    world, chance = table(CIRCLE, is_declared=False), random.Random(1)
    for name in ("p0", "p1", "p2"):
        world.perform(("act", name), 1)
    world.perform(("snapshot",))
    while enabled := world.enabled():
        world.perform(chance.choice(enabled))
    verdict = judged(world, world.central.completed[0])
    assert verdict.holds is None
    assert sorted(verdict.evidence["depends_on"]) == [
        f"who sends to {name}, which has begun left+right (lacks right)" for name in ("p0", "p1", "p2")
    ]


def test_a_message_in_flight_to_the_missing_port_is_as_good_as_there() -> None:
    assert half_fed().holds is True
    assert half_fed(("b", "right")).holds is False
    assert half_fed(("c", "right")).holds is False, "whoever sent it"


def test_a_message_in_flight_to_another_port_is_not() -> None:
    assert half_fed(("b", "up")).holds is True
    assert half_fed(("b", "left")).holds is True


def test_a_message_in_flight_behind_one_that_cannot_be_taken_is_not_there() -> None:
    assert half_fed(("b", "left"), ("b", "right")).holds is True
    assert half_fed(("c", "up"), ("c", "right")).holds is True


def test_a_message_in_flight_of_a_plain_method_lets_the_machine_act() -> None:
    assert half_fed(("c", "poke")).holds is False
