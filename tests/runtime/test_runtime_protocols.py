"""Every protocol on Ray, over the same machines: what each promises of its snapshots, and what it does not."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from runtime_machines import BOUND_S, Gate, pass_gate

import ray_snapshot as rs
from ray_snapshot import detectors
from ray_snapshot.cli import main

pytestmark = pytest.mark.ray

CONSISTENT = ("chandy-lamport", "observer", "aligned-barrier", "unaligned-barrier")
BY_DAY = ("unaligned-barrier",)
ALL = (*CONSISTENT, "at-least-once-barrier")
RECORDED_BY = {"chandy-lamport": "marker", "observer": "observer"}
MACHINES, TOKENS, HOPS = 6, 3, 60


class Ring(rs.SnapshotMixin):
    """Passes its tokens on, every other time to a machine of another host."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.others: list[Any] = []
        self.at = 0

    def begin(self, others: list[Any], start: int, hops: int) -> None:
        self.others, self.at = others, start
        for _ in range(self.tokens):
            self.tokens -= 1
            self._pass(1, hops)

    def pass_on(self, tokens: int, hops: int) -> None:
        self.tokens += tokens
        if hops and self.others:
            self.tokens -= tokens
            self._pass(tokens, hops - 1)

    def _pass(self, tokens: int, hops: int) -> None:
        self.at = (self.at + 2) % len(self.others)
        self.others[self.at].pass_on.send(tokens, hops)


class Source(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.position = 0

    def work(self, target: Any, left: int) -> None:
        for _ in range(min(left, 5)):
            target.add.send(self.position)
            self.position += 1
        if left > 5:
            self.handle.work.send(target, left - 5)


class Middle(rs.SnapshotMixin):
    def __init__(self, target: Any = None) -> None:
        self.target = target
        self.count = self.total = 0

    def add(self, number: int) -> None:
        self.count += 1
        self.total += number
        if self.target is not None:
            self.target.add.send(number)

    def stay(self, gate: str) -> None:
        pass_gate(gate)


@pytest.fixture
def system(request: pytest.FixtureRequest, ray_cluster: None, tmp_path: Path) -> Iterator[rs.System]:
    name = f"under-{request.param}".replace("-barrier", "")
    watch = [detectors.Termination(), detectors.Deadlock()]
    settings: dict[str, Any] = {"protocol": request.param, "detectors": watch, "snapshot_timeout": BOUND_S}
    with rs.System(name, history=tmp_path / "history", trace=True, **settings) as found:
        yield found


def _several_at_once(system: rs.System, count: int) -> list[rs.Snapshot]:
    found: list[rs.Snapshot] = []
    takers = [
        threading.Thread(target=lambda: found.append(system.snapshot(timeout=BOUND_S)), daemon=True)
        for _ in range(count)
    ]
    for taker in takers:
        taker.start()
    for taker in takers:
        taker.join(BOUND_S)
    assert len(found) == count
    return found


@pytest.mark.parametrize(
    "system",
    [pytest.param(name, marks=() if name in BY_DAY else pytest.mark.nightly) for name in CONSISTENT],
    indirect=True,
)
def test_tokens_that_go_round_are_conserved_in_every_snapshot_and_the_witness_proves_it(
    system: rs.System, capsys: pytest.CaptureFixture[str]
) -> None:
    ring = system.spawn_many(Ring, args=[(TOKENS,)] * MACHINES, per_host=MACHINES // 2)
    system.start()
    for start, machine in enumerate(ring):
        machine.begin.send(ring, start, HOPS)
    protocol = system.settings.protocol
    kept = detectors.TokenConservation(total=MACHINES * TOKENS, state="$.tokens", messages={"pass_on": "$[0]"})
    for snapshot in _several_at_once(system, 3) + _several_at_once(system, 2):
        snapshot.verify()
        assert snapshot.protocol == protocol
        assert snapshot.consistent
        assert len(snapshot.machines) == MACHINES + 1
        begins = [m for key in snapshot.channels for m in snapshot.channels[key].messages if m.method == "begin"]
        verdict = kept.evaluate(snapshot)
        assert verdict.holds is True or begins, verdict.sentence
        words = {channel.recorded_by for channel in snapshot.channels.values()}
        assert words <= {RECORDED_BY.get(protocol, "barrier"), "sender"}
    assert system.wait_for("termination", timeout=BOUND_S).holds is True
    last = system.snapshot(timeout=BOUND_S)
    assert sum(last.machines[machine._name].state["tokens"] for machine in ring) == MACHINES * TOKENS
    assert (last.channel_marker_count == 0) is (protocol == "observer")
    history = str(system.history)
    system.close()
    for which in ("-3", "-4"):
        assert main(["witness", history, "--", which]) == 0
        assert "proven" in capsys.readouterr().out


def _pipeline(system: rs.System, items: int) -> list[str]:
    sink = system.spawn(Middle, name="sink", role="sink")
    middles = [system.spawn(Middle, sink, name=f"middle-{index}", role="operator") for index in range(2)]
    sources = [system.spawn(Source, name=f"source-{index}", role="source") for index in range(2)]
    for source, middle in zip(sources, middles, strict=True):
        system.connect(source, middle)
        system.connect(middle, sink)
    system.start()
    for source, middle in zip(sources, middles, strict=True):
        source.work.send(middle, items)
    return ["source-0", "source-1", "middle-0", "middle-1", "sink"]


def _of_the_graph(snapshot: rs.Snapshot) -> list[Any]:
    return [snapshot.channels[key] for key in snapshot.channels if key[0] != "driver" and key[0] != key[1]]


@pytest.mark.contract
@pytest.mark.nightly
@pytest.mark.parametrize("system", ["aligned-barrier"], indirect=True)
def test_an_acyclic_graph_has_no_channel_state_under_aligned_barriers(system: rs.System) -> None:
    names = _pipeline(system, items=2_000)
    for _ in range(5):
        snapshot = system.snapshot(timeout=BOUND_S)
        snapshot.verify()
        assert [channel.messages for channel in _of_the_graph(snapshot) if channel.messages] == []
        states = {name: snapshot.machines[name].state for name in names}
        for index in range(2):
            assert states[f"middle-{index}"]["count"] == states[f"source-{index}"]["position"]
        assert states["sink"]["count"] == states["middle-0"]["count"] + states["middle-1"]["count"]
        aligned = snapshot.machines["sink"]
        assert aligned.alignment_ms is not None
        assert aligned.alignment_ms >= 0
        assert aligned.blocked_count is not None
        assert snapshot.machines["source-0"].alignment_ms is None
    assert system.wait_for("termination", timeout=BOUND_S).holds is True


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path)


@pytest.mark.contract
@pytest.mark.nightly
@pytest.mark.parametrize("system", ["aligned-barrier"], indirect=True)
def test_a_machine_that_never_comes_to_its_barrier_is_recorded_unaligned_when_patience_is_over(
    system: rs.System, gate: Gate
) -> None:
    """A long action in the middle holds its barrier up; past half of the time nobody waits for it any more."""
    _pipeline(system, items=0)
    system.machine("middle-0").stay.send(gate.path)
    gate.await_arrival()
    snapshot = system.snapshot(timeout=4)
    gate.open()
    snapshot.verify()
    assert snapshot.machines["middle-0"].status == "active"
    assert "middle-0" in snapshot.coverage["without_state"]


@pytest.mark.contract
@pytest.mark.nightly
@pytest.mark.parametrize("system", ["observer", "aligned-barrier"], indirect=True)
def test_named_initiators_record_first(system: rs.System) -> None:
    _pipeline(system, items=50)
    names = ["sink"] if system.settings.protocol == "observer" else ["source-0", "source-1"]
    snapshot = system.snapshot(timeout=BOUND_S, initiators=names)
    snapshot.verify()
    assert snapshot.initiators == tuple(names) or list(snapshot.initiators) == names
    first = min(machine.recorded_at for name, machine in snapshot.machines.items() if name != "driver")
    assert any(snapshot.machines[name].recorded_at == first for name in names)


@pytest.mark.contract
@pytest.mark.nightly
def test_unaligned_barriers_may_begin_aligned(ray_cluster: None, gate: Gate) -> None:
    """The middle is in a long action: the sink waits for its barrier, and when patience is over records without it."""
    with rs.System(
        "begins-aligned", protocol="unaligned-barrier", alignment_timeout=1, snapshot_timeout=BOUND_S
    ) as system:
        _pipeline(system, items=0)
        first = system.snapshot(timeout=BOUND_S)
        assert first.machines["sink"].alignment_ms is not None
        system.machine("middle-0").stay.send(gate.path)
        gate.await_arrival()
        taken = system.snapshot(timeout=6)
        gate.open()
        taken.verify()
        assert "middle-0" in taken.coverage["without_state"]
        assert taken.machines["sink"].record_delay_ms < 0.75 * taken.machines["middle-0"].record_delay_ms


@pytest.mark.contract
@pytest.mark.nightly
def test_a_long_action_holds_up_no_barrier_of_the_other_machines_of_its_host(ray_cluster: None, gate: Gate) -> None:
    """One of two machines of a host is in a long action: the other passes its barrier on meanwhile."""
    with rs.System("beside", protocol="aligned-barrier", detectors=[], snapshot_timeout=BOUND_S) as system:
        sink = system.spawn(Middle, name="sink")
        source = system.spawn(Source, name="source")
        system.spawn_many(Middle, args=[(), (sink,)], names=["long", "beside"], per_host=2)
        system.start()
        system.connect(source, "beside")
        system.connect("beside", sink)
        system.machine("long").stay.send(gate.path)
        gate.await_arrival()
        taken = system.snapshot(timeout=6)
        gate.open()
        taken.verify()
        assert taken.coverage["without_state"] == ["long"]
        assert taken.machines["sink"].record_delay_ms < 0.5 * taken.machines["long"].record_delay_ms
