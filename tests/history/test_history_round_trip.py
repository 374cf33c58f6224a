"""What goes into a history comes out of it, and nothing else; as tables of others, too."""

import pickle
import shutil
import threading
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from histories import START, acted, full_snapshot, snapshot, verdict, write
from incidents import deadlocked, incident, judged

import ray_snapshot as rs
from ray_snapshot import Snapshot, columns
from ray_snapshot.errors import HistoryNotFoundError, SettingError
from ray_snapshot.history import History, HistoryWriter
from ray_snapshot.history.tables import ORDER, in_order, stored_schema
from ray_snapshot.schema import TABLES


def assert_same(found: Snapshot, expected: Snapshot) -> None:
    for name, given in expected.tables.items():
        table = in_order(given, ORDER[name])
        assert found.tables[name].equals(table), f"{name}: {found.tables[name].to_pylist()} {table.to_pylist()}"


def test_every_column_of_every_table_comes_back(tmp_path: Path) -> None:
    expected = full_snapshot()
    write(tmp_path, expected)
    assert_same(rs.History(tmp_path).load("full-1"), expected)


def test_columns_of_one_value_that_are_in_pieces_come_back_in_every_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = snapshot(1, machines=10)
    monkeypatch.setattr(columns, "PIECE_ROWS", 3)
    inside = {name: table.drop_columns(["snapshot_id", "run_id"]) for name, table in given.tables.items()}
    tables = {name: columns.labelled(table, given.snapshot_id, given.run_id) for name, table in inside.items()}
    tables["snapshots"] = given.tables["snapshots"]
    assert tables["machines"]["snapshot_id"].num_chunks == 4
    found = Snapshot(tables)
    assert found.problems() == given.problems()
    write(tmp_path, found)
    assert_same(rs.History(tmp_path).load(given.snapshot_id), given)


def test_every_field_of_a_verdict_comes_back_with_the_run_of_its_snapshot(tmp_path: Path) -> None:
    given = verdict("full-1", evaluator="spark", duration_ms=2.5)
    with HistoryWriter(tmp_path) as writer:
        writer.add(full_snapshot())
        writer.add_verdicts([given])
    (row,) = History(tmp_path).verdicts()
    assert {name: row[name] for name in TABLES["verdicts"].names} == {**given.model_dump(), "run_id": "run-1"}
    assert row.system == "a.b-c_9"
    assert row.date == date(2026, 3, 1)
    assert row.evidence == {"members": [{"machine": "a"}]}


@pytest.mark.contract
def test_rows_are_dictionaries_with_attributes_beside_their_arrow_table(tmp_path: Path) -> None:
    write(tmp_path, snapshot(1), snapshot(2))
    rows = History(tmp_path).snapshots()
    assert [row["snapshot_id"] for row in rows] == [row.snapshot_id for row in rows] == ["bank-00001", "bank-00002"]
    assert rows.table["snapshot_id"].to_pylist() == ["bank-00001", "bank-00002"]
    assert rows[0].coverage == {"uncovered": []}
    with pytest.raises(AttributeError, match="balance"):
        _ = rows[0].balance


def test_many_snapshots_go_into_one_commit_and_come_out_one_by_one(tmp_path: Path) -> None:
    given = [snapshot(number, machines=number % 4) for number in range(50)]
    with HistoryWriter(tmp_path) as writer:
        for item in reversed(given):
            writer.add(item)
    history = History(tmp_path)
    assert history.version("machines") == 1
    assert [row.snapshot_id for row in history.snapshots()] == [item.snapshot_id for item in given]
    wanted = [item.snapshot_id for item in given][::-7]
    for found, expected in zip(history.load_many(wanted), given[::-7], strict=True):
        assert_same(found, expected)


@pytest.mark.contract
def test_the_date_of_every_row_is_the_utc_day_its_snapshot_started(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path) as writer:
        writer.add(snapshot(0))
        writer.add(snapshot(1))  # a second later: the next day
        writer.add_verdicts([verdict("bank-00000"), verdict("bank-00001")])
    history = History(tmp_path)
    for name in ("snapshots", "machines", "channels", "messages", "verdicts"):
        rows = history.table(name).select(["snapshot_id", "system", "date"]).to_pylist()
        days = {row["snapshot_id"]: row["date"] for row in rows}
        assert days == {"bank-00000": date(2026, 3, 1), "bank-00001": date(2026, 3, 2)}
        assert {row["system"] for row in rows} == {"bank"}
    assert START.date() == date(2026, 3, 1)


@pytest.mark.contract
@pytest.mark.parametrize("system", ["bank", "a.b-c_9", "..", "-", "_x", "nan", "null", "true", "e5"])
def test_a_partition_keeps_the_name_of_its_system_whatever_it_looks_like(tmp_path: Path, system: str) -> None:
    write(tmp_path, snapshot(1, system=system), snapshot(1, system="other"))
    history = History(tmp_path)
    assert [row.system for row in history.snapshots(system)] == [system]
    assert history.load(f"{system}-00001").system == system
    assert {row.system for row in history.machines(f"{system}-00001")} == {system}


@pytest.mark.parametrize("folder", ["a b", "é", "x#y", "x?y", "100%", "日本"])
def test_a_history_may_lie_in_a_folder_of_any_name(tmp_path: Path, folder: str) -> None:
    write(tmp_path / folder / "history", snapshot(1))
    history = History(tmp_path / folder / "history")
    assert history.load("bank-00001").machine_count == 3
    assert all(Path(file).is_file() for name in TABLES for file in history.files(name))
    history.compact()
    history.vacuum(0)
    assert [problems for _, problems in history.verify()] == [[]]


def test_every_table_exists_from_the_first_moment(tmp_path: Path) -> None:
    HistoryWriter(tmp_path)
    history = History(tmp_path)
    for name, schema in TABLES.items():
        found = history.table(name)
        assert found.num_rows == 0
        assert [found.schema.field(field.name) for field in schema] == list(schema)
        assert DeltaTable(str(tmp_path / name)).metadata().partition_columns == ["system", "date"]
    assert history.snapshots() == []
    assert list(history.verify()) == []
    with pytest.raises(HistoryNotFoundError, match="none yet"):
        history.resolve("latest")


@pytest.mark.contract
def test_the_files_are_those_of_the_log_and_a_plain_reader_counts_each_row_once(tmp_path: Path) -> None:
    write(tmp_path, *(snapshot(number) for number in range(4)))
    history = History(tmp_path)
    history.compact()
    folder = tmp_path / "machines"
    on_disk = {str(file) for file in folder.rglob("*.parquet")}
    files = history.files("machines")
    assert set(files) < on_disk, "the files that compaction replaced stay until vacuum, and are not listed"
    partitions = ds.partitioning(pa.schema([("system", pa.string()), ("date", pa.date32())]), flavor="hive")
    plain = ds.dataset(files, partitioning=partitions, partition_base_dir=str(folder)).to_table()
    assert plain.num_rows == history.table("machines").num_rows == 12
    assert set(plain["system"].to_pylist()) == {"bank"}


@pytest.mark.contract
def test_reading_one_snapshot_opens_only_the_files_that_may_hold_it(tmp_path: Path) -> None:
    write(tmp_path, *(snapshot(number) for number in range(5)))
    history = History(tmp_path)
    for file in history.files("machines"):
        ids = set(ds.dataset(file).to_table(columns=["snapshot_id"])["snapshot_id"].to_pylist())
        if ids != {"bank-00003"}:
            Path(file).unlink()  # would be missed if it were opened
    assert history.load("bank-00003").machine_count == 3


@pytest.mark.contract
def test_of_several_verdicts_of_one_key_the_latest_counts(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path) as writer:
        writer.add(snapshot(1))
        writer.add_verdicts([verdict("bank-00001", holds=False), verdict("bank-00001", holds=None)])
        writer.flush()
        writer.add_verdicts([verdict("bank-00001", evaluator="spark"), verdict("bank-00001", "termination")])
    with HistoryWriter(tmp_path) as writer:  # a later writer, which does not have the snapshot in memory
        writer.add_verdicts([verdict("bank-00001", holds=True)])
    history = History(tmp_path)
    found = [(row.detector, row.evaluator, row.holds) for row in history.verdicts()]
    assert found == [("deadlock", "live", True), ("deadlock", "spark", True), ("termination", "live", True)]
    assert [row.detector for row in history.verdicts("termination")] == ["termination"]
    assert len(history.verdicts(evaluator="spark")) == 1
    assert history.verdicts(snapshot_id="bank-00001") == history.verdicts()


@pytest.mark.contract
def test_a_verdict_on_an_unknown_snapshot_is_refused_at_once(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path) as writer, pytest.raises(HistoryNotFoundError, match="nowhere-1"):
        writer.add_verdicts([verdict("nowhere-1")])


@pytest.mark.contract
def test_an_id_that_is_taken_is_refused_in_memory_and_on_disk(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path) as writer:
        writer.add(snapshot(1))
        with pytest.raises(SettingError, match="bank-00001"):
            writer.add(snapshot(1))
    with HistoryWriter(tmp_path) as writer, pytest.raises(SettingError, match="bank-00001"):
        writer.add(snapshot(1))
    assert [problems for _, problems in History(tmp_path).verify()] == [[]]


@pytest.mark.contract
def test_a_writer_for_one_system_refuses_others(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path, system="bank") as writer, pytest.raises(SettingError, match="'ring'"):
        writer.add(snapshot(1, system="ring"))


@pytest.mark.contract
def test_an_aborted_snapshot_is_kept_with_its_reason(tmp_path: Path) -> None:
    aborted = snapshot(1, status="aborted", abort_reason="timeout", abort_machine="m1", machine_count=9)
    write(tmp_path, aborted)
    history = History(tmp_path)
    assert history.load("bank-00001").abort_machine == "m1"
    assert [problems for _, problems in history.verify()] == [[]]


@pytest.mark.contract
@pytest.mark.parametrize("text", ["latest", "-1", "bank-00002"])
def test_a_snapshot_is_found_by_id_and_by_age(tmp_path: Path, text: str) -> None:
    write(tmp_path, snapshot(0), snapshot(1), snapshot(2), snapshot(1, system="ring"))
    history = History(tmp_path)
    assert history.resolve(text, system="bank") == "bank-00002"
    assert history.resolve("ri") == "ring-00001"
    assert history.resolve("-3", system="bank") == "bank-00000"
    for wrong in ("bank-", "-9", "nothing"):
        with pytest.raises(HistoryNotFoundError, match=wrong):
            history.resolve(wrong, system="bank")


@pytest.mark.contract
def test_a_history_can_be_pickled_for_tasks_elsewhere(tmp_path: Path) -> None:
    write(tmp_path, snapshot(1))
    assert pickle.loads(pickle.dumps(History(tmp_path))).load("bank-00001").machine_count == 3


@pytest.mark.contract
def test_threads_may_share_a_writer(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path) as writer:

        def work(system: str) -> None:
            for number in range(5):
                writer.add(snapshot(number, system=system))
                writer.flush()
                writer.add_verdicts([verdict(f"{system}-{number:05d}")])

        threads = [threading.Thread(target=work, args=(f"s{index}",)) for index in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    history = History(tmp_path)
    assert {problem for _, problems in history.verify() for problem in problems} == set()
    assert len(history.snapshots()) == len(history.verdicts()) == 20


def test_a_table_that_lacks_a_newer_column_is_read_and_widened(tmp_path: Path) -> None:
    write(tmp_path, snapshot(1))
    old = stored_schema("verdicts")
    old = old.remove(old.get_field_index("alarm"))
    description = DeltaTable(str(tmp_path / "verdicts")).metadata().description
    shutil.rmtree(tmp_path / "verdicts")
    DeltaTable.create(str(tmp_path / "verdicts"), old, partition_by=["system", "date"], description=description)
    assert History(tmp_path).verdicts() == []
    with HistoryWriter(tmp_path) as writer:
        writer.add_verdicts([verdict("bank-00001")])
    assert [row.alarm for row in History(tmp_path).verdicts()] == [True]


@pytest.mark.contract
def test_no_snapshots_at_all_may_be_asked_for(tmp_path: Path) -> None:
    write(tmp_path, snapshot(1))
    assert list(History(tmp_path).load_many([])) == []


def test_actions_are_read_by_run_in_the_order_of_each_machine(tmp_path: Path) -> None:
    late, early = datetime(2026, 3, 1, 23, 59, tzinfo=UTC), datetime(2026, 3, 2, 0, 1, tzinfo=UTC)
    with HistoryWriter(tmp_path) as writer:
        writer.add_actions(acted("run-1", late, early), system="bank")
        writer.add_actions(acted("run-2", late), system="bank")
    history = History(tmp_path)
    assert [(row.number, row.date) for row in history.actions("run-1")] == [
        (1, date(2026, 3, 1)),
        (2, date(2026, 3, 2)),
    ]
    assert [row.sent for row in history.actions("run-2")] == [[]]
    assert not history.actions("run-3")
    assert history.table("actions").num_rows == 3


def test_a_history_from_before_there_were_traces_is_read_kept_small_and_written_on(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path) as writer:
        writer.add(snapshot(1))
    shutil.rmtree(tmp_path / "actions")
    history = History(tmp_path)
    assert [row.snapshot_id for row in history.snapshots()] == ["bank-00001"]
    assert not history.actions("run-1")
    assert history.files("actions") == []
    assert "actions" not in history.compact()
    assert "actions" not in history.vacuum()
    with HistoryWriter(tmp_path) as writer:
        writer.add_actions(acted("run-1", datetime(2026, 3, 1, tzinfo=UTC)), system="bank")
    assert len(history.actions("run-1")) == 1


@pytest.mark.contract
def test_a_snapshot_gives_its_tables(tmp_path: Path) -> None:
    one = deadlocked(0)
    assert one.to_arrow().num_rows == 3
    assert list(one.to_pandas("messages")["method"]) == ["deposit", "deposit"]
    with pytest.raises(SettingError, match="a snapshot has no table 'mesages'; it has snapshots, machines"):
        one.to_arrow("mesages")


@pytest.mark.contract
def test_rows_of_a_history_become_tables(tmp_path: Path) -> None:
    rows = History(incident(tmp_path / "history")).machines("bank-00005")
    assert rows.to_arrow().num_rows == len(rows.to_pandas()) == 3


def test_a_verdict_is_short_as_text() -> None:
    stuck, _ = judged(deadlocked(0))
    assert repr(stuck).startswith("<Verdict deadlock: holds, an alarm; Deadlock: ")
    assert "member_count" not in repr(stuck)


def test_a_history_is_asked_as_the_command_line_is(tmp_path: Path) -> None:
    history = History(incident(tmp_path / "history"))
    assert history.load("latest").snapshot_id == "bank-00005"
    assert history.load("-2", system="bank").snapshot_id == "bank-00004"
    with pytest.raises(HistoryNotFoundError, match="no snapshot 'bank-9' in the history"):
        history.load("bank-9")
    with pytest.raises(HistoryNotFoundError, match="did you mean deadlock\\? there are: deadlock, termination"):
        history.verdicts("dedlock")
    assert len(history.verdicts("deadlock")) == 6
