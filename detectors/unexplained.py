"""Waits that have lasted for long, and lack nothing but an object that no watched call gives: of `ray.put`, or of somebody whom
the snapshot does not show. Whether it still comes is not known.

The watcher lists them in the coverage (`unexplained`): `machine`, `call_site` and `since` (ISO 8601) of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from ray_snapshot.detectors.common import lasted
from ray_snapshot.snapshot import Snapshot

_WHAT = "for an object that no watched call gives (of ray.put, of ready() of a placement group, or from an unwatched process)"

REMEDY = (
    "If the object is of ray.put: Ray keeps it for the refs that it has counted, so give the ref itself along (as an argument,"
    " a reply, or inside one), not its bytes or its id, and let the process live that has made it. Or wait with a timeout."
)


def unexplained(snapshot: Snapshot) -> list[Mapping[str, Any]]:
    """The records, as the coverage has them; none in most snapshots."""
    return list(snapshot.coverage.get("unexplained") or ())


def in_words(snapshot: Snapshot, record: Mapping[str, Any]) -> str:
    """ "driver (app.py:7) has waited for 42 s for an object that no watched call gives (...)"."""
    seconds = (snapshot.started_at - datetime.fromisoformat(record["since"])).total_seconds()
    place = f" ({record['call_site']})" if record["call_site"] else ""
    return f"{record['machine']}{place} has waited for {lasted(seconds)} {_WHAT}"
