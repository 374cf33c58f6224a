"""The trace in a history: its own keys and dates, and histories that are older than it."""

from __future__ import annotations

import shutil
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from histories import snapshot

from ray_snapshot.history import History, HistoryWriter
from ray_snapshot.schema import ACTIONS


def actions(run_id: str, *times: datetime) -> pa.Table:
    rows: list[dict[str, Any]] = [
        {"run_id": run_id, "machine": "a", "number": number, "method": "move", "accepted": "[]", "sent": "[]",
         "colour": 0, "acted_at": when}
        for number, when in enumerate(times, 1)
    ]  # fmt: skip
    return pa.Table.from_pylist(rows[::-1], schema=ACTIONS)


def test_actions_are_read_by_run_in_the_order_of_each_machine(tmp_path: Path) -> None:
    late, early = datetime(2026, 3, 1, 23, 59, tzinfo=UTC), datetime(2026, 3, 2, 0, 1, tzinfo=UTC)
    with HistoryWriter(tmp_path) as writer:
        writer.add_actions(actions("run-1", late, early), system="bank")
        writer.add_actions(actions("run-2", late), system="bank")

    history = History(tmp_path)

    assert [(row.number, row.date) for row in history.actions("run-1")] == [
        (1, date(2026, 3, 1)),
        (2, date(2026, 3, 2)),
    ]
    assert [row.sent for row in history.actions("run-2")] == [[]]
    assert not history.actions("run-3")
    assert history.table("actions").num_rows == 3


def test_a_history_from_before_there_were_traces_is_read_kept_small_and_written_on(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path) as writer:
        writer.add(snapshot(1))
    shutil.rmtree(tmp_path / "actions")

    history = History(tmp_path)

    assert [row.snapshot_id for row in history.snapshots()] == ["bank-00001"]
    assert not history.actions("run-1")
    assert history.files("actions") == []
    assert "actions" not in history.compact()
    assert "actions" not in history.vacuum()
    with HistoryWriter(tmp_path) as writer:
        writer.add_actions(actions("run-1", datetime(2026, 3, 1, tzinfo=UTC)), system="bank")
    assert len(history.actions("run-1")) == 1
