"""Runs one job for a person: checks what was asked for, starts Spark, shows the answer, says where the results are.

Imports pyspark only when it runs a job, so that what was asked wrongly is told at once.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.addresses import StorePath, given, is_address
from ray_snapshot.errors import HistoryWriteError, SettingError, SparkJobError
from ray_snapshot.history import History, inside
from ray_snapshot.names import listed
from ray_snapshot.spark_jobs import JOBS
from ray_snapshot.spark_jobs.engine.request import OPTIONS, Request
from ray_snapshot.spark_jobs.session import check_installed, first_line, is_local, spark_session
from ray_snapshot.views.tables import one_line

if TYPE_CHECKING:
    from ray_snapshot.spark_jobs.tables import Selection

FAILED = 1
"""The exit code of a job that is done, but not wholly: a detector raised."""

MOST_NAMED = 10
"""So many systems or runs are named in an error."""

BRIEF_ROWS = 2_000_000
"""Below so many rows a job is done before Java's second compiler pays: half the processor time for a small history."""


def execute(request: Request) -> int:
    """Run a job and print its answer; returns the exit code, and raises the errors of `ray_snapshot.errors` only."""
    job = request.job
    if job not in JOBS:
        raise SettingError(f"there is no Spark job {job!r}: choose one of {', '.join(JOBS)}", job=job)
    check_installed()
    module = import_module(f"ray_snapshot.spark_jobs.{job}")
    if request.master:
        is_local(request.master)
    with _near(History(request.history), request) as near:
        return _answer(module, request, near)


def _answer(module: ModuleType, request: Request, near: _Near) -> int:
    from ray_snapshot.commands import consent
    from ray_snapshot.spark_jobs.tables import Selection, parse_time, whole_run_id

    history, job = near.history, request.job
    options = _options(module, request)
    run_id = whole_run_id(history, request.run)
    if hasattr(module, "named_code"):
        alone = module.named_code(history) - set(request.detectors or ())
        options |= {"trust": True} if consent.is_given(bool(request.trust), alone, request.history) else {}
    since, until = parse_time(request.since, "--from"), parse_time(request.until, "--to")
    selection = Selection(request.system, run_id, since, until)
    check_selection(history, selection)
    out = prepare_out(request.out or default_out(request.history, job), request.history)
    with _Interrupts() as interrupts:
        spark = spark_session(request.master, brief=row_count(history) < BRIEF_ROWS)
        near.check(spark.sparkContext.master)
        interrupts.spark_runs()
        with reported(job):
            frames = module.run(spark, history, out, selection=selection, **options)
            troubles = _show(module, frames, request)
    for trouble in troubles:
        _say(f"ray-snapshot: {trouble}")
    if not request.json:  # spark-submit joins the two streams, and a program expects nothing but JSON
        _say(f"Results of {job}: {out} (Parquet: {', '.join(sorted(frames))})")
    return FAILED if troubles else 0


@dataclass
class _Near:
    """A history that Spark can read: itself, or its copy on this computer."""

    history: History
    source: str = ""
    """The address that it is a copy of."""

    def check(self, master: str) -> None:
        """Raise `SettingError` if Spark's tasks run where the copy is not."""
        if self.source and not is_local(master):
            raise SettingError(
                f"{self.source} is copied to this computer for a job, and {master} runs tasks on others: use --master"
                ' local[*], or spark.read.format("ray_snapshot").load(...), which reads the store itself'
            )


@contextmanager
def _near(history: History, request: Request) -> Iterator[_Near]:
    """The history; of one in a store a copy in a temporary folder, as Spark reads files."""
    if not isinstance(history.path, StorePath):
        yield _Near(history)
        return
    from ray_snapshot.history.mirror import Mirror

    near = _Near(history, str(history.path))
    near.check(request.master or "local")
    with tempfile.TemporaryDirectory(prefix="ray-snapshot-copy-") as folder:
        mirror = Mirror(history.path, Path(folder) / "history")
        size = mirror.missing_bytes() / 1e6
        _say(f"Copying {size:,.1f} MB of {history.path} to this computer, for Spark")
        mirror.refresh()
        near.history = History(str(mirror.folder))
        yield near


def row_count(history: History) -> int:
    """How many machines and channels all snapshots of a history have."""
    listed = history.table("snapshots")
    return sum(pc.sum(listed[name]).as_py() or 0 for name in ("machine_count", "channel_count"))


def check_selection(history: History, selection: Selection) -> None:
    """Raise `SettingError` if no completed snapshot is selected: an empty answer would replace a good one.

    A history that has no snapshots yet, asked for all of them, has an empty answer.
    """
    since, until = selection.since, selection.until
    if since is not None and until is not None and since >= until:
        raise SettingError(f"--from {since:%Y-%m-%dT%H:%M:%S} is not before --to {until:%Y-%m-%dT%H:%M:%S}")
    rows = history.table("snapshots")
    for option, column, value in (("--system", "system", selection.system), ("--run", "run_id", selection.run)):
        if value is not None:
            rows = _chosen(rows, option, column, value)
    left = rows.filter(pc.equal(rows["status"], "complete"))
    if since is not None:
        left = left.filter(pc.greater_equal(left["started_at"], pa.scalar(since, left["started_at"].type)))
    if until is not None:
        left = left.filter(pc.less(left["started_at"], pa.scalar(until, left["started_at"].type)))
    if not left.num_rows and selection != type(selection)():
        raise SettingError(f"no completed snapshot is selected; {_times(rows)}")


def _chosen(rows: pa.Table, option: str, column: str, value: str) -> pa.Table:
    """The rows with this value; raises `SettingError`, naming what there is, if there are none."""
    found = rows.filter(pc.equal(rows[column], value))
    if not found.num_rows:
        known = sorted(set(rows[column].drop_null().to_pylist()))
        latest = listed(known[-MOST_NAMED:], len(known), MOST_NAMED)
        there = f"there are: {latest}" if known else "the history has none yet"
        raise SettingError(f"{option}: no snapshots of {value!r}; {there}")
    return found


def _times(rows: pa.Table) -> str:
    if not rows.num_rows:
        return "the history has none yet"
    times = pc.min_max(rows["started_at"]).as_py()
    first, last = (f"{times[name]:%Y-%m-%dT%H:%M:%S}" for name in ("min", "max"))
    return f"the {rows.num_rows} there are were started from {first} to {last} (UTC)"


def default_out(history: str, job: str) -> str:
    """Where the results of a job go if the caller names no folder: beside the history's tables, never inside one.

    Of a history in a store: below the current folder.
    """
    place = given(history, SettingError)
    if isinstance(place, StorePath):
        return str(Path(f"{place.name}-results") / job)
    return str(place / "results" / job)


def prepare_out(out: str, history: str) -> str:
    """Make sure that results can be written under `out`, and return it whole; raises `HistoryWriteError`.

    Below the history there must be no link on the way to the results, nor a link or a pipe in them: `HistoryFormatError`.
    """
    out = _local(out)
    if "://" in out:
        return out
    _refuse_tables(Path(out).resolve())
    folder = Path(os.path.abspath(out))
    try:
        own = None if is_address(history) else os.path.abspath(os.path.expanduser(history))
        if own is not None and folder.is_relative_to(own):
            top = Path(own).resolve()
            folder = top / folder.relative_to(own)
            with inside.folder(top, folder, is_made=True):
                inside.refuse_all_but_files(top, folder)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return str(folder)
    except OSError as error:
        reason = error.strerror or str(error)
        raise HistoryWriteError(
            f"results cannot be written to {folder} ({reason}): name another folder with --out", path=str(folder)
        ) from error


def _local(out: str) -> str:
    """The folder of this machine that `file:///...`, or `file:...`, means; anything else as it is."""
    address = urlsplit(out)
    if address.scheme != "file" or address.netloc not in ("", "localhost"):
        return out
    path = unquote(address.path)
    if not path or "\0" in path:
        raise SettingError(f"--out {out!r} names no folder: write a path, or file:///...")
    return "/" + path.lstrip("/") if path.startswith("/") else path


def _refuse_tables(folder: Path) -> None:
    """Raise `HistoryWriteError` if a folder is a table of a history, or lies in one: results are no rows of it."""
    table = next((place for place in (folder, *folder.parents) if (place / "_delta_log").is_dir()), None)
    if table is not None:
        raise HistoryWriteError(
            f"{folder} is, or lies in, the table {table}: results would become part of it; name another folder"
            " with --out",
            path=str(folder),
        )


def _options(module: ModuleType, request: Request) -> dict[str, Any]:
    """The job's own options; raises `SettingError` for one that belongs to another job."""
    own = [name for name, option in OPTIONS.items() if option.jobs != tuple(JOBS)]
    given = {name: getattr(request, name) for name in own if getattr(request, name) not in (None, [])}
    wrong = [OPTIONS[name].flag for name in given if request.job not in OPTIONS[name].jobs]
    if wrong:
        raise SettingError(f"the job {request.job} takes no {', '.join(wrong)}")
    checked: dict[str, Any] = module.options(**given) if hasattr(module, "options") else given
    return checked


@contextmanager
def reported(job: str) -> Iterator[None]:
    """Turn whatever Spark raises inside into one `SparkJobError`."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise SparkJobError(f"the Spark job {job} failed: {first_line(error)}", job=job) from error


class _Interrupts:
    """Ctrl-C while Spark starts and runs, in the main thread: `KeyboardInterrupt`, and nothing is printed.

    While Java starts, the interrupt waits until Java is there: a Java whose starter has gone would stay for ever.
    PySpark's own handler, which it installs as it starts, would ask Java once more over the connection that is in use.
    """

    def __init__(self) -> None:
        self.is_starting = True
        self.came = False
        self.is_ours = threading.current_thread() is threading.main_thread()

    def __enter__(self) -> _Interrupts:
        if self.is_ours:
            self.before = signal.getsignal(signal.SIGINT)
            signal.signal(signal.SIGINT, self._handle)
            logging.getLogger().addFilter(_is_no_broken_command)
        return self

    def spark_runs(self) -> None:
        """Spark has been started: from now on an interrupt is heeded at once."""
        self.is_starting = False
        if self.is_ours:
            signal.signal(signal.SIGINT, self._handle)
        if self.came:
            raise KeyboardInterrupt

    def _handle(self, *_: object) -> None:
        if not self.is_starting or self.came:
            raise KeyboardInterrupt
        self.came = True
        print("ray-snapshot: stopping as soon as Spark has started", file=sys.stderr)

    def __exit__(self, *_: object) -> None:
        if self.is_ours:
            signal.signal(signal.SIGINT, self.before)
            logging.getLogger().removeFilter(_is_no_broken_command)


def _is_no_broken_command(record: logging.LogRecord) -> bool:
    """False for py4j's own log line about a command that was cut off: the error that the job raises already says so."""
    return not record.getMessage().endswith("while sending command.")


def _show(module: ModuleType, frames: dict[str, Any], request: Request) -> list[str]:
    """Print the answer; returns what went wrong on the way."""
    from ray_snapshot.spark_jobs.engine.output import print_json_lines, print_view

    if request.json:
        print_json_lines(module.VIEWS[0], frames[module.VIEWS[0].name])
    else:
        for view in module.VIEWS:
            print_view(view, frames[view.name], request.top)
    troubles: list[str] = module.troubles(frames) if hasattr(module, "troubles") else []
    return troubles


def _say(text: str) -> None:
    """One line on stderr, whatever a stranger's history or a path has in its names."""
    print(one_line(text), file=sys.stderr, flush=True)
