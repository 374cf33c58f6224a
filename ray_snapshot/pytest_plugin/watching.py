"""What the plugin does when it is asked for: one watch for each Ray that the tests start, and what is said of each test.

Tests leave stuck actors behind. A deadlock is of the test that runs if a call of it began in that test, or if the test itself
waits for it. A deadlock that was caught fails its test all the same, unless that expects one.
"""

from __future__ import annotations

import hashlib
import math
import re
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from ray_snapshot.detectors import Deadlock, Termination
from ray_snapshot.errors import DeadlockError, SettingError, SnapshotAbortedError
from ray_snapshot.instrument import here, watching
from ray_snapshot.instrument.raising import deadlock_error
from ray_snapshot.instrument.report_files import write_apart
from ray_snapshot.instrument.watching import Watch
from ray_snapshot.names import DRIVER
from ray_snapshot.runtime.collected import begun_at
from ray_snapshot.runtime.settings import check_writable
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import Verdict, check_detector, evaluate

HARNESS = frozenset({"execnet", "xdist", "pytest_", "_pytest."})
"""What runs tests: its threads, timers and handlers end a test, and never a wait of it."""

PAUSE_S = 0.05
"""Between the first looks at whether everything has ended; later ones take longer."""

FORCED_S = 4.0
"""A snapshot may take so long at most, so after half of it what is inside a long method is recorded there, as still running."""

LOOK_S = 10.0
"""How long a last snapshot may take, where a test expects a deadlock and none was seen."""


class RaySnapshotWarning(UserWarning):
    """A test came to a deadlock, and deadlocks are only reported."""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    worker: str
    every: float
    grace: float
    fails: bool
    """Whether a deadlock fails its test."""
    folder: str | None
    """Where history and report of failed tests are kept."""


@dataclass(slots=True)
class Running:
    """The test that runs."""

    name: str
    expects: bool
    every: float
    began: float = field(default_factory=time.time)
    found: list[DeadlockError] = field(default_factory=list)
    """The deadlocks that are its own, each once."""
    left: set[str] = field(default_factory=set)
    """Machines that earlier tests have left stuck."""
    raised: DeadlockError | None = None
    """The first that its waits have ended in."""
    has_failed: bool = False

    @property
    def is_met(self) -> bool:
        """Whether it came to a deadlock."""
        return bool(self.found) or self.raised is not None


class TestRun:
    """All tests of this process."""

    __test__ = False
    is_one_there = False
    """Whether one watches in this process."""

    def __init__(self, options: Options) -> None:
        """Puts the hooks in place. Raises `SettingError`, `UnsupportedRayError`, `HistoryWriteError`."""
        if not options.every > 0 or not options.grace >= 0:
            raise SettingError("--ray-snapshot-every and --ray-snapshot-grace are seconds")
        self.options = options
        self.folder = None if options.folder is None else Path(options.folder).absolute()  # a test may go elsewhere
        self.running: Running | None = None
        self.watch: Watch | None = None
        self.latest: Verdict | None = None
        """What was last known of deadlocks."""
        self.has_failures = False
        self.to_report: dict[Path, str] = {}
        """The snapshot, by folder of a test that came to a deadlock."""
        self.lock = threading.Lock()
        self.history = self._new_history()
        here.HARNESS.update(HARNESS)
        watching.install(
            self._name("tests"),
            self._begun,
            every=options.every,
            history=self.history,
            on_deadlock="raise",
            deadlock_grace=options.grace if options.fails else NEVER_S,
        )
        TestRun.is_one_there = True

    def _new_history(self) -> Path | None:
        if self.folder is None:
            return None
        check_writable(self.folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f"history-{self.options.worker}-", dir=self.folder)) / "history"

    def _name(self, test: str) -> str:
        return f"pytest-{self.options.worker}-{_file_name(test).lower()}"

    # ---- Ray -------------------------------------------------------------------------------------------------------------

    def _begun(self, watch: Watch) -> None:
        """A Ray of the tests' is watched."""
        self.watch, self.latest = watch, None
        watch.subscribe(self._hear, repeat=True)
        if watch.raiser is not None:
            watch.raiser.title, watch.raiser.narrow, watch.raiser.on_raise = self._title, self.own_part, self._raised
        self._set_clock()

    def _set_clock(self) -> None:
        every = self.options.every if self.running is None else self.running.every
        if self.watch is not None and not self.watch.is_closed and every != self.watch.settings.every:
            self.watch.set_clock(every)

    @contextmanager
    def named(self, what: str) -> Iterator[None]:
        """A Ray that begins meanwhile belongs to this test, class or module."""
        watching.name_next(self._name(what))
        try:
            yield
        finally:
            watching.name_next(self._name("tests"))

    def _title(self) -> str:
        running = self.running
        return "the tests" if running is None else running.name

    def _raised(self, error: DeadlockError) -> None:
        """What the program waits for ends in it, whoever catches that."""
        with self.lock:
            running = self.running
            if running is not None and running.raised is None and begun_at(error.snapshot_id) >= running.began:
                running.raised = error

    def _hear(self, verdict: Verdict) -> None:
        if "cores" in verdict.evidence and verdict.holds is not None:
            self.latest = verdict
        if verdict.alarm and "cores" in verdict.evidence:
            self.note(verdict)

    def note(self, verdict: Verdict) -> None:
        """A deadlock is of the test that runs if a call of it began there, or if the test waits for it."""
        with self.lock:
            running = self.running
            if running is None or not verdict.holds or begun_at(verdict.snapshot_id) < running.began:
                return
            if not _is_of(running, verdict):
                return
            known = {frozenset(core) for error in running.found for core in error.evidence["cores"]}
            own = self.own_part(verdict)
            if any(frozenset(core) not in known for core in own.evidence["cores"]):
                running.found.append(deadlock_error(own, running.name))

    def own_part(self, verdict: Verdict) -> Verdict:
        """The cores of which a call began in the test that runs; all of them, if there are none: the test may wait for those
        that others have left."""
        running, evidence = self.running, verdict.evidence
        began = 0.0 if running is None else running.began
        new = {record["machine"] for record in evidence["members"] if _since(record) >= began}
        own = [core for core in evidence["cores"] if not new.isdisjoint(core)]
        if not own:
            return verdict
        names = {name for core in own for name in core}
        members = [record for record in evidence["members"] if record["machine"] in names]
        behind = [one for one in evidence["stuck_behind"] if one["machine"] == DRIVER or _since(one) >= began]
        cause = [record for record in members if record.get("is_cause")]
        counts = {
            "member_count": len(members),
            "cause_count": len(cause),
            "stuck_behind_count": len(behind),
            "core_count": len(own),
        }
        callers = evidence["callers"] if len(own) == len(evidence["cores"]) else []  # these say nothing of which core
        lists = {"members": members, "stuck_behind": behind, "cores": own, "callers": callers}
        return verdict.model_copy(update={"evidence": {**evidence, **lists, **counts}})

    def left_behind(self) -> set[str]:
        """Machines that were stuck when the test began."""
        return set() if self.running is None else self.running.left

    # ---- tests -----------------------------------------------------------------------------------------------------------

    def begin(self, item: pytest.Item) -> None:
        """A test begins, with its setup."""
        marker = item.get_closest_marker("ray_snapshot")
        given = {} if marker is None else marker.kwargs
        every, expects = given.get("every", self.options.every), given.get("expect") is not None
        with self.lock:
            self.running = Running(item.nodeid, expects, every, left=_stuck(self.latest))
        self._set_clock()

    def end(self) -> None:
        """It is over, with its teardown."""
        with self.lock:
            running, self.running = self.running, None
        if running is not None and running.has_failed:
            self.has_failures = True

    @contextmanager
    def judged(self) -> Iterator[None]:
        """The body of the test runs inside: what it has come to is what it is to come to, or it fails."""
        yield
        running = self.running
        if running is None:
            return
        if running.expects:
            if not running.is_met:
                self._look()
            if not running.is_met:
                pytest.fail("this test expects a deadlock, and came to none", pytrace=False)
        elif running.raised is not None:
            pytest.fail(f"this test has caught a DeadlockError: {running.raised}", pytrace=False)

    def _look(self) -> None:
        """A snapshot now: the test may be over before the clock has taken one."""
        if self.watch is None or self.watch.is_closed:
            return
        self.note(evaluate(Deadlock(), self.watch.snapshot(timeout=LOOK_S)))

    def reported(self, item: pytest.Item, call: pytest.CallInfo[Any], report: pytest.TestReport) -> None:
        """A part of a test is over."""
        running = self.running
        if running is None:
            return
        if call.when == "call" and running.expects and call.excinfo is not None and _is_deadlock(call.excinfo.value):
            report.outcome, report.longrepr = "passed", None
        if call.when == "teardown" and report.passed and running.found and not (self.options.fails or running.expects):
            text = f"{item.nodeid} came to a {running.found[0]}"
            try:
                item.warn(RaySnapshotWarning(text))
            except RaySnapshotWarning:  # warnings are errors in this run
                report.outcome, report.longrepr = "failed", text
        if not report.failed:
            return
        running.has_failed = True
        if self.folder is not None:
            report.sections.append(("ray-snapshot", f"kept in {self._keep(self.folder, item, running, call)}"))

    def _keep(self, kept: Path, item: pytest.Item, running: Running, call: pytest.CallInfo[Any]) -> Path:
        unlike = hashlib.sha256(item.nodeid.encode()).hexdigest()[:6]
        folder = kept / f"{_file_name(item.nodeid)}-{unlike}-{self.options.worker}"
        folder.mkdir(parents=True, exist_ok=True)
        began = datetime.fromtimestamp(running.began).astimezone().isoformat(timespec="seconds")
        said = [str(error) for error in running.found] or [str(call.excinfo.value) if call.excinfo else ""]
        about = [item.nodeid, f"began {began}", f"history: {self.history}", "", *said]
        (folder / "report.txt").write_text("\n".join(about) + "\n", encoding="utf-8")
        if running.found:
            self.to_report[folder] = running.found[0].snapshot_id
        return folder

    def _write_page(self, folder: Path, snapshot_id: str) -> None:
        """The report in HTML beside the text, now that the history is whole; the text says why there is none."""
        if self.history is None:
            return
        if trouble := write_apart(self.history, snapshot_id, folder / "report.html"):
            with (folder / "report.txt").open("a", encoding="utf-8") as text:
                text.write(f"\nno report.html: {trouble}\n")

    def watched(self, item: pytest.Item) -> WatchedTest:
        """What the fixture gives."""
        return WatchedTest(self, item)

    def close(self) -> None:
        """The tests are over: what is kept of those that passed is not wanted."""
        TestRun.is_one_there = False
        watching.close_quietly()
        for folder, snapshot_id in list(self.to_report.items())[:MOST_REPORTS]:
            self._write_page(folder, snapshot_id)
        if self.history is not None and not self.has_failures:
            shutil.rmtree(self.history.parent, ignore_errors=True)


NEVER_S = math.inf
"""The grace where deadlocks are only reported."""

MOST_NAME = 60

MOST_REPORTS = 20
"""So many tests that fail have a report in HTML; each takes seconds."""


class WatchedTest:
    """What a test does with Ray, for its assertions."""

    __test__ = False

    def __init__(self, run: TestRun, item: pytest.Item) -> None:
        self._run = run
        self._item = item

    @property
    def watch(self) -> Watch:
        """The watch of the Ray that runs now; fails the test if there is none."""
        found = self._run.watch
        if found is None or found.is_closed:
            pytest.fail("there is nothing to look at: Ray has not been started yet (ray.init)", pytrace=False)
        return found

    def snapshot(self, *, timeout: float | None = None) -> Snapshot:
        """A snapshot of the whole app, now."""
        __tracebackhide__ = True
        return self.watch.snapshot(timeout=timeout)

    def assert_terminates(self, timeout: float = 30.0) -> Verdict:
        """Wait until nothing runs any more and nothing is on its way; fails, with the reason, if that does not come.

        At once where a deadlock is in the way. What an earlier test has left stuck does not count.
        """
        __tracebackhide__ = True
        deadline, pause = time.monotonic() + timeout, PAUSE_S
        with self.watch.at_rest():
            while True:
                left = max(deadline - time.monotonic(), PAUSE_S)
                try:
                    snapshot = self.snapshot(timeout=min(2 * left, FORCED_S))
                except SnapshotAbortedError as error:
                    why = str(error)
                else:
                    found = self._ended(snapshot)
                    if found.holds:
                        return found
                    self._check_hope(snapshot)
                    why = found.sentence
                if time.monotonic() + pause > deadline:
                    raise AssertionError(f"it has not terminated within {timeout:g} s: {why}")
                time.sleep(pause)
                pause = min(1.0, 1.5 * pause)

    def _check_hope(self, snapshot: Snapshot) -> None:
        """Raise `AssertionError` if a deadlock of this test is in the way."""
        __tracebackhide__ = True
        stuck = evaluate(Deadlock(), snapshot)
        if stuck.holds and not self._run.left_behind().issuperset(_stuck(stuck)):
            report = deadlock_error(self._run.own_part(stuck), self._item.nodeid)
            raise AssertionError(f"it never terminates: {report}")

    def _ended(self, snapshot: Snapshot) -> Verdict:
        left = self._run.left_behind()
        if not left:
            return evaluate(Termination(), snapshot)
        machines = set(snapshot.tables["machines"]["machine"].to_pylist()) - left
        return evaluate(Termination(machines=sorted(machines), senders=[]), snapshot)

    def assert_conserved(self, detector: Any) -> Verdict:
        """Evaluate a detector (a name, or one of `ray_snapshot.detectors`) on a snapshot of now; fails unless it holds."""
        __tracebackhide__ = True
        item = check_detector(detector)
        found = evaluate(item, self.snapshot())
        if found.holds is not True:
            raise AssertionError(found.sentence)
        return found


def _stuck(verdict: Verdict | None) -> set[str]:
    """Machines that can never move again, but for the program."""
    if verdict is None or not verdict.holds:
        return set()
    records = (*verdict.evidence["members"], *verdict.evidence["stuck_behind"])
    return {record["machine"] for record in records} - {DRIVER}


def _since(record: Mapping[str, Any]) -> float:
    """When a call began, as `time.time` counts; 0 if that is not known."""
    since = record.get("since")
    return 0.0 if since is None else datetime.fromisoformat(str(since)).timestamp()


def _is_of(running: Running, verdict: Verdict) -> bool:
    records = (*verdict.evidence["members"], *verdict.evidence["stuck_behind"])
    if any(record["machine"] == DRIVER for record in records):
        return True
    return any(_since(record) >= running.began for record in records)


def _is_deadlock(error: BaseException) -> bool:
    """Whether this is the error of a deadlock, or several in a group."""
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_deadlock, error.exceptions))
    return isinstance(error, DeadlockError)


def _file_name(nodeid: str) -> str:
    """A test as a part of the names of files and systems: letters, digits and dashes; others may come to the same."""
    path, _, name = nodeid.partition("::")
    return re.sub(r"[^A-Za-z0-9]+", "-", f"{path.rpartition('/')[2]} {name}").strip("-")[-MOST_NAME:]
