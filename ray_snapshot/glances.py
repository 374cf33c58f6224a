"""What a viewer of a running system is told of its last snapshots: counts and words, and never a state.

An analyst makes a glance of each snapshot as it judges it, and keeps the last ones; `ray-snapshot serve` asks for those behind
the one it has seen.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ray_snapshot.evidence import deadlock_evidence, names_in
from ray_snapshot.views.report import MOST_LINES, deadlock_lines

if TYPE_CHECKING:
    from ray_snapshot.snapshot import Snapshot
    from ray_snapshot.verdicts import Verdict

MOST_KEPT = 400
MOST_CLASSES = 50
"""So many classes are counted by themselves, those with most machines."""
MOST_SENTENCE = 2_000
MOST_GAPS = 20

OTHERS = "(others)"


@dataclass(frozen=True, slots=True)
class Word:
    """What one detector said."""

    detector: str
    holds: bool | None
    alarm: bool
    sentence: str
    lines: tuple[str, ...] = ()
    """Of an alarm: where the actors that make it are, those that are alike in one line."""

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Word:
        """What a verdict says; `row`: its fields."""
        told, alarm = deadlock_evidence(row["evidence"]), bool(row["alarm"])
        lines = deadlock_lines(told)[0] if told["members"] else names_in(row["evidence"], "places")[:MOST_LINES]
        sentence = str(row["sentence"] or "")[:MOST_SENTENCE]
        return cls(str(row["detector"]), row["holds"], alarm, sentence, tuple(lines) if alarm else ())


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
    record_delay_ms: float = 0.0
    """Of the machine that recorded last."""
    backlogs: Mapping[str, int] = field(default_factory=dict)
    """By class: the most messages and calls that are in flight to one machine."""


@dataclass(frozen=True, slots=True)
class Totals:
    """What was counted since the system began."""

    completed: int = 0
    aborted: int = 0
    restores: int = 0
    """How often it was rolled back while it was counted, as the last snapshot knows."""


@dataclass(slots=True)
class Glances:
    """The last ones; filled by one thread and read by another."""

    origin: str = field(default_factory=lambda: uuid.uuid4().hex)
    """Of these glances and no others: another run counts from 1 again, and so does another analyst of the same run."""
    kept: deque[Glance] = field(default_factory=lambda: deque(maxlen=MOST_KEPT))
    count: int = 0
    totals: Totals = field(default_factory=Totals)
    last: Glance | None = None
    """Of the last snapshot that was complete, however many were given up since."""
    _generation: int | None = None

    def add(self, snapshot: Snapshot, verdicts: Iterable[Verdict], generation: int = 0) -> None:
        """One more snapshot was judged, or given up; `generation`: how often the system had been rolled back by then."""
        self.count += 1
        is_complete = snapshot.status == "complete"
        past, before = self.totals, generation if self._generation is None else self._generation
        self._generation = max(before, generation)
        restores = past.restores + self._generation - before
        self.totals = Totals(past.completed + is_complete, past.aborted + (not is_complete), restores)
        found = glance_of(snapshot, self.count, (Word.of(dict(one)) for one in verdicts))
        if is_complete:
            self.last = found
        self.kept.append(found)

    def after(self, origin: str, place: int) -> list[Glance]:
        """Those behind that place; all, if it was a place among others."""
        found = list(self.kept)
        return [one for one in found if one.place > place] if origin == self.origin else found


def glance_of(snapshot: Snapshot, place: int, words: Iterable[Word]) -> Glance:
    """The glance of a snapshot."""
    import pyarrow.compute as pc  # not at the top: every process that gets a handle of an analyst loads this module

    row = {name: value for name, value in snapshot.tables["snapshots"].to_pylist()[0].items() if name != "coverage"}
    by_class = _counted(snapshot)
    here, absent = snapshot.parted
    delays = {} if absent is None else absent.delays
    delay = max(pc.max(here["record_delay_ms"]).as_py() or 0.0, *delays.values(), 0.0)
    return Glance(place, row, _gaps(snapshot), by_class, tuple(words), delay, _backlogs(snapshot, by_class))


def _gaps(snapshot: Snapshot) -> tuple[str, ...]:
    told = snapshot.coverage.get("uncovered") if isinstance(snapshot.coverage, Mapping) else None
    listed = [str(item) for item in told] if isinstance(told, list) else []
    more = len(listed) - MOST_GAPS
    return (*listed[:MOST_GAPS], f"and {more:,} more") if more > 0 else tuple(listed)


def _counted(snapshot: Snapshot) -> dict[str, dict[str, int]]:
    here, absent = snapshot.parted
    by_class: dict[str, dict[str, int]] = {}
    if absent is not None:
        by_class = {name: {"passive": count} for name, count in absent.classes.items()}
    for (class_name, status), count in _pairs(here["class_name"], here["status"]):
        counts = by_class.setdefault(str(class_name), {})
        counts[str(status)] = counts.get(str(status), 0) + count
    found: dict[str, dict[str, int]] = {}
    for place, name in enumerate(sorted(by_class, key=lambda name: -sum(by_class[name].values()))):
        counts = found.setdefault(name if place < MOST_CLASSES else OTHERS, {})
        for status, count in by_class[name].items():
            counts[status] = counts.get(status, 0) + count
    return found


def _backlogs(snapshot: Snapshot, known: Mapping[str, Any]) -> dict[str, int]:
    """`known`: the classes that are counted by themselves."""
    import numpy as np
    import pyarrow.compute as pc

    channels = snapshot.tables["channels"].select(["target", "in_flight_count"])
    channels = channels.filter(pc.greater(channels["in_flight_count"], 0))
    if not channels.num_rows:
        return {}
    targets, counts = _encoded(channels["target"]), channels["in_flight_count"].to_numpy()
    backlogs = np.bincount(targets.indices, weights=counts).astype(np.int64)
    machines = snapshot.rows_of(targets.dictionary.to_pylist()).select(["machine", "class_name"])
    place = pc.index_in(targets.dictionary, machines["machine"])
    is_known = place.is_valid()  # of what is no machine any more nothing is said
    classes = _encoded(machines["class_name"].take(place.filter(is_known)))
    most = np.zeros(len(classes.dictionary), np.int64)
    np.maximum.at(most, classes.indices, backlogs[is_known.to_numpy(zero_copy_only=False)])
    found: dict[str, int] = {}
    for class_name, backlog in zip(classes.dictionary.to_pylist(), most.tolist(), strict=True):
        name = class_name if class_name in known else OTHERS
        found[name] = max(found.get(name, 0), backlog)
    return found


def _encoded(column: Any) -> Any:
    """Texts as indices into those that there are, each once; null is one of them. (A group-by of Arrow's takes 0.5 ms.)"""
    return column.combine_chunks().dictionary_encode(null_encoding="encode")


def _pairs(first: Any, second: Any) -> list[tuple[tuple[Any, Any], int]]:
    """How often each pair of values stands in two columns, in the order of first values."""
    import numpy as np

    one, two = _encoded(first), _encoded(second)
    width = max(1, len(two.dictionary))
    counts = np.bincount(one.indices.to_numpy().astype(np.int64) * width + two.indices.to_numpy())
    values = one.dictionary.to_pylist(), two.dictionary.to_pylist()
    return [
        ((values[0][at // width], values[1][at % width]), int(counts[at])) for at in np.flatnonzero(counts).tolist()
    ]
