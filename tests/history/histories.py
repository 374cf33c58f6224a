"""Small snapshots and histories for the tests of the history."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa

from ray_snapshot import Snapshot, Verdict
from ray_snapshot.history import HistoryWriter
from ray_snapshot.schema import ACTIONS, SNAPSHOT_TABLES

START = datetime(2026, 3, 1, 23, 59, 59, 500_000, tzinfo=UTC)


def snapshot(number: int, *, system: str = "bank", machines: int = 3, **row: Any) -> Snapshot:
    """Snapshot `number` of a system in which every machine sent its neighbour one message."""
    names = [f"m{index}" for index in range(machines)]
    started = START + timedelta(seconds=number)
    return Snapshot.from_rows(
        machines=[{"machine": name, "state": {"balance": number}} for name in names],
        messages=[
            {"source": name, "target": names[index - 1], "method": "deposit", "args": [number]}
            for index, name in enumerate(names)
        ],
        **{"snapshot_id": f"{system}-{number:05d}", "system": system, "started_at": started, **row},
    )


def full_snapshot() -> Snapshot:
    """A snapshot in which every column of every table has a value that could be lost on the way."""
    at = datetime(2026, 3, 1, 12, 0, 0, 123_456, tzinfo=UTC)
    channel = {"source": "a", "target": "b", "kind": "call"}
    machine = {
        "class_name": "Übung", "host": "host-1", "incarnation": 2, "status": "blocked", "max_concurrency": 4,
        "state": {"text": "line\nbreak é \u2028", "set": {1}}, "wait_mode": "k_of_n", "wait_k": 1, "waits_for": ["a", "b"],
        "accepted_count": 5, "sent_count": 6, "recorded_at": at, "record_delay_ms": 0.25, "alignment_ms": 1.5,
        "blocked_count": 3,
    }  # fmt: skip
    counts = {"sent_count": 9, "accepted_count": 5, "settled_count": 3, "in_flight_count": 1, "duplicate_count": 0}
    message = {
        **channel, "number": 9, "call_id": "c-1", "concurrency_group": "io", "method": "work",
        "args": [{"$kwargs": {"x": 1}}], "args_truncated": True, "payload_bytes": 77, "sent_at": at, "due_at": at,
    }  # fmt: skip
    call = {
        "machine": "a", "call_id": "c-0", "caller": "driver", "method": "run", "concurrency_group": "io",
        "holds_slot": False, "call_site": "app.py:12", "started_at": at,
    }  # fmt: skip
    wait = {
        "call_id": "c-0", "alternative": 1, "k": 2, "on_call_id": "c-1", "satisfied": True, "timeout_at": at,
        "waiting_since": at,
    }  # fmt: skip
    found = Snapshot.from_rows(
        machines=[{"machine": name, **machine} for name in ("a", "b")],
        channels=[{**channel, **counts, "recorded_by": "sender"}],
        messages=[message],
        calls=[call],
        waits=[{"machine": one, "on_machine": other, **wait} for one, other in (("a", "b"), ("b", "a"))],
        snapshot_id="full-1", system="a.b-c_9", run_id="run-1", sequence=7, restored_from="full-0", protocol="observer",
        abort_reason="reason", abort_machine="a", abort_call_site="app.py:3", initiators=["a", "b"], started_at=at,
        completed_at=at, duration_ms=1.5, control_message_count=3, channel_marker_count=2, bytes=1_000,
        restorable=True, obstacles=["thread", "socket"], coverage={"uncovered": ["tasks"]},
    )  # fmt: skip
    empty = [
        f"{name}.{column}"
        for name in SNAPSHOT_TABLES
        for column in found.tables[name].column_names
        if found.tables[name][column].null_count
    ]
    assert not empty, f"columns without a value: {empty}"
    return found


def verdict(snapshot_id: str, detector: str = "deadlock", **more: Any) -> Verdict:
    said = {
        "holds": True,
        "evidence": {"members": [{"machine": "a"}]},
        "sentence": "a waits for itself.",
        "alarm": True,
    }
    return Verdict(
        detector=detector, snapshot_id=snapshot_id, **{**said, "detector_spec": {"type": "deadlock"}, **more}
    )


def write(path: Path, *snapshots: Snapshot) -> None:
    """Write each snapshot in a commit of its own."""
    from once import content, once

    def make(path: Path) -> None:
        with HistoryWriter(path) as writer:
            for item in snapshots:
                writer.add(item)
                writer.flush()

    once(path, content(snapshots), make)


def acted(run_id: str, *times: datetime) -> pa.Table:
    """Of one machine, the latest first."""
    row = {"run_id": run_id, "machine": "a", "method": "move", "accepted": "[]", "sent": "[]", "colour": 0}
    rows = [{**row, "number": number, "acted_at": when} for number, when in enumerate(times, 1)]
    return pa.Table.from_pylist(rows[::-1], schema=ACTIONS)
