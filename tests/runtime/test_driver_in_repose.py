"""A driver that does nothing is not asked, and every snapshot shows of it what it is."""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from played import Played
from runtime_machines import Gate, pass_gate
from until import until

import ray_snapshot as rs
from ray_snapshot import detectors
from ray_snapshot.errors import RaySnapshotError
from ray_snapshot.protocol.host import HostCore
from ray_snapshot.protocol.repose import Missed, Repose
from ray_snapshot.runtime.driver.reposing import Acting, turn_red
from ray_snapshot.runtime.service.collecting import MOST_STOOD_IN

pytestmark = pytest.mark.ray


class Till(rs.SnapshotMixin):
    """Counts what it is given."""

    def __init__(self) -> None:
        self.coins = 0

    def give(self, coins: int) -> int:
        self.coins += coins
        return self.coins

    def wait_at(self, gate: str) -> None:
        pass_gate(gate)


def of_driver(snapshot: Any) -> tuple[str, int]:
    """The driver's status, and how many messages it has sent, as a snapshot has it; checks that nothing is missing."""
    assert snapshot.consistent
    assert not snapshot.coverage["uncovered"]
    (row,) = [row for row in snapshot.tables["machines"].to_pylist() if row["machine"] == "driver"]
    assert snapshot.started_at <= row["recorded_at"] <= snapshot.completed_at
    channels = [row for row in snapshot.tables["channels"].to_pylist() if row["source"] == "driver"]
    assert all(row["sent_count"] - row["accepted_count"] == row["in_flight_count"] for row in channels)
    return row["status"], sum(row["sent_count"] for row in channels)


def in_repose(system: rs.System) -> bool:
    """Whether the driver is in repose once it has been asked a few times."""
    for _ in range(6):
        system.snapshot()
        if system._post.repose.is_on:
            return True
    return False


@pytest.mark.parametrize("protocol", ["chandy-lamport", pytest.param("observer", marks=pytest.mark.nightly)])
def test_a_driver_that_acts_again_is_seen_at_once(ray_cluster: None, protocol: str) -> None:
    with rs.System(f"repose-{protocol}", protocol=protocol, detectors=[detectors.Termination()]) as system:
        tills = system.spawn_many(Till, count=4, per_host=2)
        system.start()
        sent = 0
        for turn in range(4):
            assert in_repose(system)
            asked = system._post.core.colour
            assert of_driver(system.snapshot()) == ("active", sent)
            assert system._post.core.colour == asked, "it was asked"
            for till in tills[: turn + 1]:
                till.give.send(1)
                sent += 1
            assert not system._post.repose.is_on
            assert system._post.core.colour > asked, "it acts in the colour of before what was reported for it"
            assert of_driver(system.snapshot()) == ("active", sent)
        assert in_repose(system)
        assert system.wait_for("termination", timeout=30).holds
        assert of_driver(system.snapshot()) == ("active", sent)
        assert in_repose(system)
        assert ray.get(tills[0].give.remote(5)) == 9
        assert of_driver(system.snapshot())[1] == sent + 1


def test_a_program_that_holds_the_interpreter_longer_than_a_snapshot_may_take_aborts_none(
    ray_cluster: None, tmp_path: Path
) -> None:
    with rs.System("repose-in-c", every=0.1, snapshot_timeout=2.0, detectors=[], history=tmp_path / "h") as system:
        system.spawn(Till)
        system.start()
        until(lambda: system._post.repose.is_on)
        before = ray.get(system._service.last_number.remote())
        ctypes.PyDLL(None).usleep(3_000_000)  # no other thread of this process runs meanwhile
        assert ray.get(system._service.completed_after.remote(before)) > 5
    assert {row["status"] for row in rs.History(tmp_path / "h").snapshots()} == {"complete"}


@pytest.mark.nightly
def test_a_driver_in_repose_can_be_the_initiator_and_spawns(ray_cluster: None) -> None:
    with rs.System("repose-initiator") as system:
        system.spawn_many(Till, count=2, per_host=1)
        system.start()
        assert in_repose(system)
        assert of_driver(system.snapshot(initiators=["driver"])) == ("active", 0)
        assert in_repose(system)
        more = system.spawn(Till)
        system.start()
        assert ray.get(more.give.remote(1)) == 1
        assert of_driver(system.snapshot()) == ("active", 1)
        assert in_repose(system)
        system.connect("driver", "Till-0")
        assert of_driver(system.snapshot()) == ("active", 1)


@pytest.mark.nightly
def test_who_waits_is_seen_waiting_unasked_and_then_acting(ray_cluster: None, tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with rs.System("repose-waits", snapshot_timeout=8) as system:  # past half of it the till is recorded as it waits
        till = system.spawn(Till)
        system.start()
        colours: list[int] = []

        def is_blocked_unasked() -> bool:
            if of_driver(system.snapshot()) == ("blocked", 1):
                colours.append(system._post.core.colour)
            return len(colours) > len(set(colours)) > 0

        def look() -> None:
            until(is_blocked_unasked)
            gate.open()

        looking = threading.Thread(target=look)
        looking.start()
        ray.get(till.wait_at.remote(gate.path))
        assert of_driver(system.snapshot()) == ("active", 1)
        looking.join()


@pytest.mark.nightly
def test_sends_between_reposes_are_in_every_cut_or_behind_it(ray_cluster: None) -> None:
    """One thread sends now and then, at any moment of a snapshot; another takes one after the other."""
    with rs.System("repose-now-and-then") as system:
        tills = system.spawn_many(Till, count=4, per_host=2)
        system.start()
        sent, is_over = [0], threading.Event()

        def send() -> None:
            for turn in range(40):
                if turn % 8 == 7:
                    until(lambda: system._post.repose.is_on)
                tills[turn % 4].give.send(1)
                sent[0] += 1
                is_over.wait(0.002 * (turn % 8))
            is_over.set()

        thread = threading.Thread(target=send)
        thread.start()
        while not is_over.is_set():
            before = sent[0]
            shown = of_driver(system.snapshot())[1]
            assert before <= shown <= sent[0] + 1
        thread.join()
        assert system._post.repose.turn >= 5
        assert of_driver(system.snapshot())[1] == 40


def test_under_barriers_the_driver_is_a_source_and_always_asked(ray_cluster: None) -> None:
    with rs.System("repose-barriers", protocol="unaligned-barrier") as system:
        system.spawn(Till)
        system.start()
        assert not in_repose(system)


@pytest.mark.nightly
def test_a_repose_ends_before_it_is_long_to_make_up_for(ray_cluster: None) -> None:
    """Of what was missed the driver makes a recording each."""
    with rs.System("repose-long") as system:
        till = system.spawn(Till)
        system.start()
        assert in_repose(system)
        begun = system._post.core.colour

        def was_asked() -> bool:
            ray.get(system._service.begin_snapshot.remote())  # none, where too many are pending
            return bool(system._post.core.colour > begun)

        until(was_asked)
        assert system._post.core.colour >= begun + MOST_STOOD_IN
        till.give.send(1)
        assert of_driver(system.snapshot()) == ("active", 1)
        assert len(system._post.core.open) < 10


def test_who_is_roused_turns_red_though_the_last_number_was_given_up() -> None:
    """What was reported for it of a snapshot before, which is still pending, must not see what it does next."""
    core = HostCore("driver")
    core.abort(6)  # told in repose
    reported = set[int]()
    turn_red(core, reported, core.boundary, Missed(6, (5,)))
    assert core.is_recorded(5)
    assert {*core.open} == reported == {5}


def test_who_is_roused_asks_until_the_next_life_of_its_service_has_begun() -> None:
    answers, caught_up, repose = [None, None, Missed(10)], list[Missed](), Repose()
    repose.is_on = True

    def roused(_: int) -> Any:
        answer = answers.pop(0)
        return SimpleNamespace(future=lambda: SimpleNamespace(result=lambda: answer))

    member: Any = SimpleNamespace(lock=threading.RLock(), is_closing=False, failure=None, service=Played(roused=roused))
    with Acting(member, repose, caught_up.append, 30.0):
        assert caught_up == [Missed(10)]


@pytest.mark.nightly
def test_what_is_sent_behind_a_repose_to_a_service_that_dies_is_not_lost(ray_cluster: None) -> None:
    with rs.System("repose-killed", recover="rollback", every=0.2) as system:
        till = system.spawn(Till)
        system.start()
        till.give.send(1)
        pid = ray.get(system._service.__ray_call__.remote(lambda _: os.getpid()))
        post = system._post
        until(lambda: post.repose.is_on)
        until(lambda: (base := post.attendant.memory.base) is not None and base.number > post.core.colour)
        assert post.repose.is_on
        os.kill(pid, signal.SIGKILL)
        till.give.send(10)
        until(lambda: post.member.generation > 0 and not post.member.is_rolling)
        until(lambda: ray.get(till.give.remote(0)) == 11, seconds=20, again=(RaySnapshotError,))


def test_a_thread_that_ends_is_not_seen_acting_for_ever(ray_cluster: None) -> None:
    """The driver waits in one thread; another that has sent something ends without a word."""
    with rs.System("repose-thread", detectors=[detectors.Termination()]) as system:
        till = system.spawn(Till)
        system.start()
        may_end = threading.Event()

        def send() -> None:
            till.give.send(1)
            may_end.wait(60)

        sender = threading.Thread(target=send)
        sender.start()

        def look() -> None:
            for _ in range(6):
                system.snapshot()
            may_end.set()

        looking = threading.Thread(target=look)
        looking.start()
        assert system.wait_for("termination", timeout=15).holds
        sender.join()
        looking.join()
