"""The service without Ray: what may happen between two of its steps."""

from __future__ import annotations

import asyncio

from played import Silent

from ray_snapshot.protocol.collector import HostReport
from ray_snapshot.runtime.collected import HostPayload
from ray_snapshot.runtime.service.actor import Service
from ray_snapshot.runtime.service.config import ServiceConfig


def reported(host: str) -> HostPayload:
    return HostPayload(1, HostReport(host), b"")


async def _asks_while_others_complete_it() -> bool:
    service = Service(ServiceConfig("alone", "run", "observer", 8, 30.0), Silent())
    for host in ("host-0", "host-1"):
        await service.register(host, [Silent()])
        service.directory.places[f"on-{host}"] = host
    await service.snapshot(["on-host-0"], None, wait=False)
    async with service.course.changed:  # whoever wants to tell of a change waits for this
        first = asyncio.create_task(service.report(reported("host-0")))
        others = [asyncio.create_task(service.report(reported(host))) for host in ("host-1", "driver")]
        while 1 in service.coordinator.pending:
            await asyncio.sleep(0)
    await asyncio.gather(first, *others)
    done = 1 not in service.collecting.collections
    for task in [*service.course.tasks, *service.collecting.line.under_way]:
        task.cancel()
    return done


def test_reports_that_complete_a_snapshot_while_the_rest_are_being_asked_do_no_harm() -> None:
    """The others had recorded before they were asked: red messages reach them first."""
    assert asyncio.run(asyncio.wait_for(_asks_while_others_complete_it(), 10))


async def _waits_for_one_while_others_come() -> int:
    service, count = Service(ServiceConfig("alone", "run", "observer", 8, 30.0), Silent()), 0

    async def another() -> None:
        nonlocal count
        count += 1
        await asyncio.sleep(0)
        if count < 1_000:
            service.collecting.line.begin(another())  # there is always one on its way

    service.collecting.line.begin(another())
    await service.handed_over("run-000001")
    told_at = count
    for task in [*service.course.tasks, *service.collecting.line.under_way]:
        task.cancel()
    return told_at


def test_who_waits_for_a_snapshot_does_not_wait_for_those_that_come_after_it() -> None:
    assert asyncio.run(asyncio.wait_for(_waits_for_one_while_others_come(), 10)) < 10
