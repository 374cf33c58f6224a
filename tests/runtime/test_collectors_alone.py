"""A service with collectors, without Ray: what is told by way of them, and what becomes of it when one dies."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from ray.exceptions import ActorDiedError, RayActorError, RaySystemError

from ray_snapshot.errors import SettingError, SnapshotAbortedError
from ray_snapshot.protocol.collector import HostReport, LateReport
from ray_snapshot.protocol.commands import Abort, Request, Stopped
from ray_snapshot.runtime.collected import HostPayload
from ray_snapshot.runtime.collector import Collector
from ray_snapshot.runtime.service.actor import Service
from ray_snapshot.runtime.service.config import ServiceConfig
from ray_snapshot.runtime.settings import settings_of

HOSTS = ("host-0", "host-1", "host-2")


class Call:
    def __init__(self, remote: Any) -> None:
        self.remote = remote


async def never(*_: Any, **__: Any) -> Any:
    await asyncio.get_running_loop().create_future()


class Analyst:
    """Takes what it gets."""

    def __init__(self) -> None:
        self.watched = Call(never)
        self.add = Call(lambda *_: asyncio.sleep(0))


class Host:
    """Notes what it is told, and by whom."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.told: list[Any] = []
        self.collector: Any = None
        self.watched = Call(never)
        self.roll = Call(lambda step, *_: asyncio.sleep(0, (step,)))
        self.control = Call(lambda commands, _: self.told.extend(commands))
        self.ask = Call(self._asked)
        self.doing = Call(never)
        self.report_to = Call(lambda wrapped: setattr(self, "collector", wrapped[0]))

    async def _asked(self, commands: Any, _: int) -> None:
        self.told.extend(commands)

    def has_heard(self, kind: type) -> list[int]:
        return [one.number for one in self.told if isinstance(one, kind)]


class Dying:
    """A collector, which may die."""

    def __init__(self) -> None:
        self.collector = Collector()
        self.end: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.tells = 0
        self.enlist, self.tell = Call(self._alive(self.collector.enlist)), Call(self._alive(self.collector.tell, 1))
        self.report, self.gathered = Call(self._alive(self.collector.report)), Call(self._gathered)

    def _alive(self, method: Any, counted: int = 0) -> Any:
        async def called(*given: Any) -> Any:
            if self.end.done():
                raise RayActorError
            self.tells += counted
            return await method(*given)

        return called

    async def _gathered(self) -> Any:
        waiting = asyncio.ensure_future(self.collector.gathered())
        await asyncio.wait([waiting, self.end], return_when=asyncio.FIRST_COMPLETED)
        if self.end.done():
            waiting.cancel()
            raise RayActorError
        return await waiting


class Town:
    """A service, three hosts, two collectors."""

    async def begin(self) -> None:
        config = ServiceConfig("alone", "run", "chandy-lamport", 8, 30.0, hosts_per_collector=2)
        self.service = Service(config, Analyst())
        self.service.orders.has_driver = True
        self.made: list[Dying] = []
        self.service.collectors.make = self._made
        self.hosts = {name: Host(name) for name in HOSTS}
        for name, host in self.hosts.items():
            await self.service.register(name, [host])
        await self.until(lambda: all(host.collector is not None for host in self.hosts.values()))

    def _made(self) -> Dying:
        self.made.append(Dying())
        return self.made[-1]

    async def until(self, holds: Any) -> None:
        while not holds():
            await asyncio.sleep(0.001)

    async def started(self) -> int:
        number: int = await self.service.snapshot([], None, wait=False)
        await self.until(lambda: all(number in host.has_heard(Request) for host in self.hosts.values()))
        return number

    async def reported(self, number: int, *names: str) -> None:
        for name in names:
            await self.hosts[name].collector.report.remote(HostPayload(number, HostReport(name), b"part", cpu_s=0.1))

    async def by_driver(self, number: int) -> None:
        await self.service.report(HostPayload(number, HostReport("driver"), b"part"))

    def end(self) -> None:
        for task in [*self.service.course.tasks, *self.service.collecting.line.under_way]:
            task.cancel()


def played(play: Any) -> Any:
    async def whole() -> Any:
        town = Town()
        await town.begin()
        try:
            return await play(town)
        finally:
            town.end()

    return asyncio.run(asyncio.wait_for(whole(), 20))


def test_a_snapshot_is_asked_for_and_reported_by_way_of_collectors() -> None:
    async def play(town: Town) -> None:
        number = await town.started()
        assert [one.tells for one in town.made] == [1, 1]
        await town.reported(number, *HOSTS)
        collection = town.service.collecting.collections[number]
        await town.until(lambda: len(collection.payloads) == len(HOSTS))
        assert town.service.coordinator.pending[number].counts.awaited == {"driver"}
        assert collection.header.cpu_s == dict.fromkeys(HOSTS, 0.1)
        await town.by_driver(number)
        assert len((await collection.done).parts) == len(HOSTS) + 1

    played(play)


async def _without_a_collector(town: Town, ask: Any) -> int:
    """Two of the hosts are asked by the service, for their collector is gone; the number of a snapshot."""
    town.made[0].end.set_result(None)
    await town.until(lambda: set(town.service.collectors.of) == {"host-2"})
    for name in ("host-0", "host-1"):
        town.hosts[name].ask = Call(ask(town.hosts[name]))
    return await town.started()


def test_reports_may_be_answers_to_the_service() -> None:
    def ask(host: Host) -> Any:
        async def asked(commands: Any, _: int) -> HostPayload:
            host.told.extend(commands)
            return HostPayload(*host.has_heard(Request)[-1:], HostReport(host.name), b"part")

        return asked

    async def play(town: Town) -> None:
        number = await _without_a_collector(town, ask)
        counts = town.service.coordinator.pending[number].counts
        await town.until(lambda: counts.awaited == {"driver", "host-2"})

    played(play)


@pytest.mark.parametrize("is_dead", [False, True])
def test_an_answer_that_is_lost_while_its_host_lives_gives_the_snapshot_up(*, is_dead: bool) -> None:
    def ask(host: Host) -> Any:
        async def asked(commands: Any, _: int) -> None:
            host.told.extend(commands)
            raise ActorDiedError if is_dead else RaySystemError("the answer cannot be read")

        return asked

    async def play(town: Town) -> None:
        number = await _without_a_collector(town, ask)
        if not is_dead:
            with pytest.raises(
                SnapshotAbortedError, match=r"answer of host-. has not come: .*the answer cannot be read"
            ):
                await town.service.snapshot([], None)
        for _ in range(10):
            await asyncio.sleep(0)
        assert (number in town.service.coordinator.pending) == is_dead, "of the dead others say so"
        assert town.service.course.failure is None

    played(play)


def test_a_host_that_does_not_report_keeps_back_no_other() -> None:
    async def play(town: Town) -> None:
        number = await town.started()
        await town.reported(number, "host-0", "host-2")
        counts = town.service.coordinator.pending[number].counts
        await town.until(lambda: counts.awaited == {"driver", "host-1"})
        await town.reported(number, "host-1")
        await town.until(lambda: counts.awaited == {"driver"})

    played(play)


def test_what_comes_late_is_passed_on() -> None:
    async def play(town: Town) -> None:
        number = await town.started()
        link = {("host-2", "host-0", "link"): 1}
        await town.reported(number, "host-0", "host-1")
        sent = HostPayload(number, HostReport("host-2", sent=link), b"part")
        await town.hosts["host-2"].collector.report.remote(sent)
        await town.by_driver(number)
        counts = town.service.coordinator.pending[number].counts
        await town.until(lambda: not counts.awaited)
        assert counts.missing == link
        late = HostPayload(number, LateReport("host-0", link, sequence=1), b"part")
        await town.hosts["host-0"].collector.report.remote(late)
        await town.until(lambda: number not in town.service.collecting.collections)

    played(play)


def test_when_a_collector_dies_pending_snapshots_are_given_up_and_its_hosts_are_told_directly() -> None:
    async def play(town: Town) -> None:
        number = await town.started()
        await town.reported(number, "host-0")
        done = town.service.collecting.collections[number].done
        town.made[0].end.set_result(None)
        with pytest.raises(SnapshotAbortedError, match="collector-0 is gone"):
            await done
        await town.until(lambda: all(number in host.has_heard(Abort) for host in town.hosts.values()))
        assert set(town.service.collectors.of) == {"host-2"}
        after = await town.started()
        for name in ("host-0", "host-1"):
            await town.service.report(HostPayload(after, HostReport(name), b"part"))
        await town.reported(after, "host-2")
        await town.by_driver(after)
        await town.until(lambda: after not in town.service.collecting.collections)
        assert town.service.course.failure is None

    played(play)


def test_what_a_dead_collector_was_to_tell_is_told_all_the_same() -> None:
    """The service finds out by telling, before its long poll ends."""

    async def play(town: Town) -> None:
        dead = town.made[0]
        dead.tell = Call(lambda *_: _dead())
        stopped = Stopped(("a",), 0)
        town.service.orders.to_all(stopped)
        await town.until(lambda: all(stopped in host.told for host in town.hosts.values()))
        await town.started()

    played(play)


async def _dead() -> None:
    raise RayActorError


def test_a_trace_and_collectors_are_refused_together() -> None:
    with pytest.raises(SettingError, match="leave one out"):
        settings_of({"trace": True, "hosts_per_collector": 10})
    with pytest.raises(SettingError, match="hosts_per_collector: Input should be greater than or equal to 2"):
        settings_of({"hosts_per_collector": 1})
