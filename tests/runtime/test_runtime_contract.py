"""The public face, line by line as the design states it."""

from pathlib import Path

import pytest
import ray
import runtime_machines

import ray_snapshot as rs
from ray_snapshot import detectors
from ray_snapshot.instrument.clusters import check_answers

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]

Account = rs.remote(runtime_machines.Account)


class Grows:
    """Loads more where there are many machines: it comes to a gate then."""

    name = "grows"
    stable = True
    alarm_when = None

    def __init__(self, path: str) -> None:
        self.path = path

    def warm_up_for(self, machines: int) -> None:
        assert machines > 2_000
        runtime_machines.pass_gate(self.path)

    def evaluate(self, _: rs.Snapshot) -> bool:
        return True


@pytest.mark.contract
@pytest.mark.nightly
def test_the_example_of_the_design_does_what_its_comments_say(tmp_path: Path) -> None:
    """With one detector more, which shows that what many machines need is loaded when there are so many."""
    gate = runtime_machines.Gate(tmp_path)
    conservation = detectors.TokenConservation(
        total=2_100, state="$.balance", messages={"deposit": "$[0]", "__init__": "$[0]"}
    )
    watch = [detectors.Termination(), detectors.Deadlock(), conservation, Grows(gate.path)]
    with rs.System("bank", history=tmp_path / "history", every=0.5, detectors=watch, checkpoint=True) as system:
        a = system.spawn(Account, 100, name="a")
        many = system.spawn_many(Account, args=[(1,)] * 2_000, per_host=1_000)
        system.start()
        a.transfer.send(many[0], 10)
        system.machine("Account-7").deposit.send(0)
        snap = system.snapshot(timeout=30)
        gate.await_arrival()
        gate.open()
        assert system.wait_for("grows", timeout=60).holds
        assert isinstance(snap, rs.Snapshot)
        balance = snap.machines["a"].state["balance"]
        paid = snap.machines["Account-0"].state["balance"] == 11
        in_flight = [message.args for message in snap.channels["a", "Account-0", "mail"].messages]
        assert (balance, in_flight, paid) in [(100, [], False), (90, [[10]], False), (90, [], True)]
        snap.verify()
        assert snap.machine_count == 2_002
        assert {snap.machines[name].host for name in ("a", "Account-0", "Account-1999")} == {
            "host-0",
            "host-1",
            "host-2",
        }
        assert isinstance(detectors.Termination().evaluate(snap), rs.Verdict)
        verdict = system.wait_for("termination", timeout=60)
        assert (verdict.holds, verdict.detector) == (True, "termination")
        assert verdict.sentence.startswith("Terminated: 2,002 machines")
        after = system.snapshot()
        assert (after.machines["a"].state, after.machines["Account-0"].state) == ({"balance": 90}, {"balance": 11})
        assert conservation.evaluate(after).holds is True
        b = Account.remote(100)
        named = Account.options(name="c").remote(5)
        b.transfer.send(named, 100)
        system.wait_for(detectors.Termination(name="again"), timeout=60)
        last = system.snapshot()
        assert last.machines["Account-2000"].state == {"balance": 0}
        assert last.machines["c"].state == {"balance": 105}
        with pytest.raises(rs.SnapshotTimeoutError, match=r"deadlock did not hold within 0.2 s; last verdicts"):
            system.wait_for("deadlock", timeout=0.2)
        system.restore(last)
        b.transfer.send(named, 1)
        system.wait_for(detectors.Termination(name="once more"), timeout=60)
        assert system.snapshot().machines["Account-2000"].state == {"balance": -1}
    history = rs.History(tmp_path / "history")
    assert {row["snapshot_id"] for row in history.snapshots()} >= {
        snap.snapshot_id,
        after.snapshot_id,
        last.snapshot_id,
    }
    assert history.load(last.snapshot_id).machines["c"].state == {"balance": 105}
    stored = {(row["snapshot_id"], row["detector"]): row["holds"] for row in history.verdicts()}
    assert stored[verdict.snapshot_id, "termination"] is True
    assert stored[last.snapshot_id, "termination"] is False, "the driver, which may send more, is active in snapshot()"
    assert stored[last.snapshot_id, "conservation"] is False, "new accounts brought 105 coins"
    assert history.files("machines")


def test_a_cluster_that_is_not_there_is_told() -> None:
    with pytest.raises(rs.ClusterError, match=r"no Ray cluster can be reached at '127.0.0.1:1'"):
        check_answers("127.0.0.1:1")
    assert ray.is_initialized(), "who found Ray running leaves it running"
