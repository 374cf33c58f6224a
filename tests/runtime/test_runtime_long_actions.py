"""Actions that last longer than a snapshot may: full mailboxes, long computations, processes that stand still."""

import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from runtime_machines import BOUND_S, Gate, Log, Sender, pass_gate

import ray_snapshot as rs
from ray_snapshot import detectors

pytestmark = [pytest.mark.ray, pytest.mark.contract]


class Worker(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.tokens = 1

    def compute(self, gate: str) -> None:
        self.tokens -= 1
        pass_gate(gate)
        self.tokens += 1

    def send_then_compute(self, to: Any, gate: str) -> None:
        to.note.send("before")
        pass_gate(gate)
        to.note.send("after")

    def pid(self) -> int:
        return os.getpid()


class Swamped(rs.SnapshotMixin):
    """Answers every message by a few to its partner: two of them fill each other's mailboxes."""

    def __init__(self, partner: Any) -> None:
        self.partner = partner

    def flood(self, count: int) -> None:
        for _ in range(count):
            self.partner.flood.send(2)


@pytest.fixture(scope="module")
def works(ray_cluster: None) -> Iterator[rs.System]:
    conservation = detectors.TokenConservation(total=1, state="$.tokens", messages={})
    with rs.System("works", detectors=[conservation, detectors.Deadlock(), detectors.Termination()]) as system:
        system.spawn(Worker, name="worker")
        system.spawn_many(Log, names=["log", "peer"])
        yield system.start()


def test_a_long_action_is_recorded_as_active_without_a_state_and_named_as_an_obstacle(
    works: rs.System, tmp_path: Any
) -> None:
    gate = Gate(tmp_path)
    works.machine("worker").compute.send(gate.path)
    gate.await_arrival()
    snapshot = works.snapshot(timeout=3.0)
    gate.open()
    snapshot.verify()
    worker = snapshot.machines["worker"]
    assert (worker.status, worker.state) == ("active", None)
    obstacle, _ = snapshot.obstacles  # the other one: nothing is kept to restore it from
    assert obstacle.startswith("worker: inside compute at ")
    assert "gates.py:" in obstacle
    (call,) = [row for row in snapshot.calls if row["machine"] == "worker"]
    assert call["call_site"] in obstacle
    conservation, deadlock, termination = (item.evaluate(snapshot) for item in works.detectors)
    assert (conservation.holds, deadlock.holds, termination.holds) == (None, False, False)
    works.wait_for("conservation", timeout=BOUND_S)


def test_what_a_long_action_sends_after_it_was_recorded_is_outside_the_cut(works: rs.System, tmp_path: Any) -> None:
    gate = Gate(tmp_path)
    works.machine("worker").send_then_compute.send(works.machine("log"), gate.path)
    gate.await_arrival()
    snapshot = works.snapshot(timeout=3.0)
    gate.open()
    snapshot.verify()
    assert snapshot.channels["worker", "log"].sent_count == 1
    works.wait_for("termination", timeout=BOUND_S)
    assert ray.get(works.machine("log").read.remote()) == ["before", "after"]


def test_markers_alone_also_get_past_a_long_action(works: rs.System, tmp_path: Any) -> None:
    gate = Gate(tmp_path)
    works.connect("log", "worker")
    works.machine("worker").compute.send(gate.path)
    gate.await_arrival()
    snapshot = works.snapshot(timeout=3.0, initiators=["log"])
    gate.open()
    assert snapshot.machines["worker"].status == "active"


def test_a_host_that_stands_still_makes_the_snapshot_give_up_by_name_and_the_next_one_works(works: rs.System) -> None:
    pid = ray.get(works.machine("worker").pid.remote())
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(rs.SnapshotAbortedError, match=r"host-0 with worker does not answer") as caught:
            works.snapshot(timeout=0.5)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert "timed out waiting for the report of host-0" in caught.value.reason
    snapshot = works.snapshot(timeout=BOUND_S)
    snapshot.verify()
    assert snapshot.machines["worker"].state == {"tokens": 1}


# ---- full mailboxes ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def narrow(ray_cluster: None) -> Iterator[rs.System]:
    with rs.System("narrow", mailbox_bound=5, send_timeout=BOUND_S, snapshot_timeout=2.0) as system:
        system.spawn_many(Log, names=["sink", "near-sink"])
        system.spawn_many(Sender, names=["source", "other"])
        yield system.start()


@pytest.mark.nightly
def test_a_sender_at_a_full_mailbox_is_blocked_and_goes_on_when_it_is_emptied(narrow: rs.System, tmp_path: Any) -> None:
    gate = Gate(tmp_path)
    sink, source = narrow.machine("sink"), narrow.machine("source")
    sink.note_at_gate.send("first", gate.path)
    gate.await_arrival()
    source.send_all.send(sink, "note", list(range(8)))
    source.send_all.send(sink, "note", ["then"])
    snapshot = narrow.snapshot()
    while snapshot.machines["source"].status != "blocked":
        snapshot = narrow.snapshot()
    snapshot.verify()
    machine = snapshot.machines["source"]
    assert (machine.wait_mode, machine.waits_for) == ("all", ("sink",))
    assert [message.args for message in snapshot.channels["source", "sink"].messages] == [[n] for n in range(8)]
    assert len(snapshot.channels["driver", "source"].messages) == 1, "held between actions, it accepts nothing"
    assert detectors.Deadlock().evaluate(snapshot).holds is False
    gate.open()
    narrow.wait_for("termination", timeout=BOUND_S)
    assert ray.get(sink.read.remote()) == ["first", *range(8), "then"]


@pytest.mark.nightly
def test_the_driver_waits_at_a_full_mailbox_and_is_blocked_meanwhile(narrow: rs.System, tmp_path: Any) -> None:
    gate = Gate(tmp_path)
    sink = narrow.machine("near-sink")
    sink.note_at_gate.send("first", gate.path)
    gate.await_arrival()
    found: list[rs.Snapshot] = []

    def is_full(snapshot: rs.Snapshot) -> bool:
        """Held for good: before, the driver may be held for the time that an acknowledgement takes."""
        held = snapshot.machines["driver"].status == "blocked"
        return held and not any(row["satisfied"] for row in snapshot.waits if row["machine"] == "driver")

    def look() -> None:
        while not found or not is_full(found[-1]):
            found.append(narrow.snapshot())
        gate.open()

    thread = threading.Thread(target=look)
    thread.start()
    for number in range(20):
        sink.note.send(number)
    thread.join()
    driver = found[-1].machines["driver"]
    assert (driver.wait_mode, driver.waits_for) == ("all", ("near-sink",))
    assert [message.args for message in found[-1].channels["driver", "near-sink"].messages] == [[n] for n in range(6)]
    while narrow.snapshot().channels["driver", "near-sink"].messages:
        """A call may come before messages that were sent earlier: it has a channel of its own."""
    assert ray.get(sink.read.remote(), timeout=BOUND_S) == ["first", *range(20)]


def test_two_machines_with_full_mailboxes_are_deadlocked(narrow: rs.System) -> None:
    one = narrow.spawn(Swamped, narrow.machine("swamp-2"), name="swamp-1")
    narrow.spawn(Swamped, one, name="swamp-2")
    one.flood.send(4)
    verdict = narrow.wait_for("deadlock", timeout=BOUND_S)
    assert {member["machine"] for member in verdict.evidence["members"]} == {"swamp-1", "swamp-2"}
    assert {member["method"] for member in verdict.evidence["members"]} == {"(held at a full mailbox)"}


@pytest.mark.nightly
def test_who_is_held_for_too_long_stops_the_system_and_both_are_named(ray_cluster: None, tmp_path: Any) -> None:
    gate = Gate(tmp_path)
    with rs.System("crowded", mailbox_bound=2, send_timeout=0.4) as system:
        system.spawn_many(Log, names=["sink"])
        system.spawn_many(Sender, names=["source"])
        system.machine("sink").note_at_gate.send(1, gate.path)
        gate.await_arrival()
        for number in range(2):
            system.machine("sink").note.send(number)
        with pytest.raises(rs.MailboxFullError, match=r"the driver was held at the full mailbox of sink") as caught:
            system.machine("sink").note.send(2)
        assert (caught.value.machine, caught.value.target, caught.value.seconds) == ("driver", "sink", 0.4)
        system.machine("source").send_all.send(system.machine("sink"), "note", [1, 2, 3, 4])
        with pytest.raises(rs.MailboxFullError, match=r"source was held at the full mailbox of sink") as held:
            system.wait_for("termination", timeout=BOUND_S)
        assert (held.value.machine, held.value.target) == ("source", "sink")
        with pytest.raises(rs.MailboxFullError, match=r"source was held"):
            system.machine("sink").note.send(5)
        gate.open()
