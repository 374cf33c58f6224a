"""`serve --on-alarm`: which alarms of running systems and of histories are told, each once. No Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from incidents import deadlocked, healthy, incident, judged, written
from viewing import Bank

from ray_snapshot import Snapshot, Verdict
from ray_snapshot.alarms import Alarm
from ray_snapshot.detectors import Deadlock
from ray_snapshot.glances import MOST_OF_CORE, Glances
from ray_snapshot.history import History
from ray_snapshot.verdicts import evaluate
from ray_snapshot.web import alarms as served_alarms
from ray_snapshot.web.alarms import Alarms
from ray_snapshot.web.served import Served


class Told:
    """In place of a command."""

    def __init__(self) -> None:
        self.alarms: list[Alarm] = []

    def tell(self, alarm: Alarm) -> None:
        self.alarms.append(alarm)

    def close(self, seconds: float = 0.0) -> None:
        pass

    def taken(self) -> list[tuple[str, str, str]]:
        """What came since the last time."""
        found, self.alarms = self.alarms, []
        return [(one.event, one.detector, one.snapshot_id) for one in found]


def looking(*histories: Path, live: Bank | None = None) -> tuple[Alarms, Told]:
    served, told = Served(live=live), Told()
    for path in histories:
        served.add(path)
    return Alarms(served, told), told  # type: ignore[arg-type]


def test_an_alarm_of_a_running_system_is_told_when_it_begins_and_when_it_ends() -> None:
    bank = Bank()
    alarms, told = looking(live=bank)
    alarms.look()
    bank.take(healthy(1), healthy(2))
    alarms.look()
    assert told.taken() == []
    bank.take(deadlocked(3), deadlocked(4))
    alarms.look()
    (alarm,) = told.alarms
    assert told.taken() == [("begins", "deadlock", "bank-00003")]
    assert (alarm.system, alarm.run_id, alarm.history) == ("bank", "run-1", None)
    assert "a in Account.transfer (/srv/app/bank.py:41) waits for b" in alarm.report
    alarms.look()
    bank.take(deadlocked(5))
    alarms.look()
    assert told.taken() == []
    bank.take(healthy(6))
    alarms.look()
    assert told.taken() == [("ends", "deadlock", "bank-00006")]


def test_another_core_is_another_alarm() -> None:
    bank = Bank()
    alarms, told = looking(live=bank)
    bank.take(deadlocked(1))
    alarms.look()
    bank.take(deadlocked(2, ("c", "d")))
    alarms.look()
    assert [at for _, _, at in told.taken()] == ["bank-00001", "bank-00002"]


def test_of_a_system_that_is_seen_first_only_what_stands_is_told() -> None:
    bank = Bank()
    bank.take(deadlocked(1), healthy(2), deadlocked(3), deadlocked(4))
    alarms, told = looking(live=bank)
    alarms.look()
    assert told.taken() == [("begins", "deadlock", "bank-00004")]


def test_a_snapshot_that_is_given_up_says_nothing_of_what_was_before() -> None:
    bank = Bank()
    bank.take(deadlocked(1), healthy(2), deadlocked(3), given_up(4))
    alarms, told = looking(live=bank)
    for _ in range(2):
        alarms.look()
    assert told.taken() == [("begins", "deadlock", "bank-00003")]


def given_up(number: int) -> Snapshot:
    return Snapshot.from_rows(
        machines=[], snapshot_id=f"bank-{number}", system="bank", sequence=number, status="aborted"
    )


def test_a_system_that_answers_late_has_its_standing_alarm_told_though_its_history_was_read_first(
    tmp_path: Path,
) -> None:
    path = written(tmp_path / "h", [healthy(1), deadlocked(2)])
    bank = Bank(path)
    bank.take(healthy(1), deadlocked(2))
    bank.is_silent = True
    alarms, told = looking(path, live=bank)
    alarms.look()
    assert told.taken() == []
    bank.is_silent = False
    for _ in range(2):
        alarms.look()
    assert told.taken() == [("begins", "deadlock", "bank-00002")]


@pytest.mark.parametrize("is_first", [True, False])
def test_a_history_that_cannot_be_read_once_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_first: bool
) -> None:
    path = written(tmp_path / "h", [deadlocked(1), healthy(2)])
    alarms, told = looking(path)
    if not is_first:
        alarms.look()
        written(path, [deadlocked(3)])
    with monkeypatch.context() as patch:
        patch.setattr(History, "rows_of", lambda *_: (_ for _ in ()).throw(OSError("once")))
        alarms.look()
    assert told.taken() == []
    alarms.look()
    assert told.taken() == ([] if is_first else [("begins", "deadlock", "bank-00003")])


def test_old_runs_stay_old_however_many_there_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(served_alarms, "MOST_RUNS", 3)
    runs = [deadlocked(at, run_id=f"run-{at}") for at in range(8)]
    path = written(tmp_path / "h", runs)
    alarms, told = looking(path)
    alarms.look()
    written(path, [healthy(20, run_id="run-20")])
    alarms.look()
    assert told.taken() == []


def test_another_run_has_alarms_of_its_own() -> None:
    bank = Bank()
    alarms, told = looking(live=bank)
    bank.take(deadlocked(7))
    alarms.look()
    again = deadlocked(1, run_id="run-2", snapshot_id="bank-again")
    bank.glances = Glances()
    bank.take(again)
    alarms.look()
    assert [at for _, _, at in told.taken()] == ["bank-00007", "bank-again"]


def test_of_a_history_what_it_gains_is_told_and_not_what_it_has(tmp_path: Path) -> None:
    path = written(tmp_path / "h", [healthy(1), deadlocked(2), healthy(3)])
    alarms, told = looking(path)
    alarms.look()
    assert told.taken() == []
    written(path, [deadlocked(4), deadlocked(5)])
    alarms.look()
    (alarm,) = told.alarms
    assert told.taken() == [("begins", "deadlock", "bank-00004")]
    assert "a in Account.transfer (/srv/app/bank.py:41) waits for b" in alarm.report
    assert alarm.report.endswith(f"more: ray-snapshot report {path} bank-00004")
    written(path, [healthy(6)])
    alarms.look()
    assert told.taken() == [("ends", "deadlock", "bank-00006")]


def test_the_end_of_an_alarm_that_a_history_had_is_told(tmp_path: Path) -> None:
    path = incident(tmp_path / "h")
    alarms, told = looking(path)
    alarms.look()
    written(path, [deadlocked(6), healthy(7)])
    alarms.look()
    assert told.taken() == [("ends", "deadlock", "bank-00007")]


def test_what_is_found_later_in_old_snapshots_is_no_news(tmp_path: Path) -> None:
    snapshots = [deadlocked(1), deadlocked(2)]
    path = written(tmp_path / "h", snapshots, {})
    alarms, told = looking(path)
    alarms.look()
    found = [evaluate(Deadlock(), one).model_copy(update={"evaluator": "spark"}) for one in snapshots]
    written(path, [healthy(3)], {"bank-00003": found})
    alarms.look()
    assert told.taken() == []


def test_an_alarm_that_is_both_seen_and_read_is_told_once(tmp_path: Path) -> None:
    path = written(tmp_path / "h", [healthy(1)])
    bank = Bank(path)
    bank.take(healthy(1))
    alarms, told = looking(path, live=bank)
    alarms.look()
    bank.take(deadlocked(2), deadlocked(3))
    alarms.look()
    (alarm,) = told.alarms
    assert alarm.history == str(path)
    assert told.taken() == [("begins", "deadlock", "bank-00002")]
    written(path, [deadlocked(2), deadlocked(3)])
    alarms.look()
    bank.take(healthy(4))
    alarms.look()
    written(path, [healthy(4)])
    alarms.look()
    assert told.taken() == [("ends", "deadlock", "bank-00004")]
    written(path, [deadlocked(5)])  # the last one is only in the history: the system has closed
    alarms.look()
    assert told.taken() == [("begins", "deadlock", "bank-00005")]


ODD = pytest.mark.parametrize(
    "evidence",
    [
        {"members": 7, "cores": 7, "advice": 7, "member_count": "many"},
        {"members": [7, {"machine": 7}], "cores": [7, [7, None], {"a": 1}], "stuck_behind": {"a": 1}},
        {"members": [{"machine": "a\x1b[31m", "waits_for": 7}], "cores": [["a"]]},
        {"members": ["alice", "bob"]},
        {"members": [{"name": "x"}], "cores": [[["a"]], {"a": 1}]},
        {},
    ],
    ids=range(6),
)


@ODD
def test_whatever_a_detector_gives_as_evidence_there_is_a_glance(evidence: dict[str, Any]) -> None:
    glances = Glances()
    glances.add(healthy(1), [Verdict(detector="d", holds=True, alarm=True, sentence="odd", evidence=evidence)])
    (word,) = glances.kept[0].words
    assert word.report
    assert word.cores


def test_an_alarm_that_stands_is_kept_once() -> None:
    glances = Glances()
    for number in range(1, 4):
        glances.add(deadlocked(number), judged(deadlocked(number)))
    first, *others = (glance.words[0] for glance in glances.kept)
    assert all(one.report is first.report and one.cores is first.cores for one in others)


@ODD
def test_whatever_a_history_says_of_an_alarm_it_is_told(tmp_path: Path, evidence: dict[str, Any]) -> None:
    path = written(tmp_path / "h", [healthy(1)])
    alarms, told = looking(path)
    alarms.look()
    odd = Verdict(
        detector="deadlock",
        holds=True,
        alarm=True,
        sentence="\x1b[31m",
        snapshot_id="bank-00002",
        run_id="run-1",
        evidence=evidence,
    )
    written(path, [deadlocked(2)], {"bank-00002": [odd]})
    alarms.look()
    (alarm,) = told.alarms
    assert alarm.event == "begins"
    assert "\x1b" not in alarm.report


def test_a_history_that_is_gone_is_said_once_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    gone, path = incident(tmp_path / "gone"), incident(tmp_path / "h")
    alarms, told = looking(gone, path)
    (gone / "verdicts" / "_delta_log" / "00000000000000000000.json").write_text("{")
    alarms.look()
    written(path, [healthy(6), deadlocked(7)])
    (gone / "verdicts" / "_delta_log" / "00000000000000000000.json").write_text("{{")
    alarms.look()
    assert ("begins", "deadlock", "bank-00007") in told.taken()
    assert capsys.readouterr().err.count("alarms of history gone: ") == 1


def test_a_glance_of_an_alarm_is_of_bounded_size() -> None:
    many = frozenset(f"m{at}" for at in range(10_000))
    verdict = Verdict(
        detector="d", holds=True, alarm=True, sentence="x" * 10**6, evidence={"cores": [sorted(many)] * 1_000}
    )
    glances = Glances()
    glances.add(healthy(1), [verdict])
    (word,) = glances.kept[0].words
    assert (len(word.cores), {len(core) for core in word.cores}) == (100, {MOST_OF_CORE})
    assert len(word.report) < 30_000


def test_a_glance_without_an_alarm_has_no_report() -> None:
    glances = Glances()
    glances.add(healthy(1), judged(healthy(1)))
    assert [(word.report, word.cores) for word in glances.kept[0].words] == [("", ())] * 2


def test_histories_are_not_read_again_without_a_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alarms, _ = looking(incident(tmp_path / "h"))
    alarms.look()
    monkeypatch.setattr(History, "rows_of", lambda *_: pytest.fail("read again"))
    alarms.look()
