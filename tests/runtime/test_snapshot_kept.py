"""Machines hear that a snapshot of theirs is kept: of which, when, and what they may do then."""

from collections.abc import Iterator
from typing import Any

import pytest
import ray

import ray_snapshot as rs
from ray_snapshot.protocol.parts import Machine
from ray_snapshot.runtime.host.notices import Notices

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]


class Listener(rs.SnapshotMixin):
    """Writes down what it hears, which is no part of its state."""

    def __init__(self) -> None:
        self.notes: list[int] = []
        self.heard: list[tuple[str, Any]] = []
        self.foreign: Any = None

    def note(self, number: int) -> None:
        self.notes.append(number)

    def hold(self, ref: Any) -> None:
        self.foreign = ref

    def snapshot_state(self) -> Any:
        return {"notes": self.notes, "foreign": self.foreign}  # its own list, which goes on changing

    def restore_state(self, state: Any) -> None:
        self.notes, self.foreign, self.heard = state["notes"], state["foreign"], []

    def snapshot_kept(self, snapshot_id: str, state: Any) -> None:
        self.heard.append((snapshot_id, state["notes"]))

    def what_was_heard(self) -> list[tuple[str, Any]]:
        return self.heard


class Sender(Listener):
    def snapshot_kept(self, snapshot_id: str, state: Any) -> None:
        self.handle.note.send(1)


class Failing(Listener):
    def snapshot_kept(self, snapshot_id: str, state: Any) -> None:
        raise OSError("the disk is full")


@pytest.fixture(scope="module")
def system(ray_cluster: None) -> Iterator[rs.System]:
    with rs.System("listening", checkpoint=True, detectors=[]) as found:
        found.spawn_many(Listener, names=["listener", "bystander", "holder", "traveller"])
        yield found.start()


def heard(listener: Any, before: int = 0) -> list[tuple[str, Any]]:
    """What it heard, without so much of what it heard first."""
    found: list[tuple[str, Any]] = ray.get(listener.what_was_heard.remote())
    return found[before:]


@pytest.mark.contract
def test_a_machine_hears_of_each_snapshot_with_what_that_holds_of_it(system: rs.System) -> None:
    listener = system.machine("listener")
    before = len(heard(listener))
    ray.get(listener.note.remote(1))
    first = system.commit()
    ray.get(listener.note.remote(2))
    second = system.commit()
    assert heard(listener, before) == [(first.snapshot_id, [1]), (second.snapshot_id, [1, 2])]


@pytest.mark.contract
def test_of_a_snapshot_that_cannot_be_restored_nobody_hears_whoever_is_the_obstacle(system: rs.System) -> None:
    listener, holder = system.machine("bystander"), system.machine("holder")
    before = len(heard(listener))
    ray.get(holder.hold.remote([ray.put(1)]))
    with pytest.raises(rs.NotRestorableError, match="an ObjectRef in its state at 'foreign'"):
        system.commit()
    ray.get(holder.hold.remote(None))
    kept = system.commit()
    assert [snapshot_id for snapshot_id, _ in heard(listener, before)] == [kept.snapshot_id]


@pytest.mark.contract
def test_after_going_back_a_machine_hears_of_what_comes_then(system: rs.System) -> None:
    listener = system.machine("traveller")
    ray.get(listener.note.remote(1))
    first = system.commit()
    ray.get(listener.note.remote(2))
    system.commit()
    system.restore(first)
    ray.get(listener.note.remote(3))
    third = system.commit()
    assert heard(listener) == [(third.snapshot_id, [1, 3])]


@pytest.mark.contract
@pytest.mark.parametrize(("kind", "error"), [(Sender, "in no action tried to send"), (Failing, "the disk is full")])
@pytest.mark.nightly
def test_a_machine_that_sends_when_it_is_told_or_fails_stops_the_system(
    ray_cluster: None, kind: type, error: str
) -> None:
    with rs.System(f"listening-{kind.__name__.lower()}", checkpoint=True, detectors=[]) as system:
        system.spawn(kind, name="wrong")
        system.start()
        with pytest.raises(rs.MachineFailedError, match=rf"wrong.snapshot_kept raised .*{error}") as caught:
            system.commit()
        assert caught.value.method == "snapshot_kept"


@pytest.mark.contract
@pytest.mark.nightly
def test_without_checkpoints_a_machine_that_would_wait_in_vain_is_refused(ray_cluster: None) -> None:
    with rs.System("deaf", detectors=[]) as system, pytest.raises(rs.SettingError, match="would never be called"):
        system.spawn(Listener)


def test_who_waits_inside_an_action_is_told_behind_it_and_does_not_keep_others_waiting() -> None:
    machines = {name: Machine(name, 0) for name in ("a", "b")}
    notices = Notices()
    notices.recorded[3] = [("a", b""), ("b", b"")]
    told = notices.add(3, "third")
    machines["a"].is_suspended = True
    assert [notices.next(machines), notices.next(machines)] == [told[1], None]
    machines["a"].is_suspended = False
    assert notices.next(machines) is told[0]
    assert notices.add(3, "third") == []


def test_who_is_never_told_is_not_waited_for() -> None:
    notices = Notices()
    notices.recorded[3] = [("a", b"")]
    (told,) = notices.add(3, "third")
    notices.give_up()
    assert told.done.done()
