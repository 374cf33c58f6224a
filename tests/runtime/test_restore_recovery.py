"""Hosts are killed: the system goes back to its last snapshot and on by itself; nothing is lost, and nothing comes twice."""

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from restore_machines import BOUND_S, Vault, conservation, patiently, total_of
from until import until

import ray_snapshot as rs
from ray_snapshot import detectors

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]

COUNT, TOKENS, RELAYED = 8, 100, 40
TOTAL = COUNT * TOKENS


class Mortal(Vault):
    is_resting = False

    def pid(self) -> int:
        return os.getpid()

    def pass_on(self, amount: int, hops: int) -> None:
        if not self.is_resting:
            super().pass_on(amount, hops)

    def rest(self) -> None:
        self.is_resting = True


class Relay(rs.SnapshotMixin):
    def __init__(self, then: str | None = None) -> None:
        self.then = then
        self.seen: list[int] = []

    def relay(self, number: int) -> None:
        self.seen.append(number)
        if self.then is not None:
            self.machine(self.then).relay.send(number)

    def noted(self) -> list[int]:
        return list(self.seen)

    def pid(self) -> int:
        return os.getpid()


class Fragile(rs.SnapshotMixin):
    """Its process dies whenever it is brought back."""

    def __init__(self) -> None:
        self.fill = "x"

    def restore_state(self, state: Any) -> None:
        os._exit(9)

    def pid(self) -> int:
        return os.getpid()


def kill_host_of(machine: Any) -> None:
    os.kill(patiently(lambda: ray.get(machine.pid.remote(), timeout=BOUND_S)), signal.SIGKILL)


def await_generation(system: rs.System, generation: int) -> None:
    until(
        lambda: ray.get(system._service.about.remote()),
        good=lambda about: about["generation"] >= generation and not about["rolling"],
        seconds=BOUND_S,
    )


def await_kept(system: rs.System, snapshot: rs.Snapshot) -> None:
    until(lambda: ray.get(system._service.about.remote())["goes_back_to"] >= snapshot.snapshot_id, seconds=BOUND_S)


def town(system: rs.System) -> list[Any]:
    names = tuple(f"v{number}" for number in range(COUNT))
    many = system.spawn_many(Mortal, args=[(TOKENS, names) for _ in names], names=list(names), per_host=4)
    system.start()
    return many


@pytest.fixture
def bank(ray_cluster: None) -> Iterator[rs.System]:
    with rs.System("recovering", recover="rollback", every=0.2, detectors=[conservation(TOTAL)]) as system:
        yield system


def test_a_killed_host_costs_nothing_but_time_and_a_line_says_so(
    bank: rs.System, capsys: pytest.CaptureFixture[str]
) -> None:
    alarms: list[rs.Verdict] = []
    bank.subscribe(lambda verdict: alarms.append(verdict) if verdict.alarm else None, repeat=True)
    many = town(bank)
    for machine in many:
        machine.pass_on.send(1, 10**9)
    many[2].hire.send("hired", 5)
    for turn, machine in enumerate((many[0], many[7]), 1):
        await_kept(bank, patiently(bank.snapshot))
        kill_host_of(machine)
        await_generation(bank, turn)
    for machine in many:
        machine.rest.send()
    bank.wait_for(detectors.Termination(), timeout=BOUND_S)
    last = bank.snapshot()
    assert total_of(last) == TOTAL
    assert (
        capsys.readouterr().err.count(f"ray-snapshot: {bank.name} has lost a process: it goes back to snapshot ") == 2
    )
    assert last.restored_from is not None
    assert alarms == []


@pytest.mark.nightly
def test_what_the_driver_sends_meanwhile_comes_once_and_in_its_order(bank: rs.System) -> None:
    """Its program is not rolled back, so what it had sent outside the snapshot is sent again."""
    first, second = bank.spawn_many(Relay, args=[("second",), (None,)], names=["first", "second"], per_host=1)
    bank.start()
    for number in range(RELAYED):
        first.relay.send(number)
        if number in (5, 20):
            await_kept(bank, patiently(bank.snapshot))
        if number in (10, 25):
            kill_host_of(first if number == 10 else second)
        if number == 30:
            third = bank.spawn(Relay, name="third")
            third.relay.send(number)
        time.sleep(0.01)
    await_generation(bank, 2)
    kill_host_of(patiently(lambda: bank.machine("third")))
    await_generation(bank, 3)
    bank.wait_for(detectors.Termination(), timeout=BOUND_S)
    machines = bank.snapshot().machines
    assert machines["first"].state["seen"] == list(range(RELAYED))
    assert machines["second"].state["seen"] == list(range(RELAYED))
    assert machines["third"].state["seen"] == [30]


@pytest.mark.nightly
def test_a_second_host_may_die_while_the_system_recovers_from_the_first(bank: rs.System) -> None:
    many = town(bank)
    pids = ray.get([many[0].pid.remote(), many[7].pid.remote()])
    for machine in many:
        machine.pass_on.send(1, 500)
    patiently(bank.snapshot)
    os.kill(pids[0], signal.SIGKILL)
    while not ray.get(bank._service.about.remote())["rolling"]:
        pass
    os.kill(pids[1], signal.SIGKILL)
    await_generation(bank, 2)
    bank.wait_for(detectors.Termination(), timeout=BOUND_S)
    state = bank.snapshot().machines
    assert sum(state[f"v{number}"].state["tokens"] for number in range(COUNT)) == TOTAL


@pytest.mark.nightly
def test_after_too_many_failures_it_gives_up_with_the_reason(ray_cluster: None) -> None:
    with rs.System("doomed", recover="rollback", most_failures=2, detectors=[]) as system:
        machine = system.spawn(Fragile, name="fragile")
        system.start()
        os.kill(ray.get(machine.pid.remote()), signal.SIGKILL)
        with pytest.raises(rs.HostDiedError, match=r"3 failures within 60 s; 2 are borne") as caught:
            await_failure(system)
    assert (caught.value.host, caught.value.machines) == ("host-0", ["fragile"])


def await_failure(system: rs.System) -> None:
    until(system._check, seconds=BOUND_S)


@pytest.mark.nightly
def test_a_machine_that_the_driver_has_stopped_stays_stopped_behind_what_it_had_done() -> None:
    with rs.System("stopped-for-good", recover="rollback") as system:
        noting = system.spawn(Relay, name="noting")
        system.start()
        noting.relay.send(1)
        until(lambda: ray.get(noting.noted.remote(), timeout=BOUND_S) == [1])
        host = ray.get(noting.pid.remote(), timeout=BOUND_S)
        system.stop(noting)
        os.kill(host, signal.SIGKILL)
        await_generation(system, 1)
        snapshot = until(
            lambda: patiently(system.snapshot),
            good=lambda one: one.machines["noting"].status == "stopped",
            seconds=BOUND_S,
        )
        found = snapshot.machines["noting"]
        assert found.state["seen"] == [1]
        with pytest.raises(rs.MachineStoppedError):
            noting.relay.send(2)
