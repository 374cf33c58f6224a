"""`ray-snapshot demo`: a story of two minutes on this machine.

Three example systems run on Ray while snapshots are taken, then a Spark job asks their history, and the deadlock of the last
one ends the story. All of it can be had by the other commands.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ray_snapshot.wrapping import print_text

if TYPE_CHECKING:
    from ray_snapshot.verdicts import Verdict

EVERY_S = 0.5

_STORIES: list[tuple[str, str, Callable[[dict[str, Any]], str]]] = [
    (
        "bank",
        "20 accounts pay each other all the time",
        lambda facts: (
            f"{facts['total']:,} coins in each, though up to {max(row['in_flight'] for row in facts['books']):,} were"
            " on their way and in no account"
        ),
    ),
    (
        "work_pool",
        "workers share a search for primes, and a desk asks whether they are idle",
        lambda facts: f"when all had said so, {facts['tasks_in_flight']} tasks were still on their way to one of them",
    ),
    (
        "dining_philosophers",
        "five philosophers each take the fork on their left, then the one on their right",
        lambda facts: f"{sum(facts['meals'].values()) or 'no'} meal was eaten, and none ever will be",
    ),
]
"""What is played, the one with the alarm last: its name, what it does, and what was found."""


def register(app: typer.Typer) -> None:
    """Add the command `demo` to the command line."""
    app.command("demo")(demo)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the history and the results.")] = Path("demo-out"),
    spark: Annotated[bool, typer.Option(help="Run a Spark job over the history.")] = True,
) -> None:
    """Run three examples on Ray, and ask their history with Spark."""
    from ray_snapshot.stderr import LOGGER
    from ray_snapshot.views.report import deadlock_report

    LOGGER.addFilter(lambda record: "alarm in dining_philosophers" not in record.getMessage())  # it ends the story
    began = time.monotonic()
    history = str(out / "history")
    out.mkdir(parents=True, exist_ok=True)
    print_text(f"Three systems run on Ray, on this machine; a snapshot of each goes to {history} every half second.")
    alarm = _run_systems(history)
    if spark:
        _run_job(history)
    print_text(f"\nThe end, after {time.monotonic() - began:.0f} s: dining_philosophers will never eat again.")
    print_text(deadlock_report(alarm.evidence, "dining_philosophers", alarm.snapshot_id))
    print_text("\nThree things to type next:")
    print(f"  {_pasted('serve', history, '--open')}  # every snapshot in a browser")
    print(f"  {_pasted('report', history)}  # the deadlock, as a file to attach")
    print(f"  {_pasted('run', '--exit-on', 'deadlock', '-m', 'ray_snapshot.examples.job_queue')}  # plain Ray")


def _run_systems(history: str) -> Verdict:
    """Play them one after the other; returns the last alarm."""
    import ray

    from ray_snapshot.runtime.cluster import connect

    heard: list[Verdict] = []
    # A short path, for it must leave room for Ray's sockets.
    with tempfile.TemporaryDirectory(prefix="rs-", dir="/tmp") as folder:
        connect(temp_dir=folder)
        try:
            for name, what, found in _STORIES:
                print_text(f"\n{name}: {what}")
                sys.stdout.flush()
                before = len(heard)
                play = import_module(f"ray_snapshot.examples.{name}").play
                facts = play(history=history, every=EVERY_S, on_verdict=heard.append)
                ids = {verdict.snapshot_id for verdict in heard[before:]}
                print_text(f"  {len(heard) - before} verdicts on {len(ids)} snapshots: {found(facts)}")
        finally:
            ray.shutdown()
    return next(verdict for verdict in reversed(heard) if verdict.alarm)


def _run_job(history: str) -> None:
    from ray_snapshot.spark_jobs.engine.command import execute
    from ray_snapshot.spark_jobs.engine.request import Request

    print(f"\n{_pasted('analyze', history, 'detections')}", flush=True)
    execute(Request(history, "detections", top=20))


def _pasted(*arguments: str) -> str:
    """A command line of ours as it can be pasted into the shell that we were called from."""
    program = Path(sys.argv[0])
    if shutil.which("ray-snapshot") is not None:
        words = ["ray-snapshot"]
    elif program.name == "ray-snapshot":
        words = [str(program)]
    else:
        words = [sys.executable, "-m", "ray_snapshot.cli"]
    return shlex.join([*words, *arguments])
