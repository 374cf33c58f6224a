"""Small apps in every order: each enabled step at each moment, the number of distinct states pinned.

The driver is a machine too. A change of behaviour changes a number here even when no property fails; explain it before you
pin the new one. Systems that take longer than a second or two are for the night.
"""

from collections.abc import Callable

import pytest
from worlds.calls.central import Step
from worlds.calls.oracle import deadlocked
from worlds.calls.programs import Call, Create, Get, Kind, Notify, Park, Start, Work
from worlds.calls.schedules import explore
from worlds.calls.world import CallWorld
from worlds.mail.every_order import Explored, calm

EMPTY = Kind({"m": ()})
WORKER = Kind({"m": (Work(),)})
READER = Kind({"m": (Get((0,)),)})
CALLER = Kind({"m": (Call("b", "m"), Get((0,)))})
SELFISH = Kind({"m": (Call("a", "n"), Get((0,))), "n": ()})

NO_ACKS = ("acknowledge",)
BOUNDARIES_ONLY = ("acknowledge", "hurry")
"""No acknowledgements before the end, and nobody records inside an action."""
AT_ONCE = ("report", "acknowledge")
"""Acknowledgements are sent at once; when they arrive is another matter."""


def once(kind: str) -> Callable[[CallWorld], list[Step]]:
    """At any moment, but once in a run: a call is lost, or repeated."""

    def extra(world: CallWorld) -> list[Step]:
        return [] if world.log.faults else [(kind, index) for index in range(len(world.ray.network))]

    return extra


def dies_once(world: CallWorld) -> list[Step]:
    return [("die", "a")] if "a" in world.alive and not world.log.faults else []


def test_one_call_and_its_reply() -> None:
    """Traps 4, 6, 7, 11, and acknowledgements, in every order."""
    world = CallWorld({"W": WORKER}, {"a": "W"}, (Call("a", "m"), Get((0,))))
    assert explore(world) == Explored(states=502, ends=121, snapshots=8)


@pytest.mark.nightly
def test_a_call_that_calls() -> None:
    world = CallWorld({"E": EMPTY, "C": CALLER}, {"a": "C", "b": "E"}, (Call("a", "m"),))
    assert explore(world, never=BOUNDARIES_ONLY) == Explored(states=584, ends=71, snapshots=8)
    assert explore(world, eager=AT_ONCE) == Explored(states=4588, ends=1029, snapshots=19), "with acknowledgements"


def test_a_task_that_its_sender_never_asks_for() -> None:
    """Traps 22, 25 and 26, in every order: a worker is born, runs it, and idles; its sender learns that it is over."""
    world = CallWorld({}, {}, (Start("f"), Work()), functions={"f": ()})
    assert explore(world) == Explored(states=508, ends=203, snapshots=9)


def test_a_task_and_its_reply() -> None:
    world = CallWorld({}, {}, (Start("f"), Get((0,))), functions={"f": (Work(),)})
    assert explore(world) == Explored(states=789, ends=314, snapshots=11)


@pytest.mark.nightly
def test_two_tasks_in_one_worker() -> None:
    world = CallWorld({}, {}, (Start("f"), Start("f"), Work()), functions={"f": ()})
    assert explore(world, never=("retire",)) == Explored(states=12703, ends=1987, snapshots=32)


@pytest.mark.nightly
def test_a_task_that_wakes_one_who_is_parked() -> None:
    kind = Kind({"park": (Park(),), "notify": (Notify(),)}, slots=2)
    functions = {"f": (Call("a", "notify"),)}
    world = CallWorld({"K": kind}, {"a": "K"}, (Call("a", "park"), Start("f")), functions=functions)
    assert explore(world, never=BOUNDARIES_ONLY) == Explored(states=17979, ends=1704, snapshots=16)


@pytest.mark.nightly
def test_two_snapshots_of_calls_that_overlap() -> None:
    """Trap 2, in every order."""
    world = CallWorld({"E": EMPTY}, {"a": "E"}, (Call("a", "m"),))
    assert explore(world, snapshots=2, eager=AT_ONCE, never=("hurry",)) == Explored(states=899, ends=132, snapshots=8)


@pytest.mark.nightly
def test_a_machine_that_is_created() -> None:
    """Trap 3, in every order."""
    world = CallWorld({"E": EMPTY}, {}, (Create("kid", "E"), Call("kid", "m")))
    assert explore(world) == Explored(states=1256, ends=435, snapshots=17)


@pytest.mark.nightly
def test_a_ref_that_is_passed_on() -> None:
    """Trap 4, in every order: what a answered in red is read by b."""
    world = CallWorld({"E": EMPTY, "R": READER}, {"a": "E", "b": "R"}, (Call("a", "m"), Call("b", "m", gives=(0,))))
    assert explore(world, never=BOUNDARIES_ONLY) == Explored(states=761, ends=73, snapshots=10)


def test_a_ref_that_is_an_argument() -> None:
    """Trap 4, in every order: a call begins when the reply it needs is there."""
    world = CallWorld({"E": EMPTY}, {"a": "E", "b": "E"}, (Call("a", "m"), Call("b", "m", needs=(0,))))
    assert explore(world, never=BOUNDARIES_ONLY) == Explored(states=365, ends=31, snapshots=6)


@pytest.mark.nightly
def test_a_call_that_is_lost() -> None:
    """Trap 5, in every order."""
    world = CallWorld({"E": EMPTY}, {"a": "E"}, (Call("a", "m"), Call("a", "m")))
    assert explore(world, once("lose"), eager=AT_ONCE) == Explored(states=2333, ends=797, snapshots=31)


@pytest.mark.nightly
def test_a_call_that_is_executed_twice() -> None:
    """Trap 5, in every order: on a machine with two threads, so at the same time too."""
    kind = Kind({"m": (Work(),)}, slots=2)
    world = CallWorld({"K": kind}, {"a": "K"}, (Call("a", "m", is_retried=True), Get((0,))))
    assert explore(world, once("repeat"), eager=AT_ONCE) == Explored(states=5627, ends=1830, snapshots=15)


@pytest.mark.nightly
def test_a_machine_that_dies_and_starts_again() -> None:
    """Trap 5, in every order: its call is executed again."""
    kind = Kind({"m": (Work(),)}, can_restart=True)
    world = CallWorld({"K": kind}, {"a": "K"}, (Call("a", "m", is_retried=True), Get((0,))))
    assert explore(world, dies_once, never=BOUNDARIES_ONLY) == Explored(states=1647, ends=309, snapshots=17)


@pytest.mark.nightly
def test_one_thread_that_parks_and_another_that_wakes_it() -> None:
    """Traps 7 and 10, in every order."""
    kind = Kind({"park": (Park(),), "notify": (Notify(),)}, slots=2)
    world = CallWorld({"K": kind}, {"a": "K"}, (Call("a", "park"), Call("a", "notify")))
    assert explore(world, never=NO_ACKS) == Explored(states=2463, ends=1017, snapshots=30)


def test_a_machine_that_calls_itself_is_deadlocked() -> None:
    world = CallWorld({"S": SELFISH}, {"a": "S"}, (Call("a", "m"), Get((0,))))
    assert explore(world, eager=AT_ONCE) == Explored(states=277, ends=58, snapshots=9)


@pytest.mark.nightly
def test_two_machines_that_call_each_other() -> None:
    there = Kind({"m": (Call("b", "n"), Get((0,))), "n": ()})
    back = Kind({"m": (Call("a", "n"), Get((0,))), "n": ()})
    world = CallWorld({"T": there, "B": back}, {"a": "T", "b": "B"}, (Call("a", "m"), Call("b", "m")))
    assert explore(world, never=BOUNDARIES_ONLY) == Explored(states=4629, ends=700, snapshots=30)


def stuck_in(world: CallWorld) -> set[tuple[str, str]]:
    """(caller, machine) of the calls that a snapshot, taken when all is quiet, finds deadlocked."""
    calm(world)
    world.perform(("snapshot",))
    calm(world)
    return {(call[0], call[2]) for call in deadlocked(world.central.completed[-1], world.slots())}


def test_deadlocks_are_found_and_no_others() -> None:
    ring = {name: Kind({"m": (Call(after, "n"), Get((0,))), "n": ()}) for name, after in ("ab", "bc", "ca")}
    everyone = tuple(Call(name, "m") for name in ring)
    assert stuck_in(CallWorld(ring, {name: name for name in ring}, everyone)) == {("driver", name) for name in ring}
    roomy = {name: Kind(kind.methods, slots=2) for name, kind in ring.items()}
    assert stuck_in(CallWorld(roomy, {name: name for name in roomy}, everyone)) == set()
    assert stuck_in(CallWorld({"S": SELFISH}, {"a": "S"}, (Call("a", "m"),))) == {("driver", "a")}
    assert stuck_in(CallWorld({"S": Kind(SELFISH.methods, slots=2)}, {"a": "S"}, (Call("a", "m"),))) == set()
