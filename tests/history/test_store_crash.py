"""A writer of a history in a store that is killed at each change it makes there; and several writers at once.

A proxy between the writer and the store hears of every request that changes something, whoever makes it, and kills the
writer before it passes the request on: so no step has to be named, and none can be forgotten.
"""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from clean import clean_environment
from histories import snapshot, verdict
from limited import limit
from stored import Proxy, Refused, Store, copy, environment

from ray_snapshot.addresses import StorePath
from ray_snapshot.history import History, HistoryWriter, checkpoints, leases, objects, upkeep
from ray_snapshot.history.checkpoints import Checkpoint

OLD = ["bank-00000", "bank-00001", "bank-00002"]
NEW = [*OLD, "bank-00007", "bank-00008"]
DAY_S = 86_400.0

WORK = {
    "flush": """
with HistoryWriter(path, system="bank") as writer:
    writer.add(snapshot(7))
    writer.add(snapshot(8))
    writer.add_verdicts([verdict("bank-00007")])
""",
    "compact": "History(path).compact()",
    "retain": "History(path).retain(keep_every=timedelta(days=1))",
    "vacuum": "History(path).compact(); History(path).vacuum(0)",
}
WHOLE = {"flush": (OLD, NEW), "compact": (OLD, OLD), "retain": (OLD, OLD[:2]), "vacuum": (OLD, OLD)}
"""What may be listed after each was killed: the snapshots before it, and those after it."""

BEGIN = """if True:
    import sys
    sys.path.insert(0, sys.argv[2])
    from datetime import timedelta
    from histories import snapshot, verdict
    from ray_snapshot.history import History, HistoryWriter
    path = sys.argv[1]
"""


@pytest.fixture(scope="module")
def pristine(store: Store) -> str:
    def fill(address: str) -> None:
        with HistoryWriter(address, system="bank") as writer:
            for number in range(3):
                writer.add(snapshot(number))
                writer.add_verdicts([verdict(f"bank-{number:05d}")])
                writer.flush()
                checkpoints.write(address, Checkpoint({"snapshot_id": f"bank-{number:05d}"}, [b"state"]), b"k" * 20)

    return store.filled(fill)


@pytest.fixture
def proxy(store: Store) -> Iterator[Proxy]:
    found = Proxy(store.address)
    yield found
    found.close()


def run(proxy: Proxy, address: str, work: str, kill_at: int | str = 0) -> int:
    """Do some work in a process that is killed before its change number `kill_at`, or its first at such a path; returns its
    exit code."""
    process: subprocess.Popen[bytes] | None = None
    is_started = threading.Event()

    def kill(number: int, method: str, path: str) -> None:
        if (kill_at in path) if isinstance(kill_at, str) else number >= kill_at > 0:
            is_started.wait(60)
            assert process is not None
            process.kill()
            process.wait()
            raise Refused

    proxy.count, proxy.before, proxy.changes = 0, kill, []
    lines = work.strip().replace("\n", "\n    ")
    command = [sys.executable, "-c", f"{BEGIN}    {lines}\n", address, os.path.dirname(__file__)]
    process = subprocess.Popen(command, env=clean_environment(**environment(proxy.address)))
    is_started.set()
    return process.wait(120)


def files_of(history: StorePath) -> set[str]:
    return {
        str(path)
        for path, _ in objects.below(history, history)
        if path.suffix == ".parquet" and "_delta_log" not in str(path)
    }


def committed(history: StorePath) -> set[str]:
    """What the logs name, what has left the tables included."""
    return {str(file) for name in upkeep.there(history) for file in upkeep._named(history, name)}


def check_left(history: StorePath, whole: tuple[list[str], ...]) -> list[str]:
    """What a reader sees: whole snapshots, each row once."""
    found = History(history)
    listed = sorted(row.snapshot_id for row in found.snapshots())
    assert listed in whole
    assert [problem for _, problems in found.verify() for problem in problems] == []
    assert len(found.machines()) == 3 * len(listed)
    assert {row.snapshot_id for row in found.verdicts()} <= set(listed)
    return listed


def check_cleaned(history: StorePath, monkeypatch: pytest.MonkeyPatch, whole: tuple[list[str], ...]) -> None:
    """Upkeep removes nothing that is young, then whatever is left of who is dead, and nothing else."""
    listed = check_left(history, whole)
    before = files_of(history)
    History(history).vacuum()
    assert files_of(history) == before, "the lease may have just run out"
    real = objects.now
    with monkeypatch.context() as patch:
        limit(patch, lease_s=0.0)
        patch.setattr(objects, "now", lambda top: real(top) + 2 * DAY_S)
        History(history).vacuum(24)
    assert files_of(history) <= committed(history), "no orphan is left"
    assert leases.owners_there(history) == set()
    assert check_left(history, whole) == listed
    rows = History(history).stored.read("machines")
    assert set(rows["snapshot_id"].to_pylist()) == set(listed), "rows that nothing lists are gone"
    kept = {path.name.removesuffix(checkpoints.SUFFIX) for path in checkpoints.there(history, OLD)}
    assert kept == set(listed) & set(OLD)


def check_goes_on(history: StorePath, listed: list[str]) -> None:
    with HistoryWriter(history, system="bank") as writer:
        for number in (7, 8):
            if f"bank-{number:05d}" not in listed:
                writer.add(snapshot(number))
    assert check_left(history, (sorted({*listed, *NEW[3:]}),))


@pytest.mark.nightly
@pytest.mark.parametrize("work", WORK)
def test_a_writer_killed_at_any_change_leaves_a_snapshot_whole_or_absent(
    bucket: str, pristine: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, work: str
) -> None:
    monkeypatch.setattr(leases, "wait", lambda history, looks: None)
    copy(pristine, f"{bucket}/whole")
    assert run(proxy, f"{bucket}/whole", WORK[work]) == 0
    changes, seen = len(proxy.changes), []
    assert changes >= 10
    for step in range(1, changes + 2):
        history = StorePath(bucket, f"step-{step}")
        copy(pristine, str(history))
        assert run(proxy, str(history), WORK[work], kill_at=step) == (0 if step > changes else -signal.SIGKILL), step
        listed = check_left(history, WHOLE[work])
        seen.append(listed)
        check_cleaned(history, monkeypatch, WHOLE[work])
        if work == "flush":
            check_goes_on(history, listed)
    assert {tuple(listed) for listed in seen} == set(map(tuple, WHOLE[work])), "both sides of the commit are seen"


@pytest.mark.contract
@pytest.mark.nightly
def test_processes_write_and_compact_at_once(bucket: str, store: Store) -> None:
    """Two of them write snapshots of one system."""
    address = f"{bucket}/together"
    HistoryWriter(address).close()
    writing = """
for number in range(first, first + 10):
    with HistoryWriter(path, system=system) as writer:
        writer.add(snapshot(number, system=system))
        writer.add_verdicts([verdict(f"{system}-{number:05d}")])
"""
    programs = [f"system, first = {of}\n{writing}" for of in (("a", 0), ("a", 20), ("b", 0))]
    programs.append("for _ in range(5): History(path).compact()")
    processes = []
    for program in programs:
        lines = program.strip().replace("\n", "\n    ")
        command = [sys.executable, "-c", f"{BEGIN}    {lines}\n", address, str(Path(__file__).parent)]
        processes.append(subprocess.Popen(command, env=clean_environment(**environment(store.address))))
    assert [process.wait(300) for process in processes] == [0] * 4
    found = History(address)
    assert len(found.snapshots()) == len(found.verdicts()) == 30
    assert [problems for _, problems in found.verify()] == [[]] * 30


@pytest.mark.contract
def test_the_first_to_open_a_history_at_once_make_it_once(bucket: str) -> None:
    address, made = f"{bucket}/new", list[Any]()
    threads = [threading.Thread(target=lambda: made.append(HistoryWriter(address))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(made) == 2
    made[0].add(snapshot(1))
    made[0].flush()
    made[1].add(snapshot(2))
    made[1].flush()
    assert len(History(address).snapshots()) == 2


@pytest.mark.nightly
def test_vacuum_leaves_what_a_writer_that_lives_has_not_committed_yet(
    bucket: str, pristine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However old it is: its record says that the writer may still commit it."""
    history = StorePath(bucket, "h")
    copy(pristine, str(history))
    writer = HistoryWriter(history, system="bank")
    writer.add(snapshot(7))
    commit, real = writer._commit, objects.now

    def wait_there(name: str, rows: Any) -> None:
        if name == "snapshots":
            real_commit = upkeep.commits._commit
            with monkeypatch.context() as patch:
                patch.setattr(upkeep.commits, "_commit", lambda *given: (vacuum(patch), real_commit(*given)))
                commit(name, rows)
        else:
            commit(name, rows)

    def vacuum(patch: pytest.MonkeyPatch) -> None:
        patch.undo()
        with monkeypatch.context() as later:
            later.setattr(objects, "now", lambda top: real(top) + 2 * DAY_S)
            later.setattr(leases, "wait", lambda history, looks: None)
            History(history).vacuum(0)

    writer._commit = wait_there  # type: ignore[method-assign]
    writer.close()
    assert [row.snapshot_id for row in History(history).snapshots()] == [*OLD, "bank-00007"]
    assert [problems for _, problems in History(history).verify()] == [[]] * 4
