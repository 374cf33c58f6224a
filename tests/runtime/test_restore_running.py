"""A running system is rolled back: nothing is lost, nothing comes twice, and nothing from before is accepted."""

import pickle
import time
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from restore_machines import BOUND_S, Asker, Keeper, Vault, conservation, settled, total_of, vaults
from runtime_machines import Gate, pass_gate

import ray_snapshot as rs
from ray_snapshot.protocol.commands import Stop

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]

COUNT, TOKENS = 8, 100
TOTAL = COUNT * TOKENS
BY_NIGHT = [
    pytest.param(name, marks=pytest.mark.nightly) for name in ("observer", "aligned-barrier", "unaligned-barrier")
]
PROTOCOLS = ("chandy-lamport", *BY_NIGHT)


class Gatekeeper(Keeper):
    def note_at_gate(self, item: Any, gate: str, then: Any) -> None:
        pass_gate(gate)
        self.seen.append(item)
        then.note.send(item)


@pytest.fixture(scope="module")
def bank(ray_cluster: None) -> Iterator[rs.System]:
    with rs.System("bank", checkpoint=True, detectors=[]) as system:
        vaults(system, COUNT, TOKENS, per_host=8)
        system.spawn_many(Gatekeeper, names=["keeper", "other-keeper"], count=2)
        system.spawn(Asker, name="asker")
        system.start()
        yield system


def stir(system: rs.System, hops: int = 100) -> None:
    for number in range(COUNT):
        for _ in range(5):
            system.machine(f"v{number}").pass_on.send(1, hops)


@pytest.mark.contract
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_tokens_are_conserved_with_messages_timers_and_creations_in_flight(protocol: str) -> None:
    watch = [conservation(TOTAL)]
    with rs.System("tokens", protocol=protocol, checkpoint=True, detectors=watch) as system:
        many = vaults(system, COUNT, TOKENS, per_host=4)
        system.start()
        stir(system, hops=40)
        many[0].later.send(0.3, 7)
        many[3].hire.send("hired", 3)
        first = system.snapshot()
        assert first.restorable, first.obstacles
        assert total_of(first) == TOTAL
        for again in range(2):
            system.restore(first)
            second = system.snapshot()
            assert total_of(second) == TOTAL
            assert second.restored_from == first.snapshot_id
            assert second.sequence == first.sequence + again + 1
            second.verify()
        last = settled(system)
        assert total_of(last) == TOTAL
        assert last.machines["hired"].state["tokens"] >= 3
        assert all(verdict is not False for verdict in [system.wait_for(watch[0]).holds])
        assert system.restored


@pytest.mark.contract
@pytest.mark.nightly
def test_a_snapshot_of_a_system_that_moves_can_be_restored_again_and_again_under_load(bank: rs.System) -> None:
    stir(bank, hops=400)
    seen = [bank.snapshot()]
    for _ in range(5):
        bank.restore(seen[-1])
        seen.append(bank.snapshot())
    assert [total_of(snapshot) for snapshot in seen] == [TOTAL] * 6
    assert [snapshot.in_flight_count > 0 for snapshot in seen] == [True] * 6
    bank.restore(seen[0])
    assert total_of(settled(bank)) == TOTAL


@pytest.mark.contract
@pytest.mark.nightly
def test_what_was_sent_behind_the_cut_is_undone_and_comes_no_more(bank: rs.System) -> None:
    keeper = bank.machine("keeper")
    keeper.note.send("before")
    snapshot = settled(bank)
    keeper.note.send("after")
    keeper.note.send_after(0.2, "a timer from before the rollback")
    assert "after" in ray.get(keeper.read.remote())
    bank.restore(snapshot)
    keeper.note.send("anew")
    keeper.note.send_after(0.4, "a timer of now")  # by then the other one would have come
    bank.machine("other-keeper").note.send_after(0.5, "later")
    state = settled(bank).machines["keeper"].state
    assert state[state.index("before") :] == ["before", "restored", "anew", "a timer of now"]


@pytest.mark.contract
@pytest.mark.nightly
def test_an_action_of_before_changes_nothing_any_more(bank: rs.System, tmp_path: Any) -> None:
    snapshot = settled(bank)
    gate = Gate(tmp_path)
    bank.machine("keeper").note_at_gate.send("too late", gate.path, bank.machine("other-keeper"))
    gate.await_arrival()
    bank.restore(snapshot)  # waits for the action for a while, and then for it no longer
    bank.machine("other-keeper").note.send("anew")
    gate.open()
    after = settled(bank)
    for name in ("keeper", "other-keeper"):
        assert "too late" not in after.machines[name].state
    assert after.machines["other-keeper"].state[-1] == "anew"


@pytest.mark.contract
def test_who_waits_inside_an_action_is_told_that_the_system_was_rolled_back(bank: rs.System, tmp_path: Any) -> None:
    snapshot = settled(bank)
    gate = Gate(tmp_path)
    keeper, asker = bank.machine("keeper"), bank.machine("asker")
    ref = asker.ask.remote(keeper, "note_at_gate", "never", gate.path, bank.machine("other-keeper"))
    gate.await_arrival()
    during = bank.snapshot(timeout=1.0)
    assert not during.restorable
    bank.restore(snapshot)
    gate.open()
    with pytest.raises(rs.RolledBackError, match="rolled back"):
        ray.get(ref, timeout=BOUND_S)
    assert settled(bank).machines["asker"].state["heard"] == []


@pytest.mark.contract
def test_results_of_calls_of_the_past_are_refused(bank: rs.System) -> None:
    snapshot = settled(bank)
    ref = bank.machine("keeper").read.remote()
    ray.wait([ref])
    bank.restore(snapshot)
    with pytest.raises(rs.RolledBackError, match="call to keeper was made before the system was rolled back"):
        ray.get(ref)


@pytest.mark.contract
@pytest.mark.nightly
def test_machines_born_after_the_cut_are_gone_and_their_names_are_free(bank: rs.System) -> None:
    snapshot = settled(bank)
    bank.machine("v0").hire.send("junior", 5)
    mine = bank.spawn(Vault, 0, ("v0",), name="mine")
    assert "junior" in settled(bank).machines
    bank.restore(snapshot)
    assert not {"junior", "mine"} & set(bank.snapshot().machines)
    mine = bank.spawn(Vault, 0, ("v0",), name="mine")
    mine.take.send(0, 0)
    after = settled(bank)
    assert after.machines["mine"].accepted_count == 1
    assert total_of(after) == TOTAL


@pytest.mark.contract
def test_a_pending_timer_fires_once_with_what_is_left_of_its_time(bank: rs.System) -> None:
    ray.get(bank.machine("v1").later.remote(1.0, 2))
    time_of_cut = time.time()
    snapshot = bank.snapshot()
    (pending,) = (message for message in snapshot.messages if message.kind == "timer")
    assert pending.args == [2, 0]
    bank.restore(snapshot)
    (again,) = (message for message in bank.snapshot().messages if message.kind == "timer")
    assert 0 <= again.due_at.timestamp() - pending.due_at.timestamp() <= time.time() - time_of_cut
    assert total_of(settled(bank)) == TOTAL


@pytest.mark.contract
def test_stopped_machines_stay_stopped_and_others_may_send_to_the_rest(bank: rs.System) -> None:
    bank.spawn(Keeper, name="retired")
    bank.stop("retired")
    snapshot = settled(bank)
    assert snapshot.machines["retired"].status == "stopped"
    bank.restore(snapshot)
    with pytest.raises(rs.MachineStoppedError):
        bank.machine("retired").note.send(1)
    assert bank.snapshot().machines["retired"].status == "stopped"


def test_pending_snapshots_are_given_up_with_the_reason(bank: rs.System, tmp_path: Any) -> None:
    snapshot = settled(bank)
    gate = Gate(tmp_path)
    bank.machine("keeper").note_at_gate.send("x", gate.path, bank.machine("other-keeper"))
    gate.await_arrival()
    pending = bank._service.snapshot.remote([], 60.0)
    ray.get(bank._service.last_number.remote())
    bank.restore(snapshot)
    gate.open()
    with pytest.raises(rs.SnapshotAbortedError, match=f"rolled back to snapshot {snapshot.snapshot_id}"):
        ray.get(pending, timeout=BOUND_S)


@pytest.mark.nightly
def test_nothing_that_bears_an_older_generation_is_accepted_wherever_it_arrives(bank: rs.System) -> None:
    """Batches, calls, commands of the coordinator, creations, what stops a system, and who is said to be dead."""
    bank.spawn(Keeper, name="target")
    before = settled(bank)
    bank.restore(before)
    bank.restore(before)
    service = bank._service
    host = bank._spawner.hosts[before.machines["target"].host]
    now = ray.get(service.about.remote())["generation"]
    batch = ("driver", 0, [(1, "driver", "target", "mail")], [(0, [(1, 1, "note", ("a ghost",), 0.0, 0)])], [])
    assert ray.get(host.deliver.remote(now - 1, False, pickle.dumps(batch))) == []
    ray.get(host.control.remote([Stop("target", 0, 0)], now - 1))
    assert ray.get(host.credit.remote("driver", now - 1)) == []
    with pytest.raises(rs.RolledBackError):
        ray.get(host.reply.remote("driver/1", "target", now - 1))
    with pytest.raises(rs.RolledBackError):
        ray.get(service.claim.remote("Keeper", 1, ["ghost"], ["host-0"], None, now - 1))
    ray.get(service.stopped.remote(["target"], 0, now - 1))
    ray.get(service.fail.remote(rs.RaySnapshotError("a failure of the past"), now - 1))
    ray.get(service.lost.remote("host-0", "said of the past", now - 1))
    assert ray.get(host.roll.remote(1, now - 1, 0, None)) == []
    bank.machine("target").note.send("of now")
    after = settled(bank)
    assert after.machines["target"].state == ["restored", "of now"]
    assert after.machines["target"].status == "passive"
    assert "ghost" not in after.machines


def test_what_comes_too_early_waits_until_its_host_has_started(bank: rs.System) -> None:
    """A host that was told to go on earlier sends to one that has loaded, and not been told yet."""
    settled(bank)
    host = bank._spawner.hosts["host-0"]
    now = ray.get(bank._service.about.remote())["generation"]
    early = host.deliver.remote(now + 1, False, pickle.dumps(("nobody", 0, [], [], [])))
    assert ray.wait([early], timeout=0.2) == ([], [early])
    bank.restore(bank.snapshot())
    assert ray.get(early, timeout=BOUND_S) == []
