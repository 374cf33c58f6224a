"""Histories that are missing, damaged, foreign or newer: one clear error, naming the path and the table."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from histories import snapshot, verdict, write

from ray_snapshot.detectors import Termination
from ray_snapshot.errors import HistoryFormatError, HistoryNotFoundError, HistoryWriteError, InconsistentCutError
from ray_snapshot.history import History, HistoryWriter

pytestmark = pytest.mark.contract


def edit_log(path: Path, table: str, version: int, change: Callable[[dict[str, Any]], None]) -> None:
    log = path / table / "_delta_log" / f"{version:020d}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for action in actions:
        change(action)
    log.write_text("\n".join(map(json.dumps, actions)))


def test_a_missing_history_says_where_it_was_looked_for(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    (tmp_path / "empty").mkdir()
    for name, reason in (("nowhere", "no such folder"), ("file", "is a file"), ("empty", "holds no history")):
        with pytest.raises(HistoryNotFoundError, match=reason) as caught:
            History(tmp_path / name)
        assert caught.value.path == tmp_path / name
        assert isinstance(caught.value, FileNotFoundError)


def test_an_unknown_snapshot_is_named_with_what_there_is(tmp_path: Path) -> None:
    write(tmp_path, snapshot(1))
    for question in (History(tmp_path).load, History(tmp_path).machines, History(tmp_path).resolve):
        with pytest.raises(HistoryNotFoundError, match=r"'nope'.*latest is bank-00001"):
            question("nope")
    with pytest.raises(HistoryNotFoundError, match="no table 'nope'"):
        History(tmp_path).files("nope")


def test_a_folder_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file", tmp_path / "file" / "history", Path("/proc/history")):
        with pytest.raises(HistoryWriteError, match="cannot be written") as caught:
            HistoryWriter(path)
        assert caught.value.path == path


@pytest.mark.parametrize("name", ["a[1]", "a|b", "a^b", "50%20x"])
def test_a_folder_name_that_delta_cannot_have_is_refused_before_anything_runs(tmp_path: Path, name: str) -> None:
    with pytest.raises(HistoryWriteError, match="Delta tables cannot"):
        HistoryWriter(tmp_path / name)
    with pytest.raises(HistoryNotFoundError, match="Delta tables cannot"):
        History(tmp_path / name)


def test_a_newer_format_is_refused_by_readers_and_writers(tmp_path: Path) -> None:
    write(tmp_path, snapshot(1))

    def newer(action: dict[str, Any]) -> None:
        if "metaData" in action:
            action["metaData"]["description"] = "ray-snapshot history, format 2"

    edit_log(tmp_path, "snapshots", 0, newer)
    for work in (History, HistoryWriter):
        with pytest.raises(HistoryFormatError, match=r"table snapshots is of format 2, newer .*upgrade") as caught:
            work(tmp_path)
        assert (caught.value.path, caught.value.table) == (tmp_path, "snapshots")


def test_a_feature_that_would_be_misread_is_refused(tmp_path: Path) -> None:
    write(tmp_path, snapshot(1))

    def deletion_vectors(action: dict[str, Any]) -> None:
        if "protocol" in action:
            features = ["deletionVectors"]
            action["protocol"] = {"minReaderVersion": 3, "minWriterVersion": 7}
            action["protocol"] |= {"readerFeatures": features, "writerFeatures": features}

    edit_log(tmp_path, "machines", 0, deletion_vectors)
    with pytest.raises(HistoryFormatError, match="machines uses deletionVectors"):
        History(tmp_path).load("bank-00001")


def test_foreign_folders_and_tables_are_refused_by_readers_and_writers(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "delta" / "machines"), pa.table({"a": [1]}))
    write_deltalake(str(tmp_path / "delta" / "snapshots"), pa.table({"a": [1]}))
    with pytest.raises(HistoryFormatError, match="table machines is a Delta table, but none of"):
        HistoryWriter(tmp_path / "delta")
    with pytest.raises(HistoryFormatError, match="table channels is missing"):
        History(tmp_path / "delta")
    (tmp_path / "plain" / "machines").mkdir(parents=True)
    (tmp_path / "plain" / "machines" / "work.txt").write_text("somebody's")
    with pytest.raises(HistoryFormatError, match="is no Delta table: name another folder"):
        HistoryWriter(tmp_path / "plain")
    assert (tmp_path / "plain" / "machines" / "work.txt").read_text() == "somebody's"


@pytest.mark.parametrize("table", ["snapshots", "machines", "verdicts"])
def test_a_table_that_is_gone_is_named(tmp_path: Path, table: str) -> None:
    write(tmp_path, snapshot(1))
    shutil.rmtree(tmp_path / table)
    with pytest.raises(HistoryFormatError, match=f"table {table} is missing"):
        History(tmp_path)


@pytest.mark.parametrize("damage", ["", "{", "not json", "[]\n", '{"metaData": 5}\n'])
def test_a_damaged_log_is_named(tmp_path: Path, damage: str) -> None:
    write(tmp_path, snapshot(1))
    (tmp_path / "machines" / "_delta_log" / f"{0:020d}.json").write_text(damage)
    with pytest.raises(HistoryFormatError, match="table machines"):
        History(tmp_path).load("bank-00001")


@pytest.mark.parametrize("damage", [b"", b"PAR1", b"garbage" * 100])
def test_a_damaged_file_is_named_and_harms_no_other_snapshot(tmp_path: Path, damage: bytes) -> None:
    write(tmp_path, snapshot(1), snapshot(2), snapshot(3))
    for file in History(tmp_path).files("machines"):
        if pq.read_table(file, partitioning=None)["snapshot_id"][0].as_py() == "bank-00002":
            Path(file).write_bytes(damage)
    with pytest.raises(HistoryFormatError, match="table machines cannot be read"):
        History(tmp_path).load("bank-00002")
    found = dict(History(tmp_path).verify())
    assert {name: bool(problems) for name, problems in found.items()} == {
        "bank-00001": False,
        "bank-00002": True,
        "bank-00003": False,
    }


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    write(tmp_path, snapshot(1))
    (file,) = History(tmp_path).files("channels")
    Path(file).unlink()
    with pytest.raises(HistoryFormatError, match="table channels cannot be read"):
        History(tmp_path).load("bank-00001")


# What `verify` finds


def tamper(path: Path, table: str, changes: dict[str, str], where: str = "snapshot_id = 'bank-00002'") -> None:
    DeltaTable(str(path / table)).update(changes, predicate=where)


@pytest.mark.parametrize(
    ("table", "changes", "problem"),
    [
        ("channels", {"accepted_count": "accepted_count + 1"}, "add up"),
        ("channels", {"sent_count": "sent_count - 1", "accepted_count": "5"}, "accepted 5 messages though"),
        ("channels", {"source": "'m9'"}, "no row in channels"),
        ("messages", {"number": "7"}, "records numbers 7 to 7"),
        ("messages", {"args": "'[NaN]'"}, "args in row 0 of messages is no strict JSON"),
        ("machines", {"machine": "'m0'"}, "a machine is recorded twice"),
        ("machines", {"state": """'{"a":1,"a":2}'"""}, "state in row 0 of machines is no strict JSON"),
        ("snapshots", {"machine_count": "4"}, "table machines has 3 rows of it, but machine_count is 4"),
        ("snapshots", {"in_flight_count": "0"}, "table messages has 3 rows of it, but in_flight_count is 0"),
        ("snapshots", {"consistent": "false"}, "recorded as not consistent"),
        ("snapshots", {"coverage": "'{'"}, "cannot be read"),
    ],
)
def test_verify_finds_a_row_that_was_tampered_with(
    tmp_path: Path, table: str, changes: dict[str, str], problem: str
) -> None:
    write(tmp_path, snapshot(1), snapshot(2))
    tamper(tmp_path, table, changes)
    found = dict(History(tmp_path).verify())
    assert found["bank-00001"] == []
    assert problem in "; ".join(found["bank-00002"])


def test_verify_finds_rows_that_are_missing_or_doubled(tmp_path: Path) -> None:
    write(tmp_path, snapshot(1), snapshot(2))
    history = History(tmp_path)
    write_deltalake(str(tmp_path / "machines"), history.table("machines", "bank-00001").slice(0, 1), mode="append")
    DeltaTable(str(tmp_path / "channels")).delete("snapshot_id = 'bank-00002' and source = 'm1'")
    found = dict(history.verify())
    assert "machines has 4 rows of it, but machine_count is 3" in found["bank-00001"][0]
    assert "channels has 2 rows of it, but channel_count is 3" in found["bank-00002"][0]
    with pytest.raises(HistoryFormatError, match="bank-00001 is damaged: table machines"):
        history.load("bank-00001")


def test_verify_finds_a_snapshot_that_is_listed_twice(tmp_path: Path) -> None:
    write(tmp_path, snapshot(1), snapshot(2))
    history = History(tmp_path)
    write_deltalake(str(tmp_path / "snapshots"), history.table("snapshots", "bank-00001"), mode="append")
    assert dict(history.verify()) == {"bank-00002": [], "bank-00001": ["the table snapshots lists it 2 times"]}
    with pytest.raises(HistoryFormatError, match="lists it twice"):
        history.load("bank-00001")


def test_what_at_least_once_repeats_by_design_passes(tmp_path: Path) -> None:
    write(tmp_path, snapshot(2, protocol="at-least-once-barrier", consistent=False))
    tamper(tmp_path, "channels", {"accepted_count": "accepted_count + 2", "duplicate_count": "2"})
    history = History(tmp_path)
    assert dict(history.verify()) == {"bank-00002": []}
    loaded = history.load("bank-00002")
    assert (loaded.repeats_by_design, loaded.faults()) == (6, [])
    with pytest.raises(
        InconsistentCutError, match=r"at-least-once-barrier: by design\): .*accepted 2 messages that were"
    ):
        loaded.verify()
    verdict = Termination().evaluate(loaded)
    assert verdict.holds is None
    assert "by design: 6 messages from outside it are in it (at-least-once-barrier)" in verdict.sentence


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"accepted_count": "accepted_count + 1", "duplicate_count": "2"}, "add up"),
        ({"accepted_count": "accepted_count + 4", "duplicate_count": "2"}, "accepted 4 messages though only 1"),
        ({}, "recorded as not consistent"),
    ],
)
def test_at_least_once_covers_nothing_but_its_own_repetitions(
    tmp_path: Path, changes: dict[str, str], problem: str
) -> None:
    write(tmp_path, snapshot(2, protocol="at-least-once-barrier", consistent=False))
    if changes:
        tamper(tmp_path, "channels", changes)
    assert problem in dict(History(tmp_path).verify())["bank-00002"][0]


def test_a_verdict_without_its_snapshot_is_never_returned(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path) as writer:
        writer.add(snapshot(1))
        writer.add(snapshot(2))
        writer.add_verdicts([verdict("bank-00001"), verdict("bank-00002")])
    DeltaTable(str(tmp_path / "snapshots")).delete("snapshot_id = 'bank-00001'")
    history = History(tmp_path)
    assert [row.snapshot_id for row in history.verdicts()] == ["bank-00002"]
    assert {row.snapshot_id for row in history.machines()} == {"bank-00002"}
    with pytest.raises(HistoryNotFoundError):
        history.verdicts(snapshot_id="bank-00001")
