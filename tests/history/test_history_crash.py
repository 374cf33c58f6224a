"""A writer that dies, or fails, between any two commits: a snapshot is there whole or not at all."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from histories import full_snapshot, snapshot, verdict, write

from ray_snapshot.errors import HistoryWriteError
from ray_snapshot.history import History, HistoryWriter

COMMITS = ("machines", "channels", "messages", "calls", "waits", "snapshots", "verdicts")
"""The commits of one flush, in their order."""


class Killed(BaseException):
    """Stands for the end of the process: nothing after it runs."""


def fail_at(writer: HistoryWriter, step: int, error: type[BaseException], *, after: bool = False) -> None:
    """Make commit number `step` of the writer fail, before or after it took effect; the others are real."""
    commit, count = writer._commit, iter(range(100))

    def failing(name: str, rows: Any) -> None:
        number = next(count)
        assert number == 0 or name in COMMITS
        if number == step and not after:
            raise error(f"killed at {name}")
        commit(name, rows)
        if number == step:
            raise error(f"killed after {name}")

    writer._commit = failing  # type: ignore[method-assign]


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("step", range(len(COMMITS)), ids=COMMITS)
def test_a_writer_killed_at_any_commit_leaves_a_snapshot_whole_or_absent(
    tmp_path: Path, step: int, after: bool
) -> None:
    write(tmp_path, snapshot(1))
    writer = HistoryWriter(tmp_path)
    writer.add(full_snapshot())
    writer.add_verdicts([verdict("full-1")])
    fail_at(writer, step, Killed, after=after)
    with pytest.raises(Killed):
        writer.flush()

    history = History(tmp_path)
    listed = {row.snapshot_id for row in history.snapshots()}
    whole = step + after > COMMITS.index("snapshots")
    assert listed == ({"bank-00001", "full-1"} if whole else {"bank-00001"})
    for name in (*COMMITS[:5], "verdicts"):
        assert set(history.table(name)["snapshot_id"].to_pylist()) <= listed, f"rows of {name} came out of nowhere"
    assert dict(history.verify()) == {name: [] for name in listed}

    with HistoryWriter(tmp_path) as after_it:  # the next writer goes on, with that snapshot too
        after_it.add(snapshot(2))
        if not whole:
            after_it.add(full_snapshot())
        after_it.add_verdicts([verdict("full-1")])
    assert {row.snapshot_id for row in history.snapshots()} == {"bank-00001", "bank-00002", "full-1"}
    assert [problems for _, problems in history.verify()] == [[], [], []]
    assert (len(history.load("full-1").calls), len(history.load("full-1").waits)) == (1, 2)
    assert len(history.verdicts()) == 1


@pytest.mark.parametrize("step", range(len(COMMITS)), ids=COMMITS)
def test_a_commit_that_fails_is_the_one_that_the_next_flush_begins_with(tmp_path: Path, step: int) -> None:
    writer = HistoryWriter(tmp_path)
    writer.add(full_snapshot())
    writer.add_verdicts([verdict("full-1")])
    fail_at(writer, step, HistoryWriteError)
    with pytest.raises(HistoryWriteError):
        writer.flush()
    writer.add(snapshot(2))
    writer.close()
    history = History(tmp_path)
    assert [problems for _, problems in history.verify()] == [[], []]
    assert len(history.verdicts()) == 1
    assert history.load("full-1").calls == full_snapshot().calls


def test_a_process_killed_in_the_middle_of_a_flush_harms_nothing(tmp_path: Path) -> None:
    write(tmp_path, snapshot(1))
    code = textwrap.dedent(
        """
        import os, sys
        sys.path.insert(0, sys.argv[2])
        from histories import snapshot
        from ray_snapshot.history import HistoryWriter
        writer = HistoryWriter(sys.argv[1])
        commit = writer._commit
        def dying(name, rows):
            if name == "messages":
                os._exit(9)
            commit(name, rows)
        writer._commit = dying
        writer.add(snapshot(2))
        writer.flush()
        """
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path), os.path.dirname(__file__)], check=False)
    assert done.returncode == 9
    history = History(tmp_path)
    assert [row.snapshot_id for row in history.snapshots()] == ["bank-00001"]
    write(tmp_path, snapshot(2), snapshot(3))
    assert [(name, problems) for name, problems in history.verify()] == [
        ("bank-00001", []),
        ("bank-00002", []),
        ("bank-00003", []),
    ]


def test_a_half_written_file_that_no_commit_names_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, snapshot(1))
    (file,) = History(tmp_path).files("machines")
    Path(file).with_name("part-99999.parquet").write_bytes(Path(file).read_bytes()[:100])
    assert [problems for _, problems in History(tmp_path).verify()] == [[]]
