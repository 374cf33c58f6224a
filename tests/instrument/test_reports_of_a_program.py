"""`run --report DIR`: a report when an alarm begins, and one of how the program ended, whatever ends it."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from app_runner import Done, Runner
from limited import limit
from until import until

from ray_snapshot import Snapshot
from ray_snapshot.history import History, HistoryWriter
from ray_snapshot.instrument import report_files
from ray_snapshot.instrument.report_files import ReportFiles
from ray_snapshot.limits import LIMITS

ray = pytest.mark.ray
by_night = pytest.mark.nightly


def _run(runner: Runner, folder: Path, *more: str) -> Done:
    done = runner.command("run", "--every", "0.5", "--report", str(folder), *more)
    assert "fault of ours" not in done.errors
    return done


def _pages(folder: Path) -> list[str]:
    return sorted(path.read_text() for path in folder.glob("*.html"))


@pytest.mark.contract
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


@pytest.mark.contract
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


@pytest.mark.contract
@ray
@by_night
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_program_that_hangs_and_is_ended_from_outside_has_its_reports(
    runner: Runner, tmp_path: Path, number: signal.Signals
) -> None:
    command = str(Path(sys.executable).parent / "ray-snapshot")
    named = ("--every", "0.5", "--report", str(tmp_path / "out"), "--name", f"ended-by-{number.value}")
    process = runner.start(command, "run", *named, "raising.py", "uncaught")
    until(lambda: _pages(tmp_path / "out"), good=bool, seconds=90.0)
    process.send_signal(number)
    runner.finish(process)
    pages = until(lambda: _pages(tmp_path / "out"), good=lambda found: len(found) == 2, seconds=90.0)
    assert all("deadlock</h1>" in page for page in pages)


@pytest.mark.contract
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


Recorded = Callable[..., tuple[ReportFiles, list[str]]]


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    """A folder of reports beside a history of these, and the snapshots whose reports were written, in their order."""

    def made(*snapshots: Snapshot) -> tuple[ReportFiles, list[str]]:
        with HistoryWriter(tmp_path / "history") as writer:
            for one in snapshots:
                writer.add(one)
        files, asked = ReportFiles(tmp_path, tmp_path / "history"), list[str]()
        monkeypatch.setattr(files, "_run", lambda *arguments: asked.append(arguments[1]) or "")
        return files, asked

    return made


def taken(number: int, **row: Any) -> Snapshot:
    at = datetime(2026, 3, 1, 12, 0, number, tzinfo=UTC)
    whole = {"snapshot_id": f"s-{number}", "system": "bank", "run_id": "this", "started_at": at, **row}
    return Snapshot.from_rows(machines=[{"machine": "a"}], **whole)


def test_an_alarm_whose_snapshot_is_not_written_yet_has_its_report_at_the_end(
    recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    files, asked = recorded(taken(1), taken(2))

    def cannot() -> None:
        raise OSError("the disk is full")

    files.begin("bank", "s-1", cannot)
    files.end("bank", "this")
    assert asked == ["s-1", "s-2"]
    assert capsys.readouterr().err.count("ray-snapshot: report: ") == 2


def test_the_end_waits_for_a_report_that_is_being_written(recorded: Recorded) -> None:
    files, asked = recorded(taken(1))
    goes_on = threading.Event()

    def written() -> None:
        assert goes_on.wait(30)

    files.begin("bank", "s-1", written)
    threading.Timer(0.2, goes_on.set).start()
    files.end("bank", "this")
    assert asked == ["s-1"], "once, though it is the last snapshot as well"
    assert not any(thread.is_alive() for thread in files.threads)


def test_the_end_is_that_of_this_run_and_of_a_snapshot_that_was_completed(
    recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    files, asked = recorded(taken(1, run_id="earlier"), taken(2), taken(3, status="aborted"), taken(4, run_id="other"))
    files.end("bank", "this")
    assert asked == ["s-2"]
    files.end("bank", "a run without snapshots")
    assert asked == ["s-2"]
    assert "no report of the end: no snapshot was completed" in capsys.readouterr().err


def test_an_alarm_that_comes_and_goes_has_not_thousands_and_the_end_has_its_own(
    recorded: Recorded, capsys: pytest.CaptureFixture[str]
) -> None:
    files, asked = recorded(taken(1))
    for number in range(3 * LIMITS.alarm_reports):
        files.begin("bank", f"a-{number}", lambda: None)
    files.end("bank", "this")
    assert sorted(asked) == sorted([*(f"a-{number}" for number in range(LIMITS.alarm_reports)), "s-1"])
    assert capsys.readouterr().err.count("further ones have none") == 1


@pytest.mark.by_day(1)
@pytest.mark.parametrize("is_there", [True, False], ids=["a history without it", "no history"])
def test_why_there_is_none_is_said_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    monkeypatch.setattr(os, "environ", {name: os.environ[name] for name in ("HOME", "PATH")})
    if is_there:
        HistoryWriter(tmp_path / "history").close()
    files = ReportFiles(tmp_path, tmp_path / "history")
    files.begin("bank", "s-1", lambda: None)
    files.end("bank", "this")
    *_, line = capsys.readouterr().err.splitlines()
    assert line.startswith("ray-snapshot: no report of s-1: ray-snapshot: error: no ")
    assert not list(tmp_path.glob("*.html"))


def test_a_writer_that_does_not_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(report_files, "_CALL", "import threading; threading.Event().wait()")
    limit(monkeypatch, report_s=0.5)
    files = ReportFiles(tmp_path, tmp_path / "history")
    assert files.write("bank", "s-1") == "it was not written within 0.5 s"


def test_it_is_written_where_the_folder_of_the_program_is_gone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    with HistoryWriter(tmp_path / "history") as writer:
        writer.add(taken(1))
    (tmp_path / "gone").rmdir()
    files = ReportFiles(tmp_path, tmp_path / "history")
    assert files.write("bank", "s-1") == ""
    assert len(list(tmp_path.glob("*.html"))) == 1
    monkeypatch.chdir(tmp_path)
