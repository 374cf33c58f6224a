"""Traced runs on Ray whose actions call and wait: each snapshot is a state that could have been."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import ray
from until import until
from waiting_machines import Asker, Clerk, Porter, Vault

import ray_snapshot as rs
from ray_snapshot import detectors, testing
from ray_snapshot.cli import main
from ray_snapshot.commands.witness import _compared
from ray_snapshot.history import History
from ray_snapshot.runtime import waits
from ray_snapshot.runtime.reply import Reply
from ray_snapshot.witness.log import log_of
from ray_snapshot.witness.proof import Witness, prove
from ray_snapshot.witness.steps import actions_of

pytestmark = [pytest.mark.ray, pytest.mark.nightly]

MODULES = ["--module", "waiting_machines"]
VAULTS, PORTERS, CLERKS = ("v0", "v1", "v2"), ("p0", "p1"), ("c0", "c1", "c2")


def a_run(folder: Path, seed: int, rounds: int, protocol: str = "chandy-lamport") -> History:
    """Clerks who draw from vaults, by themselves and through porters, with snapshots at any moment."""
    with rs.System(
        "vaults", history=folder, trace=True, protocol=protocol, detectors=[detectors.Termination()]
    ) as system:
        vaults, porters = ([system.machine(name) for name in names] for names in (VAULTS, PORTERS))
        system.spawn_many(Vault, args=[(60,)] * 3, names=VAULTS, per_host=2)
        system.spawn_many(Porter, args=[()] * 2, names=PORTERS, per_host=2)
        clerks = [(vaults, porters, rounds, 10 * seed + place) for place in range(3)]
        system.spawn_many(Clerk, args=clerks, names=CLERKS, per_host=2)
        system.start()
        for name in CLERKS:
            system.machine(name).work.send()
        for _ in range(5):
            system.snapshot(timeout=60)
        assert ray.get(vaults[0].look.remote())["coins"] <= 60
        system.wait_for("termination", timeout=120)
        system.snapshot(timeout=60)
    return History(folder)


@pytest.fixture(scope="module")
def history(ray_cluster: None, tmp_path_factory: pytest.TempPathFactory) -> History:
    return a_run(tmp_path_factory.mktemp("vaults"), seed=1, rounds=6)


def proofs(history: History) -> list[Witness]:
    """Of every snapshot of a run."""
    recorded = [_compared(history, history.load(row.snapshot_id)) for row in history.snapshots()]
    run_id = history.snapshots()[0].run_id
    log = log_of(actions_of(history.actions(run_id)))
    return [prove(run_id, log, one, others=[two for two in recorded if two is not one]) for one in recorded]


def test_every_snapshot_of_a_run_whose_actions_wait_is_proven(history: History) -> None:
    found = proofs(history)
    assert [proof.problem for proof in found] == [None] * len(found)
    assert any(proof.recorded.waiting for proof in found), "some machine waited inside an action"
    halves = [
        {(action.machine, action.number) for action in proof.white}
        & {(action.machine, action.number) for action in proof.red}
        for proof in found
    ]
    assert any(halves), "some action was white in one step and red in another"


@pytest.mark.contract
def test_the_commands_take_such_a_run(history: History, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(history.path)
    assert main(["witness", path, "-3", *MODULES]) == 0
    assert "proven: the snapshot is a state that could have been." in capsys.readouterr().out
    assert main(["blame", path, "--detector", "waiting_machines:poor", *MODULES]) == 1
    said = capsys.readouterr().out
    assert "poor: broken by action" in said
    assert "waiting_machines.py:" in said


@pytest.mark.contract
def test_it_is_asked_whether_it_could_have_been(history: History) -> None:
    each = {"v0": lambda vault: vault.asked > 0, "c0": lambda clerk: clerk.busy}
    assert testing.possibly(history.path, "latest", each).holds is True
    assert testing.definitely(history.path, "latest", {"c0": lambda clerk: clerk.busy}).holds is True
    never = {"c0": lambda clerk: clerk.busy and clerk.rounds == 6}
    assert testing.possibly(history.path, "latest", never).holds is False


def test_waits_of_other_kinds_are_done_again(ray_cluster: None, tmp_path: Path) -> None:
    with rs.System("askers", history=tmp_path / "h", trace=True) as system:
        vault = system.spawn(Vault, 9, name="v")
        a, b = (system.spawn(Asker, name=name) for name in "ab")
        system.start()
        a.odd.send(vault)
        a.hurry.send(vault)
        a.late.send(b)
        until(lambda: ray.get(a.size.remote()) == 4)
        system.snapshot(timeout=30)
    (proof,) = proofs(History(tmp_path / "h"))
    assert proof.problem is None
    assert proof.recorded.states["a"]["found"] == ["UnpicklableMessageError", 9, "late", 0]


def test_a_deadlock_is_done_again_as_far_as_it_came(ray_cluster: None, tmp_path: Path) -> None:
    with rs.System("locked", history=tmp_path / "h", trace=True) as system:
        a, b = (system.spawn(Asker, name=name) for name in "ab")
        system.start()
        a.lock.send(b)
        b.lock.send(a)
        system.wait_for("deadlock", timeout=60)
        system.snapshot(timeout=30)
    found = proofs(History(tmp_path / "h"))
    assert [proof.problem for proof in found] == [None] * len(found)
    assert found[-1].recorded.waiting is not None
    assert {*found[-1].recorded.waiting} == {"a", "b"}
    modal = testing.definitely(tmp_path / "h", "latest", detectors.Deadlock())
    assert modal.holds is True


def test_who_waits_for_a_reply_without_reading_it_hears_its_colour(
    ray_cluster: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`ray.wait` tells that a machine has answered: a white one would go on with what a red one has done."""
    heard: list[int] = []
    ref = ray.put(Reply("hears", 7, "a value"))
    calls = waits.CallBook()
    calls.add(ref, "b", "host/1")
    post: Any = SimpleNamespace(
        calls=calls, is_joined=False, heard=heard.append, begin_wait=lambda wait: wait, end_wait=lambda token: None
    )
    monkeypatch.setitem(waits.POSTS, "hears", post)
    monkeypatch.setattr(waits, "_posts", lambda: [post])
    waits.install()
    try:
        assert ray.wait([ref], timeout=30)[0] == [ref]
    finally:
        waits.uninstall()
    assert heard == [7]


@pytest.mark.parametrize("protocol", ["chandy-lamport", "observer", "aligned-barrier", "unaligned-barrier"])
@pytest.mark.parametrize("seed", range(2, 6))
def test_runs_by_chance_are_proven(ray_cluster: None, tmp_path: Path, protocol: str, seed: int) -> None:
    found = proofs(a_run(tmp_path / "h", seed, rounds=25, protocol=protocol))
    assert [proof.problem for proof in found] == [None] * len(found), f"seed {seed}"
