"""The course of a run, snapshot by snapshot: what was counted and what the detectors said, and the charts of both."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.history import History
from ray_snapshot.names import noun_of, word_for
from ray_snapshot.verdicts import word_of
from ray_snapshot.views import charts
from ray_snapshot.views.charts import ALARM, Points, Quantity

MOST_BANDS = 12
"""So many detectors are drawn."""
MOST_DRAWN = 400
"""So many snapshots of a run are drawn, the last ones."""
MOST_COUNTED = 1_000_000
"""Machines by status are drawn over as many snapshots as have so many rows together."""

STATUSES = ("active", "blocked", "passive")


@dataclass(slots=True)
class Course:
    """What is drawn of a run, the earliest snapshot first."""

    system: str
    noun: str = "machine"
    in_flight: Points = field(default_factory=Points)
    duration_ms: Points = field(default_factory=Points)
    statuses: dict[str, Points] = field(default_factory=dict)
    """By status: how many machines have it."""
    answers: dict[str, tuple[list[datetime], list[str]]] = field(default_factory=dict)
    """By detector: when it was asked, and what it said (of `charts.ANSWERS`)."""

    def say(self, detector: str, at: datetime, answer: str) -> None:
        """A detector said something."""
        times, answers = self.answers.setdefault(detector, ([], []))
        times.append(at)
        answers.append(answer)


_ANSWERED = ["snapshot_id", "detector", "evaluator", "holds", "alarm", "evaluated_at"]


def answer_of(holds: bool | None, alarm: bool | None) -> str:
    """What a verdict says, as it is drawn."""
    return ALARM if alarm else word_of(holds)


def answers_of(history: History, times: Mapping[str, datetime]) -> dict[str, dict[str, str]]:
    """By detector, by snapshot: the gravest that any evaluator said last. `times`: of the snapshots, in their order."""
    last: dict[tuple[str, str, str], str] = {}
    for row in history.rows_of("verdicts", times, _ANSWERED).sort_by("evaluated_at").to_pylist():
        key = str(row["detector"]), str(row["evaluator"]), row["snapshot_id"]
        last[key] = answer_of(row["holds"], row["alarm"])
    found: dict[str, dict[str, str]] = {}
    for (detector, _, snapshot_id), answer in last.items():
        answers = found.setdefault(detector, {})
        answers[snapshot_id] = min(answer, answers.get(snapshot_id, answer), key=charts.GRAVEST.index)
    return {name: {one: found[name][one] for one in times if one in found[name]} for name in sorted(found)}


def course_of(history: History, system: str, rows: pa.Table, answers: Mapping[str, Mapping[str, str]]) -> Course:
    """The course of a run whose rows of `snapshots` these are, the earliest first."""
    rows = rows.slice(max(0, rows.num_rows - MOST_DRAWN))
    times = dict(zip(rows["snapshot_id"].to_pylist(), rows["started_at"].to_pylist(), strict=True))
    found = Course(system, noun_of(rows["protocol"][-1].as_py() if rows.num_rows else None))
    for detector, said in answers.items():
        for snapshot_id, answer in said.items():
            if snapshot_id in times:
                found.say(detector, times[snapshot_id], answer)
    counted = ("started_at", "in_flight_count", "duration_ms", "machine_count", "snapshot_id")
    complete = rows.filter(pc.equal(rows["status"], "complete")).select(counted).drop_null()
    for at, in_flight, duration_ms, _, _ in zip(*(complete[name].to_pylist() for name in counted), strict=True):
        found.in_flight.add(at, in_flight)
        found.duration_ms.add(at, duration_ms)
    ids, machines = complete["snapshot_id"].to_pylist(), complete["machine_count"].to_pylist()
    room, begin = MOST_COUNTED, len(ids)
    while begin and (room := room - machines[begin - 1]) >= 0:
        begin -= 1
    found.statuses = _statuses(history, {one: times[one] for one in ids[begin:]})
    return found


def _statuses(history: History, times: Mapping[str, datetime]) -> dict[str, Points]:
    """By status: how many machines have it, over time."""
    table = history.rows_of("machines", times, ["snapshot_id", "status"])
    counts = table.group_by(["snapshot_id", "status"]).aggregate([([], "count_all")])
    found = {
        (row["snapshot_id"], row["status"]): row["count_all"] for row in counts.to_pylist() if row["status"] in STATUSES
    }
    points: dict[str, Points] = {status: Points() for status in sorted({status for _, status in found})}
    for snapshot_id, moment in times.items():
        for status, line in points.items():
            line.add(moment, found.get((snapshot_id, status), 0))
    return points


def pictures(course: Course, title: str, marks: Sequence[tuple[datetime, str]] = ()) -> list[tuple[str, str]]:
    """(What it shows, the SVG) of each chart; none of fewer than two snapshots."""
    moments = {at for times, _ in course.answers.values() for at in times} | {*course.in_flight.times}
    if len(moments) < 2:
        return []
    bands = {name: charts.spans(*said) for name, said in list(course.answers.items())[:MOST_BANDS]}
    heading = "What the detectors said"
    drawn = [(heading, svg(charts.band_chart(bands, heading)))] if bands else []
    panels: list[tuple[Quantity, Mapping[str, Points]]] = []
    if course.statuses:
        panels.append(
            (
                Quantity(f"{course.noun}s", is_whole=True),
                {word_for(name, course.noun): line for name, line in course.statuses.items()},
            )
        )
    panels.append((Quantity("in flight", is_whole=True), {course.system: course.in_flight}))
    panels.append((Quantity("snapshot", "ms"), {course.system: course.duration_ms}))
    return [*drawn, (title, svg(charts.line_chart(panels, title, marks)))]


def svg(figure: Any) -> str:
    """A figure as text."""
    import matplotlib as mpl

    written = io.StringIO()
    with mpl.rc_context({"svg.fonttype": "none", "svg.hashsalt": "ray-snapshot"}):
        figure.savefig(written, format="svg", metadata={"Date": None, "Creator": None})
    return written.getvalue()
