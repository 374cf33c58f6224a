"""Machines written with joins only: what they wait for follows from their patterns and declared inputs."""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from runtime_machines import Press

import ray_snapshot as rs
from ray_snapshot import detectors
from ray_snapshot.runtime.handles import note_kinds
from ray_snapshot.runtime.mixin import may_have

COUNT = 3

pytestmark = pytest.mark.ray


class Philosopher(rs.SnapshotMixin):
    """Eats with both forks, each of which is a message, and hands both on; says nothing of what it waits for."""

    def __init__(self) -> None:
        self.meals = 0
        self.neighbours: list[Any] = []

    def seat(self, left: Any, right: Any) -> None:
        self.neighbours = [left, right]

    @rs.join("left", "right")
    def eat(self, left: int, right: int) -> None:
        self.meals += 1
        self.neighbours[0].right.send(left)
        self.neighbours[1].left.send(right)


def table(system: rs.System, *, declared: bool = True) -> list[Any]:
    seats = system.spawn_many(Philosopher, count=COUNT, names=[f"p{number}" for number in range(COUNT)])
    for number, one in enumerate(seats):
        left, right = seats[number - 1], seats[(number + 1) % COUNT]
        one.seat.send(left, right)
        if declared:
            system.connect(left, one, port="left")
            system.connect(right, one, port="right")
    return seats


def names(records: list[dict[str, Any]]) -> set[str]:
    return {record["machine"] for record in records}


@pytest.mark.contract
@pytest.mark.nightly
def test_philosophers_that_each_hold_one_fork_are_deadlocked_though_they_declare_no_wait(ray_cluster: None) -> None:
    with rs.System("table", detectors=[detectors.Deadlock()]) as system:
        seats = table(system)
        system.start()
        for fork, one in enumerate(seats):
            one.left.send(fork)
        verdict = system.wait_for("deadlock", timeout=30)
        assert names(verdict.evidence["members"]) == {"p0", "p1", "p2"}
        assert verdict.evidence["members"][0]["method"] == "eat (lacks right)"
        assert verdict.evidence["members"][0]["waits_for"] == ["p1"]
        assert "p0 (Philosopher.eat (lacks right)) waits for p1" in verdict.sentence
        snapshot = system.snapshot()
        assert {snapshot.machines[name].status for name in ("p0", "p1", "p2")} == {"blocked"}
        assert detectors.Deadlock().evaluate(snapshot).holds is True, (
            "even while the driver, no source of theirs, is active"
        )


@pytest.mark.contract
@pytest.mark.nightly
def test_where_nobody_has_declared_who_sends_what_it_is_not_known_whether_they_are_deadlocked(
    ray_cluster: None,
) -> None:
    with rs.System("undeclared", detectors=[detectors.Deadlock()]) as system:
        seats = table(system, declared=False)
        system.start()
        for fork, one in enumerate(seats):
            one.left.send(fork)
        said = r"p0, p1, p2 hold a part of a join and lack the rest \(the first has begun eat \(lacks right\)\).*system.connect"
        cannot_tell = rs.detector(name="cannot-tell")(
            lambda snapshot: detectors.Deadlock().evaluate(snapshot).holds is None
        )
        system.wait_for(cannot_tell, timeout=30)
        snapshot = system.snapshot()
        assert snapshot.coverage["undeclared"] == dict.fromkeys(("p0", "p1", "p2"), "eat (lacks right)")
        assert detectors.Deadlock().evaluate(snapshot).holds is False, "the driver is active, and may send"
        with pytest.raises(rs.SnapshotTimeoutError, match=said):
            system.wait_for("deadlock", timeout=3)
        seats[0].right.send(9)
        system.wait_for(
            rs.detector(name="fed")(lambda snapshot: snapshot.machines["p0"].state["meals"] > 0), timeout=30
        )


@pytest.mark.contract
@pytest.mark.nightly
def test_philosophers_whose_forks_lie_in_no_circle_are_never_reported(ray_cluster: None) -> None:
    with rs.System("healthy", detectors=[]) as system:
        seats = table(system)
        system.start()
        seats[0].left.send(0)
        seats[0].right.send(1)
        seats[1].right.send(2)
        for _ in range(15):
            snapshot = system.snapshot()
            assert snapshot.consistent
            assert detectors.Deadlock().evaluate(snapshot).holds is False
        assert snapshot.machines["p0"].state["meals"] > 3


class Calm(Press):
    def waiting_for(self) -> None:
        return None


@pytest.mark.contract
@pytest.mark.nightly
@pytest.mark.parametrize(("kind", "status", "holds"), [(Press, "blocked", True), (Calm, "passive", False)])
def test_what_a_machine_says_itself_of_its_waits_goes_before_its_patterns(
    ray_cluster: None, kind: type, status: str, holds: bool
) -> None:
    with rs.System("works", detectors=[]) as system:
        press = system.spawn(kind, name="press")
        system.spawn(Press, name="other")
        system.start()
        for port in ("left", "right"):
            system.connect("other", press, port=port)
            system.connect("press", "other", port=port)
        assert detectors.Deadlock().evaluate(system.snapshot()).holds is False, "at rest, nothing is begun"
        press.left.send(1)
        snapshot = system.snapshot()
        assert snapshot.machines["press"].status == status
        assert snapshot.machines["other"].status == "passive"
        assert detectors.Deadlock().evaluate(snapshot).holds is holds


@pytest.fixture(scope="module")
def system(ray_cluster: None) -> Iterator[rs.System]:
    """The last test that uses it makes it fail."""
    found = rs.System("half")
    found.spawn(Press, name="press")
    yield found.start()
    with suppress(rs.UnknownMethodError):
        found.close()


@pytest.mark.contract
@pytest.mark.nightly
def test_a_machine_is_passive_where_a_port_has_no_declared_source_and_terminates_where_all_have(
    system: rs.System,
) -> None:
    press = system.machine("press")
    system.connect("driver", press, port="left")
    press.left.send(1)
    assert system.snapshot().machines["press"].status == "passive"
    system.connect("driver", press, port="right")
    press.right.send(2)
    system.wait_for("termination", timeout=30)
    assert system.snapshot().machines["press"].state == {"made": 1}


@pytest.mark.nightly
def test_a_port_that_the_machine_does_not_have_is_refused_at_once_or_stops_the_system_with_its_place(
    system: rs.System,
) -> None:
    press, before = system.machine("press"), sent_by_the_driver(system)
    with pytest.raises(rs.SettingError, match="connect"):
        system.connect("driver", press, port=3)  # type: ignore[arg-type]
    for wrong in (
        lambda: system.connect("driver", press, port="middle"),
        lambda: system.connect("driver", "press", port="middle"),
        lambda: press.middle.send(1),
        lambda: press.middle.send_after(0, 1),
        lambda: system.machine("press").middle.remote(1),
    ):
        with pytest.raises(rs.UnknownMethodError, match=r"Press.* has no (port and no )?method 'middle'"):
            wrong()
    assert sent_by_the_driver(system) == before, "nothing was sent"
    note_kinds(press._run_id, [press._name], None)  # as if a machine had spawned it
    system.connect("driver", press, port="middle")
    with pytest.raises(rs.UnknownMethodError, match=r"no method 'middle' \(declared at .*test_runtime_joins.py:\d+\)"):
        system.wait_for("deadlock", timeout=30)


def sent_by_the_driver(system: rs.System) -> int:
    return sum(channel.sent_count for key, channel in system.snapshot().channels.items() if key[0] == "driver")


class Handy(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.count = 0
        self.also = self.add

    def add(self) -> None:
        self.count += 1


def test_an_attribute_that_can_be_called_is_a_method_too() -> None:
    assert [may_have(Handy, name) for name in ("add", "also", "stop", "alas")] == [True, True, True, False]
    assert [may_have(Press, name) for name in ("left", "close", "middle")] == [True, True, False]
