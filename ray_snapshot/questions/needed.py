"""Which columns of a snapshot the ready-made detectors look at: no others are read for them.

A column that is left out is not there at all, so a detector that asks for it all the same fails by name, and does not take
it for empty. Imports no Spark.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ray_snapshot.schema import TABLES
from ray_snapshot.verdicts import Detector, looks_at

_CONTENTS: Mapping[str, frozenset[str]] = {
    "machines": frozenset({"state", "state_truncated", "state_bytes"}),
    "channels": frozenset({"sent_count", "accepted_count"}),
    "messages": frozenset({"args", "args_truncated"}),
}
"""What only those look at that look at states."""

_NEVER: Mapping[str, frozenset[str]] = {
    "machines": frozenset(
        {"run_id", "accepted_count", "recorded_at", "record_delay_ms", "alignment_ms", "blocked_count"}
    ),
    "channels": frozenset({"run_id", "settled_count", "recorded_by"}),
    "messages": frozenset({"run_id", "payload_bytes"}),
}
"""What none of them looks at."""


def needed_columns(detectors: Iterable[Detector]) -> dict[str, Sequence[str]] | None:
    """By table, the columns that these detectors look at; None: all, for one of them is a user's own."""
    seen = [looks_at(detector) for detector in detectors]
    if None in seen:
        return None
    is_blind = not any("states" in one for one in seen if one)
    return {
        table: [
            column
            for column in TABLES[table].names
            if column not in left_out and not (is_blind and column in _CONTENTS[table])
        ]
        for table, left_out in _NEVER.items()
    }
