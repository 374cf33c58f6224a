"""Room on nodes that is held by what is not watched: actors of other programs, those too that have outlived theirs.

A proof of a deadlock counts this room as free (`rooms`), for its holders may give it back at any time. No snapshot tells
whether they will: if something is stuck as long as they keep it, "No deadlock" claims more than is known.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import Any

from ray_snapshot.detectors.room_rows import outsider
from ray_snapshot.names import LONG_S
from ray_snapshot.snapshot import Snapshot


def with_outside_room_taken(snapshot: Snapshot) -> Snapshot | None:
    """A copy in which what is not watched keeps its room; None if nothing has waited for room for long."""
    room = snapshot.coverage.get("resources") or {}
    now = snapshot.started_at.timestamp() if room else 0.0
    demands = [row for row in room.get("demands", ()) if row["since"] <= now - LONG_S]
    if not demands:
        return None
    copied = copy(snapshot)
    copied.coverage = {**snapshot.coverage, "resources": {**room, "demands": demands, "outside_stays": True}}
    return copied


def missing_room(evidence: Mapping[str, Any]) -> list[str]:
    """What is stuck there for want of room, and who has it: "Trainer-0 needs CPU 1, and ..."."""
    records = (*evidence["members"], *evidence["stuck_behind"])
    return list(dict.fromkeys(f"{one['machine']} needs {one['needs']}" for one in records if one.get("needs")))


def advice(snapshot: Snapshot, needs: list[str]) -> list[str]:
    """How to end the detached actors that these name."""
    rows = snapshot.coverage["resources"].get("outside", ())
    detached = (row for row in rows if row.get("name") and row.get("detached"))
    named = [row for row in detached if any(outsider(row) in need for need in needs)]
    ends = [f"ray.kill(ray.get_actor({row['name']!r}, namespace={row.get('namespace', '')!r}))" for row in named[:3]]
    return [f"End what is not needed any more: {'; '.join(ends)}."] if ends else []
