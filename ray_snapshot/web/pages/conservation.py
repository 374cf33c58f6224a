"""The ledgers of a history: what there is in all, snapshot by snapshot, when it breaks, and what changed there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.questions import conservation as asked_of
from ray_snapshot.reports.texts import plain
from ray_snapshot.web import reading
from ray_snapshot.web.asked import Asked, Part
from ray_snapshot.web.served import Place, Served

MOST_BREAKS = 50
MOST_BLAMED = 100
MOST_COUNTED = 5_000_000
"""Of a history with more rows of machines a run has to be chosen."""


@dataclass(frozen=True, slots=True)
class Ledgers:
    """The page."""

    place: str
    breaks: tuple[Mapping[str, Any], ...]
    """A row for each ledger of each run, those that are broken first."""
    machines: tuple[Mapping[str, Any], ...]
    """Where a ledger breaks: whose part of it changed, those first whose change nothing explains."""
    channels: tuple[Mapping[str, Any], ...]
    rows: tuple[Mapping[str, Any], ...]
    """The ledger itself, the latest first."""
    part: Part
    runs: tuple[str, ...]
    note: str = ""


def ledgers(served: Served, place: Place, asked: Asked) -> Ledgers:
    """The ledgers of a history: of one `system`, `run` or `detector` if asked for."""
    listed = reading.snapshot_rows(served, place)
    runs = tuple(str(one) for one in reversed(pc.unique(listed["run_id"]).to_pylist()[-200:]) if str(one).isprintable())
    run = asked.text("run")
    counted = listed if run is None else listed.filter(pc.equal(listed["run_id"], run))
    if (pc.sum(counted["machine_count"]).as_py() or 0) > MOST_COUNTED:
        note = "The history has too many rows to count them for a page: choose a run, or ray-snapshot ask HISTORY conservation."
        return Ledgers(place.key, (), (), (), (), Part.of(asked, 0), runs, note)
    wanted = (asked.text("system"), run, asked.text("detector"))
    key = ("ledgers", place.key, *wanted, reading.commits(place, "snapshots"), reading.commits(place, "verdicts"))

    def read() -> dict[str, pa.Table]:
        return asked_of(place.history, system=wanted[0], run=wanted[1], detector=wanted[2])

    found: dict[str, pa.Table] = served.kept.get(key, read, lambda tables: sum(one.nbytes for one in tables.values()))
    ledger = found["ledger"]
    part = Part.of(asked, ledger.num_rows)
    latest = ledger.sort_by([("started_at", "descending")]).slice(part.begin, part.rows)
    broken = found["breaks"].sort_by([("broken", "descending")])
    blamed = found["changed_machines"].sort_by([("unexplained", "descending"), ("size", "descending")])
    channels = found["changed_channels"].sort_by([("missing", "descending"), ("size", "descending")])
    note = "" if broken.num_rows else "No ledger was kept: give the system a detectors.TokenConservation(...)."
    return Ledgers(
        place.key,
        _rows(broken.slice(0, MOST_BREAKS)),
        _rows(blamed.slice(0, MOST_BLAMED)),
        _rows(channels.slice(0, MOST_BLAMED)),
        _rows(latest),
        part,
        runs,
        note,
    )


def _rows(table: pa.Table) -> tuple[dict[str, Any], ...]:
    names = ("machine", "snapshot_id", "first_broken", "last_right")  # these lead somewhere
    return tuple(
        {name: plain(value) if isinstance(value, str) and name not in names else value for name, value in row.items()}
        for row in table.to_pylist()
    )
