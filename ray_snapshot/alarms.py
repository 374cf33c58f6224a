"""An alarm, told outside this program: to a command, on its standard input, or to a web address, as JSON.

A thread of its own tells them one after the other, so nobody waits for a command that is slow. What could not be told is said
on stderr, and nothing else comes of it.
"""

from __future__ import annotations

import os
import queue
import re
import shlex
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ray_snapshot.errors import SettingError
from ray_snapshot.evidence import deadlock_evidence
from ray_snapshot.stderr import say
from ray_snapshot.streams import shown
from ray_snapshot.views.report import current_folder, deadlock_report

if TYPE_CHECKING:
    from ray_snapshot.verdicts import Verdict

TELLING_S = 60.0
"""So long a command may take for one alarm; then it is ended."""
ANSWER_S = 10.0
"""So long a web address may take to answer, each time it is tried."""
TRIED = 3
"""So often one that does not answer, or answers that it cannot now, is asked again."""
MOST_WAITING = 100
"""So many alarms wait to be told; past them the newest are dropped."""
MOST_TEXT = 100_000
MOST_VARIABLE = 4_000

Tell = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Alarm:
    """An alarm that begins, or ends."""

    event: str
    """ "begins" or "ends"."""
    system: str
    run_id: str
    detector: str
    snapshot_id: str
    """The snapshot on which it was seen."""
    sentence: str
    report: str
    """For a person; in lines."""
    history: str | None = None
    """The folder of the history that has, or will have, this snapshot."""

    def variables(self) -> dict[str, str]:
        """What a command finds in its environment."""
        told = {name: value or "" for name, value in asdict(self).items() if name != "report"}
        return {f"RAY_SNAPSHOT_{name.upper()}": shown(value[:MOST_VARIABLE]) for name, value in told.items()}


def report_of(verdict: Verdict, system: str) -> str:
    """What a person is told of a verdict with which an alarm begins or ends."""
    evidence = deadlock_evidence(verdict.evidence)
    if verdict.alarm and evidence["members"]:
        return deadlock_report(evidence, system, verdict.snapshot_id)
    what = "alarm of" if verdict.alarm else "no more alarm of"
    return f"ray-snapshot: {what} {verdict.detector} in {system} (snapshot {verdict.snapshot_id}): {verdict.sentence}"


def alarm_of(verdict: Verdict, system: str, history: str | None, report: str = "") -> Alarm:
    """The alarm that begins with this verdict, or ends with it. `report`: if it is made already."""
    report = report or report_of(verdict, system)
    if history is not None:
        report += f"\n  more: ray-snapshot report {shlex.quote(history)} {verdict.snapshot_id}"
    return Alarm(
        "begins" if verdict.alarm else "ends",
        system,
        verdict.run_id,
        verdict.detector,
        verdict.snapshot_id,
        verdict.sentence,
        "\n".join(map(shown, report[:MOST_TEXT].split("\n"))),
        history,
    )


def check_target(where: str, target: str) -> str:
    """`target`, a command line or a web address; raises `SettingError`."""
    target = target.strip()
    if not target or "\0" in target:
        raise SettingError(f"{where} {target!r}: name a command, or an address that begins with https:// or http://")
    if not is_address(target):
        return target
    try:
        parts = urlsplit(target)
        is_good = parts.scheme.lower() in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        is_good = False
    if not is_good:
        raise SettingError(f"{where} {shown_target(target)}: an address begins with https://HOST or http://HOST")
    return target


def is_address(target: str) -> bool:
    """Whether it is an address, and no command."""
    scheme, colon, _ = target.partition("://")
    return bool(colon) and scheme.isalnum()


def shown_target(target: str) -> str:
    """How it is named in messages: of an address only the host, for the rest may be a secret."""
    if not is_address(target):
        return shown(target if len(target) <= 80 else target[:77] + "...")
    scheme = target.partition("://")[0]
    try:
        parts = urlsplit(target)
        host = parts.hostname or ""
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        host = port = ""
    is_plain = re.fullmatch(r"[A-Za-z0-9.:-]*", host)  # else it may be the secret, for something is missing before it
    return shown(f"{scheme}://{host if is_plain else ''}{port if is_plain else ''}/...")


class Notifier:
    """Tells one command, or one address, of alarms."""

    def __init__(self, target: str, tell: Tell = say) -> None:
        """`target`: as `check_target` has it; `tell`: gets a line about what could not be told."""
        self.target = target.strip()
        self.say = tell
        self.folder = current_folder()
        """Where commands begin, wherever the program goes meanwhile."""
        self._waiting: queue.Queue[Alarm | None] = queue.Queue(MOST_WAITING)
        self._untold = 0
        self._is_full = False
        self._is_closing = threading.Event()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def tell(self, alarm: Alarm) -> None:
        """Tell it as soon as those before it are told; returns at once."""
        with self._lock:
            if self._is_closing.is_set():
                self._fail(f"the alarm of {alarm.detector} on {alarm.snapshot_id} came too late to be told")
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="ray-snapshot-alarms", daemon=True)
                self._thread.start()
            self._untold += 1
            try:
                self._waiting.put_nowait(alarm)
                self._is_full = False
            except queue.Full:
                if not self._is_full:
                    self._fail(f"{MOST_WAITING} alarms wait to be told, and further ones are not told")
                self._is_full = True

    def close(self, seconds: float = TELLING_S) -> None:
        """Tell what waits; what is not told within `seconds` is counted on stderr."""
        with self._lock:
            self._is_closing.set()
            thread = self._thread
        if thread is None:
            return
        until = time.monotonic() + seconds
        with suppress(queue.Full):
            self._waiting.put(None, timeout=seconds)
        thread.join(max(0.0, until - time.monotonic()))
        if self._untold:
            self._fail(f"{self._untold:,} alarms were not told" + f" within {seconds:g} s" * thread.is_alive())

    def _work(self) -> None:
        while (alarm := self._waiting.get()) is not None:
            try:
                trouble = self._sent_in_time(alarm) if is_address(self.target) else self._run(alarm)
            except Exception as error:  # a fault of ours: the next alarm is told all the same
                trouble = f"{type(error).__name__}: {error}"
            with self._lock:
                self._untold -= 1
            if trouble:
                self._fail(f"the alarm of {alarm.detector} on {alarm.snapshot_id} was not told: {trouble}")

    def _fail(self, what: str) -> None:
        self.say(f"ray-snapshot: {shown_target(self.target)}: {' '.join(what.split())}")

    # ---- a command ----------------------------------------------------------------------------------------------------

    def _run(self, alarm: Alarm) -> str:
        """Run the command; returns why it has failed, or ""."""
        with tempfile.TemporaryFile() as report, tempfile.TemporaryFile() as errors:
            report.write((alarm.report + "\n").encode("utf-8", "backslashreplace"))
            report.seek(0)
            process = subprocess.Popen(
                ["/bin/sh", "-c", self.target],
                stdin=report,
                stdout=errors,
                stderr=errors,
                cwd=self.folder if self.folder is not None and self.folder.is_dir() else None,
                env={**os.environ, **alarm.variables()},
                start_new_session=True,  # Ctrl-C ends the program, and not what tells of it
            )
            try:
                code = process.wait(TELLING_S)
            except subprocess.TimeoutExpired:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                return f"the command has not ended within {TELLING_S:g} s, and was ended"
            if code == 0:
                return ""
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - 2_000))
            told = errors.read().decode("utf-8", "replace").strip().splitlines()
            how = f"ended by signal {-code}" if code < 0 else f"ended with {code}"
            return f"the command {how}{': ' + told[-1][:500] if told else ''}"

    # ---- an address ---------------------------------------------------------------------------------------------------

    def _sent_in_time(self, alarm: Alarm) -> str:
        """An answer may come byte by byte, each in time: so all of it has a bound, in a thread that is then left behind."""
        found: list[str] = []
        thread = threading.Thread(target=lambda: found.append(self._sent(alarm)), name="ray-snapshot-post", daemon=True)
        thread.start()
        thread.join(TELLING_S)
        return found[0] if found else f"it has not answered within {TELLING_S:g} s"

    def _sent(self, alarm: Alarm) -> str:
        """Send it; returns why that was in vain, or ""."""
        import requests
        from requests.adapters import HTTPAdapter
        from urllib3.util import Retry

        again = Retry(
            TRIED,
            backoff_factor=0.5,
            status_forcelist=(429, 500, 502, 503, 504),
            allowed_methods=None,
            respect_retry_after_header=False,  # it may name any time
            raise_on_status=False,
        )
        with requests.Session() as session:
            for scheme in ("http://", "https://"):
                session.mount(scheme, HTTPAdapter(max_retries=again))
            try:
                answer = session.post(
                    self.target, json=asdict(alarm), timeout=ANSWER_S, allow_redirects=False, stream=True
                )
            except requests.RequestException as error:
                return str(_innermost(error)).replace(self.target, shown_target(self.target))
            return "" if answer.ok and not answer.is_redirect else f"it answered {answer.status_code} {answer.reason}"


def _innermost(error: BaseException) -> BaseException:
    """What lies under the errors of the libraries; their own words name the whole address."""
    for _ in range(10):
        inner = (getattr(error, "reason", None), *error.args)
        error = next((one for one in inner if isinstance(one, BaseException)), error)
    return error
