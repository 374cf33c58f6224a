"""Several writers, compactions, vacuums and readers at once, each ending right."""

import multiprocessing
from pathlib import Path
from typing import Any

import pytest
from histories import snapshot, verdict, write

from ray_snapshot.history import History, HistoryWriter, commits, tables

SPAWN = multiprocessing.get_context("spawn")


def _write_many(path: str, system: str, count: int, ready: Any) -> None:
    ready.wait()
    with HistoryWriter(path) as writer:
        for number in range(count):
            writer.add(snapshot(number, system=system))
            writer.add_verdicts([verdict(f"{system}-{number:05d}")])
            writer.flush()


def _compact_many(path: str, count: int, ready: Any) -> None:
    ready.wait()
    for _ in range(count):
        History(path).compact()
        History(path).vacuum(0)


def _read_many(path: str, count: int, ready: Any) -> None:
    ready.wait()
    for _ in range(count):
        assert {problem for _, problems in History(path).verify() for problem in problems} == set()


@pytest.mark.contract
def test_processes_write_the_same_history_while_others_compact_it_and_read(tmp_path: Path) -> None:
    write(tmp_path / "old", snapshot(0))
    busy = [(_compact_many, 4), (_compact_many, 4), (_read_many, 4)]
    for path, others in ((tmp_path / "new", []), (tmp_path / "old", busy)):
        ready = SPAWN.Barrier(2 + len(others))
        processes = [SPAWN.Process(target=_write_many, args=(str(path), name, 6, ready)) for name in ("one", "two")]
        processes += [SPAWN.Process(target=work, args=(str(path), count, ready)) for work, count in others]
        for process in processes:
            process.start()
        for process in processes:
            process.join(120)
        assert [process.exitcode for process in processes] == [0] * len(processes)
        history = History(path)
        assert len(history.snapshots("one")) == len(history.snapshots("two")) == 6
        assert {problem for _, problems in history.verify() for problem in problems} == set()
        assert len(history.verdicts()) == 12


def test_of_two_compactions_at_once_one_gives_way_and_no_row_is_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, *(snapshot(number) for number in (1, 2, 3)))
    replace = commits.replace
    disturbed: list[str] = []

    def disturb(path: Path, name: str, *rest: Any, **more: Any) -> bool:
        """Between writing the new file and committing it, somebody else compacts the table."""
        if name == "machines" and not disturbed:
            disturbed.append(name)
            History(tmp_path).compact()
        return replace(path, name, *rest, **more)

    monkeypatch.setattr(commits, "replace", disturb)
    History(tmp_path).compact()
    history = History(tmp_path)
    assert disturbed == ["machines"]
    assert len(history.files("machines")) == 1
    assert [problems for _, problems in history.verify()] == [[]] * 3
    on_disk = {str(file) for file in tmp_path.glob("machines/system=*/**/*.parquet")}
    assert len(on_disk) == 4, "the three that were replaced, and the one of who was faster"


def test_a_reader_that_began_before_a_compaction_and_a_vacuum_ends_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, *(snapshot(number) for number in range(4)))
    history = History(tmp_path)
    scan = tables.scan
    disturbed: list[str] = []

    def disturb(name: str, files: Any, **filters: Any) -> Any:
        """Between choosing the files and reading them, somebody rewrites the table and removes the files."""
        if name == "machines" and not disturbed:
            disturbed.append(name)
            History(tmp_path).compact()
            History(tmp_path).vacuum(0)
        return scan(name, files, **filters)

    monkeypatch.setattr(tables, "scan", disturb)
    assert history.load("bank-00002").machine_count == 3
    assert disturbed == ["machines"]
    assert len(history.machines()) == 12


def test_a_version_opened_before_a_compaction_stays_readable_until_vacuum(tmp_path: Path) -> None:
    write(tmp_path, *(snapshot(number) for number in (1, 2, 3)))
    before = tables.open_table(tmp_path, "machines")
    History(tmp_path).compact()
    files = tables.data_files(tmp_path, "machines", before)
    assert tables.scan("machines", files).num_rows == 9
    assert sum(map(len, History(tmp_path).vacuum(168).values())) == 0, "they have only just left the table"
    dry = History(tmp_path).vacuum(0, dry_run=True)
    assert len(dry["machines"]) == 3
    assert tables.scan("machines", files).num_rows == 9
    assert {name: len(files) for name, files in History(tmp_path).vacuum(0).items()} == {
        name: len(files) for name, files in dry.items()
    }
    assert not any(file.path.exists() for file in files)
    assert History(tmp_path).load("bank-00001").machine_count == 3


@pytest.mark.contract
def test_compaction_leaves_one_file_a_day_and_every_row_in_its_place(tmp_path: Path) -> None:
    write(tmp_path, *(snapshot(number, machines=12) for number in range(6)))
    history = History(tmp_path)
    before = {row.snapshot_id: history.load(row.snapshot_id) for row in history.snapshots()}
    assert len(history.files("machines")) == 6
    assert history.compact()["machines"] == {"files_added": 1, "files_removed": 5}
    assert len(history.files("machines")) == 2, "one of 1 March, one of 2 March"
    for snapshot_id, expected in before.items():
        found = history.load(snapshot_id)
        assert all(found.tables[name].equals(expected.tables[name]) for name in expected.tables)


@pytest.mark.contract
def test_a_writer_goes_on_across_a_compaction_and_a_vacuum(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path) as writer:
        for number in range(6):
            writer.add(snapshot(number))
            writer.flush()
            if number % 2:
                History(tmp_path).compact()
                History(tmp_path).vacuum(0)
    assert [problems for _, problems in History(tmp_path).verify()] == [[]] * 6


@pytest.mark.contract
@pytest.mark.parametrize("begun", ["_probe-of-another", "_delta_log/"])
def test_a_table_that_another_writer_is_just_creating_is_not_taken_for_a_foreign_folder(
    tmp_path: Path, begun: str
) -> None:
    folder = tmp_path / "history" / "snapshots"
    folder.mkdir(parents=True)
    if begun.endswith("/"):
        (folder / begun).mkdir()
    else:
        (folder / begun).touch()
    write(tmp_path / "history", snapshot(0))
    assert len(History(tmp_path / "history").snapshots()) == 1
