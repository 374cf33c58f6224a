"""A writer that dies, or fails, between any two commits: a snapshot is there whole or not at all."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import crash_steps
import pytest
from clean import clean_environment
from histories import full_snapshot, snapshot, verdict, write

from ray_snapshot.errors import HistoryWriteError
from ray_snapshot.history import History, HistoryWriter

COMMITS = ("machines", "channels", "messages", "calls", "waits", "snapshots", "classes", "verdicts")
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


@pytest.mark.by_day(6)
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
    assert writer._owner.file is not None
    writer._owner.file.close()  # the lock on its record goes with the process
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


@pytest.mark.nightly
@pytest.mark.parametrize("scenario", crash_steps.SCENARIOS)
def test_a_process_killed_at_any_change_it_makes_leaves_a_snapshot_whole_or_absent(
    tmp_path: Path, scenario: str
) -> None:
    script = str(Path(__file__).with_name("crash_steps.py"))
    done = subprocess.run(
        [sys.executable, script, scenario, str(tmp_path)], check=True, stdout=subprocess.PIPE, env=clean_environment()
    )
    steps = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(steps) > 20, "as many changes as a commit makes at least"
    whole = crash_steps.WHOLE[scenario]
    for step in steps:
        left, restarted = step["left"], step["restarted"]
        assert (step["code"], left["problems"]) == (crash_steps.KILLED, []), step
        assert left["listed"] in whole, step
        assert set(left["listed"]) - {"bank-00007", "bank-00008"} <= set(left["checkpoints"]), step
        assert set(left["verdicts"]) <= set(left["listed"]), step
        assert restarted["listed"] in whole, step
        assert set(restarted["checkpoints"]) == set(restarted["listed"]) - {"bank-00007", "bank-00008"}, step
        assert (restarted["unlisted_rows"], restarted["strays"], restarted["records"]) == ([], [], []), step
        assert (restarted["problems"], restarted["problems_at_last"]) == ([], []), step
        assert {"bank-00007", "bank-00008"} <= set(restarted["listed_at_last"]), step
    assert {tuple(step["left"]["listed"]) for step in steps} == set(map(tuple, whole)), (
        "both sides of the commit are seen"
    )


def test_the_next_start_removes_only_what_its_own_writer_left(tmp_path: Path) -> None:
    write(tmp_path, snapshot(1))
    living = HistoryWriter(tmp_path, system="ring")
    living.add(snapshot(5, system="ring"))
    fail_at(living, COMMITS.index("messages"), Killed)
    with pytest.raises(Killed):
        living.flush()  # it is still there, and holds its record
    die_in(tmp_path, "bank", 2)
    die_in(tmp_path, "lake", 3)
    history = History(tmp_path)

    def unlisted() -> set[str]:
        return set(history.stored.read("machines")["snapshot_id"].to_pylist()) - {"bank-00001"}

    assert unlisted() == {"ring-00005", "bank-00002", "lake-00003"}
    HistoryWriter(tmp_path, system="bank").close()
    assert unlisted() == {"ring-00005", "lake-00003"}, "other systems clean up after themselves"
    history.compact()
    assert unlisted() == {"ring-00005"}, "upkeep removes what anybody left that died, and nothing of who lives"
    del living._commit  # type: ignore[attr-defined]
    living.close()
    assert {
        row.snapshot_id: problems for row, (_, problems) in zip(history.snapshots(), history.verify(), strict=True)
    } == {"bank-00001": [], "ring-00005": []}
    assert list(tmp_path.glob("_writers/*")) == []


def die_in(path: Path, system: str, number: int) -> None:
    code = """if True:
        import os, sys
        sys.path.insert(0, sys.argv[2])
        from histories import snapshot
        from ray_snapshot.history import HistoryWriter
        writer = HistoryWriter(sys.argv[1], system=sys.argv[3])
        commit = writer._commit
        writer._commit = lambda name, rows: os._exit(9) if name == "messages" else commit(name, rows)
        writer.add(snapshot(int(sys.argv[4]), system=sys.argv[3]))
        writer.flush()
        """
    arguments = [str(path), os.path.dirname(__file__), system, str(number)]
    assert (
        subprocess.run([sys.executable, "-c", code, *arguments], check=False, env=clean_environment()).returncode == 9
    )


@pytest.mark.contract
def test_a_half_written_file_that_no_commit_names_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, snapshot(1))
    (file,) = History(tmp_path).files("machines")
    Path(file).with_name("part-99999.parquet").write_bytes(Path(file).read_bytes()[:100])
    assert [problems for _, problems in History(tmp_path).verify()] == [[]]
