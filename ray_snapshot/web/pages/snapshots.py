"""The snapshots of a history, a page at a time: how long each took and why, and what was said of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.reports.course import answers_of
from ray_snapshot.reports.texts import plain
from ray_snapshot.views.charts import ALARM, GRAVEST, UNKNOWN
from ray_snapshot.web import reading
from ray_snapshot.web.asked import Asked, Part
from ray_snapshot.web.pages.now import Open, opened
from ray_snapshot.web.served import Place, Served

MOST_COUNTED = 1_000_000
"""The delays of the machines are read of as many snapshots as have so many machines together."""
MOST_CHOICES = 200
"""So many systems and runs can be chosen from a list."""
Answers = Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Listed:
    """One snapshot."""

    snapshot_id: str
    system: str
    run_id: str
    status: str
    started_at: datetime | None
    duration_ms: float | None
    delay_ms: float | None
    """Of the machine that recorded last."""
    alignment_ms: float | None
    bytes: int | None
    in_flight_count: int | None
    machine_count: int | None
    restorable: bool
    consistent: bool
    answer: str
    """The gravest that a detector said of it."""
    detectors: tuple[str, ...]
    """Who said that."""


@dataclass(frozen=True, slots=True)
class Snapshots:
    """The page."""

    place: str
    path: str
    listed: tuple[Listed, ...]
    """The latest first."""
    part: Part
    open: tuple[tuple[str, Open], ...]
    """Those that are being taken: (system, it)."""
    systems: tuple[str, ...]
    runs: tuple[str, ...]
    detectors: tuple[str, ...]


def snapshots(served: Served, place: Place, asked: Asked) -> Snapshots:
    """The snapshots that were asked for: `system`, `run`, `status`, `since`, `until`, and `said` by a `detector`."""
    rows = reading.snapshot_rows(served, place)
    systems, runs = _choices(rows, "system"), _choices(rows, "run_id")
    rows = _chosen(rows, asked)
    answers = _answers(served, place)
    rows = _said(rows, answers, asked)
    part = Part.of(asked, rows.num_rows)
    latest = rows.slice(max(0, rows.num_rows - part.begin - part.rows), min(part.rows, rows.num_rows - part.begin))
    delays = _delays(served, place, latest)
    running = [one for one in served.running() if one.place == place.key]
    return Snapshots(
        place=place.key,
        path=plain(place.history.path, 1_000),
        listed=tuple(_listed(row, answers, delays) for row in reversed(latest.to_pylist())),
        part=part,
        open=tuple((plain(one.name), item) for one in running for item in opened(one)),
        systems=systems,
        runs=runs,
        detectors=tuple(name for name in sorted(answers) if name.isprintable())[:MOST_CHOICES],
    )


def _choices(rows: pa.Table, column: str) -> tuple[str, ...]:
    """The last ones first; a name that cannot be shown as it is can still be asked for by its address."""
    found = [one for one in pc.unique(rows[column]).to_pylist() if one is not None and one.isprintable()]
    return tuple(reversed(found[-MOST_CHOICES:]))


def _chosen(rows: pa.Table, asked: Asked) -> pa.Table:
    for name, column in (("system", "system"), ("run", "run_id"), ("status", "status")):
        if (value := asked.text(name)) is not None:
            rows = rows.filter(pc.equal(rows[column], value))
    if (since := asked.moment("since")) is not None:
        rows = rows.filter(pc.greater_equal(rows["started_at"], pa.scalar(since, rows["started_at"].type)))
    if (until := asked.moment("until")) is not None:
        rows = rows.filter(pc.less_equal(rows["started_at"], pa.scalar(until, rows["started_at"].type)))
    return rows


def _answers(served: Served, place: Place) -> Answers:
    """By detector, by snapshot: the gravest that it said."""
    key = ("answers", place.key, reading.commits(place, "verdicts"), reading.commits(place, "snapshots"))

    def read() -> Answers:
        rows = reading.snapshot_rows(served, place)
        times = zip(rows["snapshot_id"].to_pylist(), rows["started_at"].to_pylist(), strict=True)
        return answers_of(place.history, dict(times))

    found: Answers = served.kept.get(key, read, lambda one: 200 * sum(map(len, one.values())))
    return found


def _said(rows: pa.Table, answers: Answers, asked: Asked) -> pa.Table:
    """Those of which a detector (or any) said this."""
    detector, wanted = asked.text("detector"), asked.one_of("said", ("", *GRAVEST), "")
    if not detector and not wanted:
        return rows
    chosen = [said for name, said in answers.items() if detector in (None, name)]
    ids = [snapshot_id for said in chosen for snapshot_id, answer in said.items() if wanted in ("", answer)]
    return rows.filter(pc.is_in(rows["snapshot_id"], value_set=pa.array(ids, pa.string())))


def _delays(served: Served, place: Place, rows: pa.Table) -> dict[str, tuple[float | None, float | None]]:
    """By snapshot: the longest delay of a record, and the longest alignment; of the latest, as far as they are counted."""
    found: dict[str, tuple[float | None, float | None]] = {}
    room, missing = MOST_COUNTED, []
    known: dict[str, tuple[float | None, float | None]] = served.kept.get(("delays", place.key), dict)
    ids, counts = rows["snapshot_id"].to_pylist(), rows["machine_count"].to_pylist()
    for snapshot_id, count in zip(reversed(ids), reversed(counts), strict=True):
        room -= count or 0
        if room < 0:
            break
        if snapshot_id in known:
            found[snapshot_id] = known[snapshot_id]
        else:
            missing.append(snapshot_id)
    if missing:
        read = place.history.rows_of("machines", missing, ["snapshot_id", "record_delay_ms", "alignment_ms"])
        most = read.group_by("snapshot_id").aggregate([("record_delay_ms", "max"), ("alignment_ms", "max")])
        for row in most.to_pylist():
            pair = (row["record_delay_ms_max"], row["alignment_ms_max"])
            known[row["snapshot_id"]] = found[row["snapshot_id"]] = pair
    return found


def _listed(row: Mapping[str, Any], said: Answers, delays: Mapping[str, tuple[float | None, float | None]]) -> Listed:
    answers = {name: found[row["snapshot_id"]] for name, found in said.items() if row["snapshot_id"] in found}
    gravest = min(answers.values(), key=GRAVEST.index, default="")
    delay, alignment = delays.get(row["snapshot_id"], (None, None))
    return Listed(
        snapshot_id=str(row["snapshot_id"]),
        system=plain(row["system"]),
        run_id=plain(row["run_id"]),
        status=plain(row["status"]),
        started_at=row["started_at"],
        duration_ms=row["duration_ms"],
        delay_ms=delay,
        alignment_ms=alignment,
        bytes=row["bytes"],
        in_flight_count=row["in_flight_count"],
        machine_count=row["machine_count"],
        restorable=bool(row["restorable"]),
        consistent=bool(row["consistent"]),
        answer=gravest,
        detectors=tuple(plain(name) for name, one in answers.items() if one == gravest and one in (ALARM, UNKNOWN)),
    )
