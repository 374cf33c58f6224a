"""The Ray actor of a collector: between the service and some of its hosts, where there are too many hosts for one process.

What a snapshot costs a service is Ray's calls, two for each host. A collector takes both: it passes on what the service says
to its hosts, and gathers what they report, which the service fetches by a long poll. What it adds up is in
`protocol.gathering`; the service's side of it, and what becomes of its hosts if it dies, in `service.collectors`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import ray

from ray_snapshot.protocol.collector import Answer, HostReport, LateReport
from ray_snapshot.protocol.commands import HostCommand
from ray_snapshot.protocol.gathering import Gathering
from ray_snapshot.runtime.collected import HostPayload, MergedPayload
from ray_snapshot.runtime.pieces import put_together

GATHER_S = 0.02
"""How long what has been reported waits for the hosts that have not."""


class Collector:
    """Takes the reports of some hosts, and passes them on as one; asynchronous, like the service."""

    def __init__(self, gather_s: float = GATHER_S) -> None:
        self.gather_s = gather_s
        self.hosts: dict[str, Any] = {}
        self.gathering = Gathering()
        self.payloads: dict[int, list[HostPayload]] = {}
        """By snapshot: what came with the counts that have not been passed on."""
        self.ready: list[MergedPayload] = []
        self.has_ready = asyncio.Event()

    async def enlist(self, host: str, actor: list[Any]) -> None:
        """A host of this collector, or the process that has taken the place of one."""
        self.hosts[host] = actor[0]

    async def tell(self, commands: Mapping[str, Iterable[HostCommand]], generation: int) -> None:
        """Pass on what the service says, by host."""
        for host, found in commands.items():
            self.hosts[host].control.remote(list(found), generation)

    async def report(self, payload: HostPayload, *pieces: bytes) -> None:
        """A host's report; `pieces`: see there."""
        payload = put_together(payload, pieces)
        number, counts = payload.number, payload.counts
        if self.gathering.report(number, counts) is not Answer.SUCCESS:
            return
        self.payloads.setdefault(number, []).append(replace(payload, counts=_without_sums(counts)))
        if self.gathering.has_all(number, frozenset(self.hosts)):
            self._pass_on(number)
        else:
            asyncio.get_running_loop().call_later(self.gather_s, self._pass_on, number)

    def _pass_on(self, number: int) -> None:
        if (merged := self.gathering.take(number)) is not None:
            self.ready.append(MergedPayload(number, merged, tuple(self.payloads.pop(number))))
            self.has_ready.set()

    async def gathered(self) -> list[MergedPayload]:
        """What is to be passed on; waits for it."""
        await self.has_ready.wait()
        self.has_ready.clear()
        found, self.ready = self.ready, []
        return found


def _without_sums(counts: HostReport | LateReport) -> HostReport | LateReport:
    """Whose report it is, and no more: the sums have been added up."""
    return (
        HostReport(counts.host) if isinstance(counts, HostReport) else LateReport(counts.host, sequence=counts.sequence)
    )


CollectorActor = ray.remote(Collector)
