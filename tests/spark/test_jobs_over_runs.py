"""Every job, and every quick question, on a history of three runs and two systems: what it says of each is of that one only."""

import json
from collections.abc import Callable
from importlib import import_module
from itertools import pairwise
from typing import Any

import pytest
from three_runs import Plain, by, run_of

from ray_snapshot import questions
from ray_snapshot.history import History
from ray_snapshot.spark_jobs.engine.command import JOBS

pytestmark = pytest.mark.spark

Answer = set[tuple[Any, ...]]


def picked(rows: list[dict[str, Any]], *columns: str) -> Answer:
    """Some columns of rows, each once."""
    found = [tuple(tuple(row[name]) if isinstance(row[name], list) else row[name] for name in columns) for row in rows]
    assert len({*found}) == len(found), "a row is there twice"
    return {*found}


# ---- answers -----------------------------------------------------------------------------------------------------------


def detections(plain: Plain) -> Answer:
    """Of each detector: how often it held, and where first."""
    found = set()
    for key, rows in by(plain.tables["verdicts"], lambda row: (*run_of(row), row["detector"])).items():
        held = [row["snapshot_id"] for row in rows if row["holds"]]
        found.add((*key, len(rows), len(held), sum(row["alarm"] for row in rows), held[0] if held else None))
    return found


def conservation(plain: Plain) -> Answer:
    """Of each ledger: where the sum was first another than at the beginning, and by how much."""
    found = set()
    for run, ids in plain.ids.items():
        totals = [total(plain, one) for one in ids]
        wrong = [(one, own - totals[0]) for one, own in zip(ids, totals, strict=True) if own != totals[0]]
        found.add((*run, len(ids), len(wrong), *(wrong[0] if wrong else (None, None))))
    return found


def total(plain: Plain, snapshot_id: str) -> int:
    held = [json.loads(row["state"])["balance"] for row in plain.rows["machines"][snapshot_id] if row["state"]]
    sent = [json.loads(row["args"])[0] for row in plain.rows["messages"][snapshot_id] if row["method"] == "deposit"]
    return sum(held) + sum(sent)


def changes(plain: Plain) -> Answer:
    """Which machines appeared, and which vanished."""
    found = set()
    for run, ids in plain.ids.items():
        for before, now in pairwise(ids):
            old, new = ({*plain.at("machines", one, "machine")} for one in (before, now))
            found |= {(*run, name, "appeared" if name in new else "vanished", now) for name in old ^ new}
    return found


def deadlocks(plain: Plain) -> Answer:
    """Each circle of those who wait for one another: in how many snapshots."""
    seen: dict[tuple[Any, ...], list[str]] = {}
    for run, ids in plain.ids.items():
        for one in ids:
            rows = [row for row in plain.rows["waits"].get(one, []) if not row["satisfied"]]
            circle = {name for name in (row["machine"] for row in rows) if name in behind(name, rows)}
            if circle:
                seen.setdefault((*run, tuple(sorted(circle))), []).append(one)
    return {(*key, ids[0], len(ids)) for key, ids in seen.items()}


def behind(name: str, waits: list[dict[str, Any]]) -> set[str]:
    """For whom a machine waits, and for whom these wait, and so on."""
    reached: set[str] = set()
    while new := {row["on_machine"] for row in waits if row["machine"] in {name, *reached}} - reached:
        reached |= new
    return reached


def traffic(plain: Plain) -> Answer:
    """What went over each channel."""
    found = set()
    for run, ids in plain.ids.items():
        first, last = (plain.at("channels", one, "source", "target", "kind") for one in (ids[0], ids[-1]))
        for key, row in last.items():
            sent, accepted = (row[name] - first[key][name] for name in ("sent_count", "accepted_count"))
            found.add((*run, *key, sent, accepted))
    return found


def progress(plain: Plain) -> Answer:
    """What was sent and accepted since the snapshot before."""
    found = set()
    for run, ids in plain.ids.items():
        sent, accepted = (plain.since_before(run, name) for name in ("sent_count", "accepted_count"))
        found |= {(*run, one, sent[one], accepted[one]) for one in ids}
    return found


def cost(plain: Plain) -> Answer:
    """Of each host: how often it was the last to record."""
    last: dict[tuple[Any, ...], int] = {}
    for run, ids in plain.ids.items():
        for one in ids:
            rows = plain.rows["machines"][one]
            latest = max(row["record_delay_ms"] for row in rows)
            for host in {row["host"] for row in rows}:
                own = max(row["record_delay_ms"] for row in rows if row["host"] == host)
                last[*run, host] = last.get((*run, host), 0) + (own == latest)
    return {(*key, len(plain.ids[key[0], key[1]]), count) for key, count in last.items()}


def possibly(plain: Plain) -> Answer:
    """No run has a trace."""
    return {(*run, ids[-1], None) for run, ids in plain.ids.items()}


RUN = ("system", "run_id")
ASKED: dict[Callable[[Plain], Answer], tuple[str, tuple[str, ...]]] = {
    detections: ("detectors", (*RUN, "detector", "evaluated", "held", "alarms", "first_held")),
    conservation: ("breaks", (*RUN, "snapshots", "broken", "first_broken", "difference")),
    changes: ("machines", (*RUN, "machine", "event", "snapshot_id")),
    deadlocks: ("deadlocks", (*RUN, "machines", "first_id", "snapshots")),
    traffic: ("channels", (*RUN, "source", "target", "kind", "sent", "accepted")),
    progress: ("snapshots", (*RUN, "snapshot_id", "sent", "accepted")),
    cost: ("hosts", (*RUN, "host", "snapshots", "last")),
    possibly: ("runs", (*RUN, "snapshot_id", "holds")),
}
"""Of the job of that name: the result, and the columns of it that the function works out."""


def test_every_job_is_asked() -> None:
    assert {answer.__name__ for answer in ASKED} == {*JOBS}


@pytest.mark.nightly
@pytest.mark.parametrize("answer", ASKED, ids=lambda answer: answer.__name__)
def test_a_job_says_of_each_run_what_plain_python_does(
    answer: Callable[[Plain], Answer], spark: Any, three_runs: History, rows_of_three_runs: Plain
) -> None:
    result, columns = ASKED[answer]
    job = import_module(f"ray_snapshot.spark_jobs.{answer.__name__}")
    given = {"predicate": "deadlock"} if answer is possibly else {}
    rows = job.run(spark, three_runs, **given)[result].toArrow().to_pylist()
    expected = answer(rows_of_three_runs)
    assert expected, "nothing to find: the answer says nothing"
    assert picked(rows, *columns) == expected


def test_the_quick_questions_say_of_each_run_what_plain_python_does(
    three_runs: History, rows_of_three_runs: Plain
) -> None:
    asked = {detections: questions.since, conservation: questions.conservation}
    for answer, question in asked.items():
        result, columns = ASKED[answer]
        assert picked(question(three_runs)[result].to_pylist(), *columns) == answer(rows_of_three_runs)
    last = max(row["snapshot_id"] for row in rows_of_three_runs.complete)
    (run,) = (run for run, ids in rows_of_three_runs.ids.items() if last in ids)
    assert questions.two_snapshots(three_runs) == tuple(rows_of_three_runs.ids[run][-2:])
