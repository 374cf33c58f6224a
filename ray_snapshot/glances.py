"""What a viewer of a running system is told of its last snapshots: counts and words, and never a state.

An analyst makes a glance of each snapshot as it judges it, and keeps the last ones; `ray-snapshot serve` asks for those behind
the one it has seen.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ray_snapshot.alarms import report_of
from ray_snapshot.news import cores_of

if TYPE_CHECKING:
    from ray_snapshot.snapshot import Snapshot
    from ray_snapshot.verdicts import Verdict

MOST_KEPT = 400
MOST_CLASSES = 50
"""So many classes are counted by themselves, those with most machines."""
MOST_SENTENCE = 2_000
MOST_GAPS = 20
MOST_REPORT = 20_000
MOST_CORES = 100
MOST_OF_CORE = 50
"""So many machines of a core stand for it, the first by name."""

OTHERS = "(others)"


@dataclass(frozen=True, slots=True)
class Word:
    """What one detector said."""

    detector: str
    holds: bool | None
    alarm: bool
    sentence: str
    report: str = ""
    """Of an alarm: what a person is told of it, in lines."""
    cores: tuple[frozenset[str], ...] = ()
    """Of an alarm: what it is about, see `news`."""


@dataclass(frozen=True, slots=True)
class Glance:
    """One snapshot, in counts."""

    place: int
    """From 1 on, in the order in which they were judged."""
    row: Mapping[str, Any]
    """Its row of `snapshots`, without `coverage`."""
    gaps: tuple[str, ...]
    """The first things that it does not cover."""
    classes: Mapping[str, Mapping[str, int]]
    """By class, by status: how many machines."""
    words: tuple[Word, ...]


@dataclass(slots=True)
class Glances:
    """The last ones; filled by one thread and read by another."""

    origin: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Of these glances and no others: another run counts from 1 again, and so does another analyst of the same run."""
    kept: deque[Glance] = field(default_factory=lambda: deque(maxlen=MOST_KEPT))
    count: int = 0

    def add(self, snapshot: Snapshot, verdicts: Iterable[Verdict]) -> None:
        """One more snapshot was judged."""
        self.count += 1
        row = {name: value for name, value in snapshot.tables["snapshots"].to_pylist()[0].items() if name != "coverage"}
        words = tuple(_word(one, snapshot.system) for one in verdicts)
        self.kept.append(Glance(self.count, row, _gaps(snapshot), _counted(snapshot), words))

    def after(self, origin: str, place: int) -> list[Glance]:
        """Those behind that place; all, if it was a place among others."""
        found = list(self.kept)
        return [one for one in found if one.place > place] if origin == self.origin else found


def glance_of(snapshot: Snapshot, place: int, words: Iterable[Word]) -> Glance:
    """The glance of a snapshot."""
    row = {name: value for name, value in snapshot.tables["snapshots"].to_pylist()[0].items() if name != "coverage"}
    return Glance(place, row, _gaps(snapshot), _counted(snapshot), tuple(words))


def _word(verdict: Verdict, system: str) -> Word:
    plain = Word(verdict.detector, verdict.holds, verdict.alarm, verdict.sentence[:MOST_SENTENCE])
    if not verdict.alarm:
        return plain
    cores = (frozenset(sorted(core)[:MOST_OF_CORE]) for core in cores_of(verdict.evidence)[:MOST_CORES])
    return replace(plain, report=report_of(verdict, system)[:MOST_REPORT], cores=tuple(cores))


def _gaps(snapshot: Snapshot) -> tuple[str, ...]:
    told = snapshot.coverage.get("uncovered") if isinstance(snapshot.coverage, Mapping) else None
    listed = [str(item) for item in told] if isinstance(told, list) else []
    more = len(listed) - MOST_GAPS
    return (*listed[:MOST_GAPS], f"and {more:,} more") if more > 0 else tuple(listed)


def _counted(snapshot: Snapshot) -> dict[str, dict[str, int]]:
    table = snapshot.tables["machines"].select(["class_name", "status"])
    by_class: dict[str, dict[str, int]] = {}
    for row in table.group_by(["class_name", "status"]).aggregate([([], "count_all")]).to_pylist():
        counts = by_class.setdefault(str(row["class_name"]), {})
        counts[str(row["status"])] = row["count_all"]
    found: dict[str, dict[str, int]] = {}
    for place, name in enumerate(sorted(by_class, key=lambda name: -sum(by_class[name].values()))):
        counts = found.setdefault(name if place < MOST_CLASSES else OTHERS, {})
        for status, count in by_class[name].items():
            counts[status] = counts.get(status, 0) + count
    return found
