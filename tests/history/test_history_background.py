"""The thread that writes a history: many snapshots a commit, none waits long, memory is bounded, trouble is told."""

import threading
from pathlib import Path
from typing import Any

import pytest
from histories import snapshot, verdict
from limited import limit

from ray_snapshot.errors import HistoryWriteError
from ray_snapshot.history import History, HistoryWriter
from ray_snapshot.history.background import BackgroundWriter

LONG_S = 60.0
"""Far longer than any of these takes: nothing waits for it in earnest."""


class Committed:
    def __init__(self, writer: HistoryWriter) -> None:
        self.count = threading.Semaphore(0)
        flush = writer.flush

        def flushing() -> None:
            flush()
            self.count.release()

        writer.flush = flushing  # type: ignore[method-assign]

    def wait(self) -> None:
        assert self.count.acquire(timeout=LONG_S), "nothing was committed"


def test_what_comes_soon_after_goes_into_the_same_commit(tmp_path: Path) -> None:
    writer = BackgroundWriter(HistoryWriter(tmp_path), flush_s=LONG_S)
    for number in range(10):
        writer.add(snapshot(number))
        writer.add_verdicts([verdict(f"bank-{number:05d}")])
    assert History(tmp_path).version("machines") == 0, "nothing is due"
    writer.flush()
    history = History(tmp_path)
    assert (history.version("machines"), len(history.snapshots()), len(history.verdicts())) == (1, 10, 10)
    writer.add(snapshot(10))
    writer.close()
    assert (history.version("machines"), len(history.snapshots())) == (2, 11)


def test_a_snapshot_waits_no_longer_than_it_is_told(tmp_path: Path) -> None:
    inner = HistoryWriter(tmp_path)
    committed = Committed(inner)
    writer = BackgroundWriter(inner, flush_s=0.05)
    for number in range(2):
        writer.add(snapshot(number))
        committed.wait()
        assert len(History(tmp_path).snapshots()) == number + 1
    writer.close()


def test_much_is_committed_before_its_time(tmp_path: Path) -> None:
    inner = HistoryWriter(tmp_path)
    committed = Committed(inner)
    writer = BackgroundWriter(inner, flush_s=LONG_S, flush_bytes=1)
    writer.add(snapshot(0))
    committed.wait()
    assert len(History(tmp_path).snapshots()) == 1
    writer.close()


def test_a_disk_that_cannot_follow_holds_up_who_adds(tmp_path: Path) -> None:
    inner = HistoryWriter(tmp_path)
    commit, may_go_on, began = inner._commit, threading.Event(), threading.Event()

    def slow(name: str, rows: Any) -> None:
        began.set()
        assert may_go_on.wait(LONG_S)
        commit(name, rows)

    inner._commit = slow  # type: ignore[method-assign]
    writer = BackgroundWriter(inner, flush_s=LONG_S, flush_bytes=1, most_bytes=1)
    writer.add(snapshot(0))
    assert began.wait(LONG_S)
    added = threading.Event()
    thread = threading.Thread(target=lambda: (writer.add(snapshot(1)), added.set()))
    thread.start()
    assert not added.wait(0.1), "the first is still in memory"
    may_go_on.set()
    assert added.wait(LONG_S)
    thread.join()
    writer.close()
    assert len(History(tmp_path).snapshots()) == 2


def test_a_commit_that_fails_is_tried_again_and_told_of_where_there_is_no_room(tmp_path: Path) -> None:
    inner = HistoryWriter(tmp_path)
    commit, is_broken, failed = inner._commit, True, threading.Semaphore(0)

    def failing(name: str, rows: Any) -> None:
        if is_broken:
            failed.release()
            raise HistoryWriteError("the disk is full", path=tmp_path)
        commit(name, rows)

    inner._commit = failing  # type: ignore[method-assign]
    writer = BackgroundWriter(inner, flush_s=0.05, most_bytes=1)
    writer.add(snapshot(0))
    for _ in range(3):
        assert failed.acquire(timeout=LONG_S)
    with pytest.raises(HistoryWriteError, match="the disk is full"):
        writer.add(snapshot(1))
    with pytest.raises(HistoryWriteError, match="the disk is full"):
        writer.flush()
    is_broken = False
    writer.close()
    assert [row.snapshot_id for row in History(tmp_path).snapshots()] == ["bank-00000"]


def test_small_files_are_merged_on_the_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, merge_every_commits=8)
    limit(monkeypatch, merged_files=8)
    inner = HistoryWriter(tmp_path, system="bank")
    merged = threading.Semaphore(0)
    merge = inner.merge_small
    inner.merge_small = lambda: (merge(), merged.release())  # type: ignore[assignment, method-assign, return-value]
    committed = Committed(inner)
    writer = BackgroundWriter(inner, flush_s=LONG_S, flush_bytes=1)
    for number in range(1, 17):
        writer.add(snapshot(number))
        committed.wait()
    for _ in range(2):
        assert merged.acquire(timeout=LONG_S)
    writer.close()
    history = History(tmp_path)
    assert len(history.files("machines")) == 2
    assert [problems for _, problems in history.verify()] == [[]] * 16
    assert list(tmp_path.glob("_writers/*")) == []


def test_what_another_writer_had_begun_is_added_again_and_is_there_once(tmp_path: Path) -> None:
    """The first has committed one snapshot with its verdict and one without; the third it never had."""
    with HistoryWriter(tmp_path, system="bank") as first:
        for number in range(2):
            first.add(snapshot(number))
        first.add_verdicts([verdict("bank-00000")])
    writer = BackgroundWriter(HistoryWriter(tmp_path, system="bank"), flush_s=LONG_S)
    for number in range(3):
        mark = writer.add_whole(snapshot(number), [verdict(f"bank-{number:05d}")], again=True)
    assert writer.committed < mark
    writer.flush()
    assert writer.committed == mark
    writer.close()
    history = History(tmp_path)
    assert [row["snapshot_id"] for row in history.snapshots()] == [f"bank-{number:05d}" for number in range(3)]
    assert len(history.verdicts()) == 3
    shapes = [(row["run_id"], row["class_name"], row["version"]) for row in history.table("classes").to_pylist()]
    assert len(shapes) == len(set(shapes)) > 0
    assert all(len(history.load(row["snapshot_id"]).machines) == 3 for row in history.snapshots())
