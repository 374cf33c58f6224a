"""The processes of a system: one joins, one takes the place of another, one is gone, and what follows from that."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from ray.exceptions import RayActorError

from ray_snapshot.errors import HostDiedError, RaySnapshotError
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.commands import Fail, Welcome
from ray_snapshot.protocol.coordinator import Coordinator
from ray_snapshot.runtime.faults import first_line
from ray_snapshot.runtime.service.course import Course
from ray_snapshot.runtime.service.directory import Directory
from ray_snapshot.runtime.service.orders import Orders
from ray_snapshot.runtime.service.recovery import Recovery


@dataclass(eq=False)
class Hosts:
    """The processes that one service knows of; `fail` stops the system."""

    course: Course
    directory: Directory
    orders: Orders
    coordinator: Coordinator
    recovery: Recovery
    fail: Callable[[RaySnapshotError], Awaitable[None]]

    async def joined(self, host: str, actor: Any, config: Any, options: Any) -> None:
        """The driver has made a host; it is asked for every snapshot that is pending."""
        self.directory.actors[host] = actor
        self.recovery.joined(host, config, options)
        self.orders.to_host(host, Welcome(self.coordinator.register(host), self.coordinator.last))
        if self.course.failure is not None:
            self.orders.to(host, Fail(self.course.failure))
        self.watch(actor, host)
        await self.course.notify()

    def replaced(self, host: str, incarnation: int, actor: Any) -> None:
        """The driver has started another process in the place of one that was gone."""
        self.directory.actors[host] = actor
        self.watch(actor, host, incarnation)
        self.recovery.replaced(host, incarnation)

    async def actor_of(self, host: str) -> Any:
        """The Ray actor of a host; names may be known before their host is."""
        deadline = time.monotonic() + LIMITS.orders_poll_s
        while host not in self.directory.actors:
            if not await self.course.change(deadline - time.monotonic()):
                text = f"{host} of system {self.directory.system} did not come up"
                raise HostDiedError(text, host=host, machines=[])
        return self.directory.actors[host]

    def watch(self, actor: Any, host: str, incarnation: int = 0) -> None:
        """Call `gone` when this process ends."""
        self.course.background(self._watch(actor, host, incarnation))

    async def _watch(self, actor: Any, host: str, incarnation: int) -> None:
        try:
            await actor.watched.remote()
        except RayActorError as error:
            await self.gone(host, first_line(error), incarnation)

    async def lost(self, host: str, reason: str, generation: int | None = None) -> None:
        """A process of the system is gone, as another of that generation has noticed: all hear of it."""
        if generation is None or generation == self.recovery.generation:
            await self.gone(host, reason, self.recovery.incarnation(host))

    async def gone(self, host: str, reason: str, incarnation: int) -> None:
        """This life of a process has ended: the system is rolled back, if it may be, or else fails."""
        if self.course.is_closing or self.course.failure is not None:
            return
        if host not in self.directory.actors and host != "analyst":
            return  # its system has ended
        error = self.directory.lost_host(host, reason)
        if not self.recovery.lost(host, incarnation, error):
            await self.fail(error)
