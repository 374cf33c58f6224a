"""Which columns of a snapshot the ready-made detectors look at: no others are read for them.

A column that is left out is not there at all, so a detector that asks for it all the same fails by name, and does not take
it for empty. Imports no job.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ray_snapshot.schema import TABLES
from ray_snapshot.verdicts import Detector

_BY_STATUS = frozenset({"termination", "deadlock", "orphaned-wait"})
"""What detectors look at that read neither states nor arguments, by the `type` of their data."""

_BY_STATES = frozenset({"token-conservation", "unique-token", "reached", "virtual-time", "garbage"})

_CONTENTS: Mapping[str, frozenset[str]] = {
    "machines": frozenset({"state", "state_truncated", "state_bytes"}),
    "channels": frozenset({"sent_count", "accepted_count"}),
    "messages": frozenset({"args", "args_truncated"}),
}
"""What only those of `_BY_STATES` look at."""

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
    kinds = {(getattr(detector, "spec", None) or {}).get("type") for detector in detectors}
    if not kinds <= _BY_STATUS | _BY_STATES:
        return None
    is_blind = kinds <= _BY_STATUS
    return {
        table: [
            column
            for column in TABLES[table].names
            if column not in left_out and not (is_blind and column in _CONTENTS[table])
        ]
        for table, left_out in _NEVER.items()
    }
