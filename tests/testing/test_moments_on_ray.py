"""A checkpoint that a system on Ray has written leads where that system really went."""

from pathlib import Path

import pytest
from moment_machines import Till

import ray_snapshot as rs
from ray_snapshot import detectors, testing

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]


@pytest.mark.contract
@pytest.mark.nightly
def test_what_really_happened_is_among_what_can_happen_from_the_checkpoint(tmp_path: Path) -> None:
    history = tmp_path / "history"
    with rs.System("moments", history=history, checkpoint=True, detectors=[]) as system:
        a, b = system.spawn_many(Till, args=[(5,), (5,)], names=["a", "b"])
        system.start()
        b.later.send(5.0, 2)
        for amount in (1, 2, 3):
            a.pay.send(b, amount)
        a.hire.send("c", 1)
        taken = [system.snapshot() for _ in range(2)]
        system.wait_for("termination", timeout=60)
        end = {name: machine.state for name, machine in system.snapshot().machines.items() if name != "driver"}
    assert {name: state["coins"] for name, state in end.items()} == {"a": -2, "b": 11, "c": 1}
    for snapshot in taken:
        found = testing.from_snapshot(history, snapshot.snapshot_id)
        in_flight = [(one.source, one.target, one.kind, one.method) for one in found.flying]
        recorded = [(one.source, one.target, one.kind, one.method) for one in snapshot.messages if one.number]
        assert sorted(in_flight) == sorted(recorded)
        timers = [one for one in found.flying if one.kind == "timer"]
        assert all(0.0 <= one.left <= 5.0 for one in timers)
        assert testing.explore(found, eventually=[detectors.Termination()]).ok

        def is_end(states: object) -> bool:
            return {name: vars(state) for name, state in states.items()} == end  # type: ignore[attr-defined]

        assert testing.explore(found, eventually=[is_end]).ok
