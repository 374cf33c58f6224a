"""Async actors whose event loop is occupied by a method that is not async: their other calls go on only when it ends.

Whether it ends cannot be told: it may compute, or it may wait for something that only one of the other calls does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import pyarrow as pa

from ray_snapshot.detectors.common import is_any_of, lasted
from ray_snapshot.names import LONG_S, listed
from ray_snapshot.snapshot import Snapshot


class BusyLoop(NamedTuple):
    """One such loop."""

    machine: str
    method: str
    call_site: str | None
    seconds: float
    behind: list[str]
    """The methods whose calls wait."""

    def __str__(self) -> str:
        """ "Job-0 (flag.py:13) has been in run for 42 s, which occupies its event loop, and stop waits for that"."""
        place = f" ({self.call_site})" if self.call_site else ""
        waits = "waits" if len(self.behind) == 1 else "wait"
        head = f"{self.machine}{place} has been in {self.method} for {lasted(self.seconds)}"
        return f"{head}, which occupies its event loop, and {listed(self.behind)} {waits} for that"

    @property
    def depends_on(self) -> str:
        """What would decide it, for the evidence of a verdict."""
        return f"whether {self.method} of {self.machine} ends without {listed(self.behind)}"

    @property
    def remedies(self) -> list[str]:
        """What a person can do about it."""
        return [
            f"Make {self.method} async, with an await where it waits (asyncio.sleep), or let what it does run in a thread"
            f" (await asyncio.to_thread(...)): then {listed(self.behind)} can run meanwhile."
        ]


def busy_loops(snapshot: Snapshot) -> list[BusyLoop]:
    """The loops that a call has occupied for `LONG_S` while other calls of the actor wait."""
    blocking = snapshot.coverage.get("blocked_loops")
    if not blocking or not isinstance(blocking, Mapping):
        return []
    waiting = set(snapshot.tables["waits"]["call_id"].to_pylist())
    return [
        BusyLoop(row["machine"], row["method"], row["call_site"], seconds, behind)
        for row in _of(snapshot, "calls", "machine", blocking)
        if row["call_id"] == blocking[row["machine"]] and row["call_id"] not in waiting and row["started_at"]
        if (seconds := (snapshot.started_at - row["started_at"]).total_seconds()) >= LONG_S
        if (behind := _behind(snapshot, row))
    ]


def _behind(snapshot: Snapshot, call: Mapping[str, Any]) -> list[str]:
    """The methods of the other calls of its machine, which run or are on their way."""
    running = [row for row in _of(snapshot, "calls", "machine", [call["machine"]]) if row["call_id"] != call["call_id"]]
    queued = _of(snapshot, "messages", "target", [call["machine"]])
    return list(dict.fromkeys(str(row["method"]) for row in (*running, *queued)))


def _of(snapshot: Snapshot, table: str, column: str, machines: Any) -> list[dict[str, Any]]:
    rows = snapshot.tables[table]
    chosen: list[dict[str, Any]] = rows.filter(pa.array(is_any_of(rows[column], *machines))).to_pylist()
    return chosen
