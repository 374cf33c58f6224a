"""What came before the snapshot of a report: when its alarm began, how its waits formed, what changed, and the run so far."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.detectors.common import at_most, is_any_of, lasted, plural
from ray_snapshot.history import History
from ray_snapshot.names import NOT_RECORDED, listed, name_ranges
from ray_snapshot.reports.course import answers_of, course_of, pictures
from ray_snapshot.reports.texts import at, plain
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.views.charts import ALARM, UNKNOWN

MOST_WAITS = 50_000
"""So many waits are read for them."""
MOST_STEPS = 20
MOST_ALARMS = 5


@dataclass(frozen=True, slots=True)
class Past:
    """What is known of it."""

    sentences: tuple[str, ...] = ()
    steps: tuple[str, ...] = ()
    """How the waits formed, the first one first."""
    charts: tuple[tuple[str, str], ...] = ()
    """(what it shows, the SVG)."""


@dataclass(frozen=True, slots=True)
class _Episode:
    """How long an alarm stands already."""

    clear_id: str | None = None
    """The last snapshot before it of which the answer is known."""
    began_id: str | None = None


@dataclass(frozen=True, slots=True)
class _Run:
    """The run up to the snapshot of the report."""

    snapshot: Snapshot
    rows: pa.Table
    """Of `snapshots`, the earliest first."""
    times: Mapping[str, datetime]
    """When each was begun."""
    answers: Mapping[str, Mapping[str, str]]
    """By detector, by snapshot."""
    episodes: Mapping[str, _Episode]
    """By alarm of the snapshot."""


def past(
    history: History, snapshot: Snapshot, alarms: Sequence[str], names: Sequence[str], *, has_charts: bool = True
) -> Past:
    """What came before `snapshot`; `alarms`: the detectors that raise one on it; `names`: the machines concerned."""
    run = _run(history, snapshot, alarms)
    rows, times, episodes = run.rows, run.times, run.episodes
    complete = rows.filter(pc.equal(rows["status"], "complete"))["snapshot_id"].to_pylist()
    before = [one for one in complete if one != snapshot.snapshot_id]
    lead = next(iter(episodes.values()), _Episode(clear_id=before[-1] if before else None))
    drawn, no_charts = _drawn(history, run) if has_charts else ([], [])
    since = () if lead.clear_id is None else (_changes(lead.clear_id, snapshot),)
    sentences = [*_sentences(snapshot, episodes, times, len(before)), *since, *no_charts]
    return Past(
        sentences=tuple(sentences),
        steps=tuple(_steps(snapshot, names)),
        charts=tuple(drawn),
    )


def _run(history: History, snapshot: Snapshot, alarms: Sequence[str]) -> _Run:
    rows = history.snapshot_table(snapshot.system, run_id=snapshot.run_id)
    rows = rows.filter(pc.less_equal(rows["started_at"], snapshot.started_at))
    times = dict(zip(rows["snapshot_id"].to_pylist(), rows["started_at"].to_pylist(), strict=True))
    answers = answers_of(history, times)
    episodes = {alarm: _episode(answers.get(alarm, {}), snapshot.snapshot_id) for alarm in list(alarms)[:MOST_ALARMS]}
    return _Run(snapshot, rows, times, answers, episodes)


def _episode(answers: Mapping[str, str], snapshot_id: str) -> _Episode:
    """Of what one detector said, snapshot by snapshot, up to this one."""
    clear_id = began_id = None
    for one, answer in answers.items():
        if answer == ALARM:
            began_id = began_id or one
        elif answer != UNKNOWN and one != snapshot_id:
            clear_id, began_id = one, None
    return _Episode(clear_id, began_id)


def _sentences(
    snapshot: Snapshot, episodes: Mapping[str, _Episode], times: Mapping[str, datetime], before: int
) -> list[str]:
    if not before:
        return ["The history has no earlier complete snapshot of its run."]
    found = [f"The history has {plural(before, 'earlier complete snapshot')} of its run."]
    for alarm, episode in episodes.items():
        if (began := times.get(episode.began_id or "")) is not None:
            seconds = (snapshot.started_at - began).total_seconds()
            ago = f"{seconds:.1f} s" if seconds < 2 else lasted(seconds)
            words = "with this snapshot" if episode.began_id == snapshot.snapshot_id else f"{ago} earlier"
            text = f"The alarm of {plain(alarm)} began {words}, in {plain(episode.began_id)} ({at(began)})"
            if (moment := times.get(episode.clear_id or "")) is not None:
                clear = f"{plain(episode.clear_id)} ({at(moment)})"
                found.append(f"{text}; the last snapshot known to be without it is {clear}.")
            else:
                found.append(f"{text}; no earlier snapshot of the run is known to be without it.")
    return found


def _steps(snapshot: Snapshot, names: Sequence[str]) -> list[str]:
    """The waits of these machines in the order in which they began, those that are alike together."""
    if not names:
        return []
    found: dict[tuple[datetime, str], list[str]] = {}
    table = snapshot.tables["waits"]
    is_open = pc.and_(pc.is_valid(table["waiting_since"]), pc.invert(pc.fill_null(table["satisfied"], False)))
    began = table.filter(pc.and_(is_open, pa.array(is_any_of(table["machine"], *names)))).sort_by("waiting_since")
    for row in began.slice(0, MOST_WAITS).select(["machine", "on_machine", "waiting_since"]).to_pylist():
        on = found.setdefault((row["waiting_since"], row["machine"]), [])
        name = row["on_machine"] or NOT_RECORDED
        if name not in on:
            on.append(name)
    alike: dict[tuple[str, str], dict[str, datetime]] = {}
    for (since, name), on in found.items():
        alike.setdefault((name.rstrip("0123456789"), listed(on)), {})[name] = since
    lines = []
    for (_, what), moments in alike.items():
        first, *_, last = [f"{max(0.0, (snapshot.started_at - at).total_seconds()):.1f}" for at in moments.values()] * 2
        ago = first if first == last else f"{first} to {last}"
        verb = "begins" if len(moments) == 1 else "begin"
        lines.append(plain(f"{ago} s before the snapshot: {name_ranges(moments)} {verb} to wait for {what}"))
    return at_most(lines, MOST_STEPS)


def _changes(earlier_id: str, snapshot: Snapshot) -> str:
    ids = f"{plain(earlier_id)} {plain(snapshot.snapshot_id)}"
    return f"Changes since then: ray-snapshot ask HISTORY diff {ids}"


def _drawn(history: History, run: _Run) -> tuple[list[tuple[str, str]], list[str]]:
    """The charts, and why there are none."""
    try:
        course = course_of(history, run.snapshot.system, run.rows, run.answers)
        return pictures(course, "The run up to this snapshot", _marks(run)), []
    except Exception as error:  # times and counts of a stranger, which matplotlib may refuse: the report goes without
        return [], [f"The run cannot be drawn: {type(error).__name__}: {plain(error).rstrip('.')}."]


def _marks(run: _Run) -> list[tuple[datetime, str]]:
    """Where each alarm began, and this snapshot."""
    earlier = {alarm: one.began_id for alarm, one in run.episodes.items() if one.began_id != run.snapshot.snapshot_id}
    found = [(run.times.get(began_id or ""), f"{alarm}: the alarm begins") for alarm, began_id in earlier.items()]
    return [*((at, text) for at, text in found if at is not None), (run.snapshot.started_at, "this snapshot")]
