"""The detector service: every detector on every snapshot, off its path; and the history of a run."""

import itertools
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from runtime_machines import BOUND_S, Account, Gate, Log, pass_gate

import ray_snapshot as rs
from ray_snapshot import detectors
from ray_snapshot.runtime.cluster import ask

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]


@rs.detector(stable=False, alarm_when=True)
def too_rich(snapshot: rs.Snapshot) -> Any:
    """A detector of the user's own, which is also loaded by its name."""
    balance = snapshot.machines["account"].state["balance"]
    return balance > 100, {"balance": balance}, f"The account holds {balance}."


@rs.detector
def raises(snapshot: rs.Snapshot) -> bool:
    return snapshot.machines["nobody"].status == "active"


@rs.detector
def exits(_: rs.Snapshot) -> bool:
    raise SystemExit("a detector that wants to end the process")


@rs.detector
def says_maybe(_: rs.Snapshot) -> Any:
    return "maybe"


@rs.detector
def holds_a_lock(_: rs.Snapshot) -> Any:
    return True, {"lock": threading.Lock(), "set": {1}}


class Growth:
    """Compares with the last snapshot on which it raised no alarm."""

    name = "growth"
    stable = False
    alarm_when = True

    def evaluate(self, snapshot: rs.Snapshot, earlier: rs.Snapshot | None) -> rs.Verdict:
        before = None if earlier is None else earlier.machines["account"].state["balance"]
        now = snapshot.machines["account"].state["balance"]
        return rs.Verdict(holds=before is not None and now > before, evidence={"before": before, "now": now})


@pytest.fixture(scope="module")
def watched(ray_cluster: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[rs.System, Path]]:
    own = f"{__name__}:too_rich"
    watch = [own, raises, exits, says_maybe, holds_a_lock, Growth(), "termination"]
    folder = tmp_path_factory.mktemp("runs") / "history"
    with rs.System("watched", history=folder, detectors=watch) as system:
        system.spawn(Account, 100, name="account")
        yield system.start(), folder


def _verdicts(system: rs.System) -> dict[str, rs.Verdict]:
    found: dict[str, rs.Verdict] = {}
    is_complete = threading.Event()
    wanted = [""]

    def hear(verdict: rs.Verdict) -> None:
        heard.setdefault(verdict.snapshot_id, {})[verdict.detector] = verdict
        if len(heard.get(wanted[0], ())) == len(system.detectors):
            is_complete.set()

    heard: dict[str, dict[str, rs.Verdict]] = {}
    system.subscribe(hear, repeat=True)
    wanted[0] = system.snapshot().snapshot_id
    if len(heard.get(wanted[0], ())) < len(system.detectors):
        assert is_complete.wait(BOUND_S)
    found.update(heard[wanted[0]])
    return found


@pytest.mark.contract
def test_detectors_that_fail_are_reported_as_such_and_do_not_stop_the_others(watched: tuple[rs.System, Path]) -> None:
    system, _ = watched
    found = _verdicts(system)
    assert list(found) == ["too_rich", "raises", "exits", "says_maybe", "holds_a_lock", "growth", "termination"]
    assert [verdict.holds for verdict in found.values()] == [False, None, None, None, True, False, False]
    assert found["too_rich"].evidence == {"balance": 100}
    assert found["raises"].sentence.startswith("Detector raises failed: UnknownMachineError: no machine 'nobody'")
    assert "Detector exits failed: SystemExit: a detector that wants" in found["exits"].sentence
    assert "returned str 'maybe': return True, False or None" in found["says_maybe"].sentence
    assert found["holds_a_lock"].evidence["set"] == {"$set": [1]}


@pytest.mark.contract
def test_a_detector_is_given_the_last_snapshot_without_alarm(watched: tuple[rs.System, Path]) -> None:
    system, _ = watched
    before = system.snapshot().machines["account"].state["balance"]
    account = system.machine("account")
    account.deposit.send(5)
    verdict = system.wait_for("growth", timeout=BOUND_S)
    assert verdict.evidence == {"before": before, "now": before + 5}
    assert verdict.alarm
    account.deposit.send(5)
    while (later := system.wait_for("growth", timeout=BOUND_S)).evidence["now"] < before + 10:
        pass
    assert later.evidence["before"] == before, "the snapshot that raised the alarm is no measure"


@pytest.mark.contract
def test_wait_for_takes_names_detectors_and_functions_and_only_snapshots_from_now_on(
    watched: tuple[rs.System, Path],
) -> None:
    system, _ = watched
    begun = system.snapshot().sequence
    verdict = system.wait_for("termination", timeout=BOUND_S)
    assert int(verdict.snapshot_id[-6:]) > begun
    assert system.wait_for(rs.detector(name="new")(lambda snapshot: snapshot.consistent), timeout=BOUND_S).holds
    assert system.wait_for("new", timeout=BOUND_S).detector == "new"
    system.machine("account").deposit.send(1_000)
    system.wait_for("termination", timeout=BOUND_S)  # it has been accepted
    assert system.wait_for(f"{__name__}:too_rich", timeout=BOUND_S).evidence["balance"] > 1_000
    with pytest.raises(rs.DetectorError, match=r"another detector named 'new'"):
        system.wait_for(rs.detector(name="new")(lambda _: True), timeout=1)
    with pytest.raises(rs.DetectorError, match=r"no detector 'terminations'"):
        system.wait_for("terminations", timeout=1)
    lock = threading.Lock()
    with pytest.raises(rs.DetectorError, match=r"cannot be pickled"):
        system.wait_for(rs.detector(name="locked")(lambda _: lock.locked()), timeout=1)


@pytest.mark.contract
def test_wait_for_gives_up_with_the_last_verdicts_in_its_error(watched: tuple[rs.System, Path]) -> None:
    system, _ = watched
    with pytest.raises(
        rs.SnapshotTimeoutError, match=r"raises did not hold within 3 s; last verdicts: .*too_rich: The acc"
    ) as caught:
        system.wait_for("raises", timeout=3)
    assert (caught.value.waited_for, caught.value.seconds) == ("raises", 3)
    assert system.failure is None


class AtGate:
    """Loads nothing and takes long: its first evaluation waits at a gate."""

    name = "at-gate"
    stable = True
    alarm_when = None

    def __init__(self, path: str, warm: str) -> None:
        self.path, self.warm = path, warm

    def warm_up(self) -> None:
        pass_gate(self.warm)

    def evaluate(self, _: rs.Snapshot) -> bool:
        pass_gate(self.path)
        return True


@pytest.mark.contract
@pytest.mark.nightly
def test_snapshots_are_taken_while_verdicts_are_computed_and_wait_for_says_so(tmp_path: Path) -> None:
    gate, warm = Gate(tmp_path), Gate(tmp_path, "warm")
    with rs.System("slow", most_open=1, detectors=[AtGate(gate.path, warm.path)]) as system:
        warm.await_arrival()
        system.start()
        taken = [system.snapshot(timeout=BOUND_S).sequence for _ in range(10)]
        assert taken == list(range(1, 11)), (
            "one is evaluated, four wait there, one is on its way: the others did not wait"
        )
        said = r"last verdicts: (no|\d+) snapshots? completed meanwhile; verdicts on \d+ snapshots are still being computed"
        with pytest.raises(rs.SnapshotTimeoutError, match=said):
            system.wait_for("at-gate", timeout=0.5)
        warm.open()
        gate.open(100)
        assert system.wait_for("at-gate", timeout=BOUND_S).holds


@pytest.mark.contract
def test_a_run_is_in_its_history_with_every_snapshot_and_verdict_and_subscribers_hear_each_once(tmp_path: Path) -> None:
    heard: list[rs.Verdict] = []
    stumbles = itertools.count()

    def stumble(_: rs.Verdict) -> None:
        next(stumbles)
        raise ValueError("I cannot hear this")

    folder = tmp_path / "history"
    system = rs.System("kept", history=folder, every=0.05, detectors=[detectors.Termination(), raises])
    system.subscribe(stumble, repeat=True)
    system.subscribe(heard.append, repeat=True)
    log = system.spawn(Log, name="log")
    system.start()
    for number in range(50):
        log.note.send(number)
    system.wait_for("termination", timeout=BOUND_S)
    last = system.snapshot()
    with pytest.raises(
        rs.RaySnapshotError, match=r"the subscriber .*stumble raised ValueError: I cannot hear this on the"
    ):
        system.close()
    history = rs.History(folder)
    snapshots, verdicts = list(history.snapshots()), list(history.verdicts())
    assert [row["sequence"] for row in snapshots] == list(range(1, len(snapshots) + 1))
    assert {row["run_id"] for row in snapshots} == {system.run_id}
    assert last.snapshot_id in {row["snapshot_id"] for row in snapshots}
    complete = [row["snapshot_id"] for row in snapshots if row["status"] == "complete"]
    in_history = Counter((row["snapshot_id"], row["detector"]) for row in verdicts)
    assert in_history == Counter((snapshot_id, name) for snapshot_id in complete for name in ("termination", "raises"))
    assert Counter((verdict.snapshot_id, verdict.detector) for verdict in heard) == in_history
    assert next(stumbles) == len(heard)
    assert history.load(last.snapshot_id).machines["log"].state == {"seen": list(range(50))}


@pytest.mark.contract
@pytest.mark.by_day(1)
@pytest.mark.parametrize("what", ["a file", "a folder in a file"])
def test_a_history_that_cannot_be_written_is_an_error_before_anything_runs(tmp_path: Path, what: str) -> None:
    (tmp_path / "taken").write_text("I am a file")
    place = tmp_path / "taken" if what == "a file" else tmp_path / "taken" / "history"
    before = {item["name"] for item in ray.util.list_named_actors(all_namespaces=True)}
    with pytest.raises((rs.HistoryWriteError, rs.HistoryFormatError), match=r"taken"):
        rs.System("unwritable", history=place)
    assert {item["name"] for item in ray.util.list_named_actors(all_namespaces=True)} == before


@pytest.mark.nightly
def test_the_clock_skips_when_too_many_snapshots_are_open_and_settling_waits_for_all(tmp_path: Path) -> None:
    gate = Gate(tmp_path)
    with rs.System("clocked", every=0.02, most_open=2, detectors=[]) as system:
        log = system.spawn(Log, name="log")
        system.start()
        log.note_at_gate.send(1, gate.path)
        gate.await_arrival()
        about = ask(system._service.about.remote(), "the service")
        last = about["snapshots"]  # those that begin behind it can never be complete
        while about["snapshots"] < last + 2:  # the clock may have skipped before, while the analyst was starting
            about = ask(system._service.about.remote(), "the service")
        before = about["skipped"]
        while about["skipped"] < before + 3:
            about = ask(system._service.about.remote(), "the service")
        assert about["pending"] == 2
        with pytest.raises(rs.SnapshotAbortedError, match=r"2 snapshots of clocked were pending for 0.1 s"):
            system.snapshot(timeout=0.1)
        gate.open()
        ask(system._service.settle.remote(BOUND_S), "settling")
        assert ask(system._service.about.remote(), "the service")["pending"] == 0
