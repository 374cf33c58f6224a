"""The driver attends to the service and the analyst: Ray starts them anew when they die, and here they are told how to go on.

Everything runs on the event loop of the driver's post, and is bounded: by `start_timeout`, and by `most_failures` deaths within
`failures_within`; past that the system stops, with `HostDiedError`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ray.exceptions import RayActorError

from ray_snapshot.errors import HostDiedError, RaySnapshotError
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.commands import Fail
from ray_snapshot.runtime.driver.memory import Memory
from ray_snapshot.runtime.faults import as_error, first_line


@dataclass(frozen=True, slots=True)
class Patience:
    """How many deaths the system survives, within how long, and how long the next life may take to begin."""

    most_failures: int
    failures_within: float
    start_timeout: float


class Attendant:
    """The driver's part that sets the service and the analyst of its system to work again after a death."""

    def __init__(
        self, system: str, service: Any, analyst: Any, open_analyst: Callable[[int], Any], patience: Patience
    ) -> None:
        self.system = system
        self.service = service
        self.analyst = analyst
        self.open_analyst = open_analyst
        """Asks the analyst to open; the argument says which life of it this is. Returns the reference to wait for."""
        self.patience = patience
        self.memory = Memory()
        self.is_closing = False

    async def service_again(self, reason: BaseException, lock: Any) -> bool:
        """The service has died: tell the next one how to go on. False if it has not died; raises `HostDiedError` if
        there is no snapshot to go back to, or no next service in time."""
        text = f"the service of system {self.system} is gone: {first_line(reason)}"
        lost = HostDiedError(text, host="service", machines=[])
        if (base := self.memory.base) is None:
            raise lost
        deadline, lives = self._death(lost), self.memory.life
        while True:
            with lock:
                found = self.memory.recollection(self.memory.base or base, self.analyst)
            try:
                life: int = await self.service.reopen.remote(found)
                return life > lives
            except RayActorError:
                if self.is_closing or time.monotonic() > deadline:
                    raise lost from None
            await asyncio.sleep(LIMITS.again_s)

    async def attend_analyst(self) -> None:
        """For as long as the system is open: an analyst that is started anew is told what to do."""
        while True:
            try:
                await self.analyst.watched.remote()
            except RayActorError as error:
                if self.is_closing:
                    return
                text = f"the analyst of system {self.system} is gone: {first_line(error)}"
                await self._open_again(HostDiedError(text, host="analyst", machines=[]))

    async def _open_again(self, lost: HostDiedError) -> None:
        deadline = self._death(lost)
        while not self.is_closing:
            self.memory.analyst_life += 1
            try:
                await self.open_analyst(self.memory.analyst_life)
                return
            except RayActorError:
                if time.monotonic() > deadline:
                    raise lost from None
            await asyncio.sleep(LIMITS.again_s)

    def _death(self, lost: HostDiedError) -> float:
        """Note a death; returns until when the next life must have begun."""
        now, most, within = time.monotonic(), self.patience.most_failures, self.patience.failures_within
        count = self.memory.died(now, within)
        if count > most:
            raise HostDiedError(
                f"{lost}; it was not started again: {count} failures within {within:g} s; {most} are borne",
                host=lost.host,
                machines=[],
            )
        return now + self.patience.start_timeout

    async def checkpoint(self, snapshot_id: str) -> Any:
        """The copy of a checkpoint to keep here; None if the analyst has just died."""
        try:
            return await self.analyst.checkpoint.remote(snapshot_id)
        except RayActorError:
            return None

    def fail(self, error: BaseException) -> RaySnapshotError:
        """The system cannot go on: hosts hear it from here, for there may be no service."""
        found = as_error(error)
        for actor in self.memory.actors.values():
            actor.control.remote([Fail(found)], 0)
        return found
