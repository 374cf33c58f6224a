"""The columns of a snapshot: one Arrow schema per table, the same in memory, in the history and in Spark.

Units stand at the end of a name; times are microseconds, UTC, by the coordinator's clock. Columns that hold a structure
(`state`, `args`, `coverage`, `evidence`, `detector_spec`) hold strict JSON text. Nothing here imports Ray or Spark.
"""

from __future__ import annotations

import pyarrow as pa

FORMAT_VERSION = 1
"""Raised when a reader of the old format would misread the new one; stored in every table's description."""

_TIME = pa.timestamp("us", tz="UTC")
_NAMES = pa.list_(pa.string())


def _schema(*columns: tuple[str, pa.DataType]) -> pa.Schema:
    return pa.schema([pa.field(name, kind) for name, kind in columns])


SNAPSHOTS = _schema(
    ("snapshot_id", pa.string()),
    ("system", pa.string()),
    ("run_id", pa.string()),
    ("sequence", pa.int64()),
    ("restored_from", pa.string()),
    ("protocol", pa.string()),
    ("status", pa.string()),
    ("abort_reason", pa.string()),
    ("abort_machine", pa.string()),
    ("abort_call_site", pa.string()),
    ("initiators", _NAMES),
    ("started_at", _TIME),
    ("completed_at", _TIME),
    ("duration_ms", pa.float64()),
    ("machine_count", pa.int64()),
    ("channel_count", pa.int64()),
    ("in_flight_count", pa.int64()),
    ("control_message_count", pa.int64()),
    ("channel_marker_count", pa.int64()),
    ("bytes", pa.int64()),
    ("consistent", pa.bool_()),
    ("restorable", pa.bool_()),
    ("obstacles", _NAMES),
    ("coverage", pa.string()),
)

MACHINES = _schema(
    ("snapshot_id", pa.string()),
    ("run_id", pa.string()),
    ("machine", pa.string()),
    ("class_name", pa.string()),
    ("host", pa.string()),
    ("incarnation", pa.int64()),
    ("status", pa.string()),
    ("max_concurrency", pa.int64()),
    ("state", pa.string()),
    ("state_truncated", pa.bool_()),
    ("state_bytes", pa.int64()),
    ("wait_mode", pa.string()),
    ("wait_k", pa.int64()),
    ("waits_for", _NAMES),
    ("accepted_count", pa.int64()),
    ("sent_count", pa.int64()),
    ("recorded_at", _TIME),
    ("record_delay_ms", pa.float64()),
    ("alignment_ms", pa.float64()),
    ("blocked_count", pa.int64()),
)

CHANNELS = _schema(
    ("snapshot_id", pa.string()),
    ("run_id", pa.string()),
    ("source", pa.string()),
    ("target", pa.string()),
    ("kind", pa.string()),
    ("sent_count", pa.int64()),
    ("accepted_count", pa.int64()),
    ("settled_count", pa.int64()),
    ("in_flight_count", pa.int64()),
    ("duplicate_count", pa.int64()),
    ("recorded_by", pa.string()),
)

MESSAGES = _schema(
    ("snapshot_id", pa.string()),
    ("run_id", pa.string()),
    ("source", pa.string()),
    ("target", pa.string()),
    ("kind", pa.string()),
    ("number", pa.int64()),
    ("call_id", pa.string()),
    ("concurrency_group", pa.string()),
    ("method", pa.string()),
    ("args", pa.string()),
    ("args_truncated", pa.bool_()),
    ("payload_bytes", pa.int64()),
    ("sent_at", _TIME),
    ("due_at", _TIME),
)

CALLS = _schema(
    ("snapshot_id", pa.string()),
    ("run_id", pa.string()),
    ("machine", pa.string()),
    ("call_id", pa.string()),
    ("caller", pa.string()),
    ("method", pa.string()),
    ("concurrency_group", pa.string()),
    ("holds_slot", pa.bool_()),
    ("call_site", pa.string()),
    ("started_at", _TIME),
)

WAITS = _schema(
    ("snapshot_id", pa.string()),
    ("run_id", pa.string()),
    ("machine", pa.string()),
    ("call_id", pa.string()),
    ("alternative", pa.int64()),
    ("k", pa.int64()),
    ("on_machine", pa.string()),
    ("on_call_id", pa.string()),
    ("satisfied", pa.bool_()),
    ("timeout_at", _TIME),
    ("waiting_since", _TIME),
)

VERDICTS = _schema(
    ("snapshot_id", pa.string()),
    ("run_id", pa.string()),
    ("detector", pa.string()),
    ("detector_spec", pa.string()),
    ("evaluator", pa.string()),
    ("holds", pa.bool_()),
    ("evidence", pa.string()),
    ("sentence", pa.string()),
    ("evaluated_at", _TIME),
    ("duration_ms", pa.float64()),
    ("alarm", pa.bool_()),
    ("grade", pa.string()),
    ("unless", pa.string()),
)

ACTIONS = _schema(
    ("run_id", pa.string()),
    ("machine", pa.string()),
    ("number", pa.int64()),
    ("host", pa.string()),
    ("method", pa.string()),
    ("accepted", pa.string()),
    ("sent", pa.string()),
    ("colour", pa.int64()),
    ("acted_at", _TIME),
    ("is_over", pa.bool_()),
    ("waited_at", pa.string()),
    ("raised", pa.string()),
    ("waits", pa.string()),
)
"""The trace, which only `System(trace=True)` fills: a row is an atomic action, numbered from 1 in its machine.

`accepted` and `sent` are JSON lists of messages; `colour` is the highest snapshot number that the machine had recorded when
it began; `acted_at` is by the clock of its host; `waited_at` says where it waited inside, `raised` what it raised. `waits` is a
JSON list of these waits, with what came of each: they part the action into steps (`runtime.tracing`). Vector
clocks are no column: they follow from the messages, and `ray-snapshot witness` computes them.
"""

CLASSES = _schema(
    ("class_name", pa.string()),
    ("version", pa.string()),
    ("run_id", pa.string()),
    ("module", pa.string()),
    ("fields", pa.string()),
    ("json_schema", pa.string()),
    ("first_seen_at", _TIME),
)
"""The classes of machines as they were: a row is one shape that a class had in one run, told apart by `version`, a digest.

`fields` is a JSON list of `{"name", "type"}` of the recorded state, `json_schema` what pydantic says of a state or field
that is one of its models.
"""

SNAPSHOT_TABLES: dict[str, pa.Schema] = {
    "snapshots": SNAPSHOTS,
    "machines": MACHINES,
    "channels": CHANNELS,
    "messages": MESSAGES,
    "calls": CALLS,
    "waits": WAITS,
}
"""What one completed (or aborted) snapshot consists of."""

TABLES: dict[str, pa.Schema] = {
    **SNAPSHOT_TABLES,
    "verdicts": VERDICTS,
    "actions": ACTIONS,
    "classes": CLASSES,
}
"""Every table of a history."""

ADDED_LATER = frozenset({"actions", "classes"})
"""Tables that a history may lack because it is older than they are: there they are empty."""

DEFAULTS: dict[str, dict[str, object]] = {
    "snapshots": {
        "system": "by-hand",
        "run_id": "by-hand",
        "sequence": 0,
        "protocol": "chandy-lamport",
        "status": "complete",
        "control_message_count": 0,
        "channel_marker_count": 0,
        "bytes": 0,
        "consistent": True,
        "restorable": False,
        "coverage": '{"uncovered":[]}',
    },
    "machines": {
        "class_name": "Machine",
        "host": "host-0",
        "incarnation": 1,
        "status": "passive",
        "max_concurrency": 1,
        "state": "{}",
        "state_truncated": False,
        "accepted_count": 0,
        "sent_count": 0,
        "record_delay_ms": 0.0,
    },
    "channels": {
        "kind": "mail",
        "sent_count": 0,
        "accepted_count": 0,
        "settled_count": 0,
        "in_flight_count": 0,
        "duplicate_count": 0,
        "recorded_by": "marker",
    },
    "messages": {"kind": "mail", "method": "message", "args": "[]", "args_truncated": False, "payload_bytes": 0},
    "calls": {"holds_slot": True},
    "waits": {"alternative": 0, "k": 1, "satisfied": False},
}
"""What a row of a snapshot written by hand gets for a column that was left out; null if the column is not in here."""
