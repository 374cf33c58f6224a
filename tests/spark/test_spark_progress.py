"""What moved and how a run ended, as `progress` says it, and which snapshots and runs are compared."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from small_histories import live, rows, snapshot, write

from ray_snapshot import Snapshot, questions
from ray_snapshot.detectors import Deadlock, Termination
from ray_snapshot.history import History

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


def ending() -> Iterator[Snapshot]:
    for run, (last, _, _) in ENDS.items():
        for n in range(2):
            machines = [{**one, "accepted_count": 5 * n} for one in (last if n else BUSY)]
            yield snapshot(f"{run}-1", n, machines=machines, channels=[])


def waiting() -> Iterator[Snapshot]:
    """A program starts: the driver waits for an actor whose `__init__` runs, so that the call is in flight."""
    driver = {"machine": "driver", "status": "blocked", "waits_for": ["model"], "sent_count": 2}
    call = {"source": "driver", "target": "model", "kind": "call", "number": 1, "method": "step"}
    systems: dict[str, dict[str, Any]] = {
        "starting": {"machines": [driver], "messages": [call]},
        "unrecorded": {"machines": [{**driver, "waits_for": []}]},
        "circle": {"machines": [*CIRCLE, driver], "messages": [call]},
        "untold": {"machines": [driver], "messages": [call]},
    }
    return (snapshot(f"{name}-1", n, **rows) for name, rows in systems.items() for n in range(5))


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


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    ends, waits = [*ending()], [*waiting()]
    judged = live((one for one in ends if one.system not in ("unjudged", "blocked")), Termination(), Deadlock())
    judged += live((one for one in waits if one.system != "untold"), Deadlock())
    taken = [*ends, *waits, *changing(), snapshot("app-2", 0, at_s=9)]
    return write(tmp_path_factory.mktemp("progress") / "history", taken, judged)


@pytest.fixture(scope="module")
def frames(spark: Any, history: History) -> dict[str, Any]:
    from ray_snapshot.spark_jobs import progress

    found: dict[str, Any] = progress.run(spark, history)
    return found


def test_a_run_that_moved_until_just_before_its_last_snapshot_ended_as_that_one_shows_and_who_waits_is_not_stuck(
    frames: dict[str, Any],
) -> None:
    found = {row["system"]: (row["ended"], row["stopped"]) for row in frames["runs"].toArrow().to_pylist()}
    for run, (_, ended, stopped) in ENDS.items():
        assert found[run] == (ended, stopped)
    waits = {"starting": "waiting", "unrecorded": "waiting", "circle": "deadlocked", "untold": "waiting"}
    assert {system: found[system][0] for system in waits} == waits
    phases = {row["system"]: row["phase"] for row in frames["phases"].toArrow().to_pylist()}
    assert {system: phases[system] for system in waits} == {**waits, "circle": "stuck"}


def test_what_was_sent_is_never_less_than_nothing(history: History, frames: dict[str, Any]) -> None:
    """A machine that is gone takes nothing along, a new or a restarted one began at nought, and a restore begins anew."""
    found = rows(frames["snapshots"].where("run_id = 'app-1'"), "sequence")
    assert [(found[n]["sent"], found[n]["accepted"]) for n in range(6)] == [
        *((None, None), (2, 2), (5, 5), (5, 5)),
        *((None, None), (3, 3)),
    ]
    (_, *page) = re.split(r"\n## \d+\. ", TEN_QUESTIONS.read_text("utf-8"))
    (query,) = re.findall(r"```sql\n(.*?)```", page[7], re.DOTALL)
    answered = [row["sent_since"] for row in questions.sql(history, query).rows.to_pylist() if row["run_id"] == "app-1"]
    assert answered == [None, 2, 5, 5, None, 3]
