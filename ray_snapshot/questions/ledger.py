"""Was what machines hold and what is in flight ever another sum than it has to be, and since which snapshot?

The Spark job `conservation` without Spark: the same results, columns and rules, with the settings that are stored with the
live verdicts. `amounts` says what a number is, `counting` what a snapshot holds, `broken` what changed where it broke.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow as pa

from ray_snapshot.detectors import TokenConservation, from_spec
from ray_snapshot.errors import DetectorError, SettingError
from ray_snapshot.history import History
from ray_snapshot.json_text import parsed_json
from ray_snapshot.questions.amounts import MOST, UNIT
from ray_snapshot.questions.broken import CHANGED_CHANNELS, CHANGED_MACHINES, changed
from ray_snapshot.questions.counting import Count, Paths, counts
from ray_snapshot.questions.reading import TIME, Answers, chosen, faults, in_batches, latest_specs, table_of

KEY = ("system", "run_id", "detector")
"""A ledger of a run."""

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

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Settings:
    """What a ledger counts, and what it has to come to."""

    paths: Paths
    total: float | None
    exact: int | None
    """The total in parts of `amounts.UNIT`, if it is a whole number."""
    tolerance: float


class _Standard(NamedTuple):
    """With what a snapshot is compared: an exact total, if there is one, and the same as a float."""

    exact: int | None
    total: float


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
    with faults(history):
        ledgers = _stored(history, system, set(snapshots["run_id"].to_pylist()), detector)
        rows = [row for ledger in _ledgers(history, snapshots, ledgers) for row in ledger]
        broken = [_break(key, list(of)) for key, of in groupby(rows, itemgetter(*KEY))]
        pairs = [row for row in broken if row["first_broken"] is not None and row["last_right"] is not None]
        paths = {key: settings.paths for key, settings in ledgers.items()}
        machines, channels = changed(history, pairs[:MOST_BREAKS], paths)
    return {
        "ledger": table_of(LEDGER, rows),
        "breaks": table_of(BREAKS, broken),
        "changed_machines": table_of(CHANGED_MACHINES, machines),
        "changed_channels": table_of(CHANGED_CHANNELS, channels),
    }


# ---- settings ----------------------------------------------------------------------------------------------------------


def _stored(
    history: History, system: str | None, runs: set[str], detector: str | None
) -> dict[tuple[str, str], Settings]:
    """By run and detector: the ledgers that the runs were watched with."""
    found = {}
    for (run, name), spec in latest_specs(history, system).items():
        if run in runs and detector in (None, name) and spec.get("type") == "token-conservation":
            found[run, name] = _settings(name, spec)
    return found


def _settings(name: str, spec: Mapping[str, Any]) -> Settings:
    try:
        stored = from_spec(spec)
        assert isinstance(stored, TokenConservation)
    except (DetectorError, SettingError) as error:
        raise SettingError(f"the stored settings of the detector {name!r} are none: {error}") from error
    states = stored.state.items() if isinstance(stored.state, Mapping) else [(None, stored.state)]
    messages = {method: path for method, path in stored.messages.items() if path is not None}
    total = stored.total
    parts = int(total) * UNIT if total is not None and total == int(total) else MOST
    return Settings(
        Paths(tuple(states), tuple(messages.items())),
        None if total is None else float(total),
        parts if abs(parts) < MOST else None,
        stored.tolerance,
    )


# ---- the ledger --------------------------------------------------------------------------------------------------------


def _ledgers(history: History, snapshots: pa.Table, ledgers: Mapping[tuple[str, str], Settings]) -> Iterator[list[Row]]:
    """The rows of each ledger, in the order of its run."""
    listed = {row["snapshot_id"]: row for row in snapshots.select(_KNOWN).to_pylist()}
    of_run: dict[str, list[str]] = {}
    for run, name in sorted(ledgers):
        of_run.setdefault(run, []).append(name)
    found: dict[tuple[str, str, str], list[tuple[Row, Count]]] = {}
    for batch in in_batches(snapshots):
        ids = [one for one in batch if listed[one]["run_id"] in of_run]
        asked = {ledgers[run, name].paths for run in {listed[one]["run_id"] for one in ids} for name in of_run[run]}
        counted = counts(history, ids, list(asked)) if ids else {}
        for place, snapshot_id in enumerate(ids):
            row = listed[snapshot_id]
            for name in of_run[row["run_id"]]:
                count = counted[ledgers[row["run_id"], name].paths][place]
                found.setdefault((row["system"], row["run_id"], name), []).append((row, count))
    for system, run, name in sorted(found):
        taken = sorted(found[system, run, name], key=lambda one: one[0]["sequence"])
        yield list(_told(ledgers[run, name], name, taken))


_KNOWN = [
    *("snapshot_id", "system", "run_id", "sequence", "started_at", "restored_from", "channel_count", "consistent"),
    "coverage",
]


def _told(settings: Settings, detector: str, taken: Sequence[tuple[Row, Count]]) -> Iterator[Row]:
    """What is said of each snapshot of a run. Without a total it is compared with the first since the last restore that could
    be counted."""
    standard: _Standard | None = None
    restored_from: str | None = None
    given = None if settings.total is None else _Standard(settings.exact, settings.total)
    for row, count in taken:
        if row["restored_from"] is not None and row["restored_from"] != restored_from:
            standard = None
        restored_from = row["restored_from"]
        found = _found(count)
        expected = given or standard
        difference, is_same = _compared(found, expected, settings.tolerance)
        is_usable = bool(row["consistent"]) and _is_covered(row["coverage"]) and not count.unreadable
        is_known = (
            is_usable
            and expected is not None
            and not _is_empty(row, count, expected)
            and not _is_untold(count, is_same, difference, given)
        )
        yield {
            **{name: row[name] for name in ("system", "run_id", "snapshot_id", "sequence", "started_at")},
            "detector": detector,
            "in_machines": count.in_machines.total,
            "in_flight": count.in_flight.total,
            "total": found.total,
            "expected": None if expected is None else expected.total,
            "difference": difference,
            "unreadable": count.unreadable,
            "holds": is_same if is_known else None,
        }
        if standard is None and is_usable and count.has_amounts and not count.is_unmade:
            standard = found


def _found(count: Count) -> _Standard:
    """What a snapshot holds in all; exact if no float is among it."""
    machines, messages = count.in_machines, count.in_flight
    is_exact = machines.rounded is None and messages.rounded is None
    exact = (machines.exact or 0) + (messages.exact or 0) if is_exact else None
    return _Standard(exact, machines.total + messages.total)


def _compared(found: _Standard, expected: _Standard | None, tolerance: float) -> tuple[float | None, bool | None]:
    """How much is too much, and whether that is nothing: exactly, or within the tolerance where a float is involved."""
    if expected is None:
        return None, None
    if found.exact is not None and expected.exact is not None:
        parts = found.exact - expected.exact
        return parts / UNIT, parts == 0
    difference = found.total - expected.total
    return difference, abs(difference) <= tolerance * max(1.0, abs(expected.total))


def _is_empty(row: Row, count: Count, expected: _Standard) -> bool:
    """Whether nothing is held anywhere, so that the paths are probably wrong; or there is nothing yet that could hold it."""
    is_bare = not count.has_machines and row["channel_count"] == 0
    return not count.has_amounts and (is_bare or expected.total == 0)


def _is_untold(count: Count, is_same: bool | None, difference: float | None, given: _Standard | None) -> bool:
    """Whether a machine that is being made may bring what is missing."""
    if not count.is_unmade:
        return False
    return given is None if is_same else difference is not None and difference < 0


def _is_covered(coverage: str | None) -> bool:
    """Whether a snapshot says that nothing was left out of it."""
    if coverage is None:
        return False
    try:
        found = parsed_json(coverage)
    except ValueError:
        return False
    return isinstance(found, dict) and found.get("uncovered") == []


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
