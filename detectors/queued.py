"""Which calls have waited for long in the queue of an actor all of whose slots are taken, and what runs there, for how long.

For a person who asks: the calls that run may end, so nothing is concluded from it. What can never end is `deadlock`'s to say.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.detectors.common import at_most, is_any_of, lasted, plural, positions, texts
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import LONG_S, listed
from ray_snapshot.snapshot import Snapshot


def why_queued(snapshot: Snapshot, told: Collection[tuple[str, str]] = ()) -> list[str]:
    """A line for each actor (or concurrency group) and method; those that have waited longest first, at most `queued_lines`.

    `told`: actors and methods to leave out.
    """
    queued = [row for row in _queued(snapshot) if (row["target"], row["method"]) not in told]
    taken, lines = all_taken(snapshot, {row["target"] for row in queued}), []
    for row in queued:
        holders = taken.get((row["target"], row["concurrency_group"]), ())
        if holders := [one for one in holders if one["started_at"]]:
            is_blocked = row["target"] in _told(snapshot, "blocked_loops")
            why = "the event loop is blocked" if is_blocked else "every slot is taken"
            lines.append(_line(snapshot.started_at, row, why, holders))
    return at_most(lines, LIMITS.queued_lines)


def all_taken(snapshot: Snapshot, machines: Collection[str]) -> dict[tuple[str, str | None], list[dict[str, Any]]]:
    """By actor and concurrency group in which no call can begin before one ends: the calls that run there."""
    blocking, slots = _told(snapshot, "blocked_loops"), _slots(snapshot, machines)
    return {
        place: rows
        for place, rows in _running(snapshot, machines, blocking).items()
        if place[0] in blocking or len(rows) >= slots.get(place, 1) or rows[0]["method"] == "__init__"
    }


def _queued(snapshot: Snapshot) -> list[dict[str, Any]]:
    """Rows `target, concurrency_group, method, since, count` of calls on their way for `LONG_S`, without arguments to come."""
    messages, waits = snapshot.tables["messages"], snapshot.tables["waits"]
    messages = messages.filter(pa.array(is_any_of(messages["kind"], "call")))
    open_waits = waits.filter(pc.invert(pc.fill_null(waits["satisfied"], False)))
    held_back = positions(texts(messages["call_id"]), texts(open_waits["call_id"]).drop_null()) >= 0
    columns = {name: texts(messages[name]) for name in ("target", "concurrency_group", "method")}
    rows = pa.table({**columns, "sent_at": messages["sent_at"]}).filter(pa.array(~held_back))
    found = (
        rows.group_by([*columns])
        .aggregate([("sent_at", "min"), ("sent_at", "count")])
        .rename_columns({"sent_at_min": "since", "sent_at_count": "count"})
    )
    old = [row for row in found.to_pylist() if row["since"] and _age(snapshot.started_at, row["since"]) >= LONG_S]
    return sorted(old, key=lambda row: (row["since"], str(row["target"]), str(row["method"])))


def _running(
    snapshot: Snapshot, machines: Collection[str], blocking: Mapping[str, str]
) -> dict[tuple[str, str | None], list[dict[str, Any]]]:
    """By actor and concurrency group: the calls that hold a slot there; of an async actor whose loop is blocked, that call."""
    calls = snapshot.tables["calls"]
    found: dict[tuple[str, str | None], list[dict[str, Any]]] = {}
    for row in calls.filter(pa.array(is_any_of(calls["machine"], *machines))).to_pylist():
        if row["holds_slot"] is not False and blocking.get(row["machine"], row["call_id"]) == row["call_id"]:
            found.setdefault((row["machine"], row["concurrency_group"]), []).append(row)
    return found


def _slots(snapshot: Snapshot, machines: Collection[str]) -> Mapping[tuple[str, str | None], int]:
    """By actor and concurrency group: how many calls may run there at once."""
    table = snapshot.tables["machines"]
    rows = table.filter(pa.array(is_any_of(table["machine"], *machines))).select(["machine", "max_concurrency"])
    found: dict[tuple[str, str | None], int] = {
        (row["machine"], None): row["max_concurrency"] or 1 for row in rows.to_pylist()
    }
    for machine, groups in _told(snapshot, "groups").items():
        if isinstance(groups, Mapping):
            found |= {(machine, name): slots for name, slots in groups.items() if isinstance(slots, int)}
    return found


def _told(snapshot: Snapshot, key: str) -> Mapping[str, Any]:
    """What the coverage says of machines; nothing if that is of another form."""
    found = snapshot.coverage.get(key)
    return found if isinstance(found, Mapping) else {}


def _line(now: datetime, row: Mapping[str, Any], why: str, holders: list[dict[str, Any]]) -> str:
    holders = sorted(holders, key=lambda one: one["started_at"])
    runs = [f"{one['method']}{_at(one)} has run for {lasted(_age(now, one['started_at']))}" for one in holders]
    what = f"{row['method']} of {row['target']}" + (f" ({plural(row['count'], 'call')})" if row["count"] > 1 else "")
    return f"{what} has waited for {lasted(_age(now, row['since']))}: {why}, {listed(runs)}"


def _at(call: Mapping[str, Any]) -> str:
    return f" ({call['call_site']})" if call["call_site"] else ""


def _age(now: datetime, since: datetime) -> float:
    return (now - since).total_seconds()
