"""Small systems in every order: each enabled step at each moment, the number of distinct states pinned.

A change of behaviour changes a number here even when no property fails; explain it before you pin the new one.
"""

from typing import Any

import pytest
from worlds.mail.behaviours import Script
from worlds.mail.every_order import Explored
from worlds.mail.fingerprints import fingerprint
from worlds.mail.machines import Call, Create, Later, Output, Send
from worlds.mail.schedules import EAGER, explore
from worlds.mail.world import World

from ray_snapshot.protocol.colours import Independent
from ray_snapshot.simulation.mail.hosts import Step

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


def night(what: str, *values: Any) -> Any:
    return pytest.param(*values, id=what, marks=pytest.mark.nightly)


ONE_SENDS = (("a", "A", acting(Send("b", "x", 0))), ("b", "B", Script()))
BOTH_SEND = (("a", "A", acting(Send("b", "x", 1))), ("b", "B", acting(Send("a", "x", 1))))
PING = (("a", "A", acting(Send("b", "ping", 1))), ("b", "B", answering(ping=Send("a", "pong", 2))))
RING = tuple((name, name.upper(), acting(Send(after, "x", 1))) for name, after in ("ab", "bc", "ca"))
SPREADING = (
    ("a", "A", acting(Send("b", "x", 1), Send("c", "x", 1))),
    ("b", "A", answering(x=Send("c", "y", 1))),
    ("c", "C", Script()),
)
TIMING = (("a", "A", acting(Later("a", "t", 1), t=Send("b", "x", 1))), ("b", "B", Script()))
CALLING = (("a", "A", acting(Call("b", "ask", 1), reply=Send("b", "x", 2))), ("b", "B", Script()))
BY_COPIES = {"eager": COPIES_TOO}
TWO = {"snapshots": 2, **BY_COPIES}
STEPWISE = {"is_atomic": False}


def born(host: str) -> tuple[tuple[str, str, Script], ...]:
    return ("a", "A", acting(Create("k", host, Script(), ()), Send("k", "x", 1))), ("b", "B", Script())


@pytest.mark.parametrize(
    ("machines", "world", "acts", "options", "found"),
    [
        pytest.param(PING, {}, "a", {}, Explored(621, 17, 17), id="two answer each other"),
        night("interrupted amid their actions", PING, STEPWISE, "a", {}, Explored(1422, 17, 17)),
        night("trap 1: two on one host and a third elsewhere", SPREADING, {}, "a", {}, Explored(1963, 54, 42)),
        # numbers reach the hosts in any order, or not at all before markers do
        night("trap 2: two snapshots that overlap", ONE_SENDS, {}, "a", TWO, Explored(1784, 65, 18)),
        night(
            "by markers alone", ONE_SENDS, {"is_connected": True}, "a", {"hosts": ("A",), **TWO}, Explored(1240, 29, 8)
        ),
        night("independent colours", BOTH_SEND, {"colours": Independent}, "ab", BY_COPIES, Explored(1102, 54, 40)),
        pytest.param(RING, {}, "a", BY_COPIES, Explored(392, 27, 27), id="a ring of three"),
        pytest.param(born("B"), {}, "a", {}, Explored(432, 14, 14), id="trap 3: born on another host"),
        night("born on a new host", born("K"), {}, "a", BY_COPIES, Explored(1084, 21, 18)),
        pytest.param(TIMING, {}, "a", {}, Explored(329, 14, 14), id="a timer"),
        night("a name that is found late", BOTH_SEND, {"knows_places": False}, "ab", BY_COPIES, Explored(1915, 90, 40)),
        # the caller waits inside its action, and the reply carries red into white
        night("traps 4 and 6: a call and its reply", CALLING, STEPWISE, "a", {}, Explored(1505, 18, 18)),
    ],
)
def test_every_order_is_right(machines: Any, world: Any, acts: str, options: Any, found: Explored) -> None:
    assert every_order(world_of(*machines, **world), *acts, **options) == found
