"""Now: the systems that run, and the last snapshot of each that a history knows; alarms first."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any

from ray_snapshot.detectors.common import lasted
from ray_snapshot.errors import RaySnapshotError
from ray_snapshot.glances import Glance, Word, glance_of
from ray_snapshot.names import listed, noun_of
from ray_snapshot.reports.course import STATUSES
from ray_snapshot.reports.texts import distinct, plain
from ray_snapshot.verdicts import word_of
from ray_snapshot.views.report import short_sites
from ray_snapshot.web import reading
from ray_snapshot.web.served import Place, Running, Served

MOST_SYSTEMS = 50
"""So many are shown here, the gravest first; the others have their lists of snapshots."""
MOST_LOOKED_AT = 200
"""So many systems of a history are looked at."""
MOST_JUDGED = 300_000
"""A snapshot of more machines is not judged for this page."""


@dataclass(frozen=True, slots=True)
class Said:
    """What one detector says."""

    detector: str
    word: str
    sentence: str
    is_alarm: bool
    lines: tuple[str, ...] = ()
    """Of an alarm: where those are that make it."""


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
    noun: str = "actor"
    """What its machines are called."""


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
    troubles: list[str] = []
    more = 0
    for place in list(served.places.values()):
        try:
            recorded, left = _recorded(served, place, seen)
            found, more = found + recorded, more + left
        except RaySnapshotError as error:  # the others are shown all the same
            troubles.append(plain(error, 2_000))
    found.sort(key=lambda one: one.taken_at or datetime.min.replace(tzinfo=UTC), reverse=True)
    found.sort(key=lambda one: (not one.is_running, _ORDER.index(one.level)))
    level = min((one.level for one in found), key=_ORDER.index, default="none")
    return Now(
        systems=tuple(found[:MOST_SYSTEMS]),
        more_systems=max(0, len(found) - MOST_SYSTEMS) + more,
        level="unknown" if troubles and level != "alarm" else level,
        headline=_headline(found, level),
        not_asked=tuple(map(plain, served.live.not_asked())) if served.live is not None else (),
        is_live=served.live is not None,
        histories=tuple((place.key, plain(place.history.path, 1_000)) for place in served.places.values()),
        troubles=tuple(troubles),
    )


_ORDER = ("alarm", "unknown", "clear", "none")


def _headline(systems: list[SystemNow], level: str) -> str:
    alarms = distinct(f"{said.detector} in {one.name}" for one in systems for said in one.said if said.is_alarm)
    if alarms:
        return f"Alarm: {listed(alarms)}"
    if not systems:
        return "Nothing to show yet"
    if level == "unknown":
        names = [one.name for one in systems if one.level == "unknown"]
        return f"Not everything can be told of {', '.join(names[:3])}{' and others' if len(names) > 3 else ''}"
    return "No alarm" if level == "clear" else "No snapshot was taken yet"


def _running(served: Served, one: Running) -> SystemNow:
    """By its last complete snapshot: one that was given up tells nothing, and ends no alarm."""
    trouble = one.trouble or plain(one.about.get("failed") or "")
    complete = [glance for glance in one.glances if glance.row["status"] == "complete"]
    if not one.glances:
        run_id = plain(one.about.get("run_id", ""))
        level = "unknown" if trouble else "none"
        return SystemNow(plain(one.name), True, one.place, run_id, level, open=opened(one), trouble=trouble)
    shown = complete[-1] if complete else one.glances[-1]
    given_up = None if one.glances[-1] is shown else one.glances[-1].row
    return _shown(served, shown, one.place, is_running=True, taking=opened(one), trouble=trouble, given_up=given_up)


def opened(one: Running) -> tuple[Open, ...]:
    """The snapshots of a system that are being taken."""
    return tuple(map(_opened, one.about.get("open", ())))


def _opened(item: Mapping[str, Any]) -> Open:
    seconds = max(0.0, datetime.now(UTC).timestamp() - float(item["started_at"]))
    return Open(int(item["number"]), round(seconds, 1), int(item["reported"]), int(item["lacking"]))


def _recorded(served: Served, place: Place, seen: set[tuple[str | None, str]]) -> tuple[list[SystemNow], int]:
    """The last complete snapshot of each system of a history that does not run, the latest; how many are left out."""
    rows = reading.snapshot_rows(served, place).select(["system", "snapshot_id", "status", "abort_reason"])
    last: dict[str, dict[str, Any]] = {}
    latest: dict[str, dict[str, Any]] = {}
    for row in rows.to_pylist():
        latest[row["system"]] = row
        if row["status"] == "complete":
            last.pop(row["system"], None)
            last[row["system"]] = row
    rest = [one for one in reversed(last) if (place.key, one) not in seen]
    found = []
    for name in rest[:MOST_LOOKED_AT]:
        row = last[name]
        snapshot_id = row["snapshot_id"]
        key = ("glance", place.key, snapshot_id, reading.born(place))
        glance = served.kept.get(key, partial(_glance, served, place, snapshot_id))
        given_up = None if latest[name] is row else latest[name]
        words = _words(served, place, glance)
        found.append(_shown(served, glance, place.key, is_running=False, words=words, given_up=given_up))
    return found, len(rest) - len(found)


def _glance(served: Served, place: Place, snapshot_id: str) -> Glance:
    return glance_of(reading.lean(served, place, snapshot_id), 1, ())


def _words(served: Served, place: Place, glance: Glance) -> tuple[Word, ...]:
    """What was said of a snapshot; a deadlock that nobody has looked for is looked for now."""
    snapshot_id = str(glance.row["snapshot_id"])
    words = reading.words(served, place, snapshot_id)
    if "deadlock" in {one.detector for one in words} or (glance.row["machine_count"] or 0) > MOST_JUDGED:
        return words
    rows = reading.verdicts_on(served, place, reading.lean(served, place, snapshot_id))
    known = {one.detector for one in words}
    return (*words, *(Word.of(row) for row in rows if row["detector"] not in known))


def _shown(
    served: Served,
    glance: Glance,
    place: str | None,
    *,
    is_running: bool,
    words: tuple[Word, ...] | None = None,
    taking: tuple[Open, ...] = (),
    trouble: str = "",
    given_up: Mapping[str, Any] | None = None,
) -> SystemNow:
    """`given_up`: a later snapshot that was not completed."""
    row = glance.row
    name, run_id = plain(row["system"]), plain(row["run_id"])
    said = [_said(one) for one in (glance.words if words is None else words)]
    taken_at: datetime = row["started_at"]
    seconds = max(0.0, (datetime.now(UTC) - taken_at).total_seconds())
    return SystemNow(
        name=name,
        is_running=is_running,
        place=place,
        run_id=run_id,
        level=_level(row, said, is_troubled=bool(trouble)),
        snapshot_id=str(row["snapshot_id"]),
        taken_at=taken_at,
        age=lasted(seconds) if seconds >= 1 else "less than a second",
        facts=tuple(_facts(row, given_up)),
        noun=noun_of(row["protocol"]),
        said=tuple(sorted(said, key=lambda one: (not one.is_alarm, one.word != "cannot be told", one.detector))),
        gaps=tuple(map(plain, glance.gaps)),
        classes=tuple(_counted(kind, counts) for kind, counts in glance.classes.items()),
        open=taking,
        trouble=plain(trouble, 2_000) if trouble else "",
        drawn=served.drawn(str(row["system"]), str(row["snapshot_id"])) if is_running else str(row["snapshot_id"]),
    )


def _said(one: Word) -> Said:
    sentence = plain(short_sites(one.sentence), 2_000)
    lines = tuple(plain(short_sites(line)) for line in one.lines)
    return Said(plain(one.detector), word_of(one.holds), sentence, one.alarm, lines)


def _level(row: Mapping[str, Any], said: Sequence[Said], *, is_troubled: bool) -> str:
    if any(one.is_alarm for one in said):
        return "alarm"
    is_told = any(one.detector == "deadlock" and one.word != "cannot be told" for one in said)
    is_sound = row["status"] == "complete" and row["consistent"]
    return "clear" if is_sound and is_told and not is_troubled else "unknown"


def _facts(row: Mapping[str, Any], given_up: Mapping[str, Any] | None) -> Iterable[tuple[str, str]]:
    if row["status"] != "complete":
        given_up = row
    if given_up is not None:
        yield "the last one", f"was given up: {plain(given_up['abort_reason'] or 'no reason is recorded')}"
    yield "snapshot", plain(row["snapshot_id"])
    yield f"{noun_of(row['protocol'])}s", f"{row['machine_count'] or 0:,}"
    yield "in flight", f"{row['in_flight_count'] or 0:,}"
    yield "took", f"{row['duration_ms'] or 0.0:,.0f} ms"


def _counted(name: str, counts: Mapping[str, int]) -> Counted:
    known = [counts.get(status, 0) for status in STATUSES]
    total = sum(counts.values())
    return Counted(plain(name), (*known, total - sum(known)), total)
