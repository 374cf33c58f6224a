"""A world that shares its hosts with others goes the way of one that shares nothing, step by step."""

from __future__ import annotations

import pickle
import random
from typing import Any

import pytest
from worlds.mail.behaviours import Purse, Script, Wanderer
from worlds.mail.fingerprints import fingerprint
from worlds.mail.orders import every_order
from worlds.mail.sharing import CHANGING, NEVER_FULL, SharedWorld
from worlds.mail.world import World

from ray_snapshot.protocol.choosing import CHANDY_LAMPORT, OBSERVER, PROTOCOLS
from ray_snapshot.protocol.colours import Independent
from ray_snapshot.simulation.mail.hosts import Step
from ray_snapshot.simulation.mail.machines import Create, Send
from ray_snapshot.simulation.mail.network import Carried

CHATTER = Script(
    (("go", (Send("b", "x", 1), Send("c", "x", 1))), ("x", (Send("a", "y", 2),)), ("y", (Send("c", "z", 3),))), ("go",)
)


TELLING = Script((("go", (Send("b", "x", 1),)), ("x", (Send("a", "y", 2),))), ("go",))
"""Over a link that is not there beforehand, too."""


def world_of(protocol: str, machine: Script = CHATTER, snapshots: int = 2, **options: Any) -> World:
    machines = {name: (name.upper(), machine, ()) for name in "abc"}
    options = {"is_fifo": protocol != OBSERVER, "is_atomic": True, "window": NEVER_FULL, **options}
    world = World(machines, protocol=protocol, **options)
    for source, target in ("ab", "ac", "bc"):
        world.connect(source, target)
    for _ in range(snapshots):
        world.perform(("snapshot",))
    return world


def is_head(world: World, carried: Carried) -> bool:
    before = world.network.batches[: world.network.batches.index(carried)]
    return not world.rules.is_fifo or all(
        (one.source, one.target) != (carried.source, carried.target) for one in before
    )


def steps_of(world: World) -> list[Step]:
    """What is enabled; besides, everybody may act, C may die, and be missed, and a snapshot may be given up."""
    steps = [step for name in world.hosts for step in world.enabled_on(name)]
    steps += [("deliver", index) for index, carried in enumerate(world.network.batches) if is_head(world, carried)]
    steps += [("control", index) for index in range(len(world.control))]
    steps += [("act", name) for name in "abc" if world.can_act(name)]
    is_missed = "C" not in world.central.coordinator.hosts
    steps += [("notice", "C") if world.hosts["C"].is_down else ("halt", "C")] * (not is_missed)
    return steps + [("abort", number) for number in world.central.coordinator.pending]


def likely(step: Step) -> float:
    return {"halt": 0.02, "notice": 0.2, "abort": 0.01, "act": 0.2}.get(step[0], 1.0)


def in_full(world: World) -> str:
    """All that a world holds, but for how much its links have carried (what is on its way is in its order)."""
    hosts = pickle.loads(pickle.dumps(world.hosts))
    for host in hosts.values():
        for link in host.core.outputs.values():
            link.in_flight, link.sequence = 0, 0 if world.rules.is_fifo else link.sequence
        for end in host.core.inputs.values() if world.rules.is_fifo else ():
            end.next = 0
    kept, world.hosts, network, world.network.batches = world.hosts, hosts, world.network.batches, []
    print_of = fingerprint(world)
    world.hosts, world.network.batches = kept, network
    carried = [(one.source, one.target, one.batch[2:]) for one in network]
    cuts = [(number, sorted(cut.items())) for number, cut in sorted(world.log.cuts.items())]
    past = world.log.actions, world.log.lengths, cuts, sorted(world.waits.recorded.items())
    central = world.central
    told = world.control, central.parts, central.completed, central.surplus, central.aborted, central.answers
    return repr((print_of, carried, past, told, central.coordinator.hosts, world.states()))


@pytest.mark.by_day(6)
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_every_step_leads_where_it_leads_a_world_that_shares_nothing(protocol: str, seed: int) -> None:
    chance = random.Random(seed)
    shared = SharedWorld.shared(world_of(protocol))
    for _ in range(3):  # the second and the third time much is looked up
        plain, now = world_of(protocol), shared.copy()
        for _ in range(50):
            steps = steps_of(plain)
            step = chance.choices(steps, [likely(step) for step in steps])[0]
            other, before = now.copy(), in_full(now)
            now.perform(step, 1)
            plain.perform(step, 1)
            assert in_full(now) == in_full(plain), f"seed {seed}, {step}"
            assert in_full(other) == before, f"seed {seed}, {step}: another world has changed, too"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_world_that_is_taken_apart_is_the_same_world(protocol: str) -> None:
    world = world_of(protocol)
    for step in (("act", "a"), ("flush", "A"), ("act", "a"), ("flush", "A"), ("deliver", 0)):
        world.perform(step, 1)
    shared = SharedWorld.shared(world)

    assert in_full(shared) == in_full(world) == in_full(shared.copy())
    assert [pickle.loads(kept.pickled).core.host for kept in shared.kept.values()] == [*world.hosts]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_search_changes_no_host_that_it_keeps(protocol: str) -> None:
    """Not even by looking: other worlds have that host, and its mark has been taken."""
    ends: list[World] = []
    every_order(world_of(protocol, TELLING, 1), ["a"], crash="B", check=ends.append)

    end = ends[0]
    assert isinstance(end, SharedWorld)
    assert len(end.keeper.hosts) > 100
    for kept in end.keeper.hosts.values():
        assert pickle.dumps(kept.host, pickle.HIGHEST_PROTOCOL) == kept.pickled


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_step_changes_nothing_that_the_copies_of_a_world_share(protocol: str) -> None:
    chance = random.Random(1)
    now = SharedWorld.shared(world_of(protocol))
    copied = {*CHANGING, "log", "taken", "keeper"}
    kept = {name: value for name, value in vars(now).items() if name not in copied}
    before = repr(kept)
    for _ in range(60):
        now.perform(chance.choice([step for step in steps_of(now) if step[0] != "abort"]), 1)

    assert {name: vars(now)[name] for name in kept} == kept
    assert repr(kept) == before


def test_a_machine_that_does_more_than_send_is_refused() -> None:
    maker = Script((("go", (Create("k", "A", Script(), ()),)),), ("go",))
    now = SharedWorld.shared(world_of(CHANDY_LAMPORT, maker))

    with pytest.raises(AssertionError, match="a host of a search only sends"):
        now.perform(("act", "a"), 1)


def test_a_batch_that_overtakes_another_is_refused_on_a_fifo_link() -> None:
    now = SharedWorld.shared(world_of(CHANDY_LAMPORT))
    for _ in range(2):
        now.perform(("act", "a"), 1)
        now.perform(("flush", "A"))
    links = [carried.target for carried in now.network.batches]

    with pytest.raises(AssertionError, match="overtakes another"):
        now.perform(("deliver", links.index("B", 1)))


def test_colours_may_be_independent() -> None:
    world = world_of(CHANDY_LAMPORT, colours=Independent)

    assert in_full(SharedWorld.shared(world)) == in_full(world)


@pytest.mark.parametrize("option", [{"is_atomic": False}, {"window": 2}])
def test_what_would_make_a_host_depend_on_others_is_refused(option: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        SharedWorld.shared(world_of(CHANDY_LAMPORT, **option))


def test_a_machine_whose_state_does_not_say_how_often_it_has_acted_is_refused() -> None:
    world = World({"a": ("A", Wanderer(("a",)), Purse(1))}, is_atomic=True, window=NEVER_FULL)

    with pytest.raises(AssertionError, match="must be part of its state"):
        SharedWorld.shared(world)
