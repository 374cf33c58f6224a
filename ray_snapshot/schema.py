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

ROWS: dict[str, str] = {
    "snapshots": "a snapshot, completed or given up",
    "machines": "a machine in a snapshot",
    "channels": "a channel in a snapshot: from one machine to another, of one kind",
    "messages": "a message in flight: sent inside the cut, and not accepted inside it",
    "calls": "a call that a machine has begun and not finished",
    "waits": "a machine that another one waits for",
    "verdicts": "a detector's answer on a snapshot",
    "actions": "an atomic action of a machine; only of systems with `trace=True`",
    "classes": "one shape that the state of a class had in one run",
}
"""What a row of each table is."""

_EVERYWHERE = {
    "snapshot_id": "the snapshot; ids sort by time",
    "run_id": "one for each `System` or watched run",
    "machine": "the machine's name",
    "source": "the machine that sends",
    "target": "the machine that accepts",
    "class_name": "the machine's class",
    "kind": "`mail`, `call` or `timer`",
    "call_id": "the call",
    "concurrency_group": "the group of the actor in which the call runs; null: the default one",
    "method": "the method",
}

MEANINGS: dict[str, dict[str, str]] = {
    "snapshots": {
        "system": "the system's name",
        "sequence": "counts the snapshots of a run",
        "restored_from": "the snapshot that the run went on from, if it was restored or has gone back",
        "protocol": "how it was taken",
        "status": "`complete` or `aborted`",
        "abort_reason": "why it was given up",
        "abort_machine": "the machine because of which",
        "abort_call_site": "where that machine was: `file:line`",
        "initiators": "who recorded first, if they were named",
        "started_at": "its start, by the coordinator's clock",
        "completed_at": "when nothing was missing any more",
        "duration_ms": "from the one to the other",
        "machine_count": "rows in `machines`",
        "channel_count": "rows in `channels`",
        "in_flight_count": "messages in flight",
        "control_message_count": "requests, markers, barriers, reports",
        "channel_marker_count": "of these, markers and barriers",
        "bytes": "of all states that were recorded",
        "consistent": "false only under `at-least-once-barrier`, by design",
        "restorable": "whether a restore from it is possible",
        "obstacles": "why not, machine by machine",
        "coverage": "JSON: what was not observed, versions, what detectors conclude from besides rows",
    },
    "machines": {
        "host": "the Ray actor that carries it",
        "incarnation": "how often it has been started or rolled back",
        "status": "`passive`, `active`, `blocked` or `stopped`",
        "max_concurrency": "how many of its calls may run at once",
        "state": "JSON: what `snapshot_state` returned, or the attributes; null: not recorded",
        "state_truncated": "whether the state was cut off",
        "state_bytes": "size of the whole text; where it was cut off, an estimate",
        "wait_mode": "`all`, `any`, `k_of_n`, or `see waits`: several calls or alternatives wait; null: it waits for nothing in"
        " particular",
        "wait_k": "how many it needs; null where `waits` is to be seen",
        "waits_for": "machines: the short form of `waits` for one wait; else all that are named there",
        "accepted_count": "messages accepted inside the cut",
        "sent_count": "messages sent inside the cut",
        "recorded_at": "when it recorded",
        "record_delay_ms": "from the snapshot's start to that",
        "alignment_ms": "from the first barrier to the record; null where nothing was aligned",
        "blocked_count": "messages that waited for the alignment",
    },
    "channels": {
        "sent_count": "sent inside the cut = accepted + in flight + settled",
        "accepted_count": "accepted inside the cut",
        "settled_count": "ended without acceptance, as far as the sender knows",
        "in_flight_count": "in flight: rows in `messages`",
        "duplicate_count": "accepted inside the cut and sent outside it: a restore repeats them",
        "recorded_by": "`marker`, `observer`, `barrier` or `sender`",
    },
    "messages": {
        "number": "on its channel, from 1; 0: a creation",
        "call_id": "of a call: which",
        "args": 'JSON: the arguments; keyword arguments last, as `{"$kwargs": {...}}`',
        "args_truncated": "whether they were cut off",
        "payload_bytes": "size of the arguments",
        "sent_at": "when it was sent, by the sender's clock",
        "due_at": "of a timer: when it goes off",
    },
    "calls": {
        "caller": "the machine that has called",
        "holds_slot": "whether it keeps one of the actor's slots",
        "call_site": "where it is now: `file:line`",
        "started_at": "when it began",
    },
    "waits": {
        "call_id": "the call that waits; null: the machine itself",
        "alternative": "any one alternative of a wait is enough",
        "k": "so many of the alternative's machines are needed",
        "on_machine": "the machine that is waited for",
        "on_call_id": "the call that is waited for, if it is one",
        "satisfied": "whether its message or reply is in flight already",
        "timeout_at": "when the wait ends by itself; null: never",
        "waiting_since": "since when",
    },
    "verdicts": {
        "detector": "the detector's name",
        "detector_spec": "JSON: the detector as data, if it is one",
        "evaluator": "`live`, `spark`, ...",
        "holds": "true, false, or null: cannot be told",
        "evidence": "JSON: what the answer rests on",
        "sentence": "the answer in words",
        "evaluated_at": "when it was asked; of several answers the latest counts",
        "duration_ms": "how long that took",
        "alarm": "whether a person must hear of it",
    },
    "actions": {
        "number": "from 1 in its machine; 1 is its constructor",
        "host": "the Ray actor that carried it",
        "method": "the method, or the join",
        "accepted": "JSON: the messages that it took (`source`, `kind`, `number`, `method`, `args`)",
        "sent": "JSON: the messages that it sent (`target`, ...); number 0 is a creation, with its `class`",
        "colour": "the highest snapshot number that the machine had recorded when it began",
        "acted_at": "when it began, by its host's clock",
        "is_over": "false if the run ended inside it",
        "waited_at": "where it waited inside the last time, if it did",
        "raised": "what it raised, if it did",
        "waits": "JSON: its waits inside: for which `calls`, behind how many of `sent` (`place`), and what came; null: none",
    },
    "classes": {
        "version": "a digest of what follows",
        "module": "where the class is defined; null: told by a recorded state alone",
        "fields": 'JSON: `[{"name", "type"}]`, types as annotated, else as first seen',
        "json_schema": "JSON: what pydantic says of the state, or of its fields that are models",
        "first_seen_at": "when this shape was first recorded",
    },
}
"""What each column means; those that mean the same in every table are in `meaning_of` alone."""


def meaning_of(table: str, column: str) -> str:
    """What a column means, in words; raises `KeyError` for one that no table has."""
    own = MEANINGS[table].get(column)
    return _EVERYWHERE[column] if own is None else own
