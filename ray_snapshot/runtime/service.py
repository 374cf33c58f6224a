"""The service of a system: one asynchronous Ray actor that coordinates and collects, and knows where machines live.

Numbers, deadlines and completeness are `ray_snapshot.protocol`'s; the service carries its effects out: asks hosts to record,
gathers their payloads, and hands what is complete to the analyst and to whoever asked (`service_collecting`); these put the
snapshot together, for here it would keep the reports of others waiting. Where machines live: `service_places`.
The driver cannot be called: what it must know waits in a log that it polls.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import ray

from ray_snapshot.errors import (
    RaySnapshotError,
    RolledBackError,
)
from ray_snapshot.runtime.driver.memory import Recollection
from ray_snapshot.runtime.recovery import Recovery
from ray_snapshot.runtime.service_collecting import Collecting
from ray_snapshot.runtime.service_state import ServiceConfig
from ray_snapshot.runtime.telling import Telling


class Service(Collecting):
    """See the module."""

    def __init__(self, config: ServiceConfig, analyst: Any) -> None:
        super().__init__(config, analyst)
        self.telling = Telling(self)
        self.recovery = Recovery(self)
        self._background(self._reap())
        if not config.recover:
            self.opened.set()
            self._background(self._watch(analyst, "analyst"))

    async def open(self, analyst: list[Any]) -> None:
        """The first life begins; `analyst`: wrapped (as an argument of its constructor Ray would not keep it for the next)."""
        self._open(analyst)

    async def reopen(self, found: Recollection) -> int:
        """A later life begins: the whole system goes back to the last snapshot that the driver knows to be kept.

        Returns which life this is: an earlier one if the driver has heard that the service died, and it has not.
        """
        if self.opened.is_set():
            return self.life
        self.life = found.life
        self.coordinator.last = self.allowance.take_over(found.numbers)
        self.actors = {host: wrapped[0] for host, wrapped in found.actors.items()}
        self.sources.update(found.sources)
        self.unclaimed.update(found.unclaimed)
        for host, actor in self.actors.items():
            self.coordinator.register(host)
            self._background(self._watch(actor, host, found.incarnations.get(host, 0)))
        for source, target, port in found.declared:
            self._declare(source, target, port)
        if found.every is not None:
            await self.start_clock(found.every)
        self.recovery.resume(found)
        self._open(found.analyst)
        return self.life

    def _open(self, analyst: list[Any]) -> None:
        self.analyst = self.handing.analyst = analyst[0]
        self.opened.set()
        if self.config.recover:
            self._background(self.handing.begin())
            self._background(self.handing.attend())

    # ---- the clock ---------------------------------------------------------------------------------------------------

    async def start_clock(self, every: float) -> None:
        """Take a snapshot every `every` seconds from now on."""
        self.clock.start(every)

    async def last_number(self) -> int:
        """The highest number given out."""
        await self.opened.wait()
        return self.coordinator.last

    async def completed_after(self, number: int) -> int:
        """How many snapshots with higher numbers have been completed (of the latest 10,000)."""
        return self.line.completed_after(number)

    # ---- rollback ----------------------------------------------------------------------------------------------------

    async def restore(self, snapshot_id: str, claimed: dict[str, str], classes: dict[str, tuple[str, bytes]]) -> None:
        """Roll the whole system back; answers when it goes on. See `Recovery.restore`."""
        await self.opened.wait()
        self._check()
        await self.recovery.restore(snapshot_id, claimed, classes)

    async def recoverable(self, snapshot_id: str, timeout: float) -> None:
        """Answers when the system could go back to this snapshot, the first one, by itself."""
        await self.opened.wait()
        await self.recovery.recoverable(snapshot_id, timeout)

    async def rolled(self, host: str, step: int, generation: int) -> None:
        """A host has done a step of a rollback."""
        await self.opened.wait()
        self.recovery.acknowledged(host, step, generation)

    async def secured(self, snapshot_id: str, number: int, generation: int, *, is_safe: bool) -> bool:
        """The driver has made sure that the system can go back to this snapshot, whoever dies, or could not; if it will."""
        await self.opened.wait()
        is_accepted = self.recovery.secured(snapshot_id, number, generation, is_safe=is_safe)
        await self._notify()
        return is_accepted

    async def sought(self, snapshot_id: str, is_held: bool) -> None:
        """The driver has a copy of what is to be restored, if it needs one, or could not get it."""
        await self.opened.wait()
        self.recovery.held[snapshot_id] = is_held
        await self._notify()

    async def is_certain(self, snapshot_id: str, seconds: float) -> bool:
        """Whether nobody goes back behind this snapshot; waits up to `seconds` until that is known."""
        await self.opened.wait()
        with suppress(TimeoutError):  # who hands it over must not be cancelled
            await asyncio.wait_for(asyncio.shield(self.handed_over(snapshot_id)), seconds)
        base = self.recovery.base
        return snapshot_id in self.telling.certain or (base is not None and base.snapshot_id == snapshot_id)

    async def committed(self, snapshot_id: str) -> None:
        """Answers when a snapshot can be restored, also by another program, and who wants to know it has been told.

        Raises if that will not be.
        """
        await self.opened.wait()
        await self.handed_over(snapshot_id)
        is_told = await self.telling.outcome(snapshot_id)
        if is_told is None:
            is_told = not self.config.recover  # nobody wants to know it
        if not is_told or not await self.handing.is_kept(snapshot_id, is_listed=True):
            self._check()
            raise RolledBackError(f"the system was rolled back behind snapshot {snapshot_id}", snapshot_id=snapshot_id)

    # ---- everybody ---------------------------------------------------------------------------------------------------

    async def about(self) -> dict[str, Any]:
        """What `ray-snapshot systems` shows."""
        return {
            "system": self.config.system,
            "run_id": self.config.run_id,
            "hosts": len(self.actors),
            "machines": len(self.places),
            "snapshots": self.coordinator.last,
            "pending": len(self.coordinator.pending),
            "skipped": self.clock.skipped,
            "generation": self.recovery.generation,
            "rolling": self.recovery.is_rolling or not self.opened.is_set(),
            "goes_back_to": None if self.recovery.base is None else self.recovery.base.snapshot_id,
            "failed": None if self.failure is None else str(self.failure),
        }

    async def watched(self) -> None:
        """Never answers: who waits for it hears at once that this process is gone."""
        await asyncio.get_running_loop().create_future()

    async def settle(self, timeout: float) -> RaySnapshotError | None:
        """Stop the clock, wait up to `timeout` seconds until no snapshot is pending, and until the analyst has them all."""
        self.clock.stop()
        await self.line.settle(lambda: [found.done for found in self.collections.values()], timeout)
        return self.failure

    async def close(self) -> None:
        """No more snapshots and no more long polls; hosts stop acting."""
        self.is_closing = True
        for actor in self.actors.values():
            actor.close.remote()
        await self._notify()


ServiceActor = ray.remote(Service)

__all__ = ["Service", "ServiceActor", "ServiceConfig"]
