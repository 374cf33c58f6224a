"""The traps of the design, each walked into on purpose: the interleaving that breaks a naive protocol, and the rule that holds.

Their mutants are in `mutants`; here nothing is left to chance.
"""

import pytest
from nets import Net

from ray_snapshot.errors import MachineStoppedError, ProtocolError
from ray_snapshot.protocol.chandy_lamport import ChandyLamport
from ray_snapshot.protocol.collector import HostReport, PendingCounts
from ray_snapshot.protocol.host import HostCore
from ray_snapshot.simulation.mail.reports import late_part, part_of

# ---- trap 1: white machine on a red host ------------------------------------------------------------------------------


def test_machines_of_one_host_turn_red_together_so_that_one_marker_stands_for_all_their_channels() -> None:
    net = Net({"m1": "H1", "m2": "H1", "far": "H2"})
    net.send("m2", "far", "white")
    net.record("H1", 1)
    net.send("m2", "far", "red")  # m2 has not been copied yet, but its host is red, and so is what it sends
    net.carry("H1", "H2")
    net.cores["H2"].boundary()
    net.copy()
    assert net.in_flight(1) == {("m2", "far"): ["white"]}


# ---- trap 2: numbers out of order --------------------------------------------------------------------------------------


def test_who_records_a_number_records_every_lower_one_at_the_same_instant() -> None:
    net = Net({"b": "B", "c": "C"})
    net.record("B", 2)  # never heard of 1
    net.send("b", "c", "red for both")
    net.carry("B", "C")
    net.cores["C"].boundary()
    net.cores["B"].request(1)
    assert net.cores["B"].boundary() == ()
    assert sorted(net.cores["B"].open) == sorted(net.cores["C"].open) == [1, 2]
    net.copy()
    assert net.in_flight(1) == net.in_flight(2) == {}


def test_a_number_given_up_before_a_host_heard_of_it_is_red_there_but_not_kept() -> None:
    net = Net({"a": "A", "b": "B"})
    net.cores["A"].output("B")
    net.cores["B"].abort(1)
    net.record("A", 1)
    net.carry("A", "B")
    assert net.cores["B"].boundary() == (1,)
    assert net.cores["B"].open == {}
    assert net.cores["B"].colour == 1
    assert net.cores["B"].protocol.awaited == {}


# ---- trap 3: born during the snapshot ---------------------------------------------------------------------------------


def test_a_creation_in_front_of_the_marker_is_in_flight_and_what_was_sent_to_the_child_with_it() -> None:
    net = Net({"w": "W", "x": "X"})
    white = net.cores["W"]
    white.create("w", "n", "X", "payload", 0.0)
    net.send("w", "n", "work")
    net.record("W", 1)
    net.record("X", 1)
    net.copy()
    net.carry("W", "X")  # the creation and the work come late
    snapshot = net.snapshot(1)
    assert snapshot.creations == {("w", "n")}
    assert snapshot.channels == {("w", "n", "mail"): [(1, "m", "work")]}
    assert "n" not in snapshot.states


def test_what_waited_for_a_machine_to_be_born_is_in_flight() -> None:
    net = Net({"w": "W", "x": "X"})
    net.cores["W"].create("w", "n", "X", "payload", 0.0)
    net.send("w", "n", "work")
    net.carry("W", "X")
    net.record("W", 1)
    net.record("X", 1)
    net.cores["X"].next_birth()
    net.cores["X"].born("n", [])  # before anybody has copied what is in its mailbox
    net.copy()
    assert net.in_flight(1) == {("w", "n"): ["work"]}


def test_a_creation_behind_a_marker_is_not_carried_out_before_its_host_has_recorded() -> None:
    net = Net({"w": "W", "x": "X"})
    net.record("W", 1)
    net.cores["W"].create("w", "n", "X", None, 0.0)
    net.carry("W", "X")
    with pytest.raises(ProtocolError, match="before it recorded"):
        net.cores["X"].next_birth()


def test_a_host_that_is_named_inside_the_cut_is_waited_for_though_nobody_knew_of_it() -> None:
    pending = PendingCounts(1, ["W"])
    pending.report(HostReport("W", created={"new": 1}))
    assert not pending.is_complete
    assert pending.waits_for() == "the report of new"
    pending.expect("new")
    pending.report(HostReport("new", arrived={"W": 1}))
    assert pending.is_complete


def test_a_new_host_forgets_what_was_over_when_the_coordinator_learned_of_it() -> None:
    core = HostCore("N", protocol=ChandyLamport(born=3), open_at_birth=(2, 3))
    core.welcome([3, 4], last=4)
    assert sorted(core.open) == [3]
    assert core.must_record


# ---- trap 6: half-done steps -------------------------------------------------------------------------------------------


def test_a_send_that_raises_has_sent_nothing() -> None:
    net = Net({"a": "A", "b": "A", "c": "C"})
    net.send("a", "b", "first")
    net.send("a", "c", "first")
    net.cores["A"].stop(net.machine("b"))
    net.cores["A"].addresses.stopped.add("c")
    for target in ("b", "c"):
        with pytest.raises(MachineStoppedError, match="stopped"):
            net.send("a", target, "second")
        assert net.machine("a").outputs[target].sent == 1
    assert net.machine("a").sent == 2


def test_a_channel_to_a_stopped_machine_is_not_opened() -> None:
    net = Net({"a": "A", "b": "A"})
    net.cores["A"].stop(net.machine("b"))
    with pytest.raises(MachineStoppedError, match="b"):
        net.send("a", "b", "first")
    assert net.machine("a").outputs == {}


def test_a_machine_is_copied_before_it_leaves_its_wait() -> None:
    net = Net({"a": "A"})
    machine = net.machine("a")
    machine.body.append("before the wait")
    net.cores["A"].suspend(machine)
    net.record("A", 1)
    net.cores["A"].resume(machine)
    machine.body.append("behind the wait")
    net.copy()
    assert net.snapshot(1).states == {"a": ("before the wait",)}


def test_a_red_reply_makes_its_reader_record_first() -> None:
    net = Net({"a": "A"})
    net.cores["A"].suspend(net.machine("a"))
    net.cores["A"].note(1)
    assert net.cores["A"].must_record
    assert net.cores["A"].boundary() == (1,)


# ---- trap 8: aliases ----------------------------------------------------------------------------------------------------


def test_what_is_recorded_does_not_change_when_the_mailboxes_and_counts_do() -> None:
    net = Net({"a": "A", "b": "B"})
    net.send("a", "b", 1)
    net.send("a", "b", 2)
    net.carry("A", "B")
    net.cores["A"].create("a", "child", "B", None, 0.0)
    for host in ("A", "B"):
        net.record(host, 1)
    net.copy()
    before = [part_of(host, net.cores[host].open[1]) for host in ("A", "B")]
    net.act("B")
    net.send("a", "b", 3)
    net.cores["A"].create("a", "other", "B", None, 0.0)
    net.carry("A", "B")
    late = late_part("B", 1, net.cores["B"].open[1])
    assert late.creations == {("a", "child")}
    assert [part_of(host, net.cores[host].open[1]) for host in ("A", "B")] == before
