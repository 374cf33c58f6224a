"""One test per claim of the papers, its place in the docstring: did we read them right?

EWD864a is E. W. Dijkstra's note, by paragraph of its transcript; CL85 is Chandy and Lamport's paper of 1985, by rule.
"""

from __future__ import annotations

import pytest
from nets import Net
from worlds.mail.behaviours import Script
from worlds.mail.schedules import PROFILES, run_seeded

from ray_snapshot.protocol.chandy_lamport import BoundaryReached, Record, SendMarker
from ray_snapshot.protocol.host import HostCore
from ray_snapshot.simulation.mail.machines import Input, Output, Send
from ray_snapshot.simulation.mail.oracle import Log, OracleError, RecordedSnapshot, check

SEEDS = range(20)


def three() -> Net:
    return Net({"p": "P", "q": "Q", "r": "R"})


def test_arrival_enables_an_action_and_never_forces_it() -> None:
    """EWD864a, paragraph 3: arrival of messages only enables an atomic action to take place."""
    net = three()
    net.send("p", "q", 1)
    net.carry("P", "Q")

    assert net.machine("q").body == []


def test_a_message_can_only_be_accepted_after_it_has_been_sent() -> None:
    """EWD864a, paragraph 2: the buffers have no clairvoyance."""
    log = Log({"p": (Script(), ()), "q": (Script(), ())}, lengths={"p": 0, "q": 0})
    log.begin("q", [("p", "q", "mail", 1)], 0).after = ("m",)

    with pytest.raises(OracleError, match="the channel is empty"):
        check(log, RecordedSnapshot(1))


def test_each_machine_turns_red_once() -> None:
    """EWD864a, paragraph 6: each machine's history is a sequence of white actions, followed by red ones."""
    net = three()
    core = net.cores["P"]
    recorded = [net.cores["P"].boundary() for _ in range(3) if core.request(1) is not None]

    assert recorded == [(1,), (), ()]


def test_eventually_no_white_messages_are_sent_and_all_are_red() -> None:
    """EWD864a, paragraph 6: once all machines are red, no white messages are sent any more."""
    net = three()
    for host in net.cores:
        net.record(host, 1)
    net.send("p", "q", "now")

    assert net.cores["P"].output("Q").messages[-1][5] == 1


def test_if_all_machines_turn_red_at_once_no_red_message_meets_a_white_machine() -> None:
    """EWD864a, paragraph 7: such a choice of moments is possible."""
    net = three()
    for host in net.cores:
        net.record(host, 1)
    for source, target in (("p", "q"), ("q", "r"), ("r", "p")):
        net.send(source, target, "red")
    net.carry_all()
    net.copy()

    assert net.in_flight(1) == {}


def test_the_snapshot_is_each_state_at_its_turn_and_the_white_messages_accepted_in_red_actions() -> None:
    """EWD864a, paragraph 8, items 1 and 2."""
    net = three()
    net.machine("q").body.append("as it was")
    net.send("p", "q", "white, accepted in a red action")
    net.record("Q", 1)
    net.carry("P", "Q")
    assert net.act("Q") == ("q", ["white, accepted in a red action"])
    net.record("P", 1)
    net.record("R", 1)
    net.copy()

    snapshot = net.snapshot(1)
    assert snapshot.states["q"] == ("as it was",)
    assert snapshot.channels == {("p", "q", "mail"): [(1, "m", "white, accepted in a red action")]}


@pytest.mark.parametrize("profile", ["plain", "initiators", "independent"])
def test_all_white_actions_and_then_all_red_ones_is_an_equivalent_computation(profile: str) -> None:
    """EWD864a, paragraphs 9 to 11, the theorem: S0 to SSS to S1, by replaying it."""
    completed = [recorded for seed in SEEDS for recorded in run_seeded(profile, seed).central.completed]

    assert len(completed) > 2 * len(SEEDS)
    assert any(recorded.channels for recorded in completed)


def test_the_first_red_message_does_not_end_a_recording_for_it_need_not_exist() -> None:
    """EWD864a, paragraph 13: not "up to and excluding the first red message"; a marker does it."""
    net = three()
    net.send("p", "q", "last white")
    net.record("Q", 1)
    net.record("P", 1)  # and p never sends again
    net.record("R", 1)
    net.carry("P", "Q")
    net.copy()

    assert net.in_flight(1) == {("p", "q"): ["last white"]}


def test_markers_take_part_in_the_order_of_their_channel() -> None:
    """EWD864a, paragraph 13: what precedes the marker is white, what follows it is red."""
    net = three()
    net.send("p", "q", "before")
    net.record("P", 1)
    net.send("p", "q", "behind")
    _, _, _, segments, _ = net.cores["P"].output("Q").take()

    assert [(colour, [message[3] for message in messages]) for colour, messages in segments] == [
        (0, ["before"]),
        (1, ["behind"]),
    ]


def test_a_marker_goes_onto_every_output_before_anything_else() -> None:
    """EWD864a, paragraph 13, and CL85, marker-sending rule: a marker on each output, before any further message."""
    net = three()
    core = net.cores["P"]
    for host in ("Q", "R"):
        core.output(host)
    core.request(1)

    assert core.protocol.step(BoundaryReached())[:3] == (Record((1,), 1), SendMarker("Q", 1), SendMarker("R", 1))


def test_machines_turn_red_in_time_if_they_do_so_at_their_first_marker() -> None:
    """EWD864a, paragraph 14: accepting the first marker while still white."""
    net = three()
    net.record("P", 1)
    net.send("p", "q", "red")
    net.carry("P", "Q")

    assert net.act("Q") == ("q", ["red"])  # its boundary recorded first
    net.copy("Q")
    assert net.cores["Q"].open[1].copies[0].extra == ()


def test_one_initiator_is_enough_if_every_machine_can_be_reached_from_it() -> None:
    """EWD864a, paragraph 14: since each machine is reachable, all machines will turn red in due time."""
    net = Net({"p": "P", "q": "Q", "r": "R"})
    net.cores["P"].output("Q")
    net.cores["Q"].output("R")
    net.record("P", 1)
    net.carry("P", "Q")
    net.cores["Q"].boundary()
    net.carry("Q", "R")

    assert net.cores["R"].boundary() == (1,)


@pytest.mark.parametrize("hosts", [("P",), ("P", "R"), ("P", "Q", "R")])
def test_there_is_at_least_one_initiator_and_several_are_fine(hosts: tuple[str, ...]) -> None:
    """EWD864a, paragraph 14: by (at least) one machine turning red."""
    net = three()
    for core in net.cores.values():
        for host in net.cores.keys() - {core.host}:
            core.output(host)
    net.send("p", "q", "white")
    for host in hosts:
        net.record(host, 1)
    for _ in range(3):
        net.carry_all()
        for core in net.cores.values():
            core.boundary()
    net.copy()

    assert net.in_flight(1) in ({("p", "q"): ["white"]}, {})
    assert all(core.open[1].has_markers for core in net.cores.values())


def test_each_buffer_carries_precisely_one_marker() -> None:
    """EWD864a, paragraph 14: since each machine turns red once."""
    net = three()
    link = net.cores["P"].output("Q")
    net.carry("P", "Q")
    for _ in range(2):
        net.record("P", 1)
        net.cores["P"].note(1)
    _, _, _, segments, _ = link.take()

    assert [colour for colour, _ in segments] == [0, 1]


def test_local_collection_is_complete_when_every_input_has_delivered_its_marker() -> None:
    """EWD864a, paragraph 14: it is known in each machine when its part has been completed."""
    net = three()
    for source, target in (("p", "q"), ("r", "q")):
        net.send(source, target, 0)
    net.carry_all()
    net.record("Q", 1)
    recording = net.cores["Q"].open[1]
    net.record("P", 1)
    net.carry("P", "Q")
    assert not recording.has_markers
    net.record("R", 1)
    net.carry("R", "Q")

    assert recording.has_markers


def test_a_red_message_in_a_white_action_makes_the_alternative_impossible() -> None:
    """EWD864a, additional remark: the condition is sharp."""
    log = Log({"p": (Script(unasked=("go",), sends=(("go", (Send("q", "m", 1),)),)), ()), "q": (Script(), ())})
    log.lengths = {"p": 0, "q": 0}
    log.record(1, ["p"])
    sent = log.begin("p", [], 1)
    sent.after, sent.sent = ("go",), [("p", "q", "mail", 1)]
    log.begin("q", [("p", "q", "mail", 1)], 0).after = ("m",)
    log.record(1, ["q"])

    with pytest.raises(OracleError, match="action 1 of q is impossible here"):
        check(log, RecordedSnapshot(1, {"p": (), "q": ("m",)}))


def test_the_input_of_the_first_marker_is_recorded_as_empty() -> None:
    """CL85, marker-receiving rule, first case: q records the state of c as the empty sequence."""
    net = three()
    net.send("p", "q", "accepted before")
    net.carry("P", "Q")
    net.act("Q")
    net.record("P", 1)
    net.send("p", "q", "red")
    net.carry("P", "Q")
    net.cores["Q"].boundary()
    net.record("R", 1)
    net.copy()

    assert net.in_flight(1) == {}


def test_another_input_is_recorded_as_what_arrived_between_the_recording_and_its_marker() -> None:
    """CL85, marker-receiving rule, second case."""
    net = three()
    net.send("r", "q", "too early to be in flight")
    net.carry("R", "Q")
    net.act("Q")
    net.send("r", "q", "in between")
    net.record("Q", 1)
    net.carry("R", "Q")
    net.record("R", 1)
    net.send("r", "q", "behind the marker")
    net.carry("R", "Q")
    net.record("P", 1)
    net.copy()

    assert net.in_flight(1) == {("r", "q"): ["in between"]}


def test_the_algorithm_does_not_change_the_computation() -> None:
    """CL85, section 1: it runs concurrently with, but does not alter, the underlying computation."""
    taken = []
    for snapshots in (0, 3):
        net = three()
        for number in range(1, 6):
            net.send("p", "q", number)
            if number <= snapshots:
                net.record("P", number)
            net.carry("P", "Q")
            taken.append(net.act("Q"))

    assert taken[:5] == taken[5:]


def test_several_snapshots_may_be_open_at_once() -> None:
    """CL85, section 3.3, and the token variant: numbers tell them apart."""
    world = run_seeded("plain", 0)

    assert len(world.central.completed) > 1
    assert PROFILES["plain"].initiators == 0


class Doubler:
    """Tells its choice apart, for the oracle's sake."""

    joins = ()

    def react(
        self, _name: str, state: int, inputs: tuple[Input, ...], choice: int, /
    ) -> tuple[int, tuple[Output, ...]]:
        return state + choice + len(inputs), ()


def test_the_state_between_two_actions_is_all_that_counts() -> None:
    """EWD864a, paragraph 4: the states of the machines and the strings in the buffers determine it."""
    log = Log({"p": (Doubler(), 1)}, lengths={"p": 0})
    log.begin("p", [], 5).after = 6
    log.record(1, ["p"])
    log.begin("p", [], 2).after = 8

    check(log, RecordedSnapshot(1, {"p": 6}))
    with pytest.raises(OracleError, match="the states are"):
        check(log, RecordedSnapshot(1, {"p": 8}))


def test_a_host_that_is_asked_twice_and_told_by_markers_too_records_once() -> None:
    """The wiki's second step: on any message *for the first time*."""
    core = HostCore("H")
    core.born("h", [])
    core.request(1)
    core.note(1)
    core.request(1)

    assert core.boundary() == (1,)
    assert core.boundary() == ()
    assert list(core.open) == [1]
