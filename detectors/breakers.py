"""Who might end a deadlock from outside: something that can move, and may kill one of its members or cancel what that runs.

Only of an app whose deadlocks are to be broken (`on_deadlock`) is it recorded who has handles and refs of what is blocked.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from ray_snapshot.detectors.common import Booleans
from ray_snapshot.detectors.explain import machine_of
from ray_snapshot.detectors.wait_graph import WaitGraph
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER
from ray_snapshot.snapshot import Snapshot


def breakers(
    snapshot: Snapshot, waits: WaitGraph, moves: Booleans, records: Iterable[Mapping[str, Any]]
) -> dict[str, list[str]]:
    """The item `may_be_broken_by` of the evidence; none where nothing of it was recorded.

    `records`: of what is stuck. Of what is not blocked itself (a task that has not begun) nothing is told: anything that moves
    may have a ref to it. What was not observed may always do it.
    """
    told = snapshot.coverage.get("ended_by")
    if not isinstance(told, Mapping):
        return {}
    acting = waits.first_call + waits.calls.call_count
    moving = set(waits.names.take(np.flatnonzero(moves[:acting])).to_pylist())
    by = [told.get(record["machine"]) for record in records if record["machine"] != DRIVER]
    having = moving if None in by else {machine_of(name) for names in by for name in names or ()}
    return {"may_be_broken_by": [*sorted(having & moving)[: LIMITS.breakers], *map(str, waits.unseen)]}
