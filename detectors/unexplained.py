"""Waits that have lasted for long, and lack nothing but an object that no watched call gives: nobody can tell whether it comes.

The watcher lists them in the coverage (`unexplained`): `machine`, `call_site` and `since` (ISO 8601) of each.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ray_snapshot.detectors.common import lasted
from ray_snapshot.snapshot import Snapshot

REMEDY = (
    "No watched call gives what was made before watching began, what a process makes that is not watched, ready() of a"
    " placement group, and what ray.put has made. Ray keeps that for the refs that it has counted: give the ref itself along"
    " (as an argument, a reply, or inside one), not its bytes or its id, and let the process live that has made it. Or wait"
    " with a timeout."
)


class Unexplained(NamedTuple):
    """One such wait."""

    machine: str
    call_site: str
    """ "file:line"; "" if that is not known."""
    seconds: float

    def __str__(self) -> str:
        """ "driver (app.py:7) has waited for 42 s for an object that no watched call gives"."""
        place = f" ({self.call_site})" if self.call_site else ""
        return f"{self.machine}{place} has waited for {lasted(self.seconds)} for an object that no watched call gives"


def unexplained(snapshot: Snapshot) -> list[Unexplained]:
    """Those of the coverage; none in most snapshots. What is of another form is left out."""
    told = snapshot.coverage.get("unexplained")
    return list(_read(snapshot.started_at, told)) if isinstance(told, list) else []


def _read(now: datetime, told: list[Any]) -> Iterator[Unexplained]:
    for one in told:
        match one:
            case {"machine": str(machine), "call_site": str(site), "since": str(since)}:
                try:
                    began = datetime.fromisoformat(since)
                except ValueError:
                    continue
                yield Unexplained(machine, site, (now - began.replace(tzinfo=began.tzinfo or UTC)).total_seconds())
