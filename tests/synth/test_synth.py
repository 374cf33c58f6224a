"""Made-up histories: whole, consistent, the same for the same seed, and with exactly what was planted."""

import json
from pathlib import Path
from typing import Any

import pytest

from ray_snapshot import Snapshot
from ray_snapshot.cli import main
from ray_snapshot.errors import SettingError
from ray_snapshot.history import History
from ray_snapshot.synth import ANOMALIES, Settings, synthesise


def planted(path: Path, *anomalies: str, machines: int = 300, snapshots: int = 30) -> tuple[History, dict[str, Any]]:
    found = synthesise(path, Settings(machines, snapshots, anomalies, seed=3))
    return History(path), {one["anomaly"]: one for one in found}


def failed(history: History) -> list[str]:
    return [snapshot_id for snapshot_id, problems in history.verify() if problems]


def test_a_history_without_anomalies_is_whole_and_alarms_nobody(tmp_path: Path) -> None:
    history, _ = planted(tmp_path, machines=60)
    assert failed(history) == []
    assert len(history.snapshots()) == 30
    assert {row.status for row in history.snapshots()} == {"complete"}
    verdicts = history.verdicts()
    assert not [row for row in verdicts if row.alarm]
    assert {(row.detector, row.holds) for row in verdicts} == {
        ("termination", False),
        ("deadlock", False),
        ("conservation", True),
    }
    loaded = history.load(history.resolve("-1"))
    assert loaded.machine_count == 61
    assert loaded.in_flight_count > 0
    assert any(row["on_machine"] for row in history.waits()), "some machine waits for a moment"


def test_the_same_settings_give_the_same_rows_and_another_seed_gives_others(tmp_path: Path) -> None:
    for name, seed in (("one", 1), ("two", 1), ("three", 2)):
        synthesise(tmp_path / name, Settings(60, 5, seed=seed, anomalies=()))
    one, two, three = (History(tmp_path / name) for name in ("one", "two", "three"))
    for table in ("snapshots", "machines", "channels", "messages", "waits", "calls"):
        assert one.table(table).equals(two.table(table)), table
    assert one.table("channels")["sent_count"] != three.table("channels")["sent_count"]


def test_what_was_planted_is_there_and_nothing_else(tmp_path: Path) -> None:
    history, told = planted(tmp_path, *ANOMALIES)
    assert failed(history) == [told["tear"]["snapshot_id"]]
    assert json.loads((tmp_path / "planted.json").read_text()) == list(told.values())
    aborted = [row for row in history.snapshots() if row.status == "aborted"]
    assert [row.sequence for row in aborted] == [told["abort"]["from_sequence"], told["abort"]["until_sequence"]]
    assert {row.abort_machine for row in aborted} == {told["abort"]["details"]["machine"]}
    first: dict[str, Any] = {}
    for row in history.verdicts():
        if row.alarm:
            first.setdefault(row.detector, []).append(row)
    assert first["conservation"][0].snapshot_id == told["leak"]["snapshot_id"]
    deadlocks = [row for row in first["deadlock"] if row.snapshot_id != told["lie"]["snapshot_id"]]
    details = told["deadlock"]["details"]
    for row in deadlocks:
        assert [member["machine"] for member in row.evidence["members"]] == details["machines"]
    assert [one["machine"] for one in deadlocks[-1].evidence["stuck_behind"]] == details["stuck_behind"]


def test_a_circle_of_calls_closes_edge_by_edge(tmp_path: Path) -> None:
    history, told = planted(tmp_path, "deadlock")
    at, members = told["deadlock"]["from_sequence"], told["deadlock"]["details"]["machines"]
    ids = [row.snapshot_id for row in history.snapshots()]

    def waiting(sequence: int) -> list[str]:
        return [row["machine"] for row in history.waits(ids[sequence]) if row["machine"] in members]

    assert [waiting(at + n) for n in range(-1, 4)] == [[], members[:1], members[:2], members, members]
    holds = {row.sequence: row for row in history.snapshots()}
    deadlocked = [row.snapshot_id for row in history.verdicts("deadlock") if row.holds]
    assert deadlocked == [holds[n].snapshot_id for n in range(at + 2, 30)]


@pytest.mark.contract
def test_a_second_run_is_added_behind_the_first(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    line = ["synth", "--machines", "40", "--snapshots", "24", "--out", str(tmp_path / "h")]
    assert main(line) == 0
    assert "Nothing was planted" in capsys.readouterr().out
    assert main([*line, "--anomalies", "leak", "--json"]) == 0
    (told,) = map(json.loads, capsys.readouterr().out.splitlines())
    history = History(tmp_path / "h")
    rows = history.snapshots()
    assert len({row.run_id for row in rows}) == 2
    assert [row.run_id for row in rows][-1] == told["run_id"]
    assert told["snapshot_id"] in {row.snapshot_id for row in rows}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ((100, 30, ("leek",)), "no anomaly 'leek': choose from deadlock"),
        ((20, 30, ("leak",)), "at least 32 machines, and 20"),
        ((100, 10, ("leak",)), "at least 24 snapshots"),
        ((100, 0), "at least one snapshot"),
    ],
)
def test_settings_that_cannot_be_are_told(settings: tuple[Any, ...], said: str) -> None:
    with pytest.raises(SettingError, match=said):
        Settings(*settings)


@pytest.mark.contract
def test_a_channel_that_accepted_more_than_was_sent_is_no_consistent_cut() -> None:
    channel = {"source": "a", "target": "b", "sent_count": 4, "accepted_count": 5, "in_flight_count": 0}
    snapshot = Snapshot.from_rows(machines=[{"machine": "a"}, {"machine": "b"}], channels=[channel])
    assert snapshot.problems() == ["channel a -> b (mail) accepted 5 messages though only 4 were sent inside the cut"]
