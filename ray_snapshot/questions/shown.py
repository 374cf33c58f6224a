"""How the results of quick questions and of Spark jobs are shown: which columns, under which title; each result once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class View:
    """How one result is shown: which of its columns, under which title, sorted by which (`-` in front: the largest first)."""

    name: str
    title: str
    columns: tuple[str, ...]
    order: tuple[str, ...] = ()
    none: str = "none"
    """What is said where there is no row."""
    minor: tuple[str, ...] = ()
    """Columns that a narrow terminal does without, the first of them first."""
    notes: tuple[tuple[str, Any, str, str], ...] = ()
    """(column, value, the column that names a row, what it means): said below the table of the rows that have the value."""


_DETECTOR = ("system", "run_id", "detector")
_CHANNEL = ("source", "target", "kind")

CONSERVATION = (
    View(
        "ledger",
        "Ledger",
        (
            *(*_DETECTOR, "snapshot_id", "started_at", "in_machines", "in_flight"),
            *("total", "expected", "difference", "unreadable", "holds"),
        ),
        order=(*_DETECTOR, "sequence"),
        minor=("run_id", "started_at", "unreadable", "in_machines", "in_flight", "expected", "system"),
        none="nothing to count: no TokenConservation is stored with these snapshots (`analyze HISTORY conservation` counts"
        " what --state, --message and --total say)",
    ),
    View(
        "breaks",
        "Where it broke",
        (
            *(*_DETECTOR, "snapshots", "held", "broken", "unknown"),
            *("first_broken", "first_broken_at", "difference", "last_right"),
        ),
        order=_DETECTOR,
        minor=("run_id", "first_broken_at", "last_right", "unknown", "snapshots", "held", "broken", "system"),
    ),
    View(
        "changed_machines",
        "Machines that changed there, the unexplained first",
        (*_DETECTOR, "machine", "before", "after", "difference", "sent", "accepted", "unexplained"),
        order=(*_DETECTOR, "-unexplained", "-size", "machine"),
        minor=("run_id", "detector", "sent", "accepted", "system"),
    ),
    View(
        "changed_channels",
        "Channels that changed there, the incomplete first",
        (*_DETECTOR, *_CHANNEL, "before", "after", "sent", "accepted", "missing"),
        order=(*_DETECTOR, "-size", *_CHANNEL),
        minor=("run_id", "detector", "kind", "sent", "accepted", "system"),
    ),
)
"""Of `ask HISTORY conservation` and `analyze HISTORY conservation`."""

CHANGES = (
    View(
        "machines",
        "Machines that appeared, vanished or were replaced",
        ("system", "run_id", "machine", "class_name", "event", "snapshot_id", "started_at", "before", "after"),
        order=("system", "run_id", "sequence", "machine", "event"),
        minor=("run_id", "started_at", "class_name", "before", "after"),
    ),
    View(
        "fields",
        "Fields that changed, the rarest first",
        ("system", "run_id", "class_name", "field", "changes", "machines", "first_id", "last_id"),
        order=("changes", "system", "run_id", "class_name", "field"),
        minor=("run_id", "last_id", "class_name"),
    ),
    View(
        "changes",
        "What changed",
        ("system", "run_id", "machine", "class_name", "field", "snapshot_id", "started_at", "before", "after"),
        order=("system", "run_id", "-sequence", "machine", "field"),
        minor=("run_id", "started_at", "class_name"),
        none="no such change",
    ),
)
"""Of `ask HISTORY diff` and `analyze HISTORY changes`."""

SINCE = View(
    "detectors",
    "Detectors",
    (
        *("system", "run_id", "detector", "holds", "since_id", "since_at", "since_seconds"),
        *("evaluated", "held", "unknown", "alarms", "went_back", "first_held"),
    ),
    minor=("run_id", "first_held", "since_at", "evaluated", "unknown", "went_back", "held", "alarms", "system"),
)
"""Of `ask HISTORY since`."""
