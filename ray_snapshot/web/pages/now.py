"""Now: the systems that run, and the last snapshot of each that a history knows; alarms first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pyarrow.compute as pc

from ray_snapshot.detectors.common import lasted
from ray_snapshot.errors import RaySnapshotError
from ray_snapshot.glances import Glance, Word, glance_of
from ray_snapshot.reports.texts import plain
from ray_snapshot.verdicts import word_of
from ray_snapshot.views.report import short_sites
from ray_snapshot.web import reading
from ray_snapshot.web.served import Place, Running, Served

STATUSES = ("active", "blocked", "passive")
MOST_SYSTEMS = 200
MOST_OLD = 20
"""So many systems of histories are shown here; the others have their lists of snapshots."""


@dataclass(frozen=True, slots=True)
class Said:
    """What one detector says."""

    detector: str
    word: str
    sentence: str
    is_alarm: bool
    is_acknowledged: bool = False


@dataclass(frozen=True, slots=True)
class Counted:
    """The machines of one class."""

    name: str
    counts: tuple[int, ...]
    """By status, as `STATUSES`, and others."""
    total: int


@dataclass(frozen=True, slots=True)
class Open:
    """A snapshot that is being taken."""

    number: int
    seconds: float
    reported: int
    lacking: int


@dataclass(frozen=True, slots=True)
class SystemNow:
    """One system."""

    name: str
    is_running: bool
    place: str | None
    """The key of its history."""
    run_id: str
    level: str
    """alarm, unknown, clear, or none: no snapshot yet."""
    snapshot_id: str | None = None
    taken_at: datetime | None = None
    age: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    said: tuple[Said, ...] = ()
    gaps: tuple[str, ...] = ()
    classes: tuple[Counted, ...] = ()
    open: tuple[Open, ...] = ()
    trouble: str = ""
    drawn: str | None = None
    """Of which snapshot the charts are."""


@dataclass(frozen=True, slots=True)
class Now:
    """The page."""

    systems: tuple[SystemNow, ...]
    more_systems: int
    level: str
    headline: str
    not_asked: tuple[str, ...]
    is_live: bool
    histories: tuple[tuple[str, str], ...]
    """(key, path)."""
    troubles: tuple[str, ...]
    """What cannot be read."""


def now(served: Served) -> Now:
    """What there is to see at this moment."""
    running = served.running()
    seen = {(one.place, one.name) for one in running}
    found = [_running(served, one) for one in running]
    old: list[SystemNow] = []
    troubles: list[str] = []
    for place in list(served.places.values()):
        try:
            old += _recorded(served, place, seen)
        except RaySnapshotError as error:  # the others are shown all the same
            troubles.append(plain(error, 2_000))
    old.sort(key=lambda one: one.taken_at or datetime.min.replace(tzinfo=UTC), reverse=True)
    found += old[:MOST_OLD]
    found.sort(key=lambda one: (not one.is_running, _ORDER.index(one.level)))
    alarms = [
        f"{said.detector} in {one.name}"
        for one in found
        for said in one.said
        if said.is_alarm and not said.is_acknowledged
    ]
    level = min((one.level for one in found), key=_ORDER.index, default="none")
    return Now(
        systems=tuple(found[:MOST_SYSTEMS]),
        more_systems=max(0, len(old) - MOST_OLD),
        level=level,
        headline=_headline(alarms, found, level),
        not_asked=tuple(map(plain, served.live.not_asked())) if served.live is not None else (),
        is_live=served.live is not None,
        histories=tuple((place.key, plain(place.history.path, 1_000)) for place in served.places.values()),
        troubles=tuple(troubles),
    )


_ORDER = ("alarm", "unknown", "clear", "none")


def _headline(alarms: list[str], systems: list[SystemNow], level: str) -> str:
    if alarms:
        more = f" and {len(alarms) - 3} more" if len(alarms) > 3 else ""
        return f"Alarm: {', '.join(alarms[:3])}{more}"
    if not systems:
        return "Nothing to show yet"
    if level == "unknown":
        names = [one.name for one in systems if one.level == "unknown"]
        return f"Not everything can be told of {', '.join(names[:3])}{' and others' if len(names) > 3 else ''}"
    return "No alarm"


def _running(served: Served, one: Running) -> SystemNow:
    about = one.about
    run_id = plain(about.get("run_id", ""))
    trouble = one.trouble or plain(about.get("failed") or "")
    if not one.glances:
        return SystemNow(plain(one.name), True, one.place, run_id, "none", open=opened(one), trouble=trouble)
    return _shown(served, one.glances[-1], one.place, is_running=True, taking=opened(one), trouble=trouble)


def opened(one: Running) -> tuple[Open, ...]:
    """The snapshots of a system that are being taken."""
    return tuple(map(_opened, one.about.get("open", ())))


def _opened(item: Mapping[str, Any]) -> Open:
    seconds = max(0.0, datetime.now(UTC).timestamp() - float(item["started_at"]))
    return Open(int(item["number"]), round(seconds, 1), int(item["reported"]), int(item["lacking"]))


def _recorded(served: Served, place: Place, seen: set[tuple[str | None, str]]) -> Iterable[SystemNow]:
    """The last complete snapshot of each system of a history that does not run."""
    rows = reading.snapshot_rows(served, place)
    rows = rows.filter(pc.equal(rows["status"], "complete"))
    last: dict[str, str] = dict(zip(rows["system"].to_pylist(), rows["snapshot_id"].to_pylist(), strict=True))
    ids = sorted((one for name, one in last.items() if (place.key, name) not in seen), reverse=True)
    for snapshot_id in ids[:MOST_OLD]:
        snapshot = reading.lean(served, place, snapshot_id)
        glance = served.kept.get(("glance", place.key, snapshot_id), partial(glance_of, snapshot, 1, ()))
        words = reading.words(served, place, snapshot_id)
        yield _shown(served, glance, place.key, is_running=False, words=words)


def _shown(
    served: Served,
    glance: Glance,
    place: str | None,
    *,
    is_running: bool,
    words: tuple[Word, ...] | None = None,
    taking: tuple[Open, ...] = (),
    trouble: str = "",
) -> SystemNow:
    row = glance.row
    name, run_id = str(row["system"]), str(row["run_id"])
    said = tuple(_said(one, (name, run_id, one.detector) in served.acknowledged) for one in (words or glance.words))
    taken_at: datetime = row["started_at"]
    seconds = max(0.0, (datetime.now(UTC) - taken_at).total_seconds())
    return SystemNow(
        name=plain(name),
        is_running=is_running,
        place=place,
        run_id=plain(run_id),
        level=_level(row, said),
        snapshot_id=str(row["snapshot_id"]),
        taken_at=taken_at,
        age=lasted(seconds) if seconds >= 1 else "less than a second",
        facts=tuple(_facts(row)),
        said=tuple(sorted(said, key=lambda one: (not one.is_alarm, one.word != "cannot be told", one.detector))),
        gaps=tuple(map(plain, glance.gaps)),
        classes=tuple(_counted(name, counts) for name, counts in glance.classes.items()),
        open=taking,
        trouble=plain(trouble, 2_000) if trouble else "",
        drawn=served.drawn(name, str(row["snapshot_id"])) if is_running else str(row["snapshot_id"]),
    )


def _said(one: Word, is_acknowledged: bool) -> Said:
    sentence = plain(short_sites(one.sentence), 2_000)
    return Said(plain(one.detector), word_of(one.holds), sentence, one.alarm, one.alarm and is_acknowledged)


def _level(row: Mapping[str, Any], said: Iterable[Said]) -> str:
    listed = list(said)
    if any(one.is_alarm and not one.is_acknowledged for one in listed):
        return "alarm"
    is_told = not any(one.detector == "deadlock" and one.word == "cannot be told" for one in listed)
    return "clear" if row["status"] == "complete" and row["consistent"] and is_told else "unknown"


def _facts(row: Mapping[str, Any]) -> Iterable[tuple[str, str]]:
    if row["status"] != "complete":
        yield "the last one", f"was given up: {plain(row['abort_reason'] or 'no reason is recorded')}"
    yield "snapshot", plain(row["snapshot_id"])
    yield "machines", f"{row['machine_count'] or 0:,}"
    yield "in flight", f"{row['in_flight_count'] or 0:,}"
    yield "took", f"{row['duration_ms'] or 0.0:,.0f} ms, {plain(row['protocol'])}"


def _counted(name: str, counts: Mapping[str, int]) -> Counted:
    known = [counts.get(status, 0) for status in STATUSES]
    total = sum(counts.values())
    return Counted(plain(name), (*known, total - sum(known)), total)
