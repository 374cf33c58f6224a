"""`ray-snapshot demo`: the whole story on this machine.

Runs the example systems on Ray while snapshots are taken, prints verdicts as they come, writes the history, and runs the
Spark jobs over it. Everything it shows can be had by the other commands: it prints them.
"""

from __future__ import annotations

import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ray_snapshot.wrapping import print_text

if TYPE_CHECKING:
    from ray_snapshot.verdicts import Verdict

EVERY_S = 0.5

_STORIES: list[tuple[str, str, dict[str, Any]]] = [
    ("bank", "money is in flight all the time, and none is ever lost", {"transfers": 6_000}),
    ("token_ring", "one right to enter, and it is not lost while it travels", {}),
    ("work_pool", "everyone says idle, and yet the work is not done", {}),
    ("example_run", "the three processes of the textbook", {}),
    ("dining_philosophers", "everybody waits for somebody: found and named", {}),
    ("shortest_paths", "thousands of machines, done only because a snapshot proves it", {}),
]

_JOBS = {"detections": 20, "conservation": 8, "traffic": 8}
"""Each Spark job, and how many rows of its tables are shown: of the detectors all."""


def register(app: typer.Typer) -> None:
    """Add the command `demo` to the command line."""
    app.command("demo")(demo)


def demo(
    out: Annotated[Path, typer.Option(help="Folder for the history and the results.")] = Path("demo-out"),
    every: Annotated[float, typer.Option(min=0.05, help="Seconds between snapshots.")] = EVERY_S,
    spark: Annotated[bool, typer.Option(help="Run the Spark jobs over the history.")] = True,
) -> None:
    """Run the examples on Ray, and ask their history with Spark."""
    began = time.monotonic()
    history = str(_writable(out).absolute() / "history")
    facts = _run_systems(history, every)
    _tell_facts(facts)
    if spark:
        _run_jobs(history)
    _write_report(history, out / "report.html")
    _tell_where(history, time.monotonic() - began)


def _run_systems(history: str, every: float) -> dict[str, dict[str, Any]]:
    import ray

    from ray_snapshot.runtime.cluster import connect

    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory(prefix="rs-", dir=_short_folder()) as folder:
        connect(temp_dir=folder)
        try:
            with _Progress(len(_STORIES)) as progress:
                for name, what, sizes in _STORIES:
                    progress.begin(name, what)
                    found[name] = _play(name, sizes, history, every, progress.verdict)
        finally:
            ray.shutdown()
    return found


def _play(
    name: str, sizes: dict[str, Any], history: str, every: float, on_verdict: Callable[[Verdict], None]
) -> dict[str, Any]:
    from importlib import import_module

    module = import_module(f"ray_snapshot.examples.{name}")
    facts: dict[str, Any] = module.play(history=history, every=every, on_verdict=on_verdict, **sizes)
    return facts


class _Progress:
    """Which system runs, and every verdict as it comes: rich on a terminal, plain lines elsewhere."""

    def __init__(self, total: int) -> None:
        from ray_snapshot.views.tables import console, is_terminal

        self.console = console()
        self.bar: Any = None
        self.name = ""
        self.total = total
        if is_terminal():
            from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

            self.bar = Progress(
                SpinnerColumn(),
                TextColumn("{task.description}"),
                BarColumn(),
                TimeElapsedColumn(),
                console=self.console,
            )

    def __enter__(self) -> _Progress:
        if self.bar is not None:
            self.bar.start()
            self.task = self.bar.add_task("", total=self.total)
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def begin(self, name: str, what: str) -> None:
        if self.bar is not None:
            self.bar.update(self.task, description=name, advance=1 if self.name else 0)
        self.name = name
        self._line(f"\n{name}: {what}")

    def verdict(self, verdict: Verdict) -> None:
        from ray_snapshot.views.tables import verdict_line

        style = "bold red" if verdict.alarm else {True: "green", False: None, None: "yellow"}[verdict.holds]
        self._line(f"  {verdict_line(verdict)}", style)

    def _line(self, text: str, style: str | None = None) -> None:
        width = self.console.width if self.bar is not None else 400
        self.console.print(text if len(text) <= width else text[: width - 1] + "…", style=style, crop=False)
        sys.stdout.flush()


def _tell_facts(facts: dict[str, dict[str, Any]]) -> None:
    bank, dining, paths = facts["bank"], facts["dining_philosophers"], facts["shortest_paths"]
    most = max(row["in_flight"] for row in bank["books"])
    print_text(
        f"\nbank: {bank['total']} coins in every snapshot, though up to {most} of them were in nobody's account."
    )
    print_text(f"dining_philosophers: deadlock of {', '.join(dining['members'][:12])}.")
    print_text(f"shortest_paths: {paths['vertices']} machines, {paths['messages']} messages, termination proven.")
    print_text(
        "Once true, stays true, until somebody reaches in from outside: where termination is false after it was true, the"
        " driver had waited, and went on."
    )


def _run_jobs(history: str) -> None:
    from ray_snapshot.spark_jobs.engine.command import execute
    from ray_snapshot.spark_jobs.engine.request import Request

    for job, top in _JOBS.items():
        print(f"\n{_pasted('analyze', history, job)}", flush=True)
        execute(Request(history, job, top=top))


def _write_report(history: str, path: Path) -> None:
    from ray_snapshot.commands.files import write_file
    from ray_snapshot.history import History
    from ray_snapshot.reports.gathering import choose, gather
    from ray_snapshot.reports.page import html

    opened = History(history)
    found = gather(opened, choose(opened, None, "dining_philosophers"))
    write_file(path, html(found))
    print(
        f"\nThe report of the deadlock ({_pasted('report', history, '--system', found.system)}):\n  {path.absolute()}"
    )


def _tell_where(history: str, seconds: float) -> None:
    print(f"\nDone in {seconds:.0f} s. The history: {history}")
    print(f"In a browser: {_pasted('serve', history, '--open')}\nOr here:")
    for command, *more in (["list"], ["since"], ["show", "latest"], ["verify"], ["analyze", "detections"]):
        print(f"  {_pasted(command, history, *more)}")


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


def _writable(folder: Path) -> Path:
    from ray_snapshot.errors import HistoryWriteError

    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder):
            return folder
    except OSError as error:
        raise HistoryWriteError(
            f"nothing can be written to {folder} ({error.strerror}): choose another folder with --out", path=str(folder)
        ) from error


def _short_folder() -> str:
    """A temporary folder whose path leaves room for Ray's sockets."""
    folder = tempfile.gettempdir()
    return folder if len(folder) < 30 else "/tmp"
