"""What hosts and the driver are told: commands to hosts, and a log for the driver, which cannot be called and polls it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

from ray.exceptions import RayError

from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.commands import (
    Close,
    DriverCommand,
    HostCommand,
    Request,
    SharedCommand,
)
from ray_snapshot.protocol.recovery_line import Allowance
from ray_snapshot.runtime.collected import HostPayload
from ray_snapshot.runtime.service.course import Course
from ray_snapshot.runtime.service.directory import Directory

POLL_S = 10.0
"""How long an unanswered long poll is held."""

LAZY_S = 1.0
"""How long a host may go without hearing that a snapshot is complete, which only frees memory."""


class Orders:
    """The orders of one service."""

    def __init__(
        self, course: Course, directory: Directory, allowance: Allowance, generation: Callable[[], int]
    ) -> None:
        self.course = course
        self.directory = directory
        self.allowance = allowance
        self.generation = generation
        self.has_driver = False
        """Whether there is a driver that asks for its commands."""
        self.driver_log: list[DriverCommand] = []
        """What the driver has not obeyed yet."""
        self.driver_obeyed = 0
        self.driver_news = asyncio.Event()
        """Set when there may be something that the driver is to be told."""
        self.lazily: dict[str, list[Any]] = {}
        """Per host: commands that need not come at once; they go with the next other command, or within `LAZY_S`."""
        self.lazy_until = 0.0
        self.on_lazy: Callable[[float], None] = lambda _: None
        """Called with the moment by which what is put off must be told (seconds since 1970)."""
        self.asked: Callable[[str, int, Awaitable[HostPayload | None]], None] = lambda *_: None
        """Called when a host has been asked for a snapshot, with what will be its answer: the report, or None."""

    @property
    def driver_told(self) -> int:
        """How many commands the driver has been given in all."""
        return self.driver_obeyed + len(self.driver_log)

    async def commands(self, obeyed: int) -> list[DriverCommand]:
        """What the driver must do, behind the first `obeyed`, which are forgotten; waits for it."""
        del self.driver_log[: obeyed - self.driver_obeyed]
        self.driver_obeyed = obeyed
        self.allowance.obeyed(obeyed)
        deadline = time.monotonic() + POLL_S
        while not self.driver_log and not self.course.is_closing and (left := deadline - time.monotonic()) > 0:
            self.driver_news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(left):
                    await self.driver_news.wait()
        return list(self.driver_log)

    def to(self, host: str, *commands: SharedCommand) -> None:
        """Give commands to a host or to the driver."""
        if host == DRIVER:
            self.to_driver(*commands)
        else:
            self.to_host(host, *commands)

    def to_driver(self, *commands: DriverCommand) -> None:
        """Give commands to the driver, which gets them when it asks: its long poll is answered."""
        self.driver_news.set()
        self.driver_log += (*self.lazily.pop(DRIVER, ()), *commands)

    def to_host(self, host: str, *commands: HostCommand) -> None:
        """Give commands to a host, by a call; none if it has left meanwhile, with its system."""
        found = [*self.lazily.pop(host, ()), *commands]
        if not found or (actor := self.directory.actors.get(host)) is None:
            return
        number = next((command.number for command in commands if isinstance(command, Request)), None)
        if number is None:
            actor.control.remote(found, self.generation())
        else:
            self.asked(host, number, actor.ask.remote(found, self.generation()))

    async def heard_by_hosts(self, command: HostCommand, seconds: float) -> None:
        """Give a command to all hosts; answers when they have obeyed it (or are gone), or past so many seconds."""
        calls = [actor.control.remote([command], self.generation()) for actor in self.directory.actors.values()]
        if calls:
            await asyncio.wait([asyncio.ensure_future(_ended(call)) for call in calls], timeout=seconds)

    async def to_host_of(self, machine: str, command: HostCommand) -> None:
        """Give a command to the host of a machine; answers when it has been obeyed."""
        actor = self.directory.actors[self.directory.places[machine]]
        await actor.control.remote([command], self.generation())

    def to_all(self, *commands: SharedCommand) -> None:
        """Give commands to all hosts and the driver; without commands, only those that were put off."""
        for host in self._all():
            self.to(host, *commands)

    def to_all_lazily(self, command: Close) -> None:
        """Give a command to all hosts and the driver, but make no call for it: it goes with the next one."""
        self._put_off()
        for host in self._all():
            self.lazily.setdefault(host, []).append(command)

    def _all(self) -> list[str]:
        return [*([DRIVER] if self.has_driver else ()), *self.directory.actors]

    def to_host_lazily(self, host: str, command: HostCommand) -> None:
        """Give a command to a host, but make no call for it."""
        self._put_off()
        self.lazily.setdefault(host, []).append(command)

    def clear(self) -> None:
        """There are no hosts any more, and no driver that asks."""
        self.has_driver, self.driver_log, self.driver_obeyed = False, [], 0
        self.lazily.clear()

    def _put_off(self) -> None:
        if not self.lazily:
            self.lazy_until = time.time() + LAZY_S
            self.on_lazy(self.lazy_until)

    def is_due(self, now: float) -> bool:
        """Whether what was put off must be told now."""
        return bool(self.lazily) and now > self.lazy_until


async def _ended(call: Awaitable[object]) -> None:
    with suppress(RayError):  # it is gone: who watches it says so
        await call
