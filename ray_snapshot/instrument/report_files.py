"""`run --report DIR`: the reports of a watched program, written by another process from its history.

So the program's own process draws nothing, and what is in a report is what anybody can make of the history again.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from ray_snapshot.errors import HistoryNotFoundError
from ray_snapshot.views.streams import say

MOST = 20
"""So many reports of one program: of an alarm that comes and goes not one for each time."""

WRITING_S = 90.0

_CALL = """
import sys
sys.path.append(sys.argv.pop(1))
from ray_snapshot.cli import main
sys.exit(main())
"""
"""The command line, also where the package is not installed."""


class ReportFiles:
    """The reports of one program, in one folder."""

    def __init__(self, folder: Path, history: Path) -> None:
        self.folder = folder
        self.history = history
        self.written: set[str] = set()
        """Snapshots that have a report, or will have."""
        self.lock = threading.Lock()
        """Held while one is written."""

    def begin(self, system: str, snapshot_id: str, write_history: Callable[[], None]) -> threading.Thread:
        """Write the report of an alarm, in a thread; `write_history` puts its snapshot into the history first."""

        def work() -> None:
            with suppress(
                Exception
            ):  # the history is written at the end all the same, and what is wrong with it said there
                write_history()
            self.write(system, snapshot_id)

        thread = threading.Thread(target=work, name="ray-snapshot-report", daemon=True)
        thread.start()
        return thread

    def end(self, system: str) -> None:
        """The history is whole: write the report of the last snapshot, unless it has one."""
        from ray_snapshot.history import History

        try:
            found = History(self.history).resolve("latest", system=system)
        except HistoryNotFoundError:
            say("ray-snapshot: no report: no snapshot was taken")
            return
        self.write(system, found)

    def write(self, system: str, snapshot_id: str) -> None:
        """Write one, and say where it is; or why there is none."""
        with self.lock:
            if snapshot_id in self.written or len(self.written) >= MOST:
                return
            self.written.add(snapshot_id)
            stem = self.folder / f"{system}-{snapshot_id}"
            page, text = stem.with_name(f"{stem.name}.html"), stem.with_name(f"{stem.name}.md")
            trouble = self._run(str(self.history), snapshot_id, "--out", str(page), "--out", str(text))
            say(f"ray-snapshot: report: {page} (and .md)" if not trouble else f"ray-snapshot: no report: {trouble}")

    def _run(self, *arguments: str) -> str:
        """Why it could not be written; "" if it was."""
        root = str(Path(__file__).parents[2])
        command = [sys.executable, "-P", "-c", _CALL, root, "report", *arguments]
        try:
            done = subprocess.run(
                command,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=WRITING_S,
                start_new_session=True,  # a second Ctrl-C ends the program, and not what is written of it
                check=False,
            )
        except subprocess.TimeoutExpired:
            return f"it was not written within {WRITING_S:g} s"
        except OSError as error:
            return f"{sys.executable} cannot be run: {error.strerror or error}"
        told = done.stderr.decode("utf-8", "replace").strip().splitlines()
        return "" if done.returncode == 0 else (told[-1] if told else f"it ended with {done.returncode}")
