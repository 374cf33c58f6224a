"""Who writes a history: processor time of the analyst for a snapshot, where hosts write the rows, and where it does."""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import ray_snapshot as rs
from benchmarks.measure import Result, alternate
from benchmarks.million import Idle
from benchmarks.processes import cpu_s
from ray_snapshot.detectors import Termination
from ray_snapshot.history import History
from ray_snapshot.runtime.host.config import OWN_PARTS

MACHINES = int(os.environ.get("RAY_SNAPSHOT_BENCHMARK_MACHINES", "200000"))
SNAPSHOTS = 3
"""Of one commit, or nearly: many rows are committed at once."""


def run(names: set[str]) -> Iterator[Result]:
    """Yield the figure `history-own-parts`."""
    spent: dict[str, list[Counter[str]]] = {"hosts": [], "analyst": []}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        arms = {
            name: stack.enter_context(_idle(name, folder / name, own))
            for name, own in (("hosts", "65536"), ("analyst", "0"))
        }

        def arm(name: str) -> Callable[[], float]:
            return lambda: _analyst_ms(arms[name], spent[name])

        result = alternate(
            "history-own-parts",
            "<= 0.2",
            ("analyst_cpu_ms_where_hosts_write", arm("hosts")),
            ("analyst_cpu_ms_where_it_writes", arm("analyst")),
            pairs=3,
        )
        for name in arms:
            history = History(folder / name)
            ids = [row.snapshot_id for row in history.snapshots()]
            rows = history.rows_of("machines", ids, ["snapshot_id"]).num_rows
            assert rows == len(ids) * (MACHINES + 1), "all rows are there, and the driver's"
    parts = {
        f"{process}_cpu_ms_where_{name}_writes": 1e3
        * sum(one[process] for one in counts[1:])
        / (len(counts) - 1)
        / SNAPSHOTS
        for name, counts in spent.items()
        for process in ("hosts", "service")
    }
    yield Result(result.name, result.ratio, result.low, result.high, result.goal, result.arms, parts)


@contextmanager
def _idle(name: str, folder: Path, own_from: str) -> Iterator[rs.System]:
    before = os.environ.get(OWN_PARTS)
    os.environ[OWN_PARTS] = own_from
    try:
        with rs.System(
            f"benchmark-{name}", history=folder, detectors=[Termination()], snapshot_timeout=300, start_timeout=600
        ) as system:
            system.spawn_many(Idle, count=MACHINES, per_host=(MACHINES + 1) // 2)
            system.start()
            _analyst_ms(system, [])
            yield system
    finally:
        os.environ.pop(OWN_PARTS)
        if before is not None:
            os.environ[OWN_PARTS] = before


def _analyst_ms(system: rs.System, spent: list[Counter[str]]) -> float:
    """Milliseconds of the analyst's processor time for a snapshot, from the beginning until the history lists it."""
    before = cpu_s()
    for _ in range(SNAPSHOTS):
        system.snapshot()
    system.write_history(timeout=300)
    found = cpu_s()
    found.subtract(before)
    spent.append(found)
    return 1e3 * found["analyst"] / SNAPSHOTS
