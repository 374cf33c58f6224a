"""The charts of the pages: the same as those of reports, drawn once for all viewers, and each at most every few seconds."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.errors import HistoryNotFoundError, RaySnapshotError
from ray_snapshot.glances import Glance
from ray_snapshot.names import noun_of
from ray_snapshot.reports.course import MOST_DRAWN, STATUSES, Course, answer_of, answers_of, course_of, pictures
from ray_snapshot.views.charts import Points
from ray_snapshot.web import reading
from ray_snapshot.web.asked import Asked
from ray_snapshot.web.served import Served

_DRAWING = threading.Lock()
"""matplotlib draws one picture at a time."""

BANDS, COUNTS = "bands", "counts"
"""What the detectors said; what was counted."""


def of_run(served: Served, names: Mapping[str, str], asked: Asked) -> str:
    """The run of a history up to a `snapshot`: its `chart`, "bands" or "counts", as SVG."""
    place = served.place(names["place"])
    snapshot_id = asked.text("snapshot") or ""
    rows = reading.snapshot_rows(served, place)
    found = rows.filter(pc.equal(rows["snapshot_id"], snapshot_id)).to_pylist()
    if not found:
        raise HistoryNotFoundError(f"no snapshot {snapshot_id!r}", path=str(place.history.path))
    row = found[0]

    def draw() -> list[tuple[str, str]]:
        run = rows.filter(pc.and_(pc.equal(rows["run_id"], row["run_id"]), pc.equal(rows["system"], row["system"])))
        run = run.filter(pc.less_equal(run["started_at"], pa.scalar(row["started_at"], run["started_at"].type)))
        run = run.slice(max(0, run.num_rows - MOST_DRAWN))
        times = dict(zip(run["snapshot_id"].to_pylist(), run["started_at"].to_pylist(), strict=True))
        course = course_of(place.history, row["system"], run, answers_of(place.history, times))
        return pictures(course, f"{row['system']}: the run up to {snapshot_id}")

    key = ("run chart", place.key, snapshot_id, reading.commits(place, "verdicts"))
    return _chosen(served, key, draw, asked)


def of_glances(served: Served, names: Mapping[str, str], asked: Asked) -> str:
    """The last snapshots of a running system up to a `snapshot`."""
    one = next((one for one in served.running() if one.name == names["system"]), None)
    if one is None or not one.glances:
        raise HistoryNotFoundError(f"no system {names['system']!r} is running", path="")
    until = asked.text("snapshot")
    glances = list(one.glances)
    last = next((at for at, glance in enumerate(glances) if glance.row["snapshot_id"] == until), len(glances) - 1)
    key = ("glances", one.name, glances[last].row["snapshot_id"])
    return _chosen(
        served, key, lambda: pictures(_course(one.name, glances[: last + 1]), f"{one.name}: the last snapshots"), asked
    )


def _course(system: str, glances: list[Glance]) -> Course:
    noun = noun_of(glances[-1].row["protocol"] if glances else None)
    found = Course(system, noun, statuses={status: Points() for status in STATUSES})
    for glance in glances:
        at = glance.row["started_at"]
        for word in glance.words:
            found.say(word.detector, at, answer_of(word.holds, word.alarm))
        if glance.row["status"] != "complete":
            continue
        found.in_flight.add(at, glance.row["in_flight_count"])
        found.duration_ms.add(at, glance.row["duration_ms"])
        for status, points in found.statuses.items():
            points.add(at, sum(counts.get(status, 0) for counts in glance.classes.values()))
    return found


def _chosen(served: Served, key: tuple[Any, ...], draw: Any, asked: Asked) -> str:
    def drawn() -> list[str]:
        try:
            with _DRAWING:
                return [svg for _, svg in draw()]
        except RaySnapshotError:
            raise
        except Exception as error:  # times and counts of a stranger, which matplotlib may refuse
            return [_words(f"the run cannot be drawn: {type(error).__name__}")]

    charts: list[str] = served.kept.get(key, drawn, lambda one: sum(map(len, one)) + 1_000)
    wanted = asked.one_of("chart", (BANDS, COUNTS), COUNTS)
    if wanted == COUNTS:
        return charts[-1] if charts else _words("nothing to draw yet: the run has one snapshot so far")
    return charts[0] if len(charts) > 1 else _words("nothing to draw: no detector has judged this run")


def _words(text: str) -> str:
    """A picture that says why there is none."""
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" width="480" height="40" viewBox="0 0 480 40">'
        f'<text x="8" y="24" font-family="sans-serif" font-size="13" fill="#59636e">{escape(text)}</text></svg>'
    )
