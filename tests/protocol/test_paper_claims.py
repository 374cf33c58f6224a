"""Claims of the papers, each with its place in the docstring; the theorem itself is held against every seeded run.

EWD864a is E. W. Dijkstra's note, by paragraph of its transcript; CL85 is Chandy and Lamport's paper of 1985, by rule.
"""

import pytest
from nets import Net
from worlds.mail.behaviours import Script
from worlds.mail.machines import Send
from worlds.mail.theorem import WorldLog, check

from ray_snapshot.protocol.chandy_lamport import BoundaryReached, Record, SendMarker
from ray_snapshot.simulation.mail.oracle import OracleError, RecordedSnapshot


def three() -> Net:
    return Net({"p": "P", "q": "Q", "r": "R"})


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
    log = WorldLog({"p": (Script(unasked=("go",), sends=(("go", (Send("q", "m", 1),)),)), ()), "q": (Script(), ())})
    log.lengths = {"p": 0, "q": 0}
    log.record(1, ["p"])
    sent = log.begin("p", [], 1)
    sent.after, sent.sent = ("go",), [("p", "q", "mail", 1)]
    log.begin("q", [("p", "q", "mail", 1)], 0).after = ("m",)
    log.record(1, ["q"])
    with pytest.raises(OracleError, match="action 1 of q is impossible here"):
        check(log, RecordedSnapshot(1, {"p": (), "q": ("m",)}))
