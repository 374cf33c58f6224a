"""The service and the analyst are killed: the system goes on by itself; what was committed stays, each row once."""

import os
import random
import signal
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import ray
from ray.exceptions import RayActorError
from restore_machines import BOUND_S, conservation, patiently, total_of
from test_restore_recovery import Mortal, Relay, await_generation, await_kept, kill_host_of
from until import until

import ray_snapshot as rs
from ray_snapshot import detectors

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster"), pytest.mark.nightly]

COUNT, TOKENS = 6, 100
TOTAL = COUNT * TOKENS
KILLS = 50
PATIENCE: dict[str, Any] = {"recover": "rollback", "every": 0.2, "most_failures": 1_000}


def pid_of(actor: Any) -> int:
    def asked() -> int:
        return int(ray.get(actor.__ray_call__.remote(lambda _: os.getpid()), timeout=BOUND_S))

    return until(asked, again=(RayActorError,))


def kill(actor: Any) -> None:
    before = pid_of(actor)
    os.kill(before, signal.SIGKILL)
    until(lambda: pid_of(actor) != before)


def patiently_kill(actor: Any) -> None:
    os.kill(pid_of(actor), signal.SIGKILL)


def town(system: rs.System, hops: int) -> list[Any]:
    names = tuple(f"v{number}" for number in range(COUNT))
    many = system.spawn_many(Mortal, args=[(TOKENS, names) for _ in names], names=list(names), per_host=COUNT // 2)
    system.start()
    for machine in many:
        for _ in range(5):
            machine.pass_on.send(1, hops)
    return many


class Ear:
    def __init__(self, system: rs.System) -> None:
        self.heard: list[rs.Verdict] = []
        system.subscribe(self.heard.append, repeat=True)

    def check(self) -> None:
        assert [verdict for verdict in self.heard if verdict.alarm] == []
        counts = Counter((verdict.snapshot_id, verdict.detector) for verdict in self.heard)
        assert {key: count for key, count in counts.items() if count > 1} == {}


def check_history(folder: Path, heard: list[rs.Verdict]) -> list[int]:
    """Every committed snapshot is whole, conserves and has each verdict once; the numbers, in the order of their start."""
    history = rs.History(folder)
    rows = [row for row in history.snapshots() if row["status"] == "complete"]
    numbers = [row["sequence"] for row in sorted(rows, key=lambda row: row["started_at"])]
    assert all(earlier < later for earlier, later in pairwise(numbers)), numbers
    assert len({row["snapshot_id"] for row in history.snapshots()}) == len(history.snapshots())
    for row in rows:
        snapshot = history.load(row["snapshot_id"])
        snapshot.verify()
        assert total_of(snapshot) == TOTAL
    verdicts = Counter((row.snapshot_id, row.detector) for row in history.verdicts())
    assert set(verdicts.values()) <= {1}
    assert {key[0] for key in verdicts} == {row["snapshot_id"] for row in rows}
    assert {verdict.snapshot_id for verdict in heard} >= {row["snapshot_id"] for row in rows}
    return numbers


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "history"


@pytest.fixture
def bank(ray_cluster: None, folder: Path) -> Iterator[rs.System]:
    with rs.System("headless", history=folder, detectors=[conservation(TOTAL)], **PATIENCE) as system:
        yield system


def test_the_service_and_the_analyst_die_and_the_program_hears_nothing_of_it(folder: Path) -> None:
    watched = [conservation(TOTAL)]
    with rs.System("headless", history=folder, detectors=watched, **PATIENCE) as system:
        ear = Ear(system)
        many = town(system, 1_000)
        await_kept(system, patiently(system.snapshot))
        for victim in (system._service, system._analyst):
            kill(victim)
            many[0].pass_on.send(1, 10)
            kept = patiently(system.snapshot)
        system.wait_for(detectors.Termination(), timeout=BOUND_S)
        last = system.snapshot()
        assert total_of(last) == TOTAL
        assert last.restored_from is not None
    ear.check()
    numbers = check_history(folder, ear.heard)
    assert kept.sequence in numbers


def test_what_the_program_has_restored_is_gone_back_to_though_the_analyst_that_kept_it_has_died() -> None:
    """Nobody takes a snapshot meanwhile, and there is no history: the driver has the copy."""
    with rs.System("restored", recover="rollback", detectors=[]) as system:
        noting = system.spawn(Relay, name="noting")
        system.start()
        taken = []
        for number in (1, 2):
            ray.get(noting.relay.remote(number), timeout=BOUND_S)
            taken.append(patiently(system.snapshot))
            await_kept(system, taken[-1])
        system.restore(taken[0])
        kill(system._analyst)
        noting.relay.send(3)
        kill_host_of(noting)
        await_generation(system, 2)
        system.wait_for(detectors.Termination(), timeout=BOUND_S)
        assert patiently(system.snapshot).machines["noting"].state["seen"] == [1, 3]


def unleash(system: rs.System, chance: random.Random, many: list[Any], kills: int, pause_s: float) -> Counter[str]:
    killed: Counter[str] = Counter()
    for _ in range(kills):
        time.sleep(chance.uniform(0.0, pause_s))
        victim = chance.choice(["host", "host", "service", "analyst"])
        if victim == "host":
            kill_host_of(chance.choice(many))
        else:
            patiently_kill(getattr(system, f"_{victim}"))
        killed[victim] += 1
    return killed


@pytest.mark.contract
def test_whoever_is_killed_nothing_is_lost_and_nothing_comes_twice(bank: rs.System, folder: Path, seed: int) -> None:
    chance, ear = random.Random(seed), Ear(bank)
    many = town(bank, 10**9)
    killed = unleash(bank, chance, many, KILLS, 4.0)
    print(dict(killed))
    for machine in many:
        machine.rest.send()
    bank.wait_for(detectors.Termination(), timeout=2 * BOUND_S)
    last = patiently(bank.snapshot)
    assert sum(last.machines[f"v{number}"].state["tokens"] for number in range(COUNT)) == TOTAL
    bank.close()
    ear.check()
    assert len(check_history(folder, ear.heard)) > KILLS
