"""How the snapshots that `detections` evaluates are shared among tasks."""

import random
from typing import Any

import pyarrow as pa
import pytest

from ray_snapshot.schema import SNAPSHOTS
from ray_snapshot.spark_jobs.engine.evaluating import Work

ASSIGNED = pa.schema([SNAPSHOTS.field(name) for name in ("snapshot_id", "run_id", "sequence")])


def some_work(chance: random.Random, *, most: int) -> Work:
    runs = [f"run-{number}" for number in range(chance.randint(1, 5))]
    rows: list[dict[str, Any]] = [
        {"snapshot_id": f"{number:04}", "run_id": chance.choice([*runs, None]), "sequence": number}
        for number in range(chance.choice([0, 1, 3, most]))
    ]
    chance.shuffle(rows)
    specs = {run: {"termination": f"data of {run}"} for run in runs[1:]}
    return Work(
        pa.Table.from_pylist(rows, ASSIGNED), specs, frozenset(chance.sample(runs, chance.randint(0, len(runs))))
    )


@pytest.mark.parametrize("seed", range(40))
def test_each_snapshot_is_in_one_part_and_each_run_in_order_too(seed: int) -> None:
    chance = random.Random(seed)
    work, tasks = some_work(chance, most=60), chance.randint(1, 6)
    parts = work.shared(tasks)
    assert len(parts) <= tasks
    assert all(part.snapshots.num_rows for part in parts)
    rows = [list(part.rows()) for part in parts]
    everything = [row for some in rows for row in some]
    assert sorted(row["snapshot_id"] for row in everything) == sorted(work.snapshots["snapshot_id"].to_pylist())
    for run in work.in_order:
        mine = [[row["sequence"] for row in some if row["run_id"] == run] for some in rows]
        assert sum(map(bool, mine)) <= 1
        assert all(numbers == sorted(numbers) for numbers in mine)
    for row in everything:
        assert row["specs"] == work.specs.get(row["run_id"], {})
        assert row["in_order"] == (row["run_id"] in work.in_order)


def test_parts_are_of_one_size_and_hold_neighbours() -> None:
    rows = [{"snapshot_id": f"{number:04}", "run_id": "run", "sequence": number} for number in range(90)]
    random.Random(3).shuffle(rows)
    parts = Work(pa.Table.from_pylist(rows, ASSIGNED), {}, frozenset()).shared(4)
    ids = [part.snapshots["snapshot_id"].to_pylist() for part in parts]
    assert [len(some) for some in ids] in ([22, 23, 22, 23], [23, 22, 23, 22])
    assert [one for some in ids for one in some] == sorted(row["snapshot_id"] for row in rows)
