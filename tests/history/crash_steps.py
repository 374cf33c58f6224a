"""Kill a process at every change that it makes to a history, one after the other, and see what is left.

Run as a script: `crash_steps.py SCENARIO FOLDER`. A step is a moment, seen from the code of `ray_snapshot.history`, at which
the files are no longer what they were a moment before, whoever changed them: so no step has to be named, and none can be
forgotten. For each step a fork of this process runs the scenario on a copy of the same history, and ends itself there with
`os._exit`; another fork looks at what is left, starts a writer, and looks again. Prints one JSON object a step.
"""

import json
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import Any

import deltalake  # noqa: F401 - loaded, and not used before the forks: it starts threads
import pyarrow.dataset
import pyarrow.parquet  # noqa: F401

sys.path.insert(0, os.path.dirname(__file__))

from histories import snapshot, verdict

import ray_snapshot.history
from ray_snapshot.history import History, HistoryWriter, checkpoints, upkeep
from ray_snapshot.history.checkpoints import Checkpoint

KILLED = 9
CODE = os.path.dirname(ray_snapshot.history.__file__)
LOOKING = {"inside.py": {"folder", "_names", "entries", "below", "<lambda>"}, "bounds.py": None}
"""What changes no file: these functions, or all (None)."""


def base(path: Path) -> None:
    """Three snapshots on two days, each in files of its own."""
    for number in range(3):
        with HistoryWriter(path, system="bank") as writer:
            writer.add(snapshot(number))
            writer.add_verdicts([verdict(f"bank-{number:05d}")])
        checkpoint = Checkpoint({"snapshot_id": f"bank-{number:05d}"}, [b"state"])
        checkpoints.write(path, checkpoint, b"a key of enough characters")


def flush(path: Path) -> None:
    with HistoryWriter(path, system="bank") as writer:
        writer.add(snapshot(7))
        writer.add(snapshot(8))
        writer.add_verdicts([verdict("bank-00007")])


def compact(path: Path) -> None:
    History(path).compact()


def vacuum(path: Path) -> None:
    History(path).compact()
    History(path).vacuum(0)


def retain(path: Path) -> None:
    History(path).retain(keep_every=timedelta(days=1))


WHOLE: dict[str, list[list[str]]] = {
    "flush": [["bank-00000", "bank-00001", "bank-00002"], [f"bank-{n:05d}" for n in (0, 1, 2, 7, 8)]],
    "compact": [["bank-00000", "bank-00001", "bank-00002"]],
    "vacuum": [["bank-00000", "bank-00001", "bank-00002"]],
    "retain": [["bank-00000", "bank-00001", "bank-00002"], ["bank-00000", "bank-00001"]],
}
"""What may be listed after a scenario was killed: the snapshots before it, and those after it."""

SCENARIOS: dict[str, Callable[[Path], None]] = {"flush": flush, "compact": compact, "vacuum": vacuum, "retain": retain}


# Steps


def watched(path: Path, event: Callable[[int, str], None]) -> None:
    """From now on `event` hears of every moment in the code of the history, numbered from 1."""
    count = 0

    def profile(frame: FrameType, kind: str, argument: Any) -> None:
        nonlocal count
        if frame.f_code.co_filename.startswith(CODE) and not _only_looks(frame):
            count += 1
            name = getattr(argument, "__name__", "") if kind.startswith("c_") else frame.f_code.co_name
            event(count, f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno} {kind} {name}")

    sys.setprofile(profile)


def _only_looks(frame: FrameType) -> bool:
    names = LOOKING.get(os.path.basename(frame.f_code.co_filename), set())
    return names is None or frame.f_code.co_name in names


def files_of(path: Path) -> dict[str, int]:
    return {str(file.relative_to(path)): file.lstat().st_size for file in path.rglob("*") if not file.is_dir()}


def steps_of(path: Path, scenario: Callable[[Path], None]) -> list[tuple[int, str]]:
    steps: list[tuple[int, str]] = []
    before = files_of(path)

    def event(number: int, where: str) -> None:
        nonlocal before
        now = files_of(path)
        if now != before:
            before = now
            steps.append((number, where))

    watched(path, event)
    scenario(path)
    sys.setprofile(None)
    return steps


def run_until(path: Path, scenario: Callable[[Path], None], step: int) -> None:
    def event(number: int, where: str) -> None:
        if number == step:
            os._exit(KILLED)

    watched(path, event)
    scenario(path)


# What is left


def seen(path: Path) -> dict[str, Any]:
    history = History(path)
    rows = {
        name: history.stored.read(name).column("snapshot_id").to_pylist()
        for name in ("machines", "channels", "messages")
    }
    listed = sorted(row.snapshot_id for row in history.snapshots())
    named = {str(file) for name in upkeep.there(path) for file in upkeep._named(path, name)}
    files = {str(file) for file in path.glob("*/system=*/**/*.parquet")}
    return {
        "listed": listed,
        "problems": [problem for _, problems in history.verify() for problem in problems],
        "verdicts": sorted(row.snapshot_id for row in history.verdicts()),
        "unlisted_rows": sorted({found for ids in rows.values() for found in ids} - set(listed)),
        "strays": sorted(files - named),
        "checkpoints": sorted(file.stem for file in path.glob("checkpoints/*")),
        "records": sorted(file.name for file in path.glob("_writers/*")),
    }


def after_restart(path: Path, scenario: str) -> dict[str, Any]:
    """The next writer starts; upkeep is begun again; then what was lost is added again."""
    with HistoryWriter(path, system="bank"):
        pass
    if scenario != "flush":
        SCENARIOS[scenario](path)
    found = seen(path)
    with HistoryWriter(path, system="bank") as writer:
        for number in (7, 8):
            if f"bank-{number:05d}" not in found["listed"]:
                writer.add(snapshot(number))
    return {**found, "problems_at_last": seen(path)["problems"], "listed_at_last": seen(path)["listed"]}


def forked(work: Callable[[], Any]) -> tuple[int, Any]:
    """Run `work` in a fork: (exit code, what it returned)."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.write(writing, json.dumps(work()).encode())
            code = 0
        except Exception:
            traceback.print_exc()
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        answer = pipe.read()
    _, status = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(status), json.loads(answer) if answer else None


def main(scenario: str, folder: str) -> None:
    work, pristine, copy = SCENARIOS[scenario], Path(folder) / "base", Path(folder) / "copy"
    forked(lambda: base(pristine))

    def fresh() -> Path:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(pristine, copy)
        return copy

    code, steps = forked(lambda: steps_of(fresh(), work))
    if code:
        raise SystemExit(f"{scenario} failed by itself")
    for step, where in steps:
        fresh()
        code, _ = forked(lambda step=step: run_until(copy, work, step))  # type: ignore[misc]
        found = {"where": where, "code": code, "left": forked(lambda: seen(copy))[1]}
        print(json.dumps({**found, "restarted": forked(lambda: after_restart(copy, scenario))[1]}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
