"""Apps by hand, for the detectors: actors and plain tasks, calls that run, calls in Ray's queues, and who waits for which."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import ray_snapshot as rs
from ray_snapshot.detectors import Deadlock
from ray_snapshot.schema import DEFAULTS, SNAPSHOT_TABLES


@dataclass
class App:
    """An app by hand: actors, calls that run, calls in Ray's queue, and who waits for which."""

    machines: list[dict[str, Any]] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    messages: list[dict[str, Any]] = field(default_factory=list)
    waits: list[dict[str, Any]] = field(default_factory=list)
    coverage: dict[str, Any] = field(default_factory=lambda: {"uncovered": []})

    def actor(self, name: str, slots: int = 1, status: str = "blocked") -> App:
        self.machines.append(
            {"machine": name, "class_name": name.split("-", maxsplit=1)[0], "max_concurrency": slots, "status": status}
        )
        return self

    def runs(self, name: str, source: str, method: str, site: str | None = None, **more: Any) -> str:
        """A call that runs on the actor `name`; returns its id."""
        call_id = f"{source}/0/{name}/{more.pop('number', len(self.calls) + 1)}"
        row = {"machine": name, "call_id": call_id, "caller": source, "method": method, "call_site": site}
        self.calls.append({**row, **more})
        return call_id

    def queues(self, name: str, source: str, method: str, **more: Any) -> str:
        """A call to the actor `name` that has not begun; returns its id."""
        call_id = f"{source}/0/{name}/{more.pop('number', 100 + len(self.messages))}"
        row = {"source": source, "target": name, "kind": "call", "call_id": call_id, "method": method}
        self.messages.append({**row, **more})
        return call_id

    def waits_for(self, call_id: str, *on: str | None, k: int | None = None, **more: Any) -> App:
        """The call `call_id` (or the machine of that name) waits for `k` (all) of the calls `on`."""
        is_call = "/" in call_id
        for other in on:
            self.waits.append(
                {
                    "machine": call_id.split("/")[2] if is_call else call_id,
                    "call_id": call_id if is_call else None,
                    "k": len(on) if k is None else k,
                    "on_machine": None if other is None else other.split("/")[2],
                    "on_call_id": other,
                    "satisfied": False,
                    "alternative": 0,
                    **more,
                }
            )
        return self

    def parks(self, call: str, *callers: str | None) -> str:
        """A call waits inside its actor, for a later one by any of `callers` (None: or for what was not recorded)."""
        row = {"machine": call.split("/")[2], "call_id": call, "k": 1, "on_call_id": None, "satisfied": False}
        self.waits += [{**row, "on_machine": other} for other in (row["machine"], *callers)]
        return call

    def program(self, site: str, *on: str) -> App:
        """The driver's program waits there for calls."""
        self.calls.append({"machine": "driver", "method": "(the program)", "holds_slot": False, "call_site": site})
        return self.waits_for("driver", *on)

    def snapshot(self, **more: Any) -> rs.Snapshot:
        tables = {
            name: [dict(row) for row in getattr(self, name)] for name in ("machines", "calls", "messages", "waits")
        }
        return rs.Snapshot.from_rows(**tables, **{"coverage": self.coverage, **more})

    def verdict(self, **about: Any) -> rs.Verdict:
        return Deadlock().evaluate(self.snapshot(**about))


def stuck_calls(records: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(record["machine"], record["method"]) for record in records]


def table(name: str, size: int, **columns: Any) -> pa.Table:
    """A large table of a snapshot: these columns, and in the others their defaults."""
    schema, defaults = SNAPSHOT_TABLES[name], DEFAULTS[name]
    parts = [
        pa.array(columns[item.name], item.type)
        if item.name in columns
        else pa.repeat(pa.scalar(defaults.get(item.name), item.type), size)
        for item in schema
    ]
    return pa.table(parts, schema=schema)
