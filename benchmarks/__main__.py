"""Run the benchmarks by name (default: all) and print a line each."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path
from types import ModuleType

from benchmarks import (
    calls,
    exploring,
    figures_page,
    history,
    million,
    pages,
    questions,
    raising,
    restoring,
    scale,
    sending,
    simulating,
    snapshots,
    spark_jobs,
    starting,
    tasks,
    verdicts,
    watching,
)
from benchmarks.measure import Result

NAMES = {
    "send-between-hosts": sending,
    "throughput-with-snapshots": snapshots,
    "snapshot-empty": snapshots,
    "snapshot-10000": snapshots,
    "snapshot-unchanged": snapshots,
    "million": million,
    "checkpoint-throughput": restoring,
    "restore-scaling": restoring,
    "recovery": restoring,
    "history-write-100000": history,
    "verdicts-1000000": verdicts,
    "watched-round-trip": calls,
    "watched-pipelined": calls,
    "watched-async-round-trip": calls,
    "watched-async-pipelined": calls,
    "watched-cpu": calls,
    "watched-megabyte": calls,
    "watched-memory": calls,
    "watched-snapshot-32": calls,
    "task-round-trip": tasks,
    "task-pipelined": tasks,
    "raising-round-trip": raising,
    "watching-memory": watching,
    "watched-start": starting,
    "pages-50-viewers": pages,
    "explore-states": exploring,
    "simulate-messages": simulating,
    **dict.fromkeys(("control-messages-64", "control-messages-64-barriers", "scale"), scale),
    **dict.fromkeys(questions.QUESTIONS, questions),
    **dict.fromkeys((*spark_jobs.NAMES, *spark_jobs.GROWTH), spark_jobs),
}


def main(argv: list[str] | None = None) -> int:
    """Exit code 0 if every figure meets its goal, 1 if one does not."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(NAMES)}")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.add_argument("--page", type=Path, help="put the figures into this page, too")
    options = parser.parse_args(argv)
    unknown = set(options.names) - set(NAMES)
    if unknown:
        parser.error(f"no benchmark {', '.join(sorted(unknown))}: choose from {', '.join(NAMES)}")
    found: list[tuple[Result, float]] = []
    try:
        _run(set(options.names or NAMES), options.json, found)
    finally:
        if options.page is not None:
            figures_page.written(options.page, found, [*NAMES])
    return 0 if all(result.is_met for result, _ in found) else 1


def _run(names: set[str], as_json: bool, found: list[tuple[Result, float]]) -> None:
    modules = list(dict.fromkeys(NAMES[name] for name in NAMES if name in names))
    on_ray = [module for module in modules if getattr(module, "NEEDS_RAY", True)]
    _measure([module for module in modules if module not in on_ray], names, as_json, found)
    if on_ray:
        import ray

        from ray_snapshot.runtime.cluster import connect

        folder = tempfile.mkdtemp(prefix="rs-", dir="/tmp")
        connect(temp_dir=folder)
        try:
            _measure(on_ray, names, as_json, found)
        finally:
            ray.shutdown()
            shutil.rmtree(folder, ignore_errors=True)


def _measure(modules: list[ModuleType], names: set[str], as_json: bool, found: list[tuple[Result, float]]) -> None:
    """Print the figures of some modules, and add them to what was found, each with the load before it."""
    for module in modules:
        before = figures_page.load()
        for result in module.run(names):
            found.append((result, before))
            _print(result.row(), as_json)


def _print(row: dict[str, object], as_json: bool) -> None:
    if as_json:
        print(json.dumps(row), flush=True)
        return
    arms = ", ".join(f"{name} {value:,}" for name, value in row["arms"].items())
    verdict = "met" if row["met"] else "NOT MET"
    print(
        f"{row['name']:<26} {row['ratio']:>8} ({row['low']} to {row['high']})  {row['goal']:<8} {verdict:<8} {arms}",
        flush=True,
    )
    if "parts" in row:
        print("    " + ", ".join(f"{name} {value:,}" for name, value in row["parts"].items()), flush=True)


if __name__ == "__main__":
    sys.exit(main())
