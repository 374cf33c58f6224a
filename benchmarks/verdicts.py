"""What judging costs: every detector on one large snapshot, over a graph library on the same waits; and the two that are asked
of every snapshot on a small one, over reading its rows."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.history import synthetic
from benchmarks.measure import Result, alternate
from ray_snapshot.detectors import Deadlock, Reached, Termination, TokenConservation, UniqueToken
from ray_snapshot.schema import WAITS
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import evaluate

NEEDS_RAY = False
MACHINES = 1_000_000
WAITS_EACH = 3
RING = 1_000
"""So many machines wait in a circle; every other waits for three behind it in the line."""

SMALL = 1_000
WAITING = 10
ROUNDS = 100
"""So many snapshots are judged, or read, in one look at the clock."""


def run(names: set[str]) -> Iterator[Result]:
    """Yield the figures `verdicts-1000` and `verdicts-1000000`."""
    if "verdicts-1000" in names:
        with tempfile.TemporaryDirectory() as folder:
            yield _small(Path(folder))
    if "verdicts-1000000" not in names:
        return
    source, target = waits_of(MACHINES)
    taken = snapshot_of(MACHINES, source, target)
    yield alternate(
        "verdicts-1000000",
        f"<= {1 / 30:.4f}",
        ("all_detectors_s", lambda: _judge(taken)),
        ("networkx_components_s", lambda: _components(taken)),
        pairs=2,
    )


def _small(folder: Path) -> Result:
    taken = busy(SMALL, WAITING)
    tables = {name: table for name, table in taken.tables.items() if table.num_rows}
    for name, table in tables.items():
        pq.write_table(table, folder / f"{name}.parquet")
    return alternate(
        "verdicts-1000",
        "<= 0.5",
        ("default_detectors_cpu_ms", lambda: _judge_often(taken)),
        ("reading_parquet_cpu_ms", lambda: _read_often(folder, list(tables))),
    )


def busy(machines: int, waiting: int) -> Snapshot:
    """Machines that pass messages on, two channels each; so many wait, and for what an active one is to send."""
    names = [f"Runner-{number}" for number in range(machines)]
    pairs = [(name, names[(at + far) % machines]) for at, name in enumerate(names) for far in (1, machines // 2)]
    blocked = range(0, machines, machines // waiting)
    status = ["blocked" if at in blocked else ("active", "passive")[at % 2] for at in range(machines)]
    return Snapshot.from_rows(
        machines=[{"machine": name, "status": word} for name, word in zip(names, status, strict=True)],
        channels=[{"source": source, "target": target, "sent_count": 100} for source, target in pairs],
        messages=[
            {"source": source, "target": target, "method": "pass_on", "args": [1]} for source, target in pairs[::5]
        ],
        waits=[{"machine": names[at], "on_machine": names[at + 2], "k": 1, "satisfied": False} for at in blocked],
        coverage={"uncovered": []},
    )


def _judge_often(taken: Snapshot) -> float:
    detectors = [Termination(), Deadlock()]
    snapshots = [Snapshot(taken.tables) for _ in range(ROUNDS)]  # each keeps what it was asked
    before = time.process_time()
    holds = [evaluate(detector, one).holds for one in snapshots for detector in detectors]
    spent = time.process_time() - before
    assert set(holds) == {False}, holds
    return spent * 1_000 / ROUNDS


def _read_often(folder: Path, names: list[str]) -> float:
    before = time.process_time()
    for _ in range(ROUNDS):
        tables: dict[str, Any] = {
            name: pq.ParquetFile(folder / f"{name}.parquet").read(use_threads=False) for name in names
        }
    spent = time.process_time() - before
    assert tables["machines"].num_rows == SMALL
    return spent * 1_000 / ROUNDS


def waits_of(machines: int) -> tuple[np.ndarray, np.ndarray]:
    """Who waits for whom: a circle of the last `RING`, and a line before it in which each waits for three later ones."""
    chance = np.random.default_rng(7)
    line = machines - RING
    source = np.repeat(np.arange(line), WAITS_EACH)
    target = source + 1 + (chance.random(len(source)) * (machines - source - 1)).astype(np.int64)
    ring = np.arange(line, machines)
    return np.concatenate([source, ring]), np.concatenate([target, np.roll(ring, -1)])


def snapshot_of(machines: int, source: np.ndarray, target: np.ndarray) -> Snapshot:
    """All machines blocked, as the waits say."""
    tables = dict(synthetic(0, machines).tables)
    names = tables["machines"]["machine"].combine_chunks()
    constant = {"snapshot_id": "bench-000000", "run_id": "bench", "alternative": 0, "k": WAITS_EACH, "satisfied": False}
    count = len(source)
    columns = {
        field.name: pa.repeat(pa.scalar(constant[field.name], field.type), count)
        if field.name in constant
        else pa.nulls(count, field.type)
        for field in WAITS
    }
    columns["machine"], columns["on_machine"] = names.take(pa.array(source)), names.take(pa.array(target))
    is_ring = source >= machines - RING
    columns["k"] = pa.array(np.where(is_ring, 1, WAITS_EACH))
    tables["waits"] = pa.table(columns, schema=WAITS)
    table = tables["machines"]
    status = pa.repeat(pa.scalar("blocked"), machines)
    tables["machines"] = table.set_column(table.schema.get_field_index("status"), "status", status)
    return Snapshot(tables)


def _judge(taken: Snapshot) -> float:
    machines = taken.tables["machines"].slice(0)  # what an earlier look has kept of the same table would cost nothing
    taken = Snapshot({**taken.tables, "machines": machines})
    detectors = [
        Termination(),
        Deadlock(),
        TokenConservation(total=0, state="$.balance"),
        UniqueToken(),
        Reached("$.balance", 0),
    ]
    before = time.perf_counter()
    holds = [evaluate(detector, taken).holds for detector in detectors]
    seconds = time.perf_counter() - before
    assert holds[1] is True, holds
    return seconds


def _components(taken: Snapshot) -> float:
    import networkx as nx

    before = time.perf_counter()
    waits = taken.tables["waits"]
    graph = nx.DiGraph()
    graph.add_edges_from(zip(waits["machine"].to_pylist(), waits["on_machine"].to_pylist(), strict=True))
    largest = max(len(found) for found in nx.strongly_connected_components(graph))
    seconds = time.perf_counter() - before
    assert largest == RING
    return seconds
