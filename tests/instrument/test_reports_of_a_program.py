"""`run --report DIR`: a report when an alarm begins, and one of how the program ended, whatever ends it."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest
from app_runner import Done, Runner

from ray_snapshot.history import History
from ray_snapshot.instrument import report_files
from ray_snapshot.instrument.report_files import MOST, ReportFiles

ray = pytest.mark.ray
by_night = pytest.mark.nightly


def _run(runner: Runner, folder: Path, *more: str) -> Done:
    done = runner.command("run", "--every", "0.5", "--report", str(folder), *more)
    assert "fault of ours" not in done.errors
    return done


def _pages(folder: Path) -> list[str]:
    return sorted(path.read_text() for path in folder.glob("*.html"))


@ray
def test_an_alarm_has_its_report_and_the_end_has_another(runner: Runner, tmp_path: Path) -> None:
    raising = ("--on-deadlock", "raise", "--deadlock-grace", "2", "--name", "uncaught", "raising.py", "uncaught")
    done = _run(runner, tmp_path / "out", *raising)
    assert done.exit_code == 1
    pages = _pages(tmp_path / "out")
    assert len(pages) == 2, done.errors
    first = pages[0]
    assert done.errors.count("ray-snapshot: report: ") == 2
    assert "<h1>uncaught: deadlock</h1>" in first
    assert "What can never move again" in first
    assert "Account.pay (raising.py:" in first
    assert len(list((tmp_path / "out").glob("uncaught-*.md"))) == 2
    assert History(tmp_path / "out" / "history").snapshots(system="uncaught")


@ray
@by_night
def test_a_program_without_an_alarm_has_the_report_of_its_end(runner: Runner, tmp_path: Path) -> None:
    kept = tmp_path / "kept"
    done = _run(runner, tmp_path / "out", "--history", str(kept), "--name", "calm", "program.py", "ray")
    assert done.exit_code == 0, done.errors
    (page,) = _pages(tmp_path / "out")
    assert "<h1>calm: no alarm" in page
    assert not (tmp_path / "out" / "history").exists()
    assert History(kept).snapshots(system="calm")


@ray
@by_night
@pytest.mark.parametrize(
    "how", [("--on-deadlock", "exit", "--deadlock-grace", "1"), ("--exit-on", "deadlock")], ids=str
)
def test_a_program_that_is_ended_by_us_has_its_reports_first(
    runner: Runner, tmp_path: Path, how: tuple[str, ...]
) -> None:
    done = _run(runner, tmp_path / "out", *how, "--name", "ended", "raising.py", "uncaught")
    assert done.exit_code == 3
    assert "deadlock</h1>" in _pages(tmp_path / "out")[0]


def test_a_folder_that_cannot_be_written_to_is_said_before_the_program_begins(
    runner_alone: Runner, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    done = runner_alone.command("run", "--report", str(tmp_path / "file" / "sub"), "no_such.py")
    assert done.exit_code == 2
    assert done.errors.startswith("ray-snapshot: error: --report ")
    assert "nothing can be written there" in done.errors


@pytest.fixture
def runner_alone() -> Runner:
    return Runner("127.0.0.1:1")


def test_a_snapshot_has_one_report_and_an_alarm_that_comes_and_goes_not_thousands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = ReportFiles(tmp_path, tmp_path / "history")
    asked: list[str] = []
    monkeypatch.setattr(files, "_run", lambda *arguments: asked.append(arguments[1]) or "")
    for number in range(3 * MOST):
        files.write("bank", f"s-{number // 2}")
    assert asked == [f"s-{number}" for number in range(MOST)]
    assert capsys.readouterr().err.count("ray-snapshot: report: ") == MOST


@pytest.mark.parametrize("is_there", [True, False], ids=["a history without it", "no history"])
def test_why_there_is_none_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    from ray_snapshot.history import HistoryWriter

    monkeypatch.setattr(os, "environ", {name: os.environ[name] for name in ("HOME", "PATH")})
    if is_there:
        HistoryWriter(tmp_path / "history").close()
    files = ReportFiles(tmp_path, tmp_path / "history")
    files.write("bank", "s-1")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("ray-snapshot: no report: ray-snapshot: error: no ")
    assert not list(tmp_path.glob("*.html"))


def test_a_writer_that_does_not_end_is_given_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report_files, "_CALL", "import threading; threading.Event().wait()")
    monkeypatch.setattr(report_files, "WRITING_S", 0.5)
    done = threading.Event()
    ReportFiles(tmp_path, tmp_path / "history").begin("bank", "s-1", done.set).join(30)
    assert done.is_set()
    assert "no report: it was not written within 0.5 s" in capsys.readouterr().err
