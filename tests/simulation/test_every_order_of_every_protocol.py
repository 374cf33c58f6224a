"""Three machines, four messages, two overlapping snapshots: every order, under every protocol, with and without a fault.

`worlds/mail/orders.py` says why some orders stand for others; the first tests hold it against the plain search. The
fault: host C dies at any moment, or not at all, and is missed at any later one; then what is pending is given up. (So
what happens without a crash is in these searches too, and told apart.) Besides, on the ring: the first of two snapshots
is given up, whenever each host hears of it. Numbers are pinned: explain a change before you pin the new ones.
"""

import pytest
from worlds.mail.behaviours import Script
from worlds.mail.machines import Output, Send
from worlds.mail.orders import Orders, every_order
from worlds.mail.world import World

from ray_snapshot.protocol.choosing import ALIGNED, AT_LEAST_ONCE, CHANDY_LAMPORT, OBSERVER, PROTOCOLS, UNALIGNED
from ray_snapshot.simulation.mail.oracle import OracleError


def machine(*go: Output, **sends: Output) -> Script:
    """Acts once, unasked, and sends `go`; and on each message named, one more."""
    return Script((("go", go), *((event, (output,)) for event, output in sends.items())), ("go",))


def to(target: str, method: str) -> Send:
    return Send(target, method, 1)


SCENARIOS: dict[str, tuple[dict[str, Script], tuple[tuple[str, str], ...]]] = {
    "ring": (
        {"a": machine(to("b", "x"), z=to("b", "w")), "b": machine(x=to("c", "y")), "c": machine(y=to("a", "z"))},
        (("a", "b"), ("b", "c")),
    ),
    "chain": (  # one way, and a back edge from c to b
        {"a": machine(to("b", "x"), to("b", "w")), "b": machine(x=to("c", "y")), "c": machine(y=to("b", "z"))},
        (("a", "b"), ("b", "c")),
    ),
    "complete": (
        {"a": machine(to("b", "x"), to("c", "x")), "b": machine(x=to("c", "y")), "c": machine(x=to("b", "y"))},
        (("a", "b"), ("a", "c"), ("b", "c")),
    ),
    "two": ({"a": machine(to("b", "x")), "b": machine(x=to("a", "y"))}, (("a", "b"),)),
    "vee": ({"a": machine(to("c", "x")), "b": machine(), "c": machine()}, (("a", "c"), ("b", "c"))),
}
"""Machines by name, each on a host of its own, and the declared channels that close no cycle."""


def world_of(scenario: str, protocol: str, snapshots: int, given_up: tuple[int, ...] = ()) -> World:
    scripts, edges = SCENARIOS[scenario]
    machines = {name: (name.upper(), script, ()) for name, script in scripts.items()}
    world = World(machines, protocol=protocol, is_fifo=protocol != OBSERVER, is_atomic=True, window=100)
    for source, target in edges:
        world.connect(source, target)
    for _ in range(snapshots):
        world.perform(("snapshot",))
    for number in given_up:
        world.perform(("abort", number))
    return world


def all_is_accepted(world: World) -> None:
    """Whatever became of the snapshots, no machine is left blocked."""
    for name, host in world.hosts.items():
        for one in host.core.machines.values():
            left = [message for message in one.inbox.waiting() if message[1]]
            if left and not host.is_down:
                raise OracleError(f"all is quiet, but {one.name} on {name} does not accept {left}")


def counted(found: Orders) -> tuple[int, int, int]:
    return found.states, len(found.outcomes), len(found.snapshots)


@pytest.mark.by_day(5)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("scenario", "snapshots", "given_up"), [("two", 1, ()), ("vee", 1, ()), ("two", 1, (1,))])
def test_the_reduced_search_finds_what_the_plain_one_finds(
    protocol: str, scenario: str, snapshots: int, given_up: tuple[int, ...]
) -> None:
    reduced, plain = (
        every_order(world_of(scenario, protocol, snapshots, given_up), ["a"], is_reduced=is_reduced)
        for is_reduced in (True, False)
    )
    assert reduced.outcomes == plain.outcomes
    assert reduced.snapshots == plain.snapshots
    assert reduced.states < plain.states


@pytest.mark.nightly
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_reduced_search_finds_what_the_plain_one_finds_with_two_snapshots(protocol: str) -> None:
    reduced, plain = (
        every_order(world_of("two", protocol, 2), ["a"], is_reduced=is_reduced) for is_reduced in (True, False)
    )
    assert reduced.outcomes == plain.outcomes
    assert reduced.snapshots == plain.snapshots


SMALL = [("two", "A"), ("two", "B"), pytest.param("vee", "A", marks=pytest.mark.nightly)]


@pytest.mark.by_day(3)
@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(("scenario", "crash"), [*SMALL, pytest.param("vee", "C", marks=pytest.mark.nightly)])
def test_the_reduced_search_finds_what_the_plain_one_finds_with_a_crash(
    protocol: str, scenario: str, crash: str
) -> None:
    _compare_crashes(protocol, scenario, 1, crash)


@pytest.mark.nightly
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_reduced_search_finds_what_the_plain_one_finds_with_a_crash_and_two_snapshots(protocol: str) -> None:
    _compare_crashes(protocol, "two", 2, "B")


def _compare_crashes(protocol: str, scenario: str, snapshots: int, crash: str) -> None:
    """The plain search goes on until the host has crashed, however late."""
    reduced, plain = (
        every_order(world_of(scenario, protocol, snapshots), ["a"], crash=crash, is_reduced=is_reduced)
        for is_reduced in (True, False)
    )
    without = every_order(world_of(scenario, protocol, snapshots), ["a"])
    assert {outcome for outcome in reduced.outcomes if outcome[0]} == plain.outcomes
    assert reduced.outcomes - plain.outcomes == without.outcomes
    assert reduced.snapshots == plain.snapshots
    assert reduced.states < plain.states / 5


OVERLAPPING = {
    CHANDY_LAMPORT: (1537, 21, 12),
    OBSERVER: (1055, 21, 12),
    ALIGNED: (984, 6, 6),
    UNALIGNED: (1135, 21, 12),
    AT_LEAST_ONCE: (980, 6, 6),
}
"""States, outcomes, distinct snapshots."""


@pytest.mark.by_day(2)
@pytest.mark.parametrize("protocol", OVERLAPPING)
def test_two_overlapping_snapshots_are_right_in_every_order(protocol: str) -> None:
    found = every_order(world_of("ring", protocol, 2), ["a"], check=all_is_accepted)
    assert counted(found) == OVERLAPPING[protocol]


GIVEN_UP = {
    CHANDY_LAMPORT: (1584, 6, 6),
    OBSERVER: (1249, 6, 6),
    ALIGNED: (2819, 3, 3),
    UNALIGNED: (2660, 6, 6),
    AT_LEAST_ONCE: (2809, 3, 3),
}


@pytest.mark.nightly
@pytest.mark.parametrize("protocol", GIVEN_UP)
def test_a_snapshot_that_is_given_up_leaves_the_other_one_right_in_every_order(protocol: str) -> None:
    found = every_order(world_of("ring", protocol, 2, (1,)), ["a"], check=all_is_accepted)
    assert counted(found) == GIVEN_UP[protocol]


CRASHED = {
    ("ring", CHANDY_LAMPORT): (4520, 21, 38, 12),
    ("ring", OBSERVER): (2800, 21, 38, 12),
    ("ring", ALIGNED): (1929, 6, 13, 6),
    ("ring", UNALIGNED): (2219, 21, 38, 12),
    ("ring", AT_LEAST_ONCE): (1925, 6, 13, 6),
    ("chain", CHANDY_LAMPORT): (6984, 27, 50, 14),
    ("chain", OBSERVER): (4646, 27, 50, 14),
    ("chain", ALIGNED): (2030, 6, 13, 6),
    ("chain", UNALIGNED): (2826, 27, 50, 14),
    ("chain", AT_LEAST_ONCE): (2016, 6, 13, 6),
    ("complete", CHANDY_LAMPORT): (26107, 76, 104, 28),
    ("complete", OBSERVER): (17544, 76, 104, 28),
    ("complete", ALIGNED): (5760, 15, 26, 12),
    ("complete", UNALIGNED): (13027, 76, 104, 28),
    ("complete", AT_LEAST_ONCE): (7417, 30, 48, 18),
}
"""States, outcomes without a crash and with one, distinct snapshots."""

DAILY = [("ring", ALIGNED)]


@pytest.mark.parametrize(
    ("scenario", "protocol"),
    [key if key in DAILY else pytest.param(*key, marks=pytest.mark.nightly) for key in CRASHED],
)
def test_a_host_that_crashes_during_two_snapshots_makes_none_wrong_and_blocks_nobody(
    scenario: str, protocol: str
) -> None:
    found = every_order(world_of(scenario, protocol, 2), ["a"], crash="C", check=all_is_accepted)
    crashed = sum(outcome[0] for outcome in found.outcomes)
    counts = found.states, len(found.outcomes) - crashed, crashed, len(found.snapshots)
    assert counts == CRASHED[scenario, protocol]
