"""Quick questions on a history of just under a million rows: each command, as a person starts it, over the shortest other one.

`list --limit 1` opens the same history and prints a row of it: what a question takes beyond that is its own. The arms say how
many seconds both take, from the start of the process to its end.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.measure import Result, alternate
from ray_snapshot.history import History
from ray_snapshot.schema import TABLES
from ray_snapshot.synth import Settings, synthesise

NEEDS_RAY = False

SNAPSHOTS, MACHINES = 1_000, 380
MOST_ROWS = 1_000_000
PAIRS = 5
BALANCES = (
    "SELECT snapshot_id, sum(CAST(json_extract_string(state, '$.balance') AS bigint)) AS held FROM machines"
    " GROUP BY ALL ORDER BY 1 DESC LIMIT 5"
)

QUESTIONS = {
    "question-conservation": ["conservation"],
    "question-since": ["since"],
    "question-diff": ["diff"],
    "question-sql": ["sql", BALANCES],
}


def run(names: set[str]) -> Iterator[Result]:
    """Yield the figures of `QUESTIONS` that are asked for."""
    with tempfile.TemporaryDirectory(prefix="rs-", dir="/tmp") as folder:
        path = Path(folder) / "history"
        synthesise(path, Settings(MACHINES, SNAPSHOTS, ("leak", "deadlock", "field"), 7))
        _check_size(History(path))
        for name, (command, *more) in QUESTIONS.items():
            if name in names:
                yield _figure(name, path, command, more)


def _check_size(history: History) -> None:
    rows = sum(history.table(table).num_rows for table in TABLES)
    if not 0.9 * MOST_ROWS < rows < MOST_ROWS:
        raise ValueError(f"the history has {rows:,} rows, not just under {MOST_ROWS:,}")


def _figure(name: str, path: Path, command: str, more: list[str]) -> Result:
    return alternate(
        name,
        "<= 3",
        (f"{command}_s", lambda: _seconds(command, str(path), *more)),
        ("list_s", lambda: _seconds("list", str(path), "--limit", "1")),
        pairs=PAIRS,
    )


def _seconds(*line: str) -> float:
    """How long a command takes."""
    began = time.perf_counter()
    subprocess.run([str(Path(sys.executable).with_name("ray-snapshot")), *line], stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began
