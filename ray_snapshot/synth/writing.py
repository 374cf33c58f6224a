"""Writes a made-up history through the ordinary writer, and says what was planted where.

Snapshots are made, judged by the detectors that would have run live, and committed, a bounded number of rows at a time.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import numpy as np

from ray_snapshot.addresses import AnyPath, StorePath
from ray_snapshot.detectors import Deadlock, Termination, TokenConservation
from ray_snapshot.history import HistoryWriter, objects
from ray_snapshot.limits import LIMITS
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.synth.motion import lay_channels, steps
from ray_snapshot.synth.plan import JOBS, Planted, Settings, plant
from ray_snapshot.synth.rows import Rows
from ray_snapshot.verdicts import PROVEN, Verdict, evaluate

_ROWS_AT_ONCE = 500_000
_VERDICT_DELAY = timedelta(milliseconds=20)

PLANTED_FILE = "planted.json"
"""Beside the tables: what each run of the history was planted with."""


def synthesise(out: str | os.PathLike[str], settings: Settings, *, verdicts: bool = True) -> list[dict[str, Any]]:
    """Write one run into the history at `out`; returns what was planted, a dictionary an anomaly.

    The same settings give the same rows. Without `verdicts` only the first snapshot is judged (that stores the detectors'
    settings). Raises `HistoryWriteError`; memory is that of half a million rows.
    """
    chance = np.random.default_rng(settings.seed)
    planted = plant(settings, chance)
    rows = Rows(settings, planted, lay_channels(settings, planted, chance), _run_id(settings))
    writer = HistoryWriter(out)
    waiting = 0
    for snapshot in _snapshots(settings, planted, rows, chance):
        writer.add(snapshot)
        if verdicts or snapshot.sequence == 0:
            writer.add_verdicts(_judged(snapshot, rows, planted))
        waiting += sum(table.num_rows for table in snapshot.tables.values())
        if waiting > _ROWS_AT_ONCE:
            writer.flush()
            waiting = 0
    writer.close()
    found = [_told(one, settings, rows) for one in planted]
    _note(writer.path, found)
    return found


def _run_id(settings: Settings) -> str:
    return hashlib.sha256(repr(settings).encode()).hexdigest()[:16]


def _snapshots(
    settings: Settings, planted: list[Planted], rows: Rows, chance: np.random.Generator
) -> Iterator[Snapshot]:
    for step in steps(settings, planted, rows.channels, chance):
        yield rows.snapshot(step, chance)


def _judged(snapshot: Snapshot, rows: Rows, planted: list[Planted]) -> list[Verdict]:
    """What the detectors say of it, as if they had run a moment after it was completed."""
    if snapshot.status != "complete" or snapshot.completed_at is None:
        return []
    conservation = TokenConservation(total=rows.total, state="$.balance", messages={"deposit": "$[0]"})
    found = [evaluate(detector, snapshot) for detector in (Termination(), Deadlock(), conservation)]
    when = {"evaluated_at": snapshot.completed_at + _VERDICT_DELAY, "duration_ms": 1.0}
    found = [verdict.model_copy(update=when) for verdict in found]
    lies = [one for one in planted if one.anomaly == "lie" and one.holds(snapshot.sequence)]
    return [_false(verdict, lies[0]) if lies and verdict.detector == "deadlock" else verdict for verdict in found]


def _false(verdict: Verdict, planted: Planted) -> Verdict:
    """A deadlock of two machines that do not wait for anybody."""
    one, two = planted.details["machines"]
    members = [
        {"machine": machine, "class": "Account", "method": None, "call_site": None, "waits_for": [other], "mode": "all"}
        for machine, other in ((one, two), (two, one))
    ]
    evidence = {**verdict.evidence, "members": members, "member_count": 2, "cores": [[one, two]], "core_count": 1}
    return verdict.model_copy(
        update={
            "holds": True,
            "alarm": True,
            "grade": PROVEN,
            "evidence": evidence,
            "sentence": f"Deadlock: {one} waits for {two} waits for {one}; 2 machines can never move again.",
        }
    )


def _told(planted: Planted, settings: Settings, rows: Rows) -> dict[str, Any]:
    return {
        "anomaly": planted.anomaly,
        "system": settings.system,
        "run_id": rows.run_id,
        "from_sequence": planted.at,
        "until_sequence": planted.until,
        "snapshot_id": rows.snapshot_id(planted.at),
        "jobs": list(JOBS[planted.anomaly]),
        "details": planted.details,
    }


def _note(history: AnyPath, found: list[dict[str, Any]]) -> None:
    """Add to what is noted of earlier runs in the same history."""
    path = history / PLANTED_FILE
    if isinstance(path, StorePath):
        known = objects.read_tagged(path, LIMITS.log_bytes)
        before = json.loads(known[0]) if known else []
        objects.put(path, (json.dumps([*before, *found], indent=2) + "\n").encode())
    else:
        before = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
        path.write_text(json.dumps([*before, *found], indent=2) + "\n", encoding="utf-8")
