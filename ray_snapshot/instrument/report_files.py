"""`run --report DIR`: the reports of a watched program, written by another process from its history.

So the program's own process draws nothing, and what is in a report is what anybody can make of the history again.
"""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from ray_snapshot.addresses import absolute
from ray_snapshot.errors import HistoryWriteError, RaySnapshotError
from ray_snapshot.limits import LIMITS
from ray_snapshot.stderr import say
from ray_snapshot.views.report import current_folder

_CALL = """
import sys
sys.path.append(sys.argv.pop(1))
from ray_snapshot.cli import main
sys.exit(main())
"""
"""The command line, also where the package is not installed."""


class ReportFiles:
    """The reports of one program, in one folder."""

    def __init__(self, folder: Path, history: str) -> None:
        self.folder = folder
        self.history = history
        self.home = current_folder()
        """Where the program began: paths below it are shown short."""
        self.asked: dict[str, str] = {}
        """The system, by snapshot that is to have a report."""
        self.has_said_enough = False
        self.written: set[str] = set()
        self.threads: list[threading.Thread] = []
        self.lock = threading.Lock()
        """Held while one is written."""

    def begin(self, system: str, snapshot_id: str, write_history: Callable[[], None]) -> None:
        """Write the report of an alarm, in a thread; `write_history` puts its snapshot into the history first."""
        if len(self.asked) >= LIMITS.alarm_reports:
            if not self.has_said_enough:
                self.has_said_enough = True
                say(f"ray-snapshot: {LIMITS.alarm_reports} alarms have a report, and further ones have none")
            return
        self.asked[snapshot_id] = system

        def work() -> None:
            try:
                write_history()
                self.write(system, snapshot_id)
            except (
                Exception
            ):  # it is tried again at the end, when the history is whole, and what is wrong is said there
                return

        thread = threading.Thread(target=work, name="ray-snapshot-report", daemon=True)
        self.threads.append(thread)
        thread.start()

    def end(self, system: str, run_id: str) -> None:
        """The history is whole: write what is missing, and the report of the last snapshot; bounded by `reports_end_s`."""
        until = time.monotonic() + LIMITS.reports_end_s
        for thread in self.threads:
            thread.join(max(0.0, until - LIMITS.report_s - time.monotonic()))
        last = self._last(system, run_id)
        if last is None:
            say("ray-snapshot: no report of the end: no snapshot was completed")
        missing = dict.fromkeys(one for one in self.asked if one not in self.written)
        for snapshot_id in missing | dict.fromkeys([last] if last is not None else []):
            is_late = time.monotonic() > until - LIMITS.report_s
            trouble = (
                "there is no time left" if is_late else self.write(self.asked.get(snapshot_id, system), snapshot_id)
            )
            if trouble:
                say(f"ray-snapshot: no report of {snapshot_id}: {trouble}")

    def _last(self, system: str, run_id: str) -> str | None:
        from ray_snapshot.history import History

        try:
            rows = History(self.history).snapshots(system, run_id=run_id)
        except RaySnapshotError:  # the end of the program says why it could not be written
            return None
        return next((row["snapshot_id"] for row in reversed(rows) if row["status"] == "complete"), None)

    def write(self, system: str, snapshot_id: str) -> str:
        """Write one, unless it is there, and say where it is; returns why there is none."""
        with self.lock:
            if snapshot_id in self.written:
                return ""
            page, text = (self.folder / f"{system}-{snapshot_id}{ending}" for ending in (".html", ".md"))
            trouble = self._run(self.history, snapshot_id, page, text)
            if not trouble:
                self.written.add(snapshot_id)
                say(f"ray-snapshot: report: {page} (and .md)")
            return trouble

    def _run(self, history: str, snapshot_id: str, page: Path, text: Path) -> str:
        return write_apart(history, snapshot_id, page, text, folder=self.home)


def write_apart(history: str | Path, snapshot_id: str, *files: Path, folder: Path | None = None) -> str:
    """Write the report of a snapshot into `files` by another process; returns why it could not, or "".

    It begins in `folder`, if that is there, and call sites below are shown short. If this process is ended meanwhile, the
    other one writes all the same.
    """
    root = str(Path(__file__).parents[2])
    outs = [word for file in files for word in ("--out", str(file.absolute()))]
    command = [
        sys.executable,
        "-P",
        "-c",
        _CALL,
        root,
        "report",
        absolute(history, HistoryWriteError),
        snapshot_id,
        *outs,
    ]
    try:
        process = subprocess.Popen(
            command,
            cwd=folder if folder is not None and folder.is_dir() else None,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            start_new_session=True,  # a second Ctrl-C ends the program, and not what is written of it
        )
    except OSError as error:
        return f"{sys.executable} cannot be run: {error.strerror or error}"
    try:
        _, errors = process.communicate(timeout=LIMITS.report_s)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        return f"it was not written within {LIMITS.report_s:g} s"
    told = errors.decode("utf-8", "replace").strip().splitlines()
    return "" if process.returncode == 0 else (told[-1] if told else f"it ended with {process.returncode}")
