"""Handles, arguments, timers, and the hooks of machines."""

import threading
from typing import Any

import pytest
import ray
from runtime_machines import House, Log, Sender

import ray_snapshot as rs
from ray_snapshot import detectors

pytestmark = [pytest.mark.ray, pytest.mark.contract]


class Keeper(rs.SnapshotMixin):
    def __init__(self, friend: Any, friends: dict[str, list[Any]]) -> None:
        self.friend = friend
        self.friends = friends
        self.me = self.handle

    def greet(self, text: str, via: dict[str, Any]) -> None:
        self.friend.note.send(text)
        via["other"].note.send(text)
        self.me.greeted.send(text)

    def greeted(self, text: str) -> None:
        self.friends["all"][0].note.send([text, self.me, self.machine_name])


def test_handles_travel_in_constructors_messages_containers_and_states(house: House) -> None:
    one, other = house.make(Log, name="log.one"), house.make(Log, at="south", name="log_two")
    keeper = house.make(Keeper, one, {"all": [other]}, name="keeper")
    keeper.greet.send("hello", {"other": other})
    state = house.state(keeper)
    assert state["friend"] == {"$machine": "log.one"}
    assert state["friends"] == {"all": [{"$machine": "log_two"}]}
    assert state["me"] == {"$machine": "keeper"}
    assert ray.get(one.read.remote()) == ["hello"]
    hello, (text, sender, name) = ray.get(other.read.remote())
    assert (hello, text, name) == ("hello", "hello", "keeper")
    assert sender == keeper


def test_a_handle_is_equal_and_hashes_like_every_other_handle_of_its_machine(house: House) -> None:
    log = house.make(Log, name="twin")
    assert log == house.system.machine("twin")
    assert len({log, house.system.machine("twin"), house.system.machine("another")}) == 2
    assert log != "twin"
    assert repr(log) == "<machine twin>"
    with pytest.raises(AttributeError, match=r"state lives with the machine"):
        log.seen = []
    with pytest.raises(TypeError, match=r"use \.send"):
        log.note(1)


@pytest.mark.parametrize("at", ["north", "south"])
def test_what_is_sent_does_not_change_when_the_sender_changes_its_object(house: House, at: str) -> None:
    class Fickle(rs.SnapshotMixin):
        def run(self, to: Any) -> None:
            items, table = [1, 2], {"a": [1]}
            to.note.send(items, table=table)
            items.append(3)
            table["a"].clear()
            to.note.send(items)
            items.clear()

    fickle, log = house.make(Fickle), house.make(Log, at=at)
    fickle.run.send(log)
    house.settle()
    assert ray.get(log.read.remote()) == [[[1, 2], {"table": {"a": [1]}}], [1, 2, 3]]


def test_the_receiver_gets_objects_of_its_own_from_one_that_was_sent_twice(house: House) -> None:
    class Hoarder(rs.SnapshotMixin):
        def __init__(self) -> None:
            self.lists: list[list[int]] = []

        def keep(self, items: list[int]) -> None:
            items.append(len(self.lists))
            self.lists.append(items)

    class Giver(rs.SnapshotMixin):
        def give(self, to: Any) -> None:
            items = [7]
            to.keep.send(items)
            to.keep.send(items)

    hoarder = house.make(Hoarder)
    house.make(Giver).give.send(hoarder)
    assert house.state(hoarder) == {"lists": [[7, 0], [7, 1]]}


class Shape:
    """A class of this module: hosts import it by its name."""

    def __init__(self, sides: int) -> None:
        self.sides = sides

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Shape) and other.sides == self.sides

    __hash__ = None  # type: ignore[assignment]


def test_functions_and_classes_of_the_script_can_be_sent(house: House) -> None:
    class Applier(rs.SnapshotMixin):
        def apply(self, function: Any, value: Any) -> Any:
            return function(value)

    applier, factor = house.make(Applier), 3
    assert ray.get(applier.apply.remote(lambda value: value * factor, 14)) == 42
    assert ray.get(applier.apply.remote(Shape, 4)) == Shape(4)


def test_an_argument_that_cannot_be_pickled_is_refused_and_nothing_is_sent(house: House) -> None:
    log = house.make(Log, name="careful")
    log.note.send(1)
    with pytest.raises(rs.UnpicklableMessageError, match=r"driver -> careful\.note: .*lock") as caught:
        log.note.send({"deep": [threading.Lock()]})
    assert (caught.value.machine, caught.value.method) == ("driver", "note")
    with pytest.raises(rs.UnpicklableMessageError, match=r"careful\.read"):
        log.read.remote(threading.Lock())
    log.note.send(2)
    assert house.state(log) == {"seen": [1, 2]}
    snapshot = house.system.snapshot()
    assert snapshot.channels["driver", "careful"].sent_count == 2
    assert snapshot.channels["driver", "careful", "call"].sent_count == 0


def test_a_plain_task_and_a_thread_of_a_machine_cannot_send(house: House) -> None:
    class Threaded(rs.SnapshotMixin):
        def send_from_a_thread(self, to: Any) -> str:
            said: list[str] = []

            def run() -> None:
                try:
                    to.note.send("from a thread")
                except rs.NotAMachineError as error:
                    said.append(str(error))

            thread = threading.Thread(target=run)
            thread.start()
            thread.join()
            return said[0]

    @ray.remote(num_cpus=0)
    def task(to: Any) -> None:
        to.note.send("from a task")

    log = house.make(Log)
    with pytest.raises(rs.NotAMachineError, match=r"plain Ray task"):
        ray.get(task.remote(log))
    assert "only a machine's own actions send" in ray.get(house.make(Threaded).send_from_a_thread.remote(log))
    assert house.state(log) == {"seen": []}


def test_nothing_can_be_sent_to_the_driver_and_names_are_checked(house: House) -> None:
    with pytest.raises(rs.NameNotAllowedError, match=r"driver program"):
        house.system.machine("driver")
    with pytest.raises(rs.NameNotAllowedError, match=r"'a b' is not allowed"):
        house.system.machine("a b")
    with pytest.raises(rs.NameNotAllowedError, match=r"not allowed"):
        house.system.spawn(Log, name="später")


class Doubler(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.pairs: list[tuple[int, int]] = []

    @rs.join("left", "right")
    def both(self, left: int, right: int) -> int:
        self.pairs.append((left, right))
        return left * right


def test_a_join_takes_one_message_from_each_port_and_answers_every_caller(house: House) -> None:
    doubler = house.make(Doubler)
    doubler.left.send(2)
    doubler.left.send(3)
    assert ray.get(doubler.right.remote(5), timeout=60) == 10
    assert ray.get(doubler.right.remote(7), timeout=60) == 21
    assert house.state(doubler) == {"pairs": [[2, 5], [3, 7]]}


# ---- timers ------------------------------------------------------------------------------------------------------


class Clockwork(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.rung: list[Any] = []

    def wind(self, delays: list[float], to: Any) -> None:
        for delay in delays:
            to.ring.send_after(delay, delay)

    def ring(self, item: Any) -> None:
        self.rung.append(item)

    def reject(self) -> str:
        try:
            self.handle.ring.send_after(-1, "never")
        except rs.SettingError as error:
            return str(error)
        return ""


def test_a_pending_timer_is_in_flight_and_keeps_termination_false(house: House) -> None:
    clock = house.make(Clockwork, name="clock")
    clock.wind.send([3_000.0, 2_000.0], clock)
    ray.get(clock.reject.remote())
    snapshot = house.system.snapshot()
    timers = snapshot.channels["clock", "clock", "timer"].messages
    assert sorted(message.args for message in timers) == [[2_000.0], [3_000.0]]
    due = {message.args[0]: message.due_at for message in timers}
    assert 999 < (due[3_000.0] - due[2_000.0]).total_seconds() < 1_001
    assert all(message.kind == "timer" and message.due_at > message.sent_at for message in timers)
    verdict = detectors.Termination().evaluate(snapshot)
    assert verdict.holds is False
    assert verdict.evidence["timers"] == 2
    house.system.stop("clock")


def test_timers_fire_in_the_order_in_which_they_are_due_and_to_other_hosts_too(house: House) -> None:
    near, far = house.make(Clockwork), house.make(Clockwork, at="south")
    near.wind.send([0.15, 0.0, 0.05], near)
    near.wind.send([0.1, 0.0], far)
    house.settle()
    assert house.state(near) == {"rung": [0.0, 0.05, 0.15]}
    assert house.state(far) == {"rung": [0.0, 0.1]}
    assert "seconds from now, 0 to" in ray.get(near.reject.remote())


# ---- hooks -------------------------------------------------------------------------------------------------------


class Hooked(rs.SnapshotMixin):
    def __init__(self, what: str) -> None:
        self.what = what

    def snapshot_state(self) -> Any:
        if self.what == "state raises":
            raise RuntimeError("no state today")
        if self.what == "state sends":
            self.handle.nothing.send()
        return {1, 2} if self.what == "odd state" else {"what": self.what}

    def waiting_for(self) -> Any:
        if self.what == "wait raises":
            raise KeyError("whom?")
        return rs.any_of("north", "south") if self.what == "waits" else None

    def is_active(self) -> bool:
        return self.what == "active"

    def nothing(self) -> None:
        pass

    def change(self, what: str) -> None:
        self.what = what


def test_hooks_that_raise_are_obstacles_and_break_no_snapshot(house: House) -> None:
    kinds = ["state raises", "state sends", "wait raises", "waits", "active", "odd state"]
    made = {what: house.make(Hooked, what, name=what.replace(" ", "-")) for what in kinds}
    snapshot = house.system.snapshot()
    snapshot.verify()
    found = {what: snapshot.machines[what.replace(" ", "-")] for what in kinds}
    obstacles = "\n".join(snapshot.obstacles)
    assert "state-raises: snapshot_state raised RuntimeError: no state today" in obstacles
    assert "state-sends: snapshot_state raised NotAMachineError" in obstacles
    assert "wait-raises: waiting_for or is_active raised KeyError" in obstacles
    assert found["state raises"].state == {"$error": "snapshot_state raised RuntimeError: no state today"}
    assert found["odd state"].state == {"$set": [1, 2]}
    assert {what: machine.status for what, machine in found.items()} == {
        "state raises": "passive",
        "state sends": "passive",
        "wait raises": "active",
        "waits": "blocked",
        "active": "active",
        "odd state": "passive",
    }
    assert (found["waits"].wait_mode, found["waits"].waits_for) == ("any", ("north", "south"))
    for machine in made.values():
        machine.change.send("calm")
    house.settle()


class Patient(Log):
    """Waits inside an action for a machine that is not there yet."""

    def wait_for(self, whom: Any) -> None:
        ray.get(whom.read.remote())


def test_a_backlog_of_thousands_does_not_delay_a_snapshot_and_is_recorded_in_order(house: House) -> None:
    slow, sender = house.make(Patient, at="south", name="slow"), house.make(Sender, name="fast")
    slow.wait_for.send(house.system.machine("missing"))
    sender.send_all.send(slow, "note", list(range(5_000)))
    snapshot = house.system.snapshot()
    while snapshot.channels["fast", "slow"].sent_count < 5_000:
        snapshot = house.system.snapshot()
    snapshot.verify()
    assert [message.args for message in snapshot.channels["fast", "slow"].messages] == [[n] for n in range(5_000)]
    assert snapshot.machines["slow"].state == {"seen": []}
    house.make(Log, name="missing")
    house.settle()
    assert ray.get(slow.read.remote()) == list(range(5_000))


def test_without_checkpoints_nothing_is_restored_and_the_snapshot_says_so(house: House) -> None:
    snapshot = house.system.snapshot()
    assert not snapshot.restorable
    assert any("checkpoint=True" in obstacle for obstacle in snapshot.obstacles)
    with pytest.raises(rs.NotRestorableError, match="checkpoint=True"):
        house.system.restore(snapshot)
