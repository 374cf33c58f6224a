"""Runs one job for a person: checks what was asked for, starts Spark, shows the answer, says where the results are.

Both `ray-snapshot analyze HISTORY JOB` and `spark-submit JOB.py HISTORY` end here. Imports pyspark only when it runs a
job, so that what was asked wrongly is told at once.
"""

from __future__ import annotations

import argparse
import inspect
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pyarrow.compute as pc

from ray_snapshot.errors import HistoryWriteError, RaySnapshotError, SettingError, SparkJobError
from ray_snapshot.spark_jobs import JOBS
from ray_snapshot.spark_jobs.session import check_installed, first_line, is_local, spark_session

if TYPE_CHECKING:
    from ray_snapshot.history import History

TOP = 20
"""So many rows of a result are printed."""

BRIEF_ROWS = 2_000_000
"""Below so many rows a job is done before Java's second compiler pays: half the processor time for a small history."""


@dataclass(slots=True)
class Request:
    """What somebody asks of a job; options that a job does not take are None or empty."""

    history: str
    master: str | None = None
    system: str | None = None
    run: str | None = None
    since: str | None = None
    until: str | None = None
    out: str | None = None
    json: bool = False
    top: int = TOP
    detectors: list[str] = field(default_factory=list)
    state: str | None = None
    messages: list[str] = field(default_factory=list)
    total: float | None = None


_OPTIONS = {"detectors": "--detector", "state": "--state", "messages": "--message", "total": "--total"}
"""The options that belong to single jobs: a job takes those that are parameters of its `run`."""


def execute(job: str, request: Request) -> None:
    """Run a job and print its answer; raises the errors of `ray_snapshot.errors` only."""
    check_job(job)
    check_installed()
    module = import_module(f"ray_snapshot.spark_jobs.{job}")
    from ray_snapshot.spark_jobs.tables import Selection, parse_time

    if request.master:
        is_local(request.master)
    history = _open(request.history)
    options = _options(job, module, request)
    selection = Selection(
        request.system, request.run, parse_time(request.since, "--from"), parse_time(request.until, "--to")
    )
    out = prepare_out(request.out or default_out(request.history, job))
    spark = spark_session(request.master, brief=row_count(history) < BRIEF_ROWS)
    with reported(job):
        frames = module.run(spark, history, out, selection=selection, **options)
        _show(module, frames, request)
    if not request.json:  # spark-submit joins the two streams, and a program expects nothing but JSON
        print(f"Results of {job}: {out} (Parquet: {', '.join(sorted(frames))})", file=sys.stderr)


def row_count(history: History) -> int:
    """How many machines and channels all snapshots of a history have."""
    listed = history.table("snapshots")
    return sum(pc.sum(listed[name]).as_py() or 0 for name in ("machine_count", "channel_count"))


def check_job(job: str) -> None:
    """Raise `SettingError` unless there is a job of that name."""
    if job not in JOBS:
        raise SettingError(f"there is no Spark job {job!r}: choose one of {', '.join(JOBS)}", job=job)


def default_out(history: str, job: str) -> str:
    """Where the results of a job go if nobody says otherwise: beside the history's tables, never inside one."""
    return str(Path(history) / "results" / job)


def prepare_out(out: str) -> str:
    """Make sure that results can be written under `out`, and return it whole; raises `HistoryWriteError`."""
    if "://" in out:
        return out
    folder = Path(out).absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return str(folder)
    except OSError as error:
        reason = error.strerror or str(error)
        raise HistoryWriteError(
            f"results cannot be written to {folder} ({reason}): name another folder with --out", path=str(folder)
        ) from error


def _open(path: str) -> History:
    from ray_snapshot.history import History

    return History(path)


def _options(job: str, module: ModuleType, request: Request) -> dict[str, Any]:
    """The job's own options; raises `SettingError` for one that belongs to another job."""
    takes = inspect.signature(module.run).parameters
    given = {name: getattr(request, name) for name in _OPTIONS if getattr(request, name) not in (None, [])}
    wrong = [_OPTIONS[name] for name in given if name not in takes]
    if wrong:
        raise SettingError(f"the job {job} takes no {', '.join(wrong)}")
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


def _show(module: ModuleType, frames: dict[str, Any], request: Request) -> None:
    from ray_snapshot.spark_jobs.output import print_json_lines, print_view

    if request.json:
        print_json_lines(module.VIEWS[0], frames[module.VIEWS[0].name])
        return
    for view in module.VIEWS:
        print_view(view, frames[view.name], request.top)


def main(job: str, argv: Sequence[str] | None = None) -> int:
    """A job as a program of its own; returns the exit code (2, and one line on stderr, if it cannot be done)."""
    try:
        execute(job, Request(**vars(_parser(job).parse_args(argv))))
    except RaySnapshotError as error:
        print(f"ray-snapshot: error: {error}", file=sys.stderr)
        return 2
    return 0


def _parser(job: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=job, description=JOBS[job].capitalize() + ".")
    parser.add_argument("history", help="the folder of the history")
    parser.add_argument("--master", help="the Spark master; default: this machine, or as submitted")
    parser.add_argument("--system", help="snapshots of this system only")
    parser.add_argument("--run", help="snapshots of this run only")
    parser.add_argument("--from", dest="since", metavar="TIME", help="snapshots started at or after (ISO, UTC)")
    parser.add_argument("--to", dest="until", metavar="TIME", help="snapshots started before (ISO, UTC)")
    parser.add_argument("--out", help="where the Parquet results go; default: HISTORY/results/JOB")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--top", type=int, default=TOP, help="rows to print")
    takes = inspect.signature(import_module(f"ray_snapshot.spark_jobs.{job}").run).parameters
    for name in (name for name in _OPTIONS if name in takes):
        if name in ("detectors", "messages"):
            parser.add_argument(_OPTIONS[name], dest=name, action="append", default=[])
        else:
            parser.add_argument(_OPTIONS[name], dest=name, type=float if name == "total" else str)
    return parser
