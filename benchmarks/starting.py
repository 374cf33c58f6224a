"""What `ray-snapshot run` adds to the shortest program: one that starts Ray, runs a task, and ends."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Result, alternate

NEEDS_RAY = False

PAIRS = 5
GOAL_S = 1.0
"""Seconds that it may add."""

PROGRAM = """
import ray


@ray.remote
def one():
    return 1


ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False, _temp_dir=TEMP)
assert ray.get(one.remote()) == 1
"""


def run(names: set[str]) -> Iterator[Result]:
    """Yield the figure: wall seconds watched over those of `python PROGRAM`."""
    with tempfile.TemporaryDirectory(prefix="start-", dir="/tmp") as folder:
        script = Path(folder) / "shortest.py"
        script.write_text(PROGRAM.replace("TEMP", repr(folder)))
        command = str(Path(sys.executable).parent / "ray-snapshot")
        found = alternate(
            "watched-start",
            "<= 0",
            ("watched_s", lambda: _seconds(command, "run", str(script))),
            ("plain_s", lambda: _seconds(sys.executable, str(script))),
            pairs=PAIRS,
        )
    goal = f"<= {1 + GOAL_S / found.arms['plain_s']:.3g}"
    yield Result(found.name, found.ratio, found.low, found.high, goal, found.arms)


def _seconds(*command: str) -> float:
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env=environment)
    return time.perf_counter() - began
