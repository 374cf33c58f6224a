"""The mail rules of the design: order, fairness, joins, markers on arrival, bounds, and who is held at a full mailbox."""

import pytest
from nets import Net

from ray_snapshot.errors import MachineStoppedError, ProtocolError
from ray_snapshot.protocol.host import HostCore, Machine

JOIN = (("left", "right"),)


def test_batches_that_overtake_each_other_or_come_twice_change_nothing() -> None:
    net = Net({"a": "A", "b": "B"})
    batches = []
    for number in range(4):
        net.send("a", "b", number)
        batches += net.cores["A"].take_batches(window=10)
    for index in (2, 1, 2, 0, 0, 3, 1):
        net.cores["B"].arrive(batches[index][1])
    assert [net.act("B") for _ in range(5)] == [*(("b", [n]) for n in range(4)), None]


def test_a_message_out_of_turn_is_a_fault_of_ours_and_says_so() -> None:
    net = Net({"a": "A"})
    inbox = net.machine("a").inbox
    with pytest.raises(ProtocolError, match="arrived where 1 was due"):
        inbox.put(inbox.mailbox("x", "mail"), (0, 2, "m", None, 0.0, 0))


def test_the_choice_among_mailboxes_is_fair_however_full_one_of_them_is() -> None:
    net = Net({"busy": "A", "calm": "A", "b": "A"})
    for number in range(50):
        net.send("busy", "b", number)
    net.send("calm", "b", "me too")
    assert ["me too"] in [net.act("A")[1] for _ in range(2)]  # type: ignore[index]


def test_the_choice_among_machines_of_a_host_is_fair_too() -> None:
    net = Net({"busy": "A", "calm": "A"})
    for number in range(50):
        net.send("calm", "busy", number)
    net.send("busy", "calm", "me too")
    assert "calm" in [net.act("A")[0] for _ in range(2)]  # type: ignore[index]


# ---- joins --------------------------------------------------------------------------------------------------------------


def test_a_join_accepts_one_message_from_each_port_in_one_action() -> None:
    net = Net({"a": "A", "b": "A", "j": "A"}, joins=JOIN)
    net.send("a", "j", 1, "left")
    assert net.act("A") is None
    net.send("b", "j", 2, "right")
    assert net.act("A") == ("j", [1, 2])


def test_what_waits_for_its_join_holds_back_what_is_behind_it_on_its_channel_and_nothing_else() -> None:
    net = Net({"a": "A", "b": "A", "j": "A"}, joins=JOIN)
    net.send("a", "j", 1, "left")
    net.send("a", "j", "behind")
    net.send("b", "j", "free")
    assert net.act("A") == ("j", ["free"])
    assert net.act("A") is None
    net.send("b", "j", 2, "right")
    assert net.act("A") == ("j", [1, 2])
    assert net.act("A") == ("j", ["behind"])


@pytest.mark.parametrize("ports", [("left", "right"), ("right", "left")])
def test_one_sender_may_serve_all_ports_of_a_join(ports: tuple[str, str]) -> None:
    net = Net({"a": "A", "j": "B"}, joins=JOIN)
    for round_number in range(3):
        for port in ports:
            net.send("a", "j", f"{port} {round_number}", port)
            net.carry("A", "B")
    net.send("a", "j", "behind")
    net.carry("A", "B")
    assert [net.act("B") for _ in range(5)] == [
        *(("j", [f"left {n}", f"right {n}"]) for n in range(3)),
        ("j", ["behind"]),
        None,
    ]


def test_a_join_never_reaches_past_a_message_of_the_same_channel() -> None:
    net = Net({"a": "A", "j": "A"}, joins=JOIN)
    for port in ("left", "left", "right"):
        net.send("a", "j", port, port)
    assert net.act("A") is None


def test_joins_that_share_a_port_take_turns() -> None:
    net = Net(dict.fromkeys("abcj", "A"), joins=(("left", "right"), ("left", "other")))
    for number in range(4):
        net.send("a", "j", number, "left")
        net.send("b", "j", f"right {number}", "right")
        net.send("c", "j", f"other {number}", "other")
    partners = [net.act("A")[1][1] for _ in range(4)]  # type: ignore[index]
    assert partners == ["right 0", "other 0", "right 1", "other 1"]


def test_joins_declared_anew_choose_again_among_what_has_arrived() -> None:
    net = Net({"a": "A", "j": "A"}, joins=JOIN)
    net.send("a", "j", 1, "left")
    assert net.act("A") is None
    net.cores["A"].born("j", [], ())
    assert net.act("A") == ("j", [1])


# ---- markers are handled on arrival ------------------------------------------------------------------------------------


def test_what_lies_in_front_of_a_marker_when_the_host_records_is_channel_state() -> None:
    net = Net({"a": "A", "b": "B"})
    net.send("a", "b", "in front")
    net.record("A", 1)
    net.send("a", "b", "behind")
    net.carry("A", "B")
    assert net.act("B") == ("b", ["in front"])  # recorded first: the action is red
    net.copy()
    snapshot = net.snapshot(1)
    assert snapshot.channels == {("a", "b", "mail"): [(1, "m", "in front")]}
    assert snapshot.states["b"] == ()


def test_a_lone_left_of_a_join_in_front_of_a_marker_does_not_delay_the_snapshot() -> None:
    net = Net({"a": "A", "j": "B"}, joins=JOIN)
    net.send("a", "j", "lonely", "left")
    net.carry("A", "B")
    assert net.act("B") is None
    net.send("a", "j", "m1")
    net.record("A", 1)
    net.carry("A", "B")
    assert net.act("B") is None  # nothing can be accepted, and yet ...
    net.copy()
    assert net.in_flight(1) == {("a", "j"): ["lonely", "m1"]}


def test_a_backlog_does_not_delay_a_marker() -> None:
    net = Net({"a": "A", "b": "B"})
    for number in range(1_000):
        net.send("a", "b", number)
    net.record("A", 1)
    net.carry("A", "B")
    assert net.cores["B"].boundary() == (1,)


def test_nothing_red_is_accepted_before_the_host_has_recorded() -> None:
    net = Net({"a": "A", "b": "B"})
    net.record("A", 1)
    net.send("a", "b", "red")
    net.carry("A", "B")
    with pytest.raises(ProtocolError, match="red message in a white action"):
        net.cores["B"].next_action()


def test_nothing_is_done_unasked_between_a_marker_and_the_recording() -> None:
    net = Net({"a": "A"})
    net.cores["A"].request(1)
    with pytest.raises(ProtocolError, match="before its host recorded"):
        net.cores["A"].begin_action(net.machine("a"))


# ---- bounds -------------------------------------------------------------------------------------------------------------


def test_a_machine_over_its_bound_is_held_back_behind_its_action_never_inside_it() -> None:
    net = Net({"a": "A", "b": "B"}, bound=2)
    net.send("b", "a", "go")
    net.send("b", "a", "again")
    net.carry("B", "A")
    core = net.cores["A"]
    machine, _ = core.next_action() or pytest.fail("nothing to accept")
    for number in range(5):  # one action may send as much as it likes
        net.send("a", "b", number)
    assert not machine.is_held
    core.end_action(machine)
    assert machine.is_held
    assert [channel.target for channel in machine.over] == ["b"]
    assert net.act("A") is None  # "again" waits


def test_acceptances_at_the_other_end_release_it() -> None:
    net = Net({"a": "A", "b": "B"}, bound=2)
    net.send("b", "a", "go")
    net.carry("B", "A")
    for number in range(3):
        net.send("a", "b", number)
    net.act("A")
    assert net.machine("a").is_held
    net.send("b", "a", "again")
    net.carry_all()
    net.act("B")
    net.carry_all()
    assert not net.machine("a").is_held
    assert net.act("A") == ("a", ["again"])


def test_bounds_hold_within_a_host_too() -> None:
    net = Net({"a": "A", "b": "A"}, bound=1)
    core = net.cores["A"]
    for number in range(2):
        net.send("a", "b", number)
    core.end_action(net.machine("a"))
    assert net.machine("a").is_held
    net.act("A")
    assert not net.machine("a").is_held


def test_markers_are_never_bounded() -> None:
    net = Net({"a": "A", "b": "B"}, bound=1)
    for number in range(9):
        net.send("a", "b", number)
    net.cores["A"].end_action(net.machine("a"))
    assert net.machine("a").is_held
    net.record("A", 1)
    net.carry("A", "B")
    net.cores["B"].boundary()
    net.copy()
    assert net.in_flight(1) == {("a", "b"): list(range(9))}


def test_hosts_that_cannot_be_called_ask_for_their_acknowledgements() -> None:
    core = HostCore("H", bound=1, polled=("driver",))
    core.born("b", [])
    driver = HostCore("driver")
    driver.resolve("b", "H")
    driver.send(driver.machine("driver"), "b", "mail", "m", None, 0.0)
    core.arrive(driver.output("H").take())
    core.next_action()
    assert core.polled_acknowledgements == {"driver": {1: 1}}
    assert core.outputs == {}


# ---- names, timers, stopping ----------------------------------------------------------------------------------------------


def test_a_machine_that_has_stopped_accepts_nothing_and_its_mailbox_stays_in_flight() -> None:
    net = Net({"a": "A", "b": "A"})
    net.send("a", "b", "unread")
    net.cores["A"].stop(net.machine("b"))
    assert net.act("A") is None
    net.record("A", 1)
    net.copy()
    assert net.in_flight(1) == {("a", "b"): ["unread"]}


BOUND = 4


def pair() -> tuple[HostCore, HostCore, Machine, Machine]:
    """Machine a on host A, machine b on host B, each knowing where the other lives."""
    left, right = HostCore("A", bound=BOUND), HostCore("B", bound=BOUND)
    left.resolve("b", "B")
    right.resolve("a", "A")
    return left, right, left.born("a", object()), right.born("b", object())


def carry(source: HostCore, target: HostCore) -> None:
    for _, batch in source.take_batches():
        source.outputs[target.host].in_flight -= 1
        target.arrive(batch)


def overfill(core: HostCore, sender: Machine, target: str) -> None:
    for number in range(BOUND + 1):
        core.send(sender, target, "mail", "note", (number,), 0.0)
    core.end_action(sender)


def test_who_waits_inside_an_action_first_tells_its_senders_what_it_has_accepted() -> None:
    left, right, a, b = pair()
    right.acknowledge_every = BOUND  # as with a large bound: one acceptance alone is not told
    overfill(left, a, "b")
    assert a.is_held
    carry(left, right)
    assert right.next_action() is not None
    right.suspend(b)
    carry(right, left)
    assert not a.is_held


def test_a_machine_is_not_held_at_its_own_mailbox() -> None:
    left, _, a, _ = pair()
    overfill(left, a, "a")
    assert not a.is_held
    assert left.next_action() is not None


def test_nobody_is_held_at_the_mailbox_of_a_machine_that_has_stopped() -> None:
    left, _, a, _ = pair()
    overfill(left, a, "b")
    left.learn_stopped(["b"])
    assert not a.is_held
    with pytest.raises(MachineStoppedError):
        left.send(a, "b", "mail", "note", (), 0.0)
