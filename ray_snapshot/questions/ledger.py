"""Was what machines hold and what is in flight ever another sum than it has to be, and since which snapshot?

Counted and judged as the detector `TokenConservation` does (`count`, `doubt`, `is_same`), snapshot by snapshot, with the
settings that are stored with the live verdicts. The Spark job `conservation` has `counted` done by its tasks, and is the
same otherwise. `broken` says what changed where a ledger broke.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from ray_snapshot.detectors import TokenConservation, from_spec
from ray_snapshot.detectors.conservation import Count, Expected
from ray_snapshot.detectors.holdings import Unmade
from ray_snapshot.detectors.sums import Sums
from ray_snapshot.errors import DetectorError, SettingError
from ray_snapshot.history import History
from ray_snapshot.questions.broken import CHANGED_CHANNELS, CHANGED_MACHINES, KEY, Changed, changed
from ray_snapshot.questions.needed import needed_columns
from ray_snapshot.questions.reading import TIME, Answers, as_float, chosen, faults, latest_specs, table_of

MOST_BREAKS = 100
"""Of so many ledgers that broke it is told what changed."""

LEDGER = pa.schema(
    [
        *((name, pa.string()) for name in (*KEY, "snapshot_id")),
        ("sequence", pa.int64()),
        ("started_at", TIME),
        *((name, pa.float64()) for name in ("in_machines", "in_flight", "total", "expected", "difference")),
        ("unreadable", pa.int64()),
        ("holds", pa.bool_()),
    ]
)

BREAKS = pa.schema(
    [
        *((name, pa.string()) for name in KEY),
        *((name, pa.int64()) for name in ("snapshots", "held", "broken", "unknown")),
        ("first_broken", pa.string()),
        ("first_broken_at", TIME),
        ("difference", pa.float64()),
        ("last_right", pa.string()),
    ]
)

COUNTED = pa.schema(
    [
        *((name, pa.string()) for name in (*KEY, "snapshot_id")),
        ("sequence", pa.int64()),
        ("started_at", TIME),
        *((name, pa.string()) for name in ("restored_from", "in_machines", "in_flight")),
        *((name, pa.bool_()) for name in ("is_rounded", "is_empty", "is_bare", "is_sound")),
        *((name, pa.int64()) for name in ("to_come", "unreadable")),
    ]
)
"""A row a snapshot and ledger: what it holds, as exact as a text can say it."""

Row = dict[str, Any]
Ledgers = Mapping[tuple[str, str], TokenConservation]
"""By run and detector."""


@dataclass(frozen=True, slots=True)
class _Standard:
    """What the next snapshot is compared with, if it goes on from the same restore."""

    expected: Expected
    restored_from: str | None


def conservation(
    history: History, *, system: str | None = None, run: str | None = None, detector: str | None = None
) -> Answers:
    """`ledger`, `breaks`, `changed_machines`, `changed_channels`: as the Spark job `conservation`, sorted as it prints them.

    Of one system, one run (or the beginning of its id), one ledger (a detector's name). Raises `HistoryNotFoundError` for one
    that the history has not, `SettingError` for stored settings that are none. Cost: one pass over machines and messages.
    """
    if detector is not None:
        history.check_known("detector", detector)
    snapshots = chosen(history, system, run)
    runs = {*snapshots["run_id"].to_pylist()}
    with faults(history):
        stored = ledgers_of(latest_specs(history, system), runs)
        ledgers = {key: one for key, one in stored.items() if detector in (None, one.name)}
        watched = {run for run, _ in ledgers}
        ids = [
            row["snapshot_id"]
            for row in snapshots.select(["snapshot_id", "run_id"]).to_pylist()
            if row["run_id"] in watched
        ]
        rows = ledger_rows(counted(history, ids, ledgers), ledgers)
        broken = breaks(rows)
        machines, channels = [], []
        for row in broken[:MOST_BREAKS]:
            own_machines, own_channels = changed_at(history, row, ledgers)
            machines += own_machines
            channels += own_channels
    return {
        "ledger": table_of(LEDGER, rows),
        "breaks": table_of(BREAKS, broken),
        "changed_machines": table_of(CHANGED_MACHINES, machines),
        "changed_channels": table_of(CHANGED_CHANNELS, channels),
    }


def ledgers_of(
    specs: Mapping[tuple[str, str], Mapping[str, Any]], runs: Iterable[str]
) -> dict[tuple[str, str], TokenConservation]:
    """The ledgers that these runs were watched with, of the data of all detectors by run and name."""
    wanted = {*runs}
    return {key: _ledger(key[1], spec) for key, spec in sorted(specs.items()) if key[0] in wanted and is_ledger(spec)}


def is_ledger(spec: Mapping[str, Any]) -> bool:
    """Whether it is the data of a detector that keeps a ledger."""
    return spec.get("type") == "token-conservation"


def _ledger(name: str, spec: Mapping[str, Any]) -> TokenConservation:
    try:
        stored = from_spec({**spec, "name": name})
        assert isinstance(stored, TokenConservation)
        return stored
    except (DetectorError, SettingError) as error:
        raise SettingError(f"the stored settings of the detector {name!r} are none: {error}") from error


# ---- counting ----------------------------------------------------------------------------------------------------------


def counted(history: History, snapshot_ids: Sequence[str], ledgers: Ledgers) -> Iterator[Row]:
    """Rows of `COUNTED`: what each ledger counts in each of these snapshots of its run."""
    counters: dict[str, TokenConservation] = {}
    """Ledgers with the same paths count the same: one of them does it for all."""
    by_run: dict[str, list[tuple[str, TokenConservation]]] = {}
    for (run, name), one in ledgers.items():
        by_run.setdefault(run, []).append((name, counters.setdefault(repr([one.state, one.messages]), one)))
    columns = needed_columns(counters.values()) or {}
    for snapshot in history.load_many(snapshot_ids, columns=columns):
        for name, counter in by_run[snapshot.run_id]:
            count = counter.count(snapshot)
            yield {
                "detector": name,
                **{column: getattr(snapshot, column) for column in _OF_SNAPSHOT},
                "in_machines": packed(count.sums.in_machines),
                "in_flight": packed(count.sums.in_flight),
                "is_rounded": count.sums.is_rounded,
                "is_empty": count.sums.is_empty,
                "is_bare": count.is_bare,
                "is_sound": count.is_sound,
                "to_come": count.to_come.count,
                "unreadable": count.sums.unreadable,
            }


_OF_SNAPSHOT = ("system", "run_id", "snapshot_id", "sequence", "started_at", "restored_from")


def packed(value: Fraction) -> str:
    """As text, in hexadecimal digits: of decimal ones Python writes and reads no more than some thousand."""
    return f"{value.numerator:x}/{value.denominator:x}"


def unpacked(text: str) -> Fraction:
    """What was packed."""
    numerator, denominator = text.split("/")
    return Fraction(int(numerator, 16), int(denominator, 16))


def _count(row: Row) -> Count:
    sums = Sums(
        in_machines=unpacked(row["in_machines"]),
        in_flight=unpacked(row["in_flight"]),
        machines=0,
        messages=0,
        is_rounded=row["is_rounded"],
        is_empty=row["is_empty"],
        unknown_machines=(),
        unknown_messages=(),
        unreadable=row["unreadable"],
    )
    return Count(sums, Unmade(row["to_come"], []), row["is_bare"], row["is_sound"])


# ---- judging -----------------------------------------------------------------------------------------------------------


def ledger_rows(rows: Iterable[Row], ledgers: Ledgers) -> list[Row]:
    """Rows of `LEDGER` of the rows of `COUNTED`, by ledger and in the order of each run.

    Without a total a snapshot is compared as live (`verdicts.Standards`): with the last that was right; while there is none,
    with the last that could be told if it were compared with itself.
    """
    known: dict[tuple[str, ...], _Standard] = {}
    found = []
    for row in sorted(rows, key=itemgetter(*KEY, "sequence")):
        key = tuple(row[name] for name in KEY)
        one, count, standard = ledgers[key[1:]], _count(row), known.get(key)
        if standard is not None and standard.restored_from != row["restored_from"]:
            del known[key]
            standard = None
        expected = standard.expected if standard is not None and one.total is None else one.expected(None)
        holds = None if expected is None or one.doubt(count, expected) else one.is_same(count, expected)
        serves = holds or (standard is None and one.doubt(count, count.found) is None)
        if serves and one.total is None:
            known[key] = _Standard(count.found, row["restored_from"])
        found.append(
            {
                **{name: row[name] for name in (*KEY, "snapshot_id", "sequence", "started_at", "unreadable")},
                "in_machines": as_float(count.sums.in_machines),
                "in_flight": as_float(count.sums.in_flight),
                "total": as_float(count.sums.found),
                "expected": expected and as_float(expected.amount),
                "difference": expected and as_float(count.sums.found - expected.amount),
                "holds": holds,
            }
        )
    return found


def breaks(rows: Iterable[Row]) -> list[Row]:
    """Rows of `BREAKS` of rows of `LEDGER`: how often each ledger was right, and where it was first wrong."""
    return [_break(key, list(of)) for key, of in groupby(rows, itemgetter(*KEY))]


def _break(key: tuple[str, ...], rows: Sequence[Row]) -> Row:
    """How often a ledger of a run was right, and where it was first wrong."""
    first = next((row for row in rows if row["holds"] is False), None)
    before = [] if first is None else [row for row in rows if row["holds"] and row["sequence"] < first["sequence"]]
    answers = [row["holds"] for row in rows]
    return {
        **dict(zip(KEY, key, strict=True)),
        "snapshots": len(rows),
        "held": answers.count(True),
        "broken": answers.count(False),
        "unknown": answers.count(None),
        "first_broken": first and first["snapshot_id"],
        "first_broken_at": first and first["started_at"],
        "difference": first and first["difference"],
        "last_right": before[-1]["snapshot_id"] if before else None,
    }


def changed_at(history: History, broken: Row, ledgers: Ledgers) -> Changed:
    """What changed between the two snapshots where a ledger broke (a row of `BREAKS`); nothing where it did not."""
    ends = broken["last_right"], broken["first_broken"]
    if None in ends:
        return [], []
    detector, key = ledgers[broken["run_id"], broken["detector"]], {name: broken[name] for name in KEY}
    return changed(detector, key, *history.load_many(ends))
