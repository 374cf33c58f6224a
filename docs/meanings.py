"""What each table of a history and each of its columns means, in words: the reference is made of it (`generated.py`)."""

from __future__ import annotations

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
        "grade": "`proven`, `suspected` (then `holds` is null), `cannot be told`, `does not hold`; null: an older version",
        "unless": "of a suspected one: what would refute it",
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
