"""Running a user's program, watched: as `python SCRIPT` or `python -m MODULE` would, with our functions under Ray's.

The program keeps its arguments, its output, its traceback and its exit code. Only its timing differs.
"""

from __future__ import annotations

import asyncio
import atexit
import os
import re
import runpy
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, Literal
from weakref import ref

from ray_snapshot.addresses import absolute
from ray_snapshot.alarms import check_target
from ray_snapshot.errors import HistoryWriteError, SettingError
from ray_snapshot.evidence import names_in, needs_in
from ray_snapshot.instrument import shape, watching
from ray_snapshot.instrument.ending import FIRED, INTERRUPTED, TOLD, Ending, end_program, tell_end
from ray_snapshot.instrument.here import own_threads
from ray_snapshot.instrument.hooks import tracking
from ray_snapshot.instrument.process.failures import FAILURES, PROCESS
from ray_snapshot.instrument.report_files import ReportFiles
from ray_snapshot.instrument.watching import Watch
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import OnDeadlock
from ray_snapshot.news import News
from ray_snapshot.pace import Every
from ray_snapshot.runtime.settings import check_writable
from ray_snapshot.stderr import say
from ray_snapshot.streams import give_back
from ray_snapshot.verdicts import READY_MADE, SUSPECTED, ReadyMade, Verdict, check_detector
from ray_snapshot.views.report import deadlock_report, short_sites, stall_report


@dataclass(frozen=True, slots=True)
class Options:
    """What `ray-snapshot run` was told."""

    every: Every
    history: str | None
    detectors: list[str]
    exit_on: str | None
    name: str | None
    library_states: bool = False
    on_deadlock: OnDeadlock = "report"
    deadlock_grace: float = 10.0
    victim: Literal["youngest"] | None = None
    report: Path | None = None
    """Where reports are written."""
    shared_history: bool = False
    """Whether every node sees the folder of the history."""
    on_alarm: str | None = None
    """What is told of alarms."""
    stalled: float = 120.0
    """Seconds without a move that make a stall."""
    patience: float = 60.0
    """Seconds for which a deadlock must be suspected, where that ends the program."""
    quiet: bool = False
    """Whether only alarms and troubles are said, and nothing of the beginning and the end."""


def run_program(program: tuple[str | None, str | None, list[str]], options: Options) -> int:
    """Run it to its end; returns its exit code, or 3.

    Raises `SettingError` if there is no such program, `HistoryWriteError` if no history can be kept where it is to be.
    """
    script, module, arguments = program
    if options.on_alarm is not None:
        check_target("--on-alarm", options.on_alarm)
    options = _with_history(options)
    if options.history is not None:
        check_writable(options.history)
    code = _compiled(script) if script is not None else None
    with _modules_of(script):
        found = [_detector(item, options) for item in options.detectors]
        if options.exit_on not in (None, SUSPECTED):  # whose name may be another than that by which it was asked for
            options = replace(options, exit_on=found[options.detectors.index(options.exit_on)].name)
    reporter = Reporter(options)
    watching.install(
        options.name or system_name(script, module),
        on_watch=reporter.follow,
        ending=Ending(watching.close_quietly),
        every=options.every,
        history=options.history,
        history_is_shared=options.shared_history,
        detectors=found,
        snapshot_timeout=LIMITS.run_snapshot_s,
        library_states=options.library_states,
        on_deadlock=options.on_deadlock,
        deadlock_grace=options.deadlock_grace,
        victim=options.victim,
        on_alarm=options.on_alarm,
    )
    exit_code = 0
    try:
        if code is not None and script is not None:
            _run_script(script, code, arguments)
        else:
            _run_module(str(module), arguments)
    except _NoSuchModule:
        TOLD.clear()
        raise
    except SystemExit as error:
        exit_code = _exit_code(error)
    except KeyboardInterrupt as error:
        exit_code = INTERRUPTED
        reporter.last_words(error)
        _show(error)
        raise
    except BaseException as error:
        exit_code = 1
        reporter.finish()
        _show(error)
    finally:
        if all(thread.daemon for thread in own_threads()):
            _end(exit_code)
        else:  # Python goes on until they have ended
            atexit.register(_end, exit_code)
        reporter.finish()
    return exit_code


def _end(exit_code: int) -> None:
    watching.close_quietly()
    tell_end(exit_code)


def _detector(name: str, options: Options) -> Any:
    if name not in READY_MADE:
        return check_detector(name)
    return ReadyMade(name, **({"seconds": options.stalled} if name == "stall" else {}))


def _with_history(options: Options) -> Options:
    """Reports are made of a history: without one, it is beside them. Paths hold wherever the program goes."""
    if options.report is None:
        return options
    folder = options.report.absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise SettingError(
            f"--report {options.report}: nothing can be written there: {error.strerror or error}"
        ) from None
    history = absolute(options.history or folder / "history", HistoryWriteError)
    return replace(options, report=folder, history=history)


def run_script(script: str, arguments: list[str], is_ours: Callable[[BaseException], bool]) -> int:
    """Run a script as `python SCRIPT` would, unwatched; returns its exit code.

    Raises `SettingError` if there is none, and what the script raises that is ours to report.
    """
    code = _compiled(script)
    try:
        _run_script(script, code, arguments)
    except SystemExit as error:
        return _exit_code(error)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        if is_ours(error):
            raise
        _show(error)
        return 1
    return 0


@contextmanager
def _modules_of(script: str | None) -> Iterator[None]:
    """Modules are found beside the program, and in the current folder; the program's own path stays as it is."""
    before = list(sys.path)
    sys.path[:0] = [str(Path(script).resolve().parent)] if script is not None else []
    sys.path.append(os.getcwd())
    try:
        yield
    finally:
        sys.path[:] = before


class _NoSuchModule(SettingError):
    """The module to run does not exist: ours to report, as no other error of a program is."""


def _compiled(script: str) -> Any:
    path = Path(script)
    try:
        return compile(path.read_bytes(), os.path.abspath(path), "exec", dont_inherit=True)
    except OSError as error:
        raise SettingError(
            f"{script} cannot be run: {error.strerror or error}; name a Python file, or -m MODULE"
        ) from None
    except SyntaxError as error:
        raise SettingError(f"{script}, line {error.lineno}: {error.msg}") from None


def _run_script(script: str, code: Any, arguments: list[str]) -> None:
    give_back()
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    module = ModuleType("__main__")
    module.__dict__.update(__file__=os.path.abspath(script), __builtins__=sys.modules["builtins"])
    sys.modules["__main__"] = module
    exec(code, module.__dict__)


def _run_module(name: str, arguments: list[str]) -> None:
    give_back()
    sys.argv = [name, *arguments]
    sys.path[0] = os.getcwd()
    try:
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    except ImportError as error:
        if getattr(error, "name", None) not in (None, name.partition(".")[0], name):
            raise
        raise _NoSuchModule(f"-m {name} cannot be run: {error}") from None


def _exit_code(error: SystemExit) -> int:
    if error.code is None or isinstance(error.code, int):
        return error.code or 0
    print(error.code, file=sys.stderr)
    return 1


def _show(error: BaseException) -> None:
    """The traceback as Python would print it, from the program's own first line on."""
    trace: TracebackType | None = error.__traceback__
    while trace is not None and trace.tb_frame.f_globals.get("__name__", "").startswith(("ray_snapshot.", "runpy")):
        trace = trace.tb_next
    sys.excepthook(type(error), error.with_traceback(trace), trace)


def system_name(script: str | None, module: str | None) -> str:
    """The file's name without its ending, or the last part of the module's (of a package that is run, the package's)."""
    program = Path(script).stem if script is not None else str(module).removesuffix(".__main__").rpartition(".")[2]
    stem = re.sub(r"[^a-z0-9_.-]", "-", program.lower())
    return stem if stem[:1].isalpha() or stem[:1] == "_" else f"app-{stem}"


class Reporter:
    """Prints what the detectors find on stderr, and ends the program if it was asked to."""

    def __init__(self, options: Options, clock: Callable[[], float] = time.monotonic) -> None:
        self.options, self.clock = options, clock
        self.watch: Watch | None = None
        self.began = time.monotonic()
        self.watches: list[Watch] = []
        """All that there were, one after the other."""
        self.alarms: dict[str, None] = {}
        """The detectors that have alarmed, the first first."""
        self.told: set[Any] = set()
        self.needs: set[str] = set()
        """What the deadlock that stands needs on nodes: no alarm of its own."""
        self.news = News(lambda name: None if self.watch is None else self.watch.alarm_when(name))
        self.suspected: dict[str, float] = {}
        """By what decides it: since when that is suspected, but for snapshots between that cannot tell."""
        self.suspected_at = 0.0
        """When it was suspected last."""
        self.end: threading.Thread | None = None
        """Ends the program, once it was asked for."""
        self.files: ReportFiles | None = None
        if options.report is not None and options.history is not None:
            self.files = ReportFiles(options.report, options.history)
        TOLD[:] = [] if options.quiet else [lambda code: say(self.ending(code))]
        self.interrupted: Callable[[], Any] = lambda: None
        """Of which Ctrl-C the last diagnosis was: an `asyncio.Runner`, which raises an error when it has ended."""

    def follow(self, watch: Watch) -> None:
        """The watching has begun."""
        self.watch = watch
        self.told.clear()
        self.news = watch._news()  # the machines of another session may have the same names
        tracking.ON_INTERRUPT[:] = [self.last_words]
        self.watches.append(watch)
        if not self.options.quiet:
            say(f"ray-snapshot: watching; from another terminal: {diagnose_command(watch.name)}")
        watch.subscribe(self.hear, repeat=True)
        if (files := self.files) is not None:
            watching.WHEN_CLOSED[:] = [lambda: files.end(watch.name, watch.run_id)]

    def hear(self, verdict: Verdict) -> None:
        """A verdict: say it once for each deadlock, each alarm, and each detector that fails."""
        if "error" in verdict.evidence and (key := (verdict.detector, "error")) not in self.told:
            self.told.add(key)
            say(f"ray-snapshot: {' '.join(verdict.sentence.split())}")
        if verdict.alarm:
            self.alarms[verdict.detector] = None
        if "members" in verdict.evidence:
            self.needs = needs_in(verdict.evidence) if verdict.alarm else set()
        is_wanted = verdict.alarm or (verdict.holds and verdict.detector == self.options.exit_on)
        is_told = bool(needs := names_in(verdict.evidence, "needs")) and self.needs.issuperset(needs)
        if self.news.has(verdict) and is_wanted and not is_told:
            say(self.text(verdict), wraps=True)
            if verdict.alarm and self.files is not None and self.watch is not None:
                self.files.begin(self.watch.name, verdict.snapshot_id, self.watch.write_history)
        is_meant = verdict.holds and verdict.detector == self.options.exit_on
        if (is_meant or self._is_suspected_for_long(verdict)) and self.end is None:
            self.end = end_program(watching.close_quietly)

    def _is_suspected_for_long(self, verdict: Verdict) -> bool:
        """Whether a deadlock ends the program that is suspected for so long, or proven, where suspicions do."""
        if self.options.exit_on != SUSPECTED or (verdict.detector_spec or {}).get("type") != "deadlock":
            return False
        now = self.clock()
        if verdict.holds is False or now - self.suspected_at > self.options.patience:
            self.suspected = {}
        if verdict.grade == SUSPECTED:
            deciding = names_in(verdict.evidence, "depends_on") or [""]
            self.suspected = {one: self.suspected.get(one, now) for one in deciding}
            self.suspected_at = now
            if now - min(self.suspected.values()) >= self.options.patience:
                say(f"ray-snapshot: {verdict.sentence}", wraps=True)
                return True
        return bool(verdict.holds)

    def text(self, verdict: Verdict) -> str:
        """What is printed of a verdict."""
        if "members" in verdict.evidence:
            system = self.watch.name if self.watch is not None else "the program"
            return deadlock_report(verdict.evidence, system, verdict.snapshot_id)
        if "places" in verdict.evidence and self.watch is not None:
            return stall_report(verdict.sentence, verdict.evidence, diagnose_command(self.watch.name))
        return f"ray-snapshot: {short_sites(verdict.sentence)}"

    def ending(self, code: int) -> str:
        """How the program has ended: "exit 0 after 74 s, 71 snapshots, no deadlock"."""
        read = {key for key, _ in FAILURES.read}  # after the last snapshot, too
        found = [watch.summary for watch in self.watches if watch.summary is not None]
        snapshots, restarts = sum(one.snapshots for one in found), sum(one.restarts for one in found)
        unread = [text for one in found for task, pid, text in one.unread if not {task, f"{PROCESS}{pid}"} & read]
        told = [_counted(snapshots, "snapshot")] if found else ["nothing was watched"] * (not self.watches)
        if self.alarms:
            told.append(f"alarm of {', '.join(self.alarms)}")
        elif snapshots and "deadlock" in self.options.detectors:
            told.append("no deadlock" if code < _BY_A_SIGNAL else "no alarm")
        if restarts:
            told.append(_counted(restarts, "restart"))
        if unread:
            told.append(f"{_counted(len(unread), 'error')} that nobody has read ({unread[-1]})")
        return f"ray-snapshot: {', '.join([f'exit {code} after {time.monotonic() - self.began:.0f} s', *told])}"

    def finish(self) -> None:
        """The program has ended by itself; if the end was asked for, that one counts."""
        if self.end is not None:
            self.end.join(LIMITS.run_end_s)
            os._exit(FIRED)

    def last_words(self, interrupt: Any) -> None:
        """Ctrl-C: one diagnosis of what the program is doing; of each only one."""
        if self.watch is None or self._is_told(interrupt):
            return
        from ray_snapshot.instrument.diagnosis import diagnosis

        try:
            say("\n".join(diagnosis(self.watch.snapshot(timeout=LIMITS.last_diagnosis_s)).lines), wraps=True)
        except Exception as error:
            say(f"ray-snapshot: no last diagnosis: {' '.join(traceback.format_exception_only(error)).strip()}")

    def _is_told(self, interrupt: Any) -> bool:
        """Whether there was a diagnosis of this one; from now on there is one. Nothing of the program is kept for it."""
        if isinstance(interrupt, asyncio.Runner):
            is_told, self.interrupted = self.interrupted() is interrupt, ref(interrupt)
            return is_told
        is_of_a_runner = isinstance(interrupt.__context__, asyncio.CancelledError) and self.interrupted() is not None
        is_told = is_of_a_runner or getattr(interrupt, _TOLD, False)
        setattr(interrupt, _TOLD, True)
        return is_told


def _counted(count: int, what: str) -> str:
    return f"{count or 'no'} {what}{'s' * (count > 1)}"


_BY_A_SIGNAL = 128
"""Exit codes from here on are of programs that were ended from outside, as Ctrl-C does."""

_TOLD = "_ray_snapshot_told"
"""What marks an error of which there was a diagnosis."""


def diagnose_command(system: str) -> str:
    """What to type in another terminal, as long as the program runs."""
    return f"ray-snapshot diagnose {system} --address {shape.own_address()}"
