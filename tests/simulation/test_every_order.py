"""Small systems in every order: each enabled step at each moment, the number of distinct states pinned.

A change of behaviour changes a number here even when no property fails; explain it before you pin the new one.
"""

from typing import Any

import pytest
from worlds.mail.behaviours import Script
from worlds.mail.every_order import Explored
from worlds.mail.fingerprints import fingerprint
from worlds.mail.schedules import EAGER, explore
from worlds.mail.world import World

from ray_snapshot.protocol.colours import Independent
from ray_snapshot.simulation.mail.hosts import Step
from ray_snapshot.simulation.mail.machines import Call, Create, Later, Output, Send

COPIES_TOO = (*EAGER, "copy")


def acting(*outputs: Output, **sends: Output) -> Script:
    """Acts once, unasked, and does this; and that on the messages named."""
    return Script((("go", outputs), *((event, (output,)) for event, output in sends.items())), ("go",))


def answering(**sends: Output) -> Script:
    return Script(tuple((event, (output,)) for event, output in sends.items()))


def world_of(*machines: tuple[str, str, Script], is_connected: bool = False, **options: Any) -> World:
    world = World({name: (host, script, ()) for name, host, script in machines}, **{"is_atomic": True, **options})
    if is_connected:
        world.connect_all()
    return world


def every_order(world: World, *acts: str, snapshots: int = 1, hosts: tuple[str, ...] = (), **options: Any) -> Explored:
    """Explore, with these machines acting once each and that many snapshots started, all at any moment."""

    def extra(now: World) -> list[Step]:
        steps: list[Step] = [("snapshot", *hosts)] if now.central.coordinator.last < snapshots else []
        return steps + [("act", name) for name in acts if not now.log.lengths.get(name) and now.can_act(name)]

    return explore(world, fingerprint, extra, **options)


PING = (("a", "A", acting(Send("b", "ping", 1))), ("b", "B", answering(ping=Send("a", "pong", 2))))


def test_two_machines_that_answer_each_other() -> None:
    assert every_order(world_of(*PING), "a") == Explored(states=621, ends=17, snapshots=17)


@pytest.mark.nightly
def test_two_machines_that_are_interrupted_in_the_middle_of_their_actions() -> None:
    found = every_order(world_of(*PING, is_atomic=False), "a")

    assert found == Explored(states=1422, ends=17, snapshots=17)


@pytest.mark.nightly
def test_two_machines_on_one_host_and_a_third_elsewhere() -> None:
    """Trap 1, in every order."""
    world = world_of(
        ("a", "A", acting(Send("b", "x", 1), Send("c", "x", 1))),
        ("b", "A", answering(x=Send("c", "y", 1))),
        ("c", "C", Script()),
    )

    assert every_order(world, "a") == Explored(states=1963, ends=54, snapshots=42)


@pytest.mark.nightly
def test_two_snapshots_that_overlap() -> None:
    """Trap 2, in every order: numbers reach the hosts in any order, or not at all before markers do."""
    world = world_of(("a", "A", acting(Send("b", "x", 0))), ("b", "B", Script()))

    found = every_order(world, "a", snapshots=2, eager=COPIES_TOO)
    assert found == Explored(states=1784, ends=65, snapshots=18)


@pytest.mark.nightly
def test_two_snapshots_that_spread_by_markers_alone() -> None:
    world = world_of(("a", "A", acting(Send("b", "x", 0))), ("b", "B", Script()), is_connected=True)

    found = every_order(world, "a", snapshots=2, hosts=("A",), eager=COPIES_TOO)
    assert found == Explored(states=1240, ends=29, snapshots=8)


@pytest.mark.nightly
def test_two_snapshots_of_independent_colours() -> None:
    world = world_of(("a", "A", acting(Send("b", "x", 1))), ("b", "B", acting(Send("a", "x", 1))), colours=Independent)

    found = every_order(world, "a", "b", eager=COPIES_TOO)
    assert found == Explored(states=1102, ends=54, snapshots=40)


def test_a_ring_of_three() -> None:
    ring = [(name, name.upper(), acting(Send(after, "x", 1))) for name, after in ("ab", "bc", "ca")]

    assert every_order(world_of(*ring), "a", eager=COPIES_TOO) == Explored(states=392, ends=27, snapshots=27)


def test_a_machine_that_is_born_on_another_host() -> None:
    """Trap 3, in every order."""
    world = world_of(("a", "A", acting(Create("k", "B", Script(), ()), Send("k", "x", 1))), ("b", "B", Script()))

    assert every_order(world, "a") == Explored(states=432, ends=14, snapshots=14)


@pytest.mark.nightly
def test_a_machine_that_is_born_on_a_new_host() -> None:
    world = world_of(("a", "A", acting(Create("k", "K", Script(), ()), Send("k", "x", 1))), ("b", "B", Script()))

    assert every_order(world, "a", eager=COPIES_TOO) == Explored(states=1084, ends=21, snapshots=18)


def test_a_timer() -> None:
    world = world_of(("a", "A", acting(Later("a", "t", 1), t=Send("b", "x", 1))), ("b", "B", Script()))

    assert every_order(world, "a") == Explored(states=329, ends=14, snapshots=14)


@pytest.mark.nightly
def test_a_name_that_is_found_late() -> None:
    world = world_of(("a", "A", acting(Send("b", "x", 1))), ("b", "B", acting(Send("a", "x", 1))), knows_places=False)

    assert every_order(world, "a", "b", eager=COPIES_TOO) == Explored(states=1915, ends=90, snapshots=40)


@pytest.mark.nightly
def test_a_call_and_its_reply() -> None:
    """Traps 4 and 6, in every order: the caller waits inside its action, and the reply carries red into white."""
    world = world_of(
        ("a", "A", acting(Call("b", "ask", 1), reply=Send("b", "x", 2))), ("b", "B", Script()), is_atomic=False
    )

    assert every_order(world, "a") == Explored(states=1505, ends=18, snapshots=18)
