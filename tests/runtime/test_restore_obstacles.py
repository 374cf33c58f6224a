"""What cannot be restored is known before: each snapshot says so, machine by machine."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from pydantic import SecretStr
from restore_machines import BOUND_S, Asker, settled
from runtime_machines import Gate, pass_gate

import ray_snapshot as rs

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]


class Plain(rs.SnapshotMixin):
    def __init__(self, holds: Any = None) -> None:
        self.holds = holds

    def hold(self, what: Any) -> None:
        self.holds = what

    def hold_lock(self) -> None:
        self.holds = threading.Lock()

    def wait_at_gate(self, gate: str) -> str:
        pass_gate(gate)
        return "passed"


class Sender(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.how = ""

    def be(self, how: str) -> None:
        self.how = how

    def restore_state(self, state: Any) -> None:
        self.__dict__.update(state)
        if self.how == "send":
            self.handle.be.send("again")
        elif self.how == "call":
            ray.get(self.handle.be.remote("again"))
        elif self.how == "spawn":
            self.spawn(Plain)


@pytest.fixture(scope="module")
def system(ray_cluster: None) -> Iterator[rs.System]:
    with rs.System("obstacles", checkpoint=True, detectors=[]) as found:
        found.spawn_many(Plain, names=["one", "two"])
        found.spawn(Asker, name="asker")
        found.start()
        yield found


def refused(system: rs.System, snapshot: rs.Snapshot, *texts: str) -> None:
    assert not snapshot.restorable
    said = "\n".join(snapshot.obstacles)
    for text in texts:
        assert text in said
    for asked in (snapshot, snapshot.snapshot_id):
        with pytest.raises(rs.NotRestorableError) as caught:
            system.restore(asked)
        assert set(caught.value.obstacles) == set(snapshot.obstacles)
    assert system.snapshot().restored_from is None


@pytest.mark.contract
def test_references_handles_and_what_does_not_pickle_are_named(system: rs.System) -> None:
    one, two = system.machine("one"), system.machine("two")
    one.hold.send([ray.put("x")])
    two.hold_lock.send()
    refused(
        system,
        settled(system),
        "one: an ObjectRef in its state at 'holds'",
        "two: something that cannot be pickled (TypeError: cannot pickle '_thread.lock' object) in its state at 'holds'",
    )
    two.hold.send(None)
    one.hold.send(1)
    assert settled(system).restorable


def test_who_waits_inside_an_action_and_the_driver_inside_its_script_are_named(
    system: rs.System, tmp_path: Any
) -> None:
    gate = Gate(tmp_path)
    asker, one = system.machine("asker"), system.machine("one")
    taken: list[rs.Snapshot] = []

    def take() -> None:
        """In a thread that does nothing else for the driver: so that this waits."""
        gate.await_arrival()
        taken.append(ray.get(system._service.snapshot.remote([], 2.0)).snapshot())
        gate.open()

    taker = threading.Thread(target=take)
    taker.start()
    ray.get(asker.ask.remote(one, "wait_at_gate", gate.path))
    taker.join(BOUND_S)
    here = f"driver: it waits inside its script, at {__file__}:"
    refused(system, taken[0], here, "asker: inside ask at ", "one: inside wait_at_gate at ", "where it waits")


@pytest.mark.contract
@pytest.mark.nightly
def test_a_reference_in_a_message_in_flight_is_named(ray_cluster: None) -> None:
    """In a system of its own: it never terminates, so long as that message is under way."""
    with rs.System("under-way", checkpoint=True, detectors=[]) as system:
        one = system.spawn(Plain, name="one")
        system.start()
        one.hold.send_after(3600.0, [ray.put("x")])
        refused(system, system.snapshot(), "driver: an ObjectRef or a handle of a Ray actor in a message to one.hold")


@pytest.mark.contract
@pytest.mark.nightly
@pytest.mark.parametrize("how", ["send", "call", "spawn"])
def test_a_restore_hook_can_neither_send_nor_call_nor_spawn(ray_cluster: None, how: str) -> None:
    with rs.System("hooks", checkpoint=True, detectors=[]) as system:
        system.spawn(Sender, name="wrong").be.send(how)
        system.start()
        snapshot = settled(system)
        with pytest.raises(rs.MachineFailedError, match="wrong does not take its state back: NotAMachineError"):
            system.restore(snapshot)


@pytest.mark.contract
def test_a_secret_is_never_stored_and_so_an_obstacle(system: rs.System) -> None:
    system.machine("one").hold.send(SecretStr("s3cr3t"))
    found = settled(system)
    assert not found.restorable
    assert any(
        "one: a secret (SecretStr or SecretBytes), which is never stored, in its state" in text
        for text in found.obstacles
    )


@pytest.mark.contract
def test_what_is_redacted_and_a_checkpoint_exclude_each_other() -> None:
    rs.redact("password")
    with pytest.raises(rs.SettingError, match=r"checkpoint=True\) after rs\.redact\('password'\)"):
        rs.System("redacted", checkpoint=True)
