"""What is not asked for is not read: files skipped by the log, groups of rows by their statistics; counted, not timed."""

import shutil
from collections.abc import Iterator
from datetime import timedelta
from itertools import chain, groupby, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from histories import START, snapshot
from hypothesis import given
from hypothesis import strategies as st
from limited import limit

from ray_snapshot import Snapshot
from ray_snapshot.history import History, HistoryWriter, bounds, compaction, files, tables
from ray_snapshot.history.files import group_lengths
from ray_snapshot.history.verification import row_batches
from ray_snapshot.schema import MACHINES

SNAPSHOTS, MACHINES_EACH = 40, 300


def large(number: int) -> Snapshot:
    names = [f"m{index:04d}" for index in range(MACHINES_EACH)]
    rows = snapshot(number + 1, machines=1)
    columns = {
        name: pa.array([value] * MACHINES_EACH, MACHINES.field(name).type)
        for name, value in rows.tables["machines"].to_pylist()[0].items()
    }
    machines = pa.table({**columns, "machine": names}, schema=MACHINES)
    meta = rows.tables["snapshots"]
    counts = {"machine_count": MACHINES_EACH, "channel_count": 0, "in_flight_count": 0}
    for name, count in counts.items():
        meta = meta.set_column(meta.schema.get_field_index(name), name, pa.array([count], pa.int64()))
    return Snapshot({"snapshots": meta, "machines": machines})


def make_groups_small(patch: pytest.MonkeyPatch) -> None:
    """As with ten million rows, in proportion."""
    limit(patch, group_rows=32)
    limit(patch, tile_rows=256)


@pytest.fixture
def small_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    make_groups_small(monkeypatch)


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Forty snapshots, made once; each test has a copy of its own."""
    folder = tmp_path_factory.mktemp("written") / "h"
    with pytest.MonkeyPatch.context() as patch, HistoryWriter(folder) as writer:
        make_groups_small(patch)
        for number in range(SNAPSHOTS):
            writer.add(large(number))
            if number % 10 == 9:
                writer.flush()
    return folder


@pytest.fixture
def history(small_groups: None, written: Path, tmp_path: Path) -> History:
    return History(shutil.copytree(written, tmp_path / "h"))


def read(history: History, **wanted: Any) -> tuple[int, int, int, int]:
    """How many of all groups, and of all their bytes, a reader has to read: (groups, of, bytes, of)."""
    found = tables.data_files(history.path, "machines", tables.open_table(history.path, "machines"), **wanted)
    keys = {"snapshot_ids": None, "machine": None, **wanted}
    condition = tables._wanted(keys["snapshot_ids"], {"machine": keys["machine"]})
    allowance = bounds.Allowance(sum(tables.check_file(file) for file in found))
    chosen = [
        group
        for piece in tables.dataset("machines", found, allowance, condition, ["machine"]).get_fragments(condition)
        for group in groups(piece, condition)
    ]
    everything = [group for file in history.files("machines") for group in all_groups(file)]
    return len(chosen), len(everything), sum(chosen), sum(everything)


def groups(fragment: Any, condition: Any) -> Iterator[int]:
    """The bytes of each group of a file that its statistics do not rule out."""
    for part in fragment.split_by_row_group(condition):
        for group in part.row_groups:
            yield group.total_byte_size


def all_groups(file: str) -> Iterator[int]:
    about = pq.read_metadata(file)
    return (about.row_group(number).total_byte_size for number in range(about.num_row_groups))


@pytest.mark.parametrize("is_compact", [False, True])
def test_reading_one_snapshot_skips_most_groups(history: History, is_compact: bool) -> None:
    if is_compact:
        history.compact()
    chosen, of, size, whole = read(history, snapshot_ids=["bank-00017"])
    assert of >= SNAPSHOTS * MACHINES_EACH // 32
    assert chosen <= of // 4
    assert size <= whole // 4
    assert history.load("bank-00017").machine_count == MACHINES_EACH


def test_reading_one_machine_over_time_skips_most_groups_of_a_compact_history(history: History) -> None:
    before = read(history, machine="m0123")
    assert before[0] <= before[1] // 2, "groups begin anew with each snapshot"
    history.compact()
    chosen, of, size, whole = read(history, machine="m0123")
    assert chosen <= of // 6
    assert size <= whole // 6
    rows = history.machines(machine="m0123")
    assert [row.snapshot_id for row in rows] == [f"bank-{number + 1:05d}" for number in range(SNAPSHOTS)]
    assert {row.machine for row in rows} == {"m0123"}


def test_tiles_have_a_range_of_machines_each(history: History) -> None:
    ids = [row.snapshot_id for row in history.snapshots()]
    before = {one.snapshot_id: one.tables["machines"] for one in history.load_many(ids)}
    history.compact()
    ranges = []
    for file in history.files("machines"):
        machines = pq.read_table(file, partitioning=None, columns=["machine"])["machine"].to_pylist()
        ranges.append((min(machines), max(machines)))
    ranges.sort()
    assert len(ranges) == 38, "about twice the square root of the groups"
    assert all(high < low for (_, high), (low, _) in pairwise(ranges))
    assert len(before) == SNAPSHOTS
    assert {one.snapshot_id: one.tables["machines"] for one in history.load_many(ids)} == before
    assert history.compact()["machines"] == {"files_added": 0, "files_removed": 0}


@pytest.mark.nightly
def test_what_comes_after_a_compaction_is_compacted_with_it(history: History) -> None:
    history.compact()
    with HistoryWriter(history.path) as writer:
        writer.add(large(SNAPSHOTS))
    assert history.compact()["machines"]["files_removed"] == 39
    assert read(history, machine="m0123")[0] <= read(history, machine="m0123")[1] // 6
    assert [problems for _, problems in history.verify()] == [[]] * (SNAPSHOTS + 1)


def test_a_finished_block_is_left_alone(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    history.compact()
    limit(monkeypatch, full_block_rows=SNAPSHOTS * MACHINES_EACH)
    with HistoryWriter(history.path) as writer:
        for number in range(2):
            writer.add(large(SNAPSHOTS + number))
            writer.flush()
    assert history.compact()["machines"]["files_removed"] == 2


def test_a_compaction_takes_a_bounded_number_of_rows_at_a_time(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    largest = []
    spread = compaction._spread

    def watched(rows: pa.Table, *rest: Any) -> None:
        largest.append(rows.num_rows)
        spread(rows, *rest)

    monkeypatch.setattr(compaction, "_spread", watched)
    limit(monkeypatch, chunk_rows=1_000)
    history.compact()
    assert max(largest) <= 1_000
    assert [problems for _, problems in history.verify()] == [[]] * SNAPSHOTS


def test_rows_are_sorted_and_every_column_that_is_compared_has_statistics_and_a_page_index(history: History) -> None:
    for is_compact in (False, True):
        if is_compact:
            history.compact()
        for file in history.files("machines"):
            rows = pq.read_table(file, partitioning=None, columns=["snapshot_id", "machine"]).to_pylist()
            assert rows == sorted(rows, key=lambda row: (row["snapshot_id"], row["machine"]))
            about = pq.read_metadata(file)
            columns = [
                about.row_group(number).column(at)
                for number in range(about.num_row_groups)
                for at in range(about.num_columns)
            ]
            for column in columns:
                is_text = column.path_in_schema == "state" or "." in column.path_in_schema
                assert column.compression == "ZSTD"
                assert column.has_offset_index
                assert column.is_stats_set is not is_text
                assert column.has_column_index is not is_text, column.path_in_schema


@pytest.mark.parametrize(
    ("runs", "lengths"),
    [
        ([], []),
        ([3, 3, 3], [9]),
        ([6, 6], [6, 6]),
        ([20], [10, 10]),
        ([25], [8, 8, 9]),
        ([4, 25, 4, 4], [4, 8, 8, 9, 8]),
        ([10, 1], [10, 1]),
    ],
)
def test_groups_begin_with_large_snapshots_and_gather_small_ones(runs: list[int], lengths: list[int]) -> None:
    assert list(group_lengths(runs, 10)) == lengths


@given(st.lists(st.lists(st.integers(0, 3), max_size=4), max_size=5))
def test_rows_in_pieces_make_the_groups_of_rows_in_one(pieces: list[list[int]]) -> None:
    """A commit has a piece a snapshot, or several."""
    schema, high = pa.schema([("snapshot_id", pa.string()), ("at", pa.int64())]), 0
    parts = []
    for piece in pieces:
        steps = [high := high + (step == 0) for step in piece]
        parts.append(pa.table([[f"s{step:03}" for step in steps], list(range(len(steps)))], schema=schema))
    rows = pa.concat_tables(parts) if parts else schema.empty_table()
    whole = rows.combine_chunks()
    lengths = [len(list(same)) for _, same in groupby(whole["snapshot_id"].to_pylist())]
    assert files.runs_of(rows) == files.runs_of(whole) == lengths
    with pytest.MonkeyPatch.context() as patch:
        limit(patch, group_rows=4)
        groups = [*files.row_groups(rows)]
        assert all(group.column(0).num_chunks == 1 for group in groups)
        assert [one.to_pylist() for one in groups] == [one.to_pylist() for one in files.row_groups(whole)]


def test_large_rows_make_small_groups() -> None:
    rows = pa.table({"snapshot_id": ["s"] * 40, "state": ["x" * 8_000_000] * 40})
    assert [group.num_rows for group in files.row_groups(rows)] == [8] * 5


def test_ids_are_in_the_order_of_time() -> None:
    from ray_snapshot.runtime.collected import SnapshotHeader

    moments = [START + timedelta(microseconds=int(us)) for us in np.geomspace(1, 10**14, 50)]
    ids = [
        SnapshotHeader(1, "bank", "0123456789", "observer", [], moment.timestamp()).snapshot_id for moment in moments
    ]
    assert ids == sorted(ids)


@given(st.lists(st.integers(0, 50), max_size=60), st.integers(1, 100))
def test_each_is_read_once_in_order_and_no_more_rows_than_may_be(rows: list[int], most: int) -> None:
    sizes = {f"s-{place}": count for place, count in enumerate(rows)}
    found = list(row_batches(sizes, most))
    assert [*chain.from_iterable(found)] == [*sizes]
    assert all(len(batch) == 1 or sum(sizes[one] for one in batch) <= most for batch in found)


def test_none_of_them_is_left_over() -> None:
    sizes = {f"s-{place}": 24_500 for place in range(256)}
    assert [len(batch) for batch in row_batches(sizes, 3_000_000)] == [86, 86, 84]


def test_snapshots_without_rows_are_read_together() -> None:
    assert len(list(row_batches({f"s-{place}": 0 for place in range(400)}))) == 1
