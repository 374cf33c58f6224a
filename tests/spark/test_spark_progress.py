"""How a run ended, as `progress` says it, and which runs `compare` takes by itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from small_histories import live, rows, snapshot, write

from ray_snapshot.detectors import Deadlock, Termination
from ray_snapshot.spark_jobs.tables import Selection

pytestmark = pytest.mark.spark

DONE = [{"machine": "a"}, {"machine": "driver"}]
BUSY = [{"machine": "a", "status": "active"}, {"machine": "driver"}]
CIRCLE = [
    {"machine": "a", "status": "blocked", "waits_for": ["b"]},
    {"machine": "b", "status": "blocked", "waits_for": ["a"]},
]
ENDS: dict[str, tuple[list[dict[str, Any]], str, bool]] = {
    "finished": ([*DONE[:1], {"machine": "driver", "status": "passive"}], "terminated", False),
    "hanging": ([*CIRCLE, {"machine": "driver", "status": "passive"}], "deadlocked", True),
    "half": ([*CIRCLE, {"machine": "c", "status": "active"}], "busy", False),
    "going": (BUSY, "busy", False),
    "unjudged": (DONE, "quiet", False),
    "blocked": ([CIRCLE[0], {"machine": "b"}], "stuck", True),
}
"""The last of two snapshots of a run, between which messages were accepted."""


def test_a_run_that_moved_until_just_before_its_last_snapshot_ended_as_that_one_shows(
    spark: Any, tmp_path: Path
) -> None:
    from ray_snapshot.spark_jobs import progress

    taken = [
        snapshot(
            f"{run}-1",
            n,
            machines=[{**one, "accepted_count": 5 * n} for one in (last if n else BUSY)],
            channels=[],
        )
        for run, (last, _, _) in ENDS.items()
        for n in range(2)
    ]
    judged = live([one for one in taken if one.system not in ("unjudged", "blocked")], Termination(), Deadlock())
    history = write(tmp_path / "history", taken, judged)
    found = rows(progress.run(spark, history)["runs"], "system")
    assert {run: (row["ended"], row["stopped"]) for run, row in found.items()} == {
        run: (ended, stopped) for run, (_, ended, stopped) in ENDS.items()
    }


def test_by_itself_compare_takes_the_last_run_and_the_one_before_it_of_the_same_system(tmp_path: Path) -> None:
    from ray_snapshot.spark_jobs.compare import pair

    order = ("bank-1", "ring-1", "bank-2", "ring-2", "ring-3", "bank-3")
    history = write(tmp_path / "history", [snapshot(run, 0, at_s=at) for at, run in enumerate(order)])
    assert pair(history, Selection(), None) == ("bank-2", "bank-3")
    assert pair(history, Selection(system="ring"), None) == ("ring-2", "ring-3")
    assert pair(history, Selection(run="ring-1"), None) == ("ring-1", "ring-3")
    two = write(tmp_path / "two", [snapshot(run, 0, at_s=at) for at, run in enumerate(("bank-1", "ring-1"))])
    assert pair(two, Selection(), None) == ("bank-1", "ring-1")
