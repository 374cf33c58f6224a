"""The service's part in telling machines that a snapshot of theirs is kept; runs on its event loop.

They are told of what the system will never go back behind by itself (`Recovery.note`). This life of the service
remembers for a while, for callers that wait, whether all were told.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from ray.exceptions import RayError

from ray_snapshot.limits import LIMITS

if TYPE_CHECKING:
    from ray_snapshot.runtime.collected import SnapshotHeader
    from ray_snapshot.runtime.service.course import Course
    from ray_snapshot.runtime.service.directory import Directory
    from ray_snapshot.runtime.service.recovery import Recovery


class Telling:
    """Tells the machines, in one life of a service."""

    def __init__(self, course: Course, directory: Directory, recovery: Recovery) -> None:
        self.course = course
        self.directory = directory
        self.recovery = recovery
        self.outcomes: dict[str, asyncio.Future[bool]] = {}
        """By snapshot, the latest last: whether it is kept and all machines that want to know have been told, once
        known."""
        self.certain: deque[str] = deque(maxlen=LIMITS.told_snapshots)
        """Snapshots behind which the system never goes back, unless the program asks for it."""

    def noted(self, header: SnapshotHeader, is_kept: bool) -> None:
        """The analyst has dealt with a snapshot; `is_kept`: it is kept, and the system will not go back behind it."""
        if is_kept:
            self.certain.append(header.snapshot_id)
        self.outcomes[header.snapshot_id] = asyncio.get_running_loop().create_future()
        while len(self.outcomes) > LIMITS.told_snapshots:
            self._settle(next(iter(self.outcomes)), False)
            self.outcomes.pop(next(iter(self.outcomes)))
        self.course.background(self._tell(header, is_kept))

    def give_up(self) -> None:
        """The system goes back: a machine that was not told knows from the state that it gets back."""
        for snapshot_id in self.outcomes:
            self._settle(snapshot_id, False)

    async def outcome(self, snapshot_id: str) -> bool | None:
        """Whether it is kept and all have been told; None if the snapshot has not come by, or long ago."""
        found = self.outcomes.get(snapshot_id)
        return None if found is None else await asyncio.shield(found)

    async def _tell(self, header: SnapshotHeader, is_kept: bool) -> None:
        snapshot_id, actors = header.snapshot_id if is_kept else None, self.directory.actors
        calls = [actors[host].kept.remote(header.number, snapshot_id, header.generation) for host in header.listeners]
        try:
            for call in calls:
                await call
        except RayError:  # a host is gone, or failed, and others see to that
            is_kept = False
        self._settle(header.snapshot_id, is_kept and header.generation == self.recovery.generation)

    def _settle(self, snapshot_id: str, outcome: bool) -> None:
        found = self.outcomes.get(snapshot_id)
        if found is not None and not found.done():
            found.set_result(outcome)
