"""Protocols other than markers where something goes wrong: hosts that freeze and die, full mailboxes, other terminals."""

import contextlib
import itertools
import json
import os
import signal
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from clean import ran
from runtime_machines import BOUND_S, Gate, Press, pass_gate
from until import until

import ray_snapshot as rs
from ray_snapshot import detectors

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]

NIGHTLY = pytest.mark.nightly
BARRIERS = [
    "aligned-barrier",
    pytest.param("unaligned-barrier", marks=NIGHTLY),
    pytest.param("at-least-once-barrier", marks=NIGHTLY),
]
OTHERS = [*BARRIERS, pytest.param("observer", marks=NIGHTLY)]


class Step(rs.SnapshotMixin):
    """Counts what comes and sends it on; rings its bell, if it has one, at the fortieth, or when it records."""

    def __init__(self, target: Any = None, bell: str | None = None) -> None:
        self.target = target
        self.bell = bell
        self.count = 0

    def make(self, items: int) -> None:
        for item in range(items):
            self.target.add.send(item)

    def add(self, item: int) -> None:
        self.count += 1
        if self.bell is not None and self.bell.endswith("fortieth") and self.count == 40:
            pass_gate(self.bell)
        if self.target is not None:
            self.target.add.send(item)

    def snapshot_state(self) -> Any:
        if self.bell is not None and self.bell.endswith("record"):
            pass_gate(self.bell)
        return {"count": self.count}

    def stay(self, gate: str) -> None:
        pass_gate(gate)

    def counted(self) -> int:
        return self.count

    def process(self) -> int:
        return os.getpid()


@contextlib.contextmanager
def two_paths(protocol: str, *, bell: str | None = None, **settings: Any) -> Iterator[rs.System]:
    """source-0 and source-1 to the sink, one over `slow`, on a host of its own, and one over `quick`."""
    name = f"trouble-{protocol}".replace("-barrier", "")
    with rs.System(name, protocol=protocol, detectors=[], **settings) as system:
        sink, slow, quick = (system.machine(name) for name in ("sink", "slow", "quick"))
        arguments = [(None, bell), (sink,), (slow,), (quick,)]
        system.spawn_many(Step, arguments, names=["sink", "quick", "source-0", "source-1"])
        system.spawn(Step, sink, name="slow", role="operator")
        for path in (("source-0", "slow", "sink"), ("source-1", "quick", "sink")):
            for source, target in itertools.pairwise(path):
                system.connect(source, target)
        yield system.start()


def begun(system: rs.System, seconds: float) -> Any:
    before = ray.get(system._service.last_number.remote())
    found = system._service.snapshot.remote([], seconds)
    while ray.get(system._service.last_number.remote()) == before:
        pass
    return found


def await_count(system: rs.System, wanted: int) -> None:
    sink = system.machine("sink")
    while ray.get(sink.counted.remote(), timeout=BOUND_S) < wanted:
        pass


@NIGHTLY
@pytest.mark.parametrize("protocol", OTHERS)
def test_a_host_that_freezes_is_named_and_one_that_dies_ends_the_system_and_neither_holds_anybody(
    protocol: str, tmp_path: Path
) -> None:
    with two_paths(protocol, history=tmp_path) as system:
        process = ray.get(system.machine("slow").process.remote())
        os.kill(process, signal.SIGSTOP)
        with pytest.raises(rs.SnapshotAbortedError, match=r"host-1 with slow does not answer"):
            system.snapshot(timeout=2)
        system.machine("source-1").make.send(20)
        await_count(system, 20)
        os.kill(process, signal.SIGCONT)
        system.machine("source-0").make.send(20)
        await_count(system, 40)
        taken = system.snapshot(timeout=BOUND_S)
        assert taken.consistent
        assert taken.machines["sink"].state["count"] == 40
        os.kill(process, signal.SIGSTOP)
        open_one = begun(system, BOUND_S)
        os.kill(process, signal.SIGKILL)
        with pytest.raises(rs.SnapshotAbortedError, match=r"host-1 with slow of system .* is gone"):
            ray.get(open_one, timeout=BOUND_S)
        with pytest.raises(rs.HostDiedError, match=r"host-1 with slow"):
            system.snapshot(timeout=BOUND_S)
    reasons = [row.abort_reason for row in rs.History(tmp_path).snapshots() if row.status == "aborted"]
    assert len(reasons) == 2
    assert all("host-1 with slow" in reason for reason in reasons)


@NIGHTLY
@pytest.mark.parametrize("protocol", OTHERS)
def test_senders_held_at_full_mailboxes_are_recorded_and_an_alignment_never_holds_one_too_long(
    protocol: str, tmp_path: Path
) -> None:
    """`slow` is in a long action: the sink has blocked its other input, `quick` is held there, and its source behind it."""
    gate, bell = Gate(tmp_path), Gate(tmp_path, "fortieth")
    bell.open()
    with two_paths(protocol, bell=bell.path, mailbox_bound=5, send_timeout=4) as system:
        system.machine("slow").stay.send(gate.path)
        gate.await_arrival()
        found: list[rs.Snapshot] = []
        taker = threading.Thread(target=lambda: found.append(system.snapshot(timeout=BOUND_S)), daemon=True)
        taker.start()
        while not ray.get(system._service.about.remote())["pending"]:
            pass
        for _ in range(4):
            system.machine("source-1").make.send(10)
        bell.await_arrival(20)  # a call to the sink would end its alignment
        gate.open()
        taker.join(BOUND_S)
        (snapshot,) = found
        assert snapshot.consistent or protocol == "at-least-once-barrier"
        assert system.failure is None
        system.machine("slow").stay.send(gate.path)
        gate.await_arrival()
        system.machine("source-0").make.send(10)
        system.machine("source-0").make.send(1)
        held = until(  # it may not have begun
            lambda: system.snapshot(timeout=2), good=lambda one: one.machines["source-0"].status == "blocked"
        )
        assert held.machines["source-0"].status == "blocked"
        assert held.machines["source-0"].waits_for == ("slow",)
        assert [m.args for m in held.channels["driver", "source-0"].messages] == [[1]]
        gate.open()
        await_count(system, 51)


@pytest.mark.contract
@pytest.mark.nightly
@pytest.mark.parametrize("protocol", BARRIERS[:2])
def test_joins_with_declared_inputs_align_and_are_diagnosed_from_another_terminal(protocol: str) -> None:
    """Two presses wait for each other's left; a third has no declared inputs, and what lies there is in the snapshot."""
    name = f"presses-{protocol}".replace("-barrier", "")
    with rs.System(name, protocol=protocol, detectors=[]) as system:
        one, two, free = system.spawn_many(Press, names=["one", "two", "free"], role="operator")
        system.start()
        for source, target in (("one", two), ("two", one)):
            system.connect(source, target, port="left")
            system.connect("driver", target, port="right")
        one.right.send(1)
        free.right.send(3)
        snapshot = system.snapshot(timeout=BOUND_S)
        snapshot.verify()
        status = {name: machine.status for name, machine in snapshot.machines.items()}
        assert status == {"one": "blocked", "two": "passive", "free": "passive", "driver": "active"}
        assert sorted((m.target, m.args[0]) for m in snapshot.messages) == [("free", 3), ("one", 1)]
        assert snapshot.machines["free"].alignment_ms is None, "who awaits no input records when it is asked"
        assert (snapshot.machines["one"].alignment_ms is not None) is (protocol == "aligned-barrier")
        assert detectors.Deadlock().evaluate(snapshot).holds is True
        address = ray.get_runtime_context().gcs_address
        for command, code in ((["snapshot", name, "--json"], 0), (["diagnose", name], 3)):
            arguments = [sys.executable, "-m", "ray_snapshot.cli", *command, "--address", address]
            done = ran(*arguments, seconds=BOUND_S)
            assert done.returncode == code, done.stderr
            if code == 0:
                told = json.loads(done.stdout)
                assert (told["machines"], told["in_flight"], told["consistent"]) == (4, 2, True)
            else:
                assert "one in Press.close (lacks left) waits for two" in done.stdout
        two.left.send(5)
        one.left.send(4)
        two.right.send(2)
        free.left.send(6)
        assert system.wait_for("termination", timeout=BOUND_S).holds is True
        last = system.snapshot(timeout=BOUND_S)
        assert [last.machines[name].state["made"] for name in ("one", "two", "free")] == [1, 1, 1]


@NIGHTLY
@pytest.mark.parametrize("protocol", BARRIERS)
def test_a_machine_that_is_stopped_while_a_snapshot_is_open_ends_its_alignment(protocol: str, tmp_path: Path) -> None:
    """The sink records, though `slow` is still in its action: that sending to source-1 is an error now is red news."""
    gate, bell = Gate(tmp_path), Gate(tmp_path, "record")
    bell.open(times=3)
    with two_paths(protocol, bell=bell.path) as system:
        system.machine("slow").stay.send(gate.path)
        gate.await_arrival()
        open_one = begun(system, BOUND_S)
        system.stop("source-1")
        bell.await_arrival(10)  # well before patience is over
        system.machine("source-0").make.send(3)
        gate.open()
        snapshot = ray.get(open_one, timeout=BOUND_S).snapshot()
        assert snapshot.status == "complete"
        assert snapshot.consistent or protocol == "at-least-once-barrier"
        await_count(system, 3)
        with pytest.raises(rs.MachineStoppedError):
            system.machine("source-1").make.send(1)
        after = system.snapshot(timeout=BOUND_S)
        assert after.consistent
        assert after.machines["source-1"].status == "stopped"
        assert after.machines["sink"].state["count"] == 3
