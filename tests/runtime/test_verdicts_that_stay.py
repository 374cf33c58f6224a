"""A verdict that somebody waits for is one that recovery does not undo; without Ray."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

import pytest
from lone_service import Program
from played import Played, Remote

import ray_snapshot as rs
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.collector import HostReport
from ray_snapshot.protocol.commands import Secure
from ray_snapshot.runtime.collected import HostPayload
from ray_snapshot.runtime.service.actor import Service
from ray_snapshot.runtime.service.config import ServiceConfig


class Analyst:
    """Takes every snapshot, and says that it can be restored; does not answer anything else."""

    def __getattr__(self, name: str) -> Any:
        answer = type(self).__dict__.get(f"_{name}", Analyst._watched)
        return Remote(partial(answer, self))

    async def _begin_session(self) -> str:
        return "session"

    async def _add(self, *_: Any, again: bool) -> int:
        return 0

    async def _is_kept(self, *_: Any, **__: Any) -> bool:
        return True

    def _pin(self, snapshot_id: str) -> None:
        """There is nothing here to hold on to."""

    async def _watched(self) -> None:
        await asyncio.get_running_loop().create_future()

    async def _plan(self, *_: Any) -> None:
        await asyncio.get_running_loop().create_future()


def with_snapshot(play: Callable[[Service, str], Coroutine[Any, Any, bool]]) -> bool:
    """What `play` says, once snapshot 1 has been handed over, and the driver has not made sure of it."""

    async def run() -> bool:
        service = Service(ServiceConfig("shop", "run", "chandy-lamport", 8, 30.0, True, True), None)
        service._open([Analyst()])
        number = service.collecting.start(30.0)
        assert number == 1
        snapshot_id = service.collecting.begin(number, [], 30.0, is_driver_asked=True).header.snapshot_id
        await service.report(HostPayload(number, HostReport(DRIVER, {}, {}, {}), b"", checkpoint=b"x"))
        while Secure(number, snapshot_id) not in service.orders.driver_log:
            await asyncio.sleep(0)
        found = await play(service, snapshot_id)
        for task in [*service.course.tasks, *service.collecting.line.under_way]:
            task.cancel()
        return found

    return asyncio.run(asyncio.wait_for(run(), 10))


def test_a_snapshot_is_certain_when_the_driver_has_made_sure_of_it() -> None:
    async def play(service: Service, snapshot_id: str) -> bool:
        asked = asyncio.create_task(service.is_certain(snapshot_id, 60.0))
        for _ in range(20):
            await asyncio.sleep(0)
        assert not asked.done()
        await service.secured(snapshot_id, 1, 0, is_safe=True)
        return await asked

    assert with_snapshot(play)


def test_a_snapshot_is_not_certain_if_the_system_goes_back_or_if_it_is_not_known_in_time() -> None:
    async def goes_back(service: Service, snapshot_id: str) -> bool:
        asked = asyncio.create_task(service.is_certain(snapshot_id, 60.0))
        await asyncio.sleep(0)
        await service.secured(snapshot_id, 1, 0, is_safe=False)  # lost with an analyst
        return await asked

    assert not with_snapshot(goes_back)
    assert not with_snapshot(lambda service, snapshot_id: service.is_certain(snapshot_id, 0.0))


def verdict(number: int, *, alarm: bool = False) -> tuple[int, rs.Verdict]:
    about: dict[str, Any] = {"run_id": "run", "evidence": {}, "alarm": alarm}
    return number, rs.Verdict(detector="done", holds=True, sentence="Yes.", snapshot_id=f"s{number}", **about)


class Waiting(Program):
    """What a program waits for: the verdicts that come, and which snapshots are certain."""

    def __init__(self, verdicts: list[tuple[int, rs.Verdict]], certain: set[str], *, recovers: bool = True) -> None:
        super().__init__(object() if recovers else None)
        self._has_clock = True
        self.detectors = [Done()]
        self._service = Played(
            last_number=lambda: 0, completed_after=lambda _: 0, is_certain=lambda snapshot_id, _: snapshot_id in certain
        )
        coming = iter(verdicts)
        self._analyst = Played(
            count=lambda: 0,
            unjudged=lambda: 0,
            verdicts_after=lambda seen, _: (seen + 1, [found for found in [next(coming, None)] if found]),
        )


class Done:
    name = "done"

    def evaluate(self, snapshot: rs.Snapshot) -> rs.Verdict:
        raise NotImplementedError


def answer(verdicts: list[tuple[int, rs.Verdict]], certain: set[str], *, recovers: bool = True) -> str:
    program: Any = Waiting(verdicts, certain, recovers=recovers)
    found: rs.Verdict = program.wait_for("done", timeout=1.0)
    return found.snapshot_id


def test_a_verdict_on_a_snapshot_that_was_gone_back_behind_is_not_the_answer() -> None:
    assert answer([verdict(1), verdict(2), verdict(3)], {"s3"}) == "s3"


def test_an_alarm_is_the_answer_at_once_and_so_is_every_verdict_where_nobody_goes_back() -> None:
    assert answer([verdict(1, alarm=True)], set()) == "s1"
    assert answer([verdict(1)], set(), recovers=False) == "s1"


def test_who_waited_in_vain_is_told_of_the_snapshot_that_was_not_certain() -> None:
    with pytest.raises(rs.SnapshotTimeoutError, match="on s1 it held, but the system may go back behind that"):
        answer([verdict(1)], set())
