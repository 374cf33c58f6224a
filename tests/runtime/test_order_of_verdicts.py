"""The service without Ray: the order in which snapshots are evaluated, and what may happen between two of its steps."""

import asyncio
import pickle
from collections.abc import Callable, Coroutine
from typing import Any

import pyarrow as pa
import pytest
from played import Remote, Silent

from ray_snapshot.columns import inner
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.collector import HostReport
from ray_snapshot.runtime.analyst import actor as analysts
from ray_snapshot.runtime.collected import Collected, HostPayload, SnapshotHeader
from ray_snapshot.runtime.ends import ENDS
from ray_snapshot.runtime.report import HostPart
from ray_snapshot.runtime.service.actor import Service
from ray_snapshot.runtime.service.config import ServiceConfig
from ray_snapshot.schema import MACHINES, MESSAGES


class Line:
    def __init__(self) -> None:
        self.handed: list[tuple[int, int]] = []
        """(snapshot number, place in the line) in the order of the calls."""
        self.watched = Remote(lambda: asyncio.get_running_loop().create_future())
        self.add = Remote(self._add)

    async def _add(self, found: Any, place: int) -> None:
        self.handed.append((found.header.number, place))


def with_service(play: Callable[[Service], Coroutine[Any, Any, None]]) -> list[tuple[int, int]]:
    """What the analyst is handed while `play` goes on; snapshots 1, 2 and 3 are pending, for the driver alone."""

    async def run() -> list[tuple[int, int]]:
        line = Line()
        service = Service(ServiceConfig("shop", "run", "chandy-lamport", 8, 30.0), line)
        for _ in range(3):
            number = service.collecting.start(30.0, 8)
            assert number is not None
            service.collecting.begin(number, [], 30.0, is_driver_asked=True)
        await play(service)
        await asyncio.gather(*service.collecting.line.under_way)
        for task in service.course.tasks:
            task.cancel()
        return line.handed

    return asyncio.run(run())


async def report(service: Service, *numbers: int) -> None:
    for number in numbers:
        await service.report(HostPayload(number, HostReport(DRIVER, {}, {}, {}), b""))


def test_what_is_complete_early_waits_for_the_numbers_in_front_of_it() -> None:
    async def play(service: Service) -> None:
        await report(service, 3, 2)
        assert not service.collecting.line.under_way
        await report(service, 1)

    assert with_service(play) == [(1, 1), (2, 2), (3, 3)]


def test_a_snapshot_that_is_given_up_holds_up_nobody() -> None:
    async def play(service: Service) -> None:
        await report(service, 3, 2)
        await service.collecting.abort(service.coordinator.abort(1, "it timed out"))
        await asyncio.gather(*service.collecting.line.under_way)
        assert [service.collecting.line.completed_after(number) for number in (0, 2, 3)] == [2, 1, 0]

    assert {number for number, _ in with_service(play)} == {1, 2, 3}


@pytest.mark.parametrize("where", ["completed", "found"])
def test_a_fault_of_ours_stops_the_system_with_its_reason_and_no_snapshot_stays_open(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    waiting: list[asyncio.Future[Any]] = []

    def fail(*_: Any) -> None:
        raise KeyError("ours")

    async def play(service: Service) -> None:
        waiting.extend(one.done for one in service.collecting.collections.values())
        monkeypatch.setattr(service.coordinator if where == "completed" else service.collecting.others, where, fail)
        await report(service, 1)
        await asyncio.wait(waiting)
        assert "the service of shop failed: KeyError: 'ours' (" in str(service.course.failure)
        assert not service.collecting.collections

    assert {number for number, _ in with_service(play)} == {1, 2, 3}
    assert len(waiting) == 3
    assert all("KeyError: 'ours'" in str(one.exception()) for one in waiting)


@pytest.mark.parametrize("has_driver", [True, False])
def test_who_cannot_report_for_a_system_that_has_ended_gives_up_nothing(*, has_driver: bool) -> None:
    """Where a watch goes on, another system may have a snapshot of that number."""
    pending: list[bool] = []

    async def play(service: Service) -> None:
        service.course.opened.set()
        service.orders.has_driver = has_driver
        await service.give_up(1, "host-0", "no room")
        pending.append(1 in service.coordinator.pending)

    with_service(play)
    assert pending == [not has_driver]


def test_at_the_end_nothing_that_is_complete_is_left_behind() -> None:
    async def play(service: Service) -> None:
        await report(service, 3, 2)
        await service.settle(0.0)

    assert with_service(play) == [(2, 1), (3, 2)]


def test_the_analyst_takes_them_by_their_places_though_ray_swaps_the_calls() -> None:
    async def swapped() -> list[Any]:
        analyst = analysts.Analyst("shop", None, ())
        for found, place in (("third", 3), ("first", 1), ("second", 2)):
            await analyst.add(found, place)  # type: ignore[arg-type]
        return [analyst.arrivals.inbox.get_nowait().collected for _ in range(analyst.arrivals.inbox.qsize())]

    assert asyncio.run(swapped()) == ["first", "second", "third"]


def test_machines_and_calls_stand_in_the_order_of_names_whichever_host_reports_first() -> None:
    def part(*names: str) -> bytes:
        rows = [{"machine": name, "status": "passive", "recorded_at": 0} for name in names]
        machines = pa.RecordBatch.from_pylist(rows, schema=inner(MACHINES))
        nothing = (pa.RecordBatch.from_pylist([], schema=schema) for schema in (inner(MESSAGES), ENDS))
        calls = [{"machine": name, "method": text, "status": "running"} for name in names for text in ("z", "y")]
        return pickle.dumps(HostPart(*nothing, machines=machines, calls=calls))

    parts = [part("c", "a"), part("driver"), part("d", "b")]
    header = SnapshotHeader(1, "shop", "run", "chandy-lamport", [], 0.0)
    for order in (parts, parts[::-1]):
        found = Collected(header, order).snapshot()
        assert list(found.machines) == ["a", "b", "c", "d", "driver"]
        calls = found.tables["calls"].select(["machine", "method"]).to_pylist()
        assert [(call["machine"], call["method"]) for call in calls[:4]] == [
            ("a", "z"),
            ("a", "y"),
            ("b", "z"),
            ("b", "y"),
        ]


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
