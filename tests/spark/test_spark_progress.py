"""What moved and how a run ended, as `progress` says it, and which snapshots and runs are compared."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from small_histories import live, rows, snapshot, write

from ray_snapshot import questions
from ray_snapshot.detectors import Deadlock, Termination
from ray_snapshot.snapshot import Snapshot

pytestmark = pytest.mark.spark

TEN_QUESTIONS = Path(__file__).parents[2] / "docs" / "howto" / "ten-questions.md"

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


def test_who_waits_for_what_can_still_come_is_not_stuck(spark: Any, tmp_path: Path) -> None:
    """A program starts: the driver waits for an actor whose `__init__` runs, so that the call is in flight."""
    from ray_snapshot.spark_jobs import progress

    driver = {"machine": "driver", "status": "blocked", "waits_for": ["model"], "sent_count": 2}
    call = {"source": "driver", "target": "model", "kind": "call", "number": 1, "method": "step"}
    systems: dict[str, dict[str, Any]] = {
        "starting": {"machines": [driver], "messages": [call]},
        "unrecorded": {"machines": [{**driver, "waits_for": []}]},
        "circle": {"machines": [*CIRCLE, driver], "messages": [call]},
    }
    taken = [snapshot(f"{name}-1", n, **rows) for name, rows in systems.items() for n in range(5)]
    unjudged = [snapshot("unjudged-1", n, **systems["starting"]) for n in range(5)]
    history = write(tmp_path / "history", [*taken, *unjudged], live(taken, Deadlock()))
    found = progress.run(spark, history)
    assert {row["system"]: row["phase"] for row in found["phases"].toArrow().to_pylist()} == {
        "starting": "waiting",
        "unrecorded": "waiting",
        "circle": "stuck",
        "unjudged": "waiting",
    }
    ended = {system: row["ended"] for system, row in rows(found["runs"], "system").items()}
    assert ended == {"starting": "waiting", "unrecorded": "waiting", "circle": "deadlocked", "unjudged": "waiting"}


COUNTS = (
    {"a": 5, "b": 100},
    {"a": 7, "b": 100},
    {"a": 8, "c": 4},
    {"a": 3, "c": 6},
    {"a": 1, "c": 1},
    {"a": 2, "c": 3},
)
"""What each machine has sent and accepted in all: `b` is gone after 1, `c` is new at 2, `a` was restarted before 3, and a
restore lies before 4."""


def changing() -> list[Snapshot]:
    return [
        snapshot(
            "app-1",
            n,
            machines=[
                {
                    "machine": name,
                    "sent_count": count,
                    "accepted_count": count,
                    "incarnation": 2 if (name, n) == ("a", 3) else 1,
                }
                for name, count in counts.items()
            ],
            restored_from="app-1-0000" if n >= 4 else None,
        )
        for n, counts in enumerate(COUNTS)
    ]


def test_what_was_sent_is_never_less_than_nothing(spark: Any, tmp_path: Path) -> None:
    """A machine that is gone takes nothing along, a new or a restarted one began at nought, and a restore begins anew."""
    from ray_snapshot.spark_jobs import progress

    history = write(tmp_path / "history", [*changing(), snapshot("app-2", 0, at_s=9)])
    found = rows(progress.run(spark, history)["snapshots"].where("run_id = 'app-1'"), "sequence")
    assert [(found[n]["sent"], found[n]["accepted"]) for n in range(6)] == [
        *((None, None), (2, 2), (5, 5), (5, 5)),
        *((None, None), (3, 3)),
    ]
    (_, *page) = re.split(r"\n## \d+\. ", TEN_QUESTIONS.read_text("utf-8"))
    (query,) = re.findall(r"```sql\n(.*?)```", page[7], re.DOTALL)
    answered = [row["sent_since"] for row in questions.sql(history, query).rows.to_pylist() if row["run_id"] == "app-1"]
    assert answered == [None, 2, 5, 5, None, 3]
