"""Barriers against their table, machine by machine: every event in every state, in each mode and colour scheme; then hosts."""

from itertools import product
from typing import Any

import pytest
from nets import Net, barrier_net

from ray_snapshot.errors import ProtocolError
from ray_snapshot.protocol import barriers
from ray_snapshot.protocol.barriers import Mode
from ray_snapshot.protocol.chandy_lamport import AskForBoundary, BoundaryReached, Record
from ray_snapshot.protocol.colours import Independent, Numbered

ALIGNED, UNALIGNED, AT_LEAST_ONCE = Mode
SCHEMES: dict[str, tuple[Any, Any]] = {"numbered": (Numbered, 1), "independent": (Independent, frozenset({1}))}
STATES = {
    "new": [],
    "injected": ["injected"],
    "one delivered": ["u"],
    "back edge delivered": ["w"],
    "all delivered": ["u", "v"],
    "recorded": ["u", "v", "boundary"],
}
EVENTS = ("input", "awaited input", "injected", "u", "v", "w", "forced", "boundary")


def event(name: str, scheme: str) -> object:
    red = SCHEMES[scheme][1]
    others = {
        "input": barriers.ChannelOpened("x"),
        "awaited input": barriers.ChannelOpened("y", is_awaited=True),
        "injected": barriers.Injected(1),
        "forced": barriers.Forced(red),
        "boundary": BoundaryReached(),
    }
    return others.get(name) or barriers.BarrierArrived(name, red)


def machine(mode: Mode, scheme: str, state: str) -> barriers.Alignment:
    """A machine that awaits u and v, and has a back edge w."""
    found = barriers.Alignment(mode, SCHEMES[scheme][0]())
    for channel in "uvw":
        found.step(barriers.ChannelOpened(channel, is_awaited=channel != "w"))
    for name in STATES[state]:
        found.step(event(name, scheme))  # type: ignore[arg-type]
    return found


def expected(mode: Mode, scheme: str, state: str, name: str) -> tuple[object, ...]:
    """The effects, as the docstring of the module has them."""
    delivered = {one for one in STATES[state] if one in "uvw"}
    is_due = delivered >= {"u", "v"} or (mode is UNALIGNED and bool(delivered))
    if state == "recorded" or "input" in name:
        return ()
    if name == "boundary":
        red = SCHEMES[scheme][1]
        freed = (barriers.Unblock(tuple(sorted(delivered))),) if mode is ALIGNED else ()
        return (Record((1,), red), barriers.SendBarriers(red), *freed) if is_due else ()
    if name == "injected":
        return ()
    block = (barriers.Block(name),) if name != "forced" and mode is ALIGNED else ()
    asks_now = name == "forced" or mode is UNALIGNED or delivered | {name} >= {"u", "v"}
    return (*block, *((AskForBoundary((1,)),) if asks_now and not is_due else ()))


@pytest.mark.parametrize(("mode", "scheme", "state", "name"), list(product(Mode, SCHEMES, STATES, EVENTS)))
def test_every_event_in_every_state_has_the_effects_of_the_table_of_barriers(
    mode: Mode, scheme: str, state: str, name: str
) -> None:
    found = machine(mode, scheme, state)
    assert found.step(event(name, scheme)) == expected(mode, scheme, state, name)  # type: ignore[arg-type]


@pytest.mark.parametrize(("mode", "scheme"), list(product(Mode, SCHEMES)))
def test_who_awaits_no_input_is_a_source_and_records_when_it_is_asked(mode: Mode, scheme: str) -> None:
    red = SCHEMES[scheme][1]
    source = barriers.Alignment(mode, SCHEMES[scheme][0]())
    source.step(barriers.ChannelOpened("back edge"))
    assert source.step(barriers.Injected(1)) == (AskForBoundary((1,)),)
    assert source.step(BoundaryReached()) == (Record((1,), red), barriers.SendBarriers(red))


@pytest.mark.parametrize("mode", [ALIGNED, AT_LEAST_ONCE])
def test_overlapping_snapshots_of_rising_numbers_are_each_aligned(mode: Mode) -> None:
    found = machine(mode, "numbered", "new")
    found.step(barriers.Injected(1))
    found.step(barriers.Injected(2))
    found.step(barriers.BarrierArrived("u", 2))  # stands for 1 too
    assert AskForBoundary((1,)) in found.step(barriers.BarrierArrived("v", 1))
    assert found.step(BoundaryReached())[0] == Record((1,), 1)
    assert found.is_blocked("u") is (mode is ALIGNED)
    assert not found.is_blocked("v")
    assert AskForBoundary((2,)) in found.step(barriers.BarrierArrived("v", 2))


def queued(found: barriers.Alignment, channel: str, number: int) -> tuple[Any, ...]:
    return found.step(barriers.BarrierQueued(channel, frozenset({number})))


def delivered(found: barriers.Alignment, channel: str, number: int) -> tuple[Any, ...]:
    return found.step(barriers.BarrierArrived(channel, frozenset({number})))


def test_snapshots_that_wait_for_each_other_at_one_machine_are_parted_by_their_numbers() -> None:
    found = machine(ALIGNED, "independent", "new")
    for channel, first, second in (("u", 7, 8), ("v", 8, 7)):
        assert queued(found, channel, first) == ()
        assert delivered(found, channel, first) == (barriers.Block(channel),)
        assert queued(found, channel, second) == ((AskForBoundary((7,)),) if channel == "v" else ())
    assert found.step(BoundaryReached())[0] == Record((7,), frozenset({7}))
    assert (found.is_blocked("u"), found.is_blocked("v")) == (False, True)
    assert AskForBoundary((8,)) in delivered(found, "u", 8)


def test_a_lower_number_that_is_behind_already_when_its_input_is_blocked_does_not_wait() -> None:
    found = machine(ALIGNED, "independent", "new")
    queued(found, "u", 8)
    assert queued(found, "u", 7) == ()
    assert delivered(found, "u", 8) == (barriers.Block("u"), AskForBoundary((7,)))


def test_a_lower_number_waits_for_no_back_edge_and_so_is_aligned_though_one_is_blocked() -> None:
    found = machine(ALIGNED, "independent", "new")
    delivered(found, "w", 8)
    assert queued(found, "w", 7) == ()


# ---- hosts -----------------------------------------------------------------------------------------------------------

THREE = {"a": "A", "b": "B", "c": "C"}
JOINED = (("a", "c"), ("b", "c"))
"""c has two inputs, and there is no cycle."""


def in_flight(net: Net, number: int = 1) -> dict[tuple[str, str], list[object]]:
    net.copy()
    return net.in_flight(number)


def accepts_all(net: Net, host: str) -> list[object]:
    found = []
    net.copy(host)
    while (action := net.act(host)) is not None:
        found += action[1]
        net.copy(host)
    return found


def test_an_input_that_has_delivered_its_barrier_is_blocked_until_all_have() -> None:
    net = barrier_net(ALIGNED, THREE, *JOINED)
    net.turn("A", 1)
    net.send("a", "c", "behind a's barrier")
    net.send("b", "c", "before b's barrier")
    net.carry_all()
    assert accepts_all(net, "C") == ["before b's barrier"]
    net.turn("B", 1)
    net.carry_all()
    assert accepts_all(net, "C") == ["behind a's barrier"]
    assert net.cores["C"].open[1].copies[0].extra == ("before b's barrier",)
    assert in_flight(net) == {}


def test_blocked_messages_and_the_time_of_alignment_are_counted_per_snapshot() -> None:
    now = [10.0]
    net = barrier_net(ALIGNED, THREE, *JOINED, clock=lambda: now[0])
    net.turn("A", 1)
    for text in ("one", "two"):
        net.send("a", "c", text)
    net.carry_all()
    now[0] = 17.5
    net.cores["A"].request(2)
    net.copy("A")
    net.carry_all()  # a barrier of 2 behind the messages is none of them
    now[0] = 20.0
    for number in (1, 2):
        net.turn("B", number)
        net.carry_all()
        accepts_all(net, "C")
        net.copy("C")
    copies = [net.cores["C"].open[number].copies[0] for number in (1, 2)]
    assert [copy.blocked_count for copy in copies] == [2, 0]
    assert [copy.alignment_s for copy in copies] == [10.0, 2.5]


def test_barriers_are_counted_for_the_snapshot_that_they_are_sent_for() -> None:
    net = barrier_net(ALIGNED, THREE, ("a", "b"), ("a", "c"))
    net.turn("A", 1)
    net.turn("A", 2)
    assert [net.cores["A"].open[number].marker_count for number in (1, 2)] == [2, 2]


def test_on_an_acyclic_graph_there_is_no_channel_state_however_snapshots_overlap() -> None:
    net = barrier_net(ALIGNED, THREE, *JOINED)
    for number in (1, 2):
        for host in ("A", "B"):
            net.send(host.lower(), "c", f"before {number}")
            net.turn(host, number)
    net.carry_all()
    accepts_all(net, "C")
    net.copy()
    assert net.snapshot(1).states["c"] == ("before 1", "before 1")
    assert net.snapshot(2).states["c"] == ("before 1", "before 1", "before 2", "before 2")
    assert net.snapshot(1).channels == net.snapshot(2).channels == {}


def test_an_undeclared_channel_counts_as_a_back_edge() -> None:
    net = barrier_net(ALIGNED, THREE, ("a", "c"))
    net.send("b", "c", "accepted before")
    net.carry("B", "C")
    accepts_all(net, "C")
    net.send("b", "c", "undeclared")
    net.turn("A", 1)
    net.carry("A", "C")
    net.copy("C")  # nobody waits for b
    assert net.cores["C"].is_recorded(1)
    net.record("B", 1)
    net.carry_all()
    assert in_flight(net) == {("b", "c"): ["undeclared"]}


def test_what_is_accepted_behind_a_barrier_that_nobody_aligned_is_foretold_as_a_duplicate() -> None:
    net = barrier_net(AT_LEAST_ONCE, THREE, *JOINED)
    net.turn("A", 1)
    for text in ("once", "twice"):
        net.send("a", "c", text)
    net.carry_all()
    assert accepts_all(net, "C") == ["once", "twice"]
    net.turn("B", 1)
    net.carry_all()
    net.send("a", "c", "behind the record")
    net.carry_all()
    accepts_all(net, "C")
    net.copy()
    snapshot = net.snapshot(1)
    assert snapshot.states["c"] == ("once", "twice")
    assert snapshot.duplicates == {("a", "c", "mail"): 2}


def test_duplicates_of_a_snapshot_that_was_given_up_are_not_kept() -> None:
    net = barrier_net(AT_LEAST_ONCE, THREE, *JOINED)
    net.turn("A", 1)
    net.send("a", "c", "red")
    net.carry_all()
    accepts_all(net, "C")
    for core in net.cores.values():
        core.abort(1)
    net.copy()
    assert net.machine("c").copied == 1
    assert not net.machine("c").inbox.repeated  # type: ignore[attr-defined]


@pytest.mark.parametrize("mode", [ALIGNED, UNALIGNED])
def test_a_red_call_forces_its_target_to_record_before_the_alignment_ends(mode: Mode) -> None:
    """Trap 13: the caller waits inside its action, and might be the one whose barrier is awaited."""
    net = barrier_net(mode, THREE, *JOINED)
    net.turn("A", 1)
    net.send("b", "c", "white, and still to come")
    core = net.cores["A"]
    core.send(net.machine("a"), "c", "call", "ask", "red", 0.0)
    net.carry("A", "C")
    net.copy("C")
    assert net.act("C") == ("c", ["red"])
    net.record("B", 1)
    net.carry_all()
    assert net.cores["C"].open[1].copies[0].extra == ()
    assert in_flight(net) == {("b", "c"): ["white, and still to come"]}


def test_a_red_call_makes_an_aligning_machine_record() -> None:
    """Trap 13, where the barrier of the call's own channel came in front of it."""
    net = barrier_net(ALIGNED, THREE, *JOINED)
    net.turn("A", 1)
    net.carry("A", "C")
    assert net.machine("c").copied == 0
    net.cores["A"].send(net.machine("a"), "c", "call", "ask", "red", 0.0)
    net.carry("A", "C")
    net.copy("C")
    assert net.act("C") == ("c", ["red"])


@pytest.mark.parametrize("mode", list(Mode))
def test_a_red_reply_forces_its_reader(mode: Mode) -> None:
    """Trap 13; trap 4: also where alignment is skipped, for no channel counts a reply."""
    net = barrier_net(mode, THREE, *JOINED)
    core = net.cores["C"]
    core.begin_action(net.machine("c"))
    core.suspend(net.machine("c"))
    core.note(1, net.machine("c"))
    core.boundary()
    core.resume(net.machine("c"))
    assert net.machine("c").copied == 1


def test_a_machine_that_takes_what_stood_in_front_of_the_last_barrier_is_due_within_that_action() -> None:
    """So that the world can record it in the middle, should the action be long."""
    net = barrier_net(ALIGNED, THREE, ("a", "c"))
    net.send("a", "c", "in front")
    net.turn("A", 1)
    net.carry_all()
    core = net.cores["C"]
    core.boundary()
    assert not core.must_record
    assert core.next_action() is not None
    assert core.must_record


def test_a_machine_that_has_lost_patience_is_unaligned_for_this_snapshot_and_for_no_other() -> None:
    net = barrier_net(ALIGNED, THREE, *JOINED)
    net.send("b", "c", "white")
    net.turn("A", 1)
    net.carry_all()
    net.barrier_core("C").force(1)
    net.copy("C")
    net.record("B", 1)
    net.carry_all()
    assert in_flight(net) == {("b", "c"): ["white"]}
    net.turn("A", 2)
    net.carry_all()
    net.copy("C")
    assert net.machine("c").copied == 1  # it awaits b's barrier for 2


def test_a_parked_left_in_front_of_a_barrier_does_not_hold_the_barrier_back() -> None:
    net = barrier_net(ALIGNED, THREE, *JOINED, joins=(("left", "right"),))
    net.send("a", "c", "l", method="left")
    net.carry_all()
    assert net.act("C") is None
    for host in ("A", "B"):
        net.turn(host, 1)
    net.carry_all()
    net.copy()
    net.send("b", "c", "r", method="right")
    net.carry_all()
    assert net.act("C") == ("c", ["l", "r"])
    assert net.cores["C"].open[1].copies[0].extra == ()
    assert in_flight(net) == {("a", "c"): ["l"]}


def test_a_join_looks_again_when_its_channel_is_unblocked() -> None:
    net = barrier_net(ALIGNED, {"a": "A", "c": "C"}, ("a", "c"), joins=(("left", "right"),))
    net.send("a", "c", "l", method="left")
    net.turn("A", 1)
    net.send("a", "c", "r", method="right")
    net.carry("A", "C")
    net.act("C")  # the left is parked; the right is red, and is not taken in the same white action
    net.copy("C")
    assert net.act("C") == ("c", ["l", "r"])
    assert net.cores["C"].open[1].copies[0].extra == ()
    assert in_flight(net) == {("a", "c"): ["l"]}


def test_a_machine_that_stops_waits_for_no_barriers() -> None:
    net = barrier_net(ALIGNED, THREE, *JOINED)
    net.cores["C"].request(1)
    net.cores["C"].stop(net.machine("c"))
    net.copy("C")
    assert net.cores["C"].is_recorded(1)


def test_a_snapshot_that_is_given_up_unblocks_every_input() -> None:
    net = barrier_net(ALIGNED, THREE, *JOINED)
    net.turn("A", 1)
    net.send("a", "c", "blocked")
    net.carry_all()
    assert net.act("C") is None
    net.cores["C"].abort(1)
    net.copy("C")
    assert net.act("C") == ("c", ["blocked"])
    assert net.cores["C"].open == {}


def test_a_host_that_is_told_that_nobody_wants_its_numbers_unblocks_every_input() -> None:
    net = barrier_net(ALIGNED, THREE, *JOINED)
    net.turn("A", 1)
    net.send("a", "c", "blocked")
    net.carry_all()
    assert net.act("C") is None
    net.cores["C"].welcome((), 1)
    net.copy("C")
    assert net.act("C") == ("c", ["blocked"])


def test_a_barrier_of_a_number_that_was_given_up_before_is_passed_on_at_once() -> None:
    net = barrier_net(ALIGNED, THREE, ("a", "b"), ("b", "c"))
    for host in ("B", "C"):
        net.cores[host].abort(1)
    net.turn("A", 1)
    for source, target in (("A", "B"), ("B", "C")):
        net.carry(source, target)
        net.copy(target)
    assert (net.machine("b").copied, net.machine("c").copied) == (1, 1)
    assert net.cores["B"].open == net.cores["C"].open == {}


def test_a_red_message_is_refused_in_a_white_action() -> None:
    net = barrier_net(UNALIGNED, THREE, ("a", "c"))
    net.send("a", "c", "white")
    net.carry_all()
    core = net.cores["C"]
    mailbox = core.machines["c"].inbox.mailboxes["a"]
    with pytest.raises(ProtocolError, match="c was about to accept a red message in a white action"):
        core._check_white(net.machine("c"), mailbox, (1, 1, "m", "red", 0.0, 1))


def test_a_barrier_goes_out_after_the_record_and_before_any_further_message() -> None:
    """barrier-snapshots.txt, marker-sending rule; "before anything else"."""
    net = barrier_net(ALIGNED, {"a": "A", "b": "B"}, ("a", "b"))
    net.send("a", "b", "before")
    net.record("A", 1)
    net.send("a", "b", "behind")  # before the host has got round to copying it
    messages = net.cores["A"].output("B").messages
    assert [(message[1], message[5]) for message in messages] == [(1, 0), (0, 1), (2, 1)]
