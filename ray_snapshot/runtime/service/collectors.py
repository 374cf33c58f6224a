"""The service's side of its collectors: which host has which, what is told by way of them, and what if one dies.

Without the setting `hosts_per_collector` there are none, and nothing here happens. What is told to the hosts of a collector in
one turn of the event loop goes in one call. A collector that dies is not replaced: its hosts report to the service from then
on, which tells them itself what there is to tell; snapshots that are pending are given up, for what it had is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ray.exceptions import RayActorError, RayError

from ray_snapshot.protocol.commands import HostCommand
from ray_snapshot.runtime.collected import MergedPayload
from ray_snapshot.runtime.service.course import Course
from ray_snapshot.runtime.service.directory import Directory


@dataclass(slots=True, eq=False)
class _Known:
    """A collector."""

    name: str
    actor: Any
    hosts: set[str] = field(default_factory=set)
    outbox: dict[str, list[HostCommand]] = field(default_factory=dict)


def _on_ray() -> Any:
    """On another node than the last, if there is one: each is a process that works."""
    from ray_snapshot.runtime.collector import CollectorActor  # only where there are collectors

    return CollectorActor.options(num_cpus=0, max_concurrency=10_000, scheduling_strategy="SPREAD").remote()


class Collectors:
    """The collectors of one service. `per` hosts share one (None: there are none); `lost` hears the name of one that died."""

    def __init__(
        self,
        per: int | None,
        course: Course,
        directory: Directory,
        report: Callable[[MergedPayload], Awaitable[None]],
        lost: Callable[[str], None],
    ) -> None:
        self.per = per
        self.course = course
        self.directory = directory
        self.report = report
        self.lost = lost
        self.make = _on_ray
        """Starts a collector."""
        self.of: dict[str, _Known] = {}
        """By host."""
        self.made: list[_Known] = []

    def enlist(self, host: str, actor: Any) -> None:
        """A host has joined, or another process has taken its place: it gets a collector, or the one that it had."""
        if self.per is None:
            return
        known = self.of.pop(host, None) or self._with_room(self.per)
        known.hosts.add(host)
        self.course.background(self._enlisted(known, host, actor))

    async def _enlisted(self, known: _Known, host: str, actor: Any) -> None:
        """The host is told by way of its collector once that knows it: Ray's calls may overtake each other."""
        with suppress(RayError):  # one of the two is gone, and others see to that
            await known.actor.enlist.remote(host, [actor])
            if host in known.hosts:
                self.of[host] = known
                actor.report_to.remote([known.actor])

    def _with_room(self, per: int) -> _Known:
        last = self.made[-1] if self.made else None
        if last is not None and 0 < len(last.hosts) < per:
            return last
        found = _Known(f"collector-{len(self.made)}", self.make())
        self.made.append(found)
        self.course.background(self._attend(found))
        return found

    def take(self, host: str, commands: list[HostCommand], generation: int) -> bool:
        """Tell a host by way of its collector; False if it has none."""
        known = self.of.get(host)
        if known is None:
            return False
        if not known.outbox:
            asyncio.get_running_loop().call_soon(self._send, known, generation)
        known.outbox.setdefault(host, []).extend(commands)
        return True

    def _send(self, known: _Known, generation: int) -> None:
        commands, known.outbox = known.outbox, {}
        self.course.background(self._told(known, commands, generation))

    async def _told(self, known: _Known, commands: dict[str, list[HostCommand]], generation: int) -> None:
        try:
            await known.actor.tell.remote(commands, generation)
        except RayActorError:
            self._gone(known)
            for host, found in commands.items():
                if host in self.directory.actors:
                    self.directory.actors[host].control.remote(found, generation)

    async def _attend(self, known: _Known) -> None:
        """Take what the collector passes on, until it is gone."""
        while True:
            try:
                gathered = await known.actor.gathered.remote()
            except RayActorError:
                self._gone(known)
                return
            for found in gathered:
                await self.report(found)

    def _gone(self, known: _Known) -> None:
        if not known.hosts or self.course.is_closing:
            return
        for host in known.hosts:
            self.of.pop(host, None)
        known.hosts.clear()
        self.lost(known.name)

    def clear(self) -> None:
        """There are no hosts any more."""
        for known in self.made:
            known.hosts.clear()
        self.of.clear()
