"""`ray-snapshot restore` says what is wrong before the program does anything, in one line, with exit code 2; without Ray."""

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ray_snapshot import Snapshot, cli
from ray_snapshot.history import History, checkpoints
from ray_snapshot.history.checkpoints import Checkpoint
from ray_snapshot.history.writer import HistoryWriter
from ray_snapshot.runtime import restoring

KEY = "the key of these tests"
IDS = ("20260301T000000000000Z-aaaaaa-000001", "20260301T000001000000Z-aaaaaa-000002")


def taken(number: int, obstacles: list[str]) -> Snapshot:
    return Snapshot.from_rows(
        machines=[{"machine": "depot", "status": "passive", "host": "host-0"}],
        snapshot_id=IDS[number],
        system="parcels",
        run_id="a" * 16,
        sequence=number + 1,
        started_at=datetime(2026, 3, 1, tzinfo=UTC) + timedelta(seconds=number),
        restorable=not obstacles,
        obstacles=obstacles,
    )


@pytest.fixture
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A snapshot that can be restored, and a later one that cannot."""
    monkeypatch.setenv("RAY_SNAPSHOT_KEY", KEY)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    monkeypatch.setattr(restoring, "_WANTED", [])
    path = tmp_path / "history"
    writer = HistoryWriter(path)
    writer.add(taken(0, []))
    writer.add(taken(1, ["depot: inside look, where it waits"]))
    writer.close()
    checkpoints.write(path, Checkpoint({"snapshot_id": IDS[0], "system": "parcels"}, []), KEY.encode())
    return path


def refused(capsys: pytest.CaptureFixture[str], history: Path, snapshot: str, program: str) -> list[str]:
    script = history.parent / "program.py"
    script.write_text(program, encoding="utf-8")
    assert cli.main(["restore", str(history), snapshot, str(script)]) == 2
    said = capsys.readouterr()
    assert "begun" not in said.out.split()
    return said.err.splitlines()


def test_latest_is_the_latest_that_can_be_restored_and_it_says_which_came_behind(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = refused(capsys, history, "latest", "")
    assert f"going on from {IDS[0]}, the latest that can be restored; {IDS[1]} came later" in first
    assert "the program never opened it" in second
    assert History(history).restorable() == [IDS[0]]


def test_of_one_that_cannot_be_restored_the_obstacle_is_told_and_the_latest_that_can(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (line,) = refused(capsys, history, IDS[1], "print('begun')")
    assert "depot: inside look, where it waits; the latest that can be restored is " + IDS[0] in line


def test_a_program_of_another_system_does_not_begin_its_work_anew(
    history: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (line,) = refused(capsys, history, IDS[0], "import ray_snapshot as rs\nrs.System('other')\nprint('begun')")
    assert f"the program opens system 'other', and snapshot {IDS[0]} is of system 'parcels': nothing was begun" in line


@pytest.mark.parametrize(
    ("key", "reason"),
    [
        ("another key than theirs", "is damaged, or was not written with this key"),
        ("short", "has 5 characters; it must have at least 16"),
        (None, "there is no key of checkpoints here"),
    ],
)
def test_a_key_that_does_not_fit_is_told_before_the_program_runs_and_none_is_made(
    history: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, key: str | None, reason: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(history.parent / "config"))
    monkeypatch.delenv("RAY_SNAPSHOT_KEY")
    if key is not None:
        monkeypatch.setenv("RAY_SNAPSHOT_KEY", key)
    (line,) = refused(capsys, history, IDS[0], "print('begun')")
    assert reason in line
    assert not checkpoints.key_file().exists()
