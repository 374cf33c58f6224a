"""Snapshots of a system at work: conserved, complete, several at once, by markers alone, and of what is being born."""

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import ray
from runtime_machines import BOUND_S, Gate, Log, Sender

import ray_snapshot as rs
from ray_snapshot import detectors
from ray_snapshot.runtime.cluster import ask

pytestmark = pytest.mark.ray

MACHINES, TOKENS = 9, 4
TOTAL = MACHINES * TOKENS
CONSERVATION = detectors.TokenConservation(
    total=TOTAL, state="$.tokens", messages={"pass_on": "$[0]", "give": "$[0]", "__init__": "$[0]"}
)


class Circle(rs.SnapshotMixin):
    """Passes every token on to the next but one, so that each hop goes to another host."""

    def __init__(self, tokens: int, others: list[Any], start: int) -> None:
        self.tokens = tokens
        self.others = others
        self.at = start

    def begin(self, hops: int) -> None:
        while self.tokens:
            self.tokens -= 1
            self._send(1, hops)

    def pass_on(self, tokens: int, hops: int) -> None:
        self.tokens += tokens
        if hops:
            self.tokens -= tokens
            self._send(tokens, hops - 1)

    def _send(self, tokens: int, hops: int) -> None:
        self.at = (self.at + 4) % len(self.others)
        self.others[self.at].pass_on.send(tokens, hops)

    def give(self, tokens: int) -> None:
        self.tokens += tokens

    def ask_for_snapshots(self, times: int) -> None:
        for _ in range(times):
            self.request_snapshot()

    def grow(self, children: int) -> None:
        """Spend tokens on children: one goes into the constructor, one follows as a message."""
        for _ in range(children):
            child = self.spawn(Circle, 1, [], 0)
            child.give.send(1)
            self.tokens -= 2


@pytest.fixture(scope="module")
def circle(ray_cluster: None) -> Iterator[tuple[rs.System, list[Any]]]:
    watch = [CONSERVATION, detectors.Termination()]
    with rs.System("circle", every=0.1, most_open=32, detectors=watch) as system:
        names = [f"c{number}" for number in range(MACHINES)]
        handles = [system.machine(name) for name in names]
        system.spawn_many(Circle, args=[(TOKENS, handles, n) for n in range(MACHINES)], names=names, per_host=3)
        yield system.start(), handles


def _late_reports(snapshot: rs.Snapshot) -> int:
    """White messages that came after their host's report: control messages beside request, report, close and markers."""
    hosts = snapshot.coverage["hosts"]
    return snapshot.control_message_count - snapshot.channel_marker_count - 3 * hosts


@pytest.mark.contract
@pytest.mark.nightly
def test_no_snapshot_under_load_loses_or_doubles_a_token(circle: tuple[rs.System, list[Any]]) -> None:
    system, handles = circle
    for handle in handles:
        handle.begin.send(150)
    snapshots = [system.snapshot()]
    while len(snapshots) < 12 or (len(snapshots) < 200 and not any(map(_late_reports, snapshots))):
        snapshots.append(system.snapshot())
    for snapshot in snapshots:
        snapshot.verify()
    assert [CONSERVATION.evaluate(snapshot).holds for snapshot in snapshots] == [True] * len(snapshots)
    assert any(snapshot.in_flight_count for snapshot in snapshots)
    assert any(map(_late_reports, snapshots)), "no white message met a red host: this run showed nothing"
    verdict = system.wait_for("termination", timeout=BOUND_S)
    final = system.snapshot()
    assert verdict.holds
    assert sum(final.machines[f"c{n}"].state["tokens"] for n in range(MACHINES)) == TOTAL


@pytest.mark.contract
@pytest.mark.nightly
def test_snapshots_asked_for_at_once_by_threads_machines_and_the_clock_are_all_complete_and_numbered_apart(
    circle: tuple[rs.System, list[Any]],
) -> None:
    system, handles = circle
    verdicts: list[rs.Verdict] = []
    system.subscribe(verdicts.append, repeat=True)
    before = system.snapshot().sequence
    for handle in handles:
        handle.begin.send(60)
        handle.ask_for_snapshots.send(2)
    asked: list[rs.Snapshot] = []
    threads = [threading.Thread(target=lambda: asked.append(system.snapshot())) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    system.wait_for("termination", timeout=BOUND_S)
    assert len({snapshot.sequence for snapshot in asked}) == 6
    more = 0  # what the machines have asked for comes to the service on its own way
    while (last := system.snapshot().sequence) - before - more <= 6 + 2 * MACHINES:
        assert system.failure is None
        more += 1
        assert more < 1_000, "the machines' snapshots do not come"
    assert all(snapshot.consistent and CONSERVATION.evaluate(snapshot).holds for snapshot in asked)
    found = [verdict for verdict in verdicts if verdict.detector == CONSERVATION.name]
    while len(found) < last - before:  # every number that was given out has become a snapshot that conserves
        assert system.failure is None
        found = [verdict for verdict in verdicts if verdict.detector == CONSERVATION.name]
    assert {verdict.holds for verdict in found} == {True}
    assert len({verdict.snapshot_id for verdict in found}) == len(found)


@pytest.mark.contract
@pytest.mark.nightly
def test_machines_that_machines_create_meanwhile_belong_to_every_snapshot(circle: tuple[rs.System, list[Any]]) -> None:
    """Design, trap 3: their creation is a message, their tokens are never missing."""
    system, handles = circle
    before = system.snapshot()
    for handle in handles:
        handle.grow.send(int(before.machines[str(handle)[9:-1]].state["tokens"]) // 2)
    snapshots = [system.snapshot()]
    while snapshots[-1].machine_count == before.machine_count or snapshots[-1].in_flight_count:
        snapshots.append(system.snapshot())
    system.wait_for("termination", timeout=BOUND_S)
    snapshots.append(system.snapshot())
    assert [CONSERVATION.evaluate(snapshot).holds for snapshot in snapshots] == [True] * len(snapshots)
    children = [name for name in snapshots[-1].machines if name.startswith("Circle-")]
    assert len(children) == snapshots[-1].machine_count - before.machine_count > MACHINES
    assert all(snapshots[-1].machines[name].state["tokens"] == 2 for name in children)


# ---- by markers alone, and hosts that come later -----------------------------------------------------------------


@pytest.fixture(scope="module")
def islands(ray_cluster: None) -> Iterator[rs.System]:
    with rs.System("islands") as system:
        system.spawn_many(Sender, names=["a", "b"], per_host=1)
        yield system.start()


@pytest.mark.contract
def test_an_initiator_must_exist_and_its_markers_must_reach_everybody(islands: rs.System) -> None:
    with pytest.raises(rs.UnknownMachineError, match=r"initiator 'nobody'"):
        islands.snapshot(initiators=["nobody"])
    with pytest.raises(rs.UnreachableMachineError, match=r"no channel to b") as caught:
        islands.snapshot(initiators=["a"])
    assert caught.value.machines == ["b"]
    with pytest.raises(rs.UnknownMachineError, match=r"nobody"):
        islands.connect("a", "nobody")
    with pytest.raises(rs.SettingError, match=r"more than 0"):
        islands.snapshot(timeout=0)
    islands.connect("a", islands.machine("b"))
    snapshot = islands.snapshot(initiators=["a"])
    snapshot.verify()
    assert snapshot.initiators == ["a"]
    requests = snapshot.control_message_count - snapshot.channel_marker_count - 2 * snapshot.coverage["hosts"]
    assert requests == 2, "only a's host was asked, and at the end the driver, which no channel leads to"
    for _ in range(5):
        snapshot = islands.snapshot(initiators=islands.machine("a"))
        recorded = {name: snapshot.machines[name].recorded_at for name in ("a", "b", "driver")}
        assert recorded["a"] <= recorded["b"] <= recorded["driver"], "the marker spread it, the driver was asked last"


@pytest.mark.nightly
def test_a_host_that_is_born_while_a_snapshot_is_open_belongs_to_it(islands: rs.System, tmp_path: Any) -> None:
    gate = Gate(tmp_path)
    log = islands.spawn(Log, name="early")
    log.note_at_gate.send(1, gate.path)
    gate.await_arrival()
    found: list[rs.Snapshot] = []
    thread = threading.Thread(target=lambda: found.append(islands.snapshot(timeout=BOUND_S)))
    thread.start()
    while not ask(islands._service.about.remote(), "the service")["pending"]:
        pass
    born = islands.spawn(Log, name="late")
    born.note.send("hello")
    log.note.send("more")
    assert ray.get(born.read.remote(), timeout=BOUND_S) == ["hello"]
    assert not found
    gate.open()
    thread.join()
    found[0].verify()
    assert found[0].coverage["hosts"] >= 5
    sent = found[0].channels["driver", "early"]
    assert sent.sent_count == 1, "the driver recorded before it sent more"
    assert ray.get(log.read.remote()) == [1, "more"]


@pytest.mark.contract
@pytest.mark.nightly
def test_messages_to_a_name_that_is_spawned_later_count_as_in_flight_and_arrive_in_order(islands: rs.System) -> None:
    later = islands.machine("later")
    for number in range(5):
        later.note.send(number)
    sender = islands.machine("a")
    sender.send_all.send(later, "note", ["x", "y", "z"])
    snapshot = islands.snapshot()
    while len(snapshot.messages) < 8:
        snapshot = islands.snapshot()
    snapshot.verify()
    by_channel = snapshot.messages_by_channel
    assert [message.args for message in by_channel["driver", "later", "mail"]] == [[n] for n in range(5)]
    assert [message.args for message in by_channel["a", "later", "mail"]] == [["x"], ["y"], ["z"]]
    assert detectors.Termination().evaluate(snapshot).holds is False
    assert "later" not in snapshot.machines
    handle = islands.spawn(Log, name="later")
    assert handle == later
    islands.wait_for("termination", timeout=BOUND_S)
    seen = ray.get(handle.read.remote())
    assert [item for item in seen if isinstance(item, int)] == list(range(5))
    assert [item for item in seen if isinstance(item, str)] == ["x", "y", "z"]


@pytest.mark.contract
@pytest.mark.nightly
def test_a_call_to_a_name_that_is_spawned_later_waits_for_it(islands: rs.System) -> None:
    caller = islands.machine("b")
    answer = caller.ask_for.remote(islands.machine("afterwards"), "read")
    snapshot = islands.snapshot()
    while snapshot.machines["b"].status != "active":
        snapshot = islands.snapshot()
    islands.spawn(Log, name="afterwards")
    assert ray.get(answer, timeout=BOUND_S) == []
