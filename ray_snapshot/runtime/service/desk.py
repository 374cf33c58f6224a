"""What a program asks of the actor that takes snapshots, be it the service of hosts or the watcher of an app's
processes."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ray_snapshot.errors import RaySnapshotError, SnapshotAbortedError
from ray_snapshot.runtime.collected import SnapshotHeader
from ray_snapshot.runtime.service.clock import Clock
from ray_snapshot.runtime.service.line import Line


@dataclass(slots=True)
class Collection:
    """A snapshot that is being collected."""

    header: SnapshotHeader
    timeout: float
    done: asyncio.Future[Any]
    is_hurried: bool = False
    """Half of the time is over: those that have not reported were told to record in the middle of an action."""

    @property
    def half_time(self) -> float:
        """When half of the time is over."""
        return self.header.started_at + self.timeout / 2

    def complete(self, found: Any) -> None:
        """All is there: `found` is what the program gets that waits for the snapshot."""
        if not self.done.done():
            self.done.set_result(found)

    def give_up(self) -> None:
        """The header says why: the program that waits gets that as `SnapshotAbortedError`."""
        header = self.header
        error = SnapshotAbortedError(
            f"snapshot {header.snapshot_id} was given up: {header.abort_reason}",
            snapshot_id=header.snapshot_id,
            reason=header.abort_reason,
            machine=header.abort_machine,
            call_site=header.abort_call_site,
        )
        if not self.done.done():
            self.done.set_exception(error)
            self.done.exception()  # looked at, even if nothing waits


class Desk(ABC):
    """The base of both actors."""

    def __init__(self, line: Line, collections: Mapping[int, Collection]) -> None:
        self.line = line
        self.collections = collections
        """By snapshot number: the snapshots that are being collected."""
        self.clock = Clock(self.begin_snapshot)

    @abstractmethod
    async def snapshot(self, initiators: list[str], timeout: float | None, wait: bool = True) -> Any:
        """Take a snapshot; returns it, or its number (None: there can be none now) if it is not waited for."""

    async def begin_snapshot(self) -> int | None:
        """Start a snapshot without waiting for it; its number, or None if there can be none now."""
        try:
            number: int | None = await self.snapshot([], None, wait=False)
        except RaySnapshotError:  # what has failed or was closed says so elsewhere
            return None
        return number

    async def start_clock(self, every: float) -> None:
        """Take a snapshot every `every` seconds from now on."""
        self.clock.start(every)

    async def completed_after(self, number: int) -> int:
        """How many snapshots with higher numbers have been completed (of the latest 10,000)."""
        return self.line.completed_after(number)

    async def settle(self, timeout: float) -> RaySnapshotError | None:
        """Stop the clock, wait up to `timeout` seconds until no snapshot is pending and the analyst has them all.

        Returns what has stopped the system, if anything has.
        """
        self.clock.stop()
        await self.line.settle(lambda: [one.done for one in self.collections.values()], timeout)
        return self._failure()

    def _failure(self) -> RaySnapshotError | None:
        """What has stopped the system."""
        return None

    async def watched(self) -> None:
        """Never answers: a process that waits for it hears at once that this one is gone."""
        await asyncio.get_running_loop().create_future()
