"""What judging costs: every detector on one large snapshot, over a graph library on the same waits."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import pyarrow as pa

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


def run(names: set[str]) -> Iterator[Result]:
    """Yield the figure `verdicts-1000000`."""
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
