"""Retention: whole snapshots leave all tables, the others stay as they were."""

import json
import os
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from histories import START, acted, full_snapshot, snapshot, verdict, write
from once import once

from ray_snapshot import cli
from ray_snapshot.errors import SettingError
from ray_snapshot.history import History, HistoryWriter, checkpoints, owners, retention, upkeep
from ray_snapshot.history.checkpoints import Checkpoint
from ray_snapshot.history.retention import duration

HOUR = 3_600
KEY = b"a key of enough characters"


def ids_in_all_tables(path: Path) -> dict[str, set[str]]:
    history = History(path)
    names = ("snapshots", "machines", "channels", "messages", "calls", "waits", "verdicts")
    return {name: set(history.stored.read(name)["snapshot_id"].to_pylist()) for name in names}


@pytest.fixture
def history(tmp_path: Path) -> Path:
    """A snapshot every half hour for six hours, each with a verdict; the last two in one commit."""
    numbers = [index * HOUR // 2 for index in range(12)]

    def make(path: Path) -> None:
        write(path, *(snapshot(number) for number in numbers[:10]))
        with HistoryWriter(path) as writer:
            for number in numbers[10:]:
                writer.add(snapshot(number))
            writer.add_verdicts([verdict(f"bank-{number:05d}") for number in numbers])

    return once(tmp_path, __name__, make)


@pytest.mark.contract
def test_snapshots_older_than_is_kept_leave_all_tables_whole(history: Path) -> None:
    now = START + timedelta(hours=6)
    before = {row.snapshot_id: History(history).load(row.snapshot_id) for row in History(history).snapshots()}
    dry = History(history).retain(timedelta(hours=2), now=now, dry_run=True)
    assert len(dry.snapshot_ids) == 8
    assert dry.rows["machines"] == 24
    assert ids_in_all_tables(history)["machines"] == set(before), "a dry run changes nothing"
    assert History(history).retain(timedelta(hours=2), now=now) == dry
    left = set(before) - set(dry.snapshot_ids)
    found = ids_in_all_tables(history)
    assert {name: ids for name, ids in found.items() if ids} == dict.fromkeys(
        ("snapshots", "machines", "channels", "messages", "verdicts"), left
    )
    for snapshot_id in left:
        loaded = History(history).load(snapshot_id)
        assert all(loaded.tables[name].equals(before[snapshot_id].tables[name]) for name in loaded.tables)
    assert History(history).retain(timedelta(hours=2), now=now).snapshot_ids == []


@pytest.mark.contract
def test_of_the_old_ones_one_in_every_interval_stays(history: Path) -> None:
    gone = History(history).retain(timedelta(hours=2), timedelta(hours=1), now=START + timedelta(hours=6))
    left = [row.started_at for row in History(history).snapshots()]
    assert len(gone.snapshot_ids) == 12 - len(left)
    hours = [moment.hour for moment in left if moment < START + timedelta(hours=4)]
    assert len(hours) == len(set(hours)) == 5, "the first of each hour of the clock: 23:59, 0:29, 1:29, ..."
    assert len([moment for moment in left if moment >= START + timedelta(hours=4)]) == 4


@pytest.mark.contract
def test_a_compacted_history_is_thinned_as_well_and_stays_compact(history: Path) -> None:
    History(history).compact()
    files = len(History(history).files("machines"))
    History(history).retain(keep_every=timedelta(hours=3))
    assert len(History(history).files("machines")) == files == 2
    assert [problems for _, problems in History(history).verify()] == [[]] * 3
    assert History(history).compact()["machines"] == {"files_added": 0, "files_removed": 0}


@pytest.mark.contract
def test_a_compacted_file_without_any_snapshot_left_goes_whole(history: Path) -> None:
    History(history).compact()
    History(history).retain(timedelta(hours=1), now=START + timedelta(hours=6, seconds=-1))
    assert {file.split("/")[-2] for file in History(history).files("machines")} == {"date=2026-03-02"}


def test_the_trace_of_a_run_goes_with_its_last_snapshot(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path) as writer:
        writer.add(snapshot(0, run_id="old"))
        writer.add(snapshot(10 * HOUR, run_id="new"))
        for run in ("old", "new"):
            writer.add_actions(acted(run, START), system="bank")
    gone = History(tmp_path).retain(timedelta(hours=1), now=START + timedelta(hours=10, minutes=1))
    assert gone.rows["actions"] == 1
    assert [len(History(tmp_path).actions(run)) for run in ("old", "new")] == [0, 1]


# Checkpoints


def with_checkpoints(path: Path) -> dict[str, Path]:
    """Give every snapshot a checkpoint; the files, by snapshot."""
    ids = [row.snapshot_id for row in History(path).snapshots()]
    for snapshot_id in ids:
        checkpoints.write(path, Checkpoint({"snapshot_id": snapshot_id}, [b"state"]), KEY)
    return {snapshot_id: checkpoints.path_of(path, snapshot_id) for snapshot_id in ids}


def made_old(path: Path, hours: float) -> None:
    moment = path.stat().st_mtime - HOUR * hours
    os.utime(path, (moment, moment))


def test_the_checkpoints_of_snapshots_that_go_go_with_them_and_no_others(history: Path) -> None:
    found = with_checkpoints(history)
    dry = History(history).retain(keep_every=timedelta(hours=3), dry_run=True)
    assert dry.rows["checkpoints"] == 9
    assert all(path.exists() for path in found.values()), "a dry run changes nothing"
    assert History(history).retain(keep_every=timedelta(hours=3)) == dry
    left = {row.snapshot_id for row in History(history).snapshots()}
    assert {snapshot_id for snapshot_id, path in found.items() if path.exists()} == left
    for snapshot_id in left:
        assert checkpoints.read(history, snapshot_id, KEY).sections == [b"state"]


@pytest.mark.contract
def test_what_a_system_would_go_back_to_stays_however_old_it_is(tmp_path: Path) -> None:
    write(tmp_path, *(snapshot(number, restorable=number < 3 * HOUR) for number in range(0, 6 * HOUR, HOUR)))
    dropped = History(tmp_path).retain(timedelta(hours=1), now=START + timedelta(hours=100)).snapshot_ids
    assert [row.snapshot_id for row in History(tmp_path).snapshots()] == [f"bank-{2 * HOUR:05d}"]
    assert len(dropped) == 5


def test_a_retention_that_dies_before_the_checkpoints_has_them_removed_by_the_next_upkeep(
    history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = with_checkpoints(history)
    left_behind = owners.Owner(history, upkeep.UPKEEP)
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "remove", _die)
        with pytest.raises(KeyboardInterrupt):
            retention.drop(history, list(found)[:4], left_behind)
    assert all(path.exists() for path in found.values())
    assert left_behind.file is not None
    left_behind.file.close()  # the lock goes with the process
    History(history).compact()
    assert [path.exists() for path in found.values()] == [False] * 4 + [True] * 8


def _die(*_: object) -> int:
    raise KeyboardInterrupt


def test_the_next_writer_of_a_dead_ones_system_leaves_the_checkpoint_of_what_is_not_listed_yet(history: Path) -> None:
    """It may be listed by whoever adds the snapshot again."""
    checkpoints.write(history, Checkpoint({"snapshot_id": "bank-99999"}, [b"state"]), KEY)
    dead = owners.Owner(history, "system:bank")
    dead.intend(["bank-99999"])
    assert dead.file is not None
    dead.file.close()
    with HistoryWriter(history, system="bank"):
        pass
    assert checkpoints.path_of(history, "bank-99999").exists()


def test_a_vacuum_removes_old_checkpoints_of_no_snapshot_and_what_was_only_begun(history: Path) -> None:
    found = with_checkpoints(history)
    for snapshot_id in ("old-1", "new-1"):
        checkpoints.write(history, Checkpoint({"snapshot_id": snapshot_id}, [b"state"]), KEY)
    begun = history / "checkpoints" / ".tmp-abc"
    begun.write_bytes(b"half")
    for path in (*found.values(), checkpoints.path_of(history, "old-1"), begun):
        made_old(path, 25)
    would = History(history).vacuum(0, dry_run=True)["checkpoints"]
    assert would == [".tmp-abc", "old-1.checkpoint"]
    assert begun.exists(), "a dry run changes nothing"
    assert "checkpoints" not in History(history).vacuum(26), "it keeps longer if told so"
    assert History(history).vacuum(0)["checkpoints"] == would
    assert not begun.exists()
    assert not checkpoints.path_of(history, "old-1").exists()
    assert checkpoints.path_of(history, "new-1").exists(), "its snapshot may be about to be listed"
    assert all(path.exists() for path in found.values())


@pytest.mark.contract
def test_rows_that_stay_are_no_news_to_who_follows_the_log(history: Path) -> None:
    """Who reads what commits add, and nothing that they only move, sees each row once."""
    History(history).compact()
    History(history).retain(keep_every=timedelta(hours=3))
    added = 0
    for log in sorted((history / "machines" / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        added += sum(json.loads(a["add"]["stats"])["numRecords"] for a in actions if a.get("add", {}).get("dataChange"))
    assert added == 12 * 3


def test_a_writer_may_go_on_and_a_reader_sees_each_snapshot_whole_or_not_at_all(
    history: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader, commit = History(history), HistoryWriter._commit
    with HistoryWriter(history) as writer:
        writer.add(full_snapshot())

        def retaining(self: HistoryWriter, name: str, rows: Any) -> None:
            commit(self, name, rows)
            if name == "machines":
                History(history).retain(keep_every=timedelta(hours=3))

        monkeypatch.setattr(HistoryWriter, "_commit", retaining)
    assert {problem for _, problems in reader.verify() for problem in problems} == set()
    assert reader.load("full-1").machine_count == 2


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30m", 1_800), ("1.5h", 5_400), ("30d", 2_592_000), ("2w", 1_209_600)]
)
def test_durations_are_written_with_their_unit(text: str, seconds: float) -> None:
    assert duration(text, "--keep").total_seconds() == seconds


@pytest.mark.parametrize("text", ["", "30", "d", "-1d", "0h", "1y", "1e3d", "9" * 30 + "d"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(SettingError, match=r"--keep .* is no duration: write a number"):
        duration(text, "--keep")


@pytest.mark.contract
def test_the_command_line_removes_what_is_old_and_says_so(history: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def run(*arguments: str) -> list[str]:
        assert cli.main(arguments) == 0
        return capsys.readouterr().out.splitlines()

    said = run("vacuum", str(history), "--keep-every", "3h", "--dry-run")
    assert said[0].startswith("9 snapshots would be removed: bank-03600 to bank-")
    assert said[0].endswith("; rows: 9 of snapshots, 9 of verdicts, 27 of machines, 27 of channels, 27 of messages")
    assert len(History(history).snapshots()) == 12
    assert run("compact", str(history), "--keep-every", "3h", "--dry-run") == said[:1]
    found = json.loads(run("compact", str(history), "--keep-every", "3h", "--json")[0])
    assert (found["snapshots_removed"], found["rows_removed"]["machines"]) == (9, 27)
    assert len(History(history).snapshots()) == 3
    assert run("vacuum", str(history), "--keep", "1d")[0].startswith("3 snapshots removed")
    assert History(history).snapshots() == []
    assert cli.main(["vacuum", str(history), "--keep", "soon"]) == 2
    assert "--keep 'soon' is no duration" in capsys.readouterr().err
