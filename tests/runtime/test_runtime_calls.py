"""Calls between machines: results, waits, colours, and what a snapshot holds of them."""

import threading
from typing import Any

import numpy as np
import pytest
import ray
from runtime_machines import BOUND_S, Gate, House, Log, Sender, pass_gate

import ray_snapshot as rs
from ray_snapshot import detectors

pytestmark = [pytest.mark.ray, pytest.mark.contract]


class Library(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.shelf: list[int] = []
        self.matrix = np.zeros((300, 400))

    def lend(self) -> tuple[int, list[int], Any]:
        self.handle.change.send()
        return len(self.shelf), self.shelf, self.matrix

    def change(self) -> None:
        self.shelf.append(len(self.shelf))
        self.matrix += 1

    def shelf_of(self) -> list[int]:
        return self.shelf

    def echo(self, *args: Any, **named: Any) -> Any:
        return args, named

    def refuse(self, text: str) -> None:
        raise Refused(text, 7)

    def lock(self) -> Any:
        return threading.Lock()

    def echo_at_gate(self, gate: str, value: Any) -> Any:
        pass_gate(gate)
        return value


class Refused(ValueError):
    """An exception of the user's, which pickles badly: its constructor takes more than its text."""

    def __init__(self, text: str, code: int) -> None:
        super().__init__(text)
        self.code = code

    def __reduce__(self) -> Any:
        return Refused, (str(self), self.code)


def test_a_call_returns_the_value_or_raises_what_the_method_raised(house: House) -> None:
    library = house.make(Library)
    assert ray.get(library.echo.remote(1, [2], key={"a": library})) == ((1, [2]), {"key": {"a": library}})
    with pytest.raises(Refused, match=r"closed today") as caught:
        ray.get(library.refuse.remote("closed today"))
    assert caught.value.code == 7
    with pytest.raises(rs.UnknownMethodError, match=r"has no method 'burn'"):
        ray.get(library.burn.remote())
    with pytest.raises(rs.UnpicklableMessageError, match=r"lock returned what cannot be pickled"):
        ray.get(library.lock.remote())
    assert house.system.failure is None


def test_a_result_is_that_of_its_moment_though_the_machine_changes_it_right_after(house: House) -> None:
    library = house.make(Library)
    for lent in ray.get([library.lend.remote() for _ in range(50)]):
        count, shelf, matrix = lent
        assert shelf == list(range(count))
        assert (matrix == count).all()


@pytest.mark.parametrize("at", ["north", "south"])
def test_a_machine_calls_another_on_its_own_host_and_on_the_other(house: House, at: str) -> None:
    caller, library = house.make(Sender), house.make(Library, at=at)
    relay = house.make(Sender, at=at)
    assert ray.get(caller.ask_for.remote(relay, "ask_for", library, "echo", "deep")) == (("deep",), {})
    assert ray.get(caller.ask_for.remote(library, "shelf_of")) == []


@pytest.mark.nightly
def test_thousands_of_calls_at_once_are_all_answered(house: House) -> None:
    library = house.make(Library)
    refs = [library.echo.remote(number) for number in range(12_000)]
    assert [args for args, _ in ray.get(refs, timeout=BOUND_S)] == [(number,) for number in range(12_000)]


def test_a_waiting_machine_is_recorded_as_blocked_with_the_place_where_it_waits(house: House, tmp_path: Any) -> None:
    gate = Gate(tmp_path)
    caller, library = house.make(Sender, name="caller"), house.make(Library, at="south", name="callee")
    caller.ask.send(library, "echo_at_gate", gate.path, "value")
    gate.await_arrival()
    snapshot = house.system.snapshot(timeout=2.0)
    machine = snapshot.machines["caller"]
    assert (machine.status, machine.wait_mode, machine.waits_for) == ("blocked", "all", ("callee",))
    assert machine.state == {"heard": []}
    (wait,) = [row for row in snapshot.waits if row["machine"] == "caller"]
    (busy,) = [row for row in snapshot.calls if row["machine"] == "callee"]
    (waiting,) = [row for row in snapshot.calls if row["machine"] == "caller"]
    assert (wait["on_machine"], wait["on_call_id"], wait["satisfied"]) == ("callee", busy["call_id"], False)
    assert (busy["method"], busy["caller"]) == ("echo_at_gate", "caller")
    assert waiting["method"] == "ask"
    assert waiting["call_site"].rpartition(":")[0].endswith("runtime_machines.py")
    assert detectors.Deadlock().evaluate(snapshot).holds is False
    gate.open()
    assert house.state(caller) == {"heard": ["value"]}


def test_two_machines_that_wait_for_each_other_are_found_deadlocked(house: House) -> None:
    one, other = house.make(Sender, name="romeo"), house.make(Sender, at="south", name="julia")
    bystander = house.make(Sender, name="nurse")
    one.ask.send(other, "ask_for", one, "hear")
    bystander.ask.send(one, "hear")
    verdict = house.system.wait_for("deadlock", timeout=BOUND_S)
    while verdict.evidence["stuck_behind_count"] < 1:
        verdict = house.system.wait_for("deadlock", timeout=BOUND_S)
    members = {member["machine"]: member for member in verdict.evidence["members"]}
    assert set(members) == {"romeo", "julia"}
    assert [member["method"] for member in (members["romeo"], members["julia"])] == ["ask", "ask_for"]
    assert members["romeo"]["waits_for"] == ["julia"]
    assert all("runtime_machines.py:" in member["call_site"] for member in members.values())
    assert [record["machine"] for record in verdict.evidence["stuck_behind"]] == ["nurse"]


def test_the_driver_in_ray_get_is_blocked_and_with_a_timeout_active(house: House, tmp_path: Any) -> None:
    gate = Gate(tmp_path)
    library = house.make(Library, name="keeper")
    first = library.echo_at_gate.remote(gate.path, 1)
    gate.await_arrival()
    found = _snapshot_while(house.system, lambda: ray.get(first), gate)
    driver = found.machines["driver"]
    assert (driver.status, driver.wait_mode, driver.waits_for) == ("blocked", "all", ("keeper",))
    assert any(row["machine"] == "driver" and __file__ in row["call_site"] for row in found.calls)
    second = library.echo_at_gate.remote(gate.path, 2)
    gate.await_arrival()
    found = _snapshot_while(house.system, lambda: ray.get(second, timeout=BOUND_S), gate)
    assert found.machines["driver"].status == "active"
    third = library.echo_at_gate.remote(gate.path, 3)
    gate.await_arrival()
    found = _snapshot_while(house.system, lambda: ray.get(third), gate, first=library.shelf_of.send)
    assert found.machines["driver"].status == "active", "its other thread has sent something, and may do so again"


def _snapshot_while(system: rs.System, wait: Any, gate: Gate, first: Any = None) -> rs.Snapshot:
    """A snapshot from another thread that was asked for while this thread is in `wait`."""
    found: list[rs.Snapshot] = []

    def run() -> None:
        if first:
            first()
        found.append(system.snapshot(timeout=2.0))
        gate.open()

    thread = threading.Thread(target=run)
    thread.start()
    wait()
    thread.join()
    return found[0]


class Echo(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.given = 0

    def give(self) -> int:
        self.given += 1
        return self.given


class Taker(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.taken = 0

    def take(self, whom: Any, log: Any, times: int) -> None:
        for _ in range(times):
            self.taken = ray.get(whom.give.remote())
            log.note.send(self.taken)


def test_no_snapshot_holds_a_result_that_was_given_after_its_giver_was_recorded(house: House) -> None:
    """A reply is no message on a channel: it carries its sender's colour (design, trap 4)."""
    giver, taker, log = house.make(Echo, name="giver"), house.make(Taker, at="south", name="taker"), house.make(Log)
    done = taker.take.remote(giver, log, 150)
    snapshots = [house.system.snapshot()]
    while not ray.wait([done], timeout=0)[0]:
        snapshots.append(house.system.snapshot(initiators=["north"]) if len(snapshots) % 2 else house.system.snapshot())
    pairs = [(found.machines["giver"].state["given"], found.machines["taker"].state["taken"]) for found in snapshots]
    assert all(given - 1 <= taken <= given for given, taken in pairs), pairs
    assert len(set(pairs)) > 2
    for found in snapshots:
        found.verify()


def test_who_calls_a_stopped_machine_gets_an_error_and_so_does_who_was_waiting(house: House, tmp_path: Any) -> None:
    gate = Gate(tmp_path)
    log, library = house.make(Log, name="closing"), house.make(Library, at="south")
    log.note_at_gate.send(1, gate.path)
    gate.await_arrival()
    waiting = log.read.remote()
    house.system.stop(log)
    gate.open()
    with pytest.raises(rs.MachineStoppedError, match=r"did not accept the call"):
        ray.get(waiting, timeout=BOUND_S)
    with pytest.raises(rs.MachineStoppedError, match=r"closing"):
        log.read.remote()
    with pytest.raises(rs.MachineStoppedError, match=r"closing"):
        log.note.send(2)
    caller = house.make(Sender, at="south")
    with pytest.raises(rs.MachineStoppedError, match=r"closing"):
        ray.get(caller.ask_for.remote(log, "read"))
    assert ray.get(library.shelf_of.remote()) == []
    snapshot = house.system.snapshot()
    assert snapshot.machines["closing"].status == "stopped"
    assert [message.method for message in snapshot.channels["driver", "closing", "call"].messages] == ["read"]
