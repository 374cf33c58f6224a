"""`format("ray_snapshot")`: what exists and nothing else, as of a version."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from limited import limit
from small_histories import BANK, BEGIN, live, snapshot, write

from ray_snapshot import Snapshot
from ray_snapshot.errors import HistoryFormatError, SettingError
from ray_snapshot.history import History, HistoryWriter, commits, tables
from ray_snapshot.schema import TABLES
from ray_snapshot.spark_jobs import source
from ray_snapshot.spark_jobs.source import HistoryReader, options_of

pytestmark = pytest.mark.spark

ROOT = Path(__file__).parents[2]


def bank(run: str, sequence: int) -> Snapshot:
    machines = [
        {"machine": f"m{index}", "state": {"balance": 100}, "recorded_at": BEGIN + timedelta(seconds=sequence)}
        for index in range(3)
    ]
    channels = [{"source": "m0", "target": "m1", "sent_count": sequence, "accepted_count": sequence}]
    return snapshot(run, sequence, machines=machines, channels=channels)


def add(history: History, run: str, *sequences: int) -> None:
    with HistoryWriter(history.path) as writer:
        for sequence in sequences:
            writer.add(bank(run, sequence))


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """Five snapshots in two partitions, and rows of machines that no snapshot lists."""
    taken = [bank("bank-1", sequence) for sequence in range(5)]
    found = write(tmp_path_factory.mktemp("source") / "history", taken, live(taken, BANK))
    rows = found.table("machines", "bank-1-0003")
    lost = rows.set_column(rows.schema.get_field_index("snapshot_id"), "snapshot_id", pa.array(["bank-1-0003x"] * 3))
    commits.append(found.path, "machines", tables.open_table(found.path, "machines"), lost, "0" * 12)
    return found


def read(spark: Any, history: History, **options: str) -> pa.Table:
    return spark.read.format("ray_snapshot").options(**options).load(str(history.path)).toArrow()


@pytest.mark.by_day(2)
@pytest.mark.parametrize("table", TABLES)
def test_a_read_gives_the_rows_of_what_exists(spark: Any, history: History, table: str) -> None:
    found = read(spark, history, table=table)
    expected = history.table(table)
    assert found.column_names == expected.column_names
    keys = [(key, "ascending") for key in tables.ORDER[table]]
    assert found.sort_by(keys).to_pylist() == expected.sort_by(keys).to_pylist()


def test_the_snapshots_are_read_if_no_table_is_named_and_columns_can_be_chosen(spark: Any, history: History) -> None:
    found = read(spark, history, columns="sequence, snapshot_id")
    assert found.sort_by("sequence").to_pylist() == [
        {"sequence": sequence, "snapshot_id": f"bank-1-000{sequence}"} for sequence in range(5)
    ]


def test_large_files_are_split_and_small_ones_put_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, history: History
) -> None:
    limit(monkeypatch, group_rows=2)
    found = write(tmp_path / "history", [bank("bank-1", sequence) for sequence in range(2)])
    reader = HistoryReader(options_of({"path": str(found.path), "table": "machines"}))
    assert len(reader.partitions()) == 1
    monkeypatch.setattr(source, "BYTES_PER_TASK", 2_000)
    split = reader.partitions()
    parts = [
        [(row["snapshot_id"], row["machine"]) for batch in reader.read(task) for row in batch.to_pylist()]
        for task in split
    ]
    assert len([part for part in parts if part]) > 1
    assert sorted(key for part in parts for key in part) == [
        (f"bank-1-000{sequence}", f"m{index}") for sequence in range(2) for index in range(3)
    ]


def test_a_file_that_a_vacuum_took_away_is_named(tmp_path: Path) -> None:
    history = write(tmp_path / "history", [bank("bank-1", 0)])
    add(history, "bank-1", 1)
    reader = HistoryReader(options_of({"path": str(history.path), "table": "machines"}))
    tasks = reader.partitions()
    history.compact()
    history.vacuum(retention_hours=0)
    with pytest.raises(HistoryFormatError, match=r"\.parquet is gone: a vacuum .*read again"):
        [batch for task in tasks for batch in reader.read(task)]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, "needs the folder of a history"),
        ({"path": "x", "tabel": "machines"}, "no option 'tabel'; it has path, table"),
        ({"path": "x", "table": "machine"}, "option table: a history has no table 'machine'; it has snapshots"),
        ({"path": "x", "columns": "sequence,statu"}, "option columns: snapshots has no column 'statu'"),
    ],
)
def test_a_wrong_option_is_named(options: dict[str, str], told: str) -> None:
    with pytest.raises(SettingError, match=told):
        options_of(options)
