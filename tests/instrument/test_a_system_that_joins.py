"""A system of machines joins a watch, and ends: what the watcher awaits, tells and forgets, without Ray."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from test_watcher_alone import World, in_a_world

from ray_snapshot.detectors import Deadlock
from ray_snapshot.errors import RaySnapshotError, SnapshotAbortedError
from ray_snapshot.instrument.process.blocked_threads import Threads
from ray_snapshot.instrument.process.reports import ProcessReport
from ray_snapshot.instrument.process.unfollowed import Loose
from ray_snapshot.instrument.watcher.watcher import Watcher
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.calls import Acks, Header
from ray_snapshot.protocol.collector import HostReport
from ray_snapshot.protocol.commands import Abort, Acknowledged, Close, Died, HostsLeft, Request, Stopped
from ray_snapshot.runtime.collected import HostPayload, MachineCalls
from ray_snapshot.runtime.rows import MailPart


class Host:
    """A host's Ray actor, as far as the watcher calls it."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def __getattr__(self, name: str) -> Any:
        return _Method(self, name)


class _Method:
    def __init__(self, host: Host, name: str) -> None:
        self.host, self.name = host, name

    def remote(self, *args: Any) -> Any:
        if self.name in ("control", "ask"):
            self.host.told += args[0]
        answer = asyncio.get_running_loop().create_future()
        if self.name != "watched":
            answer.set_result(None if self.name == "ask" else [])
        return answer


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


async def begun(world: World, watcher: Watcher) -> Host:
    """The driver and actor `A:a` are watched; a system joins, with a host that has machine `m`."""
    await world.join(watcher, DRIVER)
    await world.join(watcher, "A:a")
    await watcher.admit_system("chandy-lamport", 5.0)
    return await with_host(watcher)


async def with_host(watcher: Watcher) -> Host:
    host = Host()
    await watcher.register("host-0", [host])
    await watcher.claim("M", 1, ["m"], ["host-0"], None, 0, True)
    return host


async def started(watcher: Watcher) -> int:
    number = await watcher.snapshot([], 9.0, wait=False)
    assert isinstance(number, int)
    return number


async def hosts_report(watcher: Watcher, number: int) -> None:
    await watcher.report(HostPayload(number, HostReport(DRIVER), b""))
    await watcher.report(
        HostPayload(
            number, HostReport("host-0"), b"", calls=MachineCalls(host="host-0", threads=Threads(), loose=Loose())
        )
    )


async def taken(world: World, watcher: Watcher, number: int) -> None:
    for machine in (DRIVER, "A:a"):
        await world.record(watcher, machine, number)


@in_a_world
async def test_a_snapshot_awaits_hosts_by_counts_and_processes_by_logs(watcher: Watcher, world: World) -> None:
    host = await begun(world, watcher)
    number = await started(watcher)
    assert Request(number) in host.told
    assert await watcher.commands(0) == [Request(number)]
    await taken(world, watcher, number)
    assert number in watcher.collecting.collections, "the hosts have not reported"
    await hosts_report(watcher, number)
    assert number not in watcher.collecting.collections
    await watcher.collecting.handed_over("")
    (found,) = watcher.processes.analyst.taken
    assert (len(found.parts), found.header.protocol, sorted(found.recorded)) == (
        2,
        "chandy-lamport",
        ["A:a", DRIVER],
    )


@in_a_world
async def test_a_snapshot_that_is_pending_when_a_system_joins_asks_its_driver_too(
    watcher: Watcher, world: World
) -> None:
    await world.join(watcher, DRIVER)
    number = await started(watcher)
    await watcher.admit_system("observer", 5.0)
    assert await watcher.commands(0) == [Request(number)]
    assert watcher.coordinator.pending[number].counts.awaited == {DRIVER}


@in_a_world
async def test_what_an_actor_has_accepted_of_a_machine_its_host_is_told(watcher: Watcher, world: World) -> None:
    host = await begun(world, watcher)
    acks = Acks("m", 1, "A:a", 0, ((1, 2),))
    await watcher.acknowledge([acks])
    watcher.processes.ended("A:a")
    assert host.told[-2:] == [Acknowledged(acks), Died("A:a")]


@in_a_world
async def test_processes_hear_that_a_machine_has_stopped_and_who_asks_later_too(watcher: Watcher, world: World) -> None:
    await begun(world, watcher)
    await watcher.stopped(["m"], 3, 0)
    assert watcher.processes.outboxes.boxes["A:a"].commands == [Stopped(("m",), 3)]
    told = await watcher.joined_system("A:a")
    assert told is not None
    assert (told.run_id, told.life, told.stopped) == ("1", 1, ("m",))


@in_a_world
async def test_when_a_system_ends_its_parties_are_awaited_no_more_and_nothing_that_comes_late_counts(
    watcher: Watcher, world: World
) -> None:
    await begun(world, watcher)
    pending = await started(watcher)
    assert await watcher.dismiss_system(0.01) is None
    assert pending not in watcher.collecting.collections
    assert [type(one) for one in watcher.processes.outboxes.boxes["A:a"].commands] == [Request, Abort, HostsLeft]
    number = await started(watcher)
    late = HostReport(DRIVER, {(DRIVER, "host-0", "link"): 7})
    await watcher.report(HostPayload(number, late, b""))
    await taken(world, watcher, number)
    assert number not in watcher.collecting.collections
    assert await watcher.joined_system("A:a") is None


@in_a_world
async def test_mail_of_a_system_that_has_ended_is_none_of_the_next(watcher: Watcher, world: World) -> None:
    await begun(world, watcher)
    await watcher.dismiss_system(0.01)
    told = await watcher.admit_system("chandy-lamport", 5.0)
    assert (told.run_id, told.life) == ("1.2", 2)
    await with_host(watcher)
    for life, is_complete in ((1, True), (2, False)):
        number = await started(watcher)
        await hosts_report(watcher, number)
        await world.record(watcher, DRIVER, number)
        ledger = world.ledgers["A:a"]
        ledger.request(number)
        ledger.record(lambda: None)
        mail = MailPart(life, HostReport("A:a", {("A:a", "host-0", "link"): 7}))
        await watcher.recorded(ProcessReport(ledger.report(number), time.time(), mail=mail))
        assert (number not in watcher.collecting.collections) is is_complete


@in_a_world
async def test_a_caller_of_a_system_that_has_ended_is_waited_for_no_more(watcher: Watcher, world: World) -> None:
    """Though no snapshot has shown that it called, and a machine of the next system bears its name."""
    await begun(world, watcher)
    ledger = world.ledgers["A:a"]
    ledger.finish(ledger.accept(Header("m", 1, 1, 0, 1), "f", 0.0))
    await watcher.dismiss_system(0.01)
    await watcher.admit_system("chandy-lamport", 5.0)
    await with_host(watcher)
    number = await started(watcher)
    await hosts_report(watcher, number)
    await taken(world, watcher, number)
    assert number not in watcher.collecting.collections


def test_an_actor_gives_its_name_to_a_machine_that_is_called_so(world: World) -> None:
    async def scenario(watcher: Watcher) -> list[str]:
        await begun(world, watcher)
        await world.join(watcher, "M:b")
        roster = watcher.processes.roster
        before = roster.name_of("M:b")
        await watcher.claim("M", 1, [before], ["host-0"], None, 0, True)
        await world.join(watcher, "M:c")
        return [before, roster.name_of("M:b"), roster.name_of("M:c")]

    assert world.run(scenario) == ["M-0", "M-1", "M-2"]


def test_a_fault_stops_the_machines_and_never_an_app_without_any(world: World, capsys: Any) -> None:
    async def scenario(watcher: Watcher) -> None:
        await world.join(watcher, DRIVER)
        await watcher.fail(RaySnapshotError("a fault"))
        assert watcher.course.failure is None
        await watcher.admit_system("chandy-lamport", 5.0)
        await watcher.fail(RaySnapshotError("another"))
        assert str(watcher.course.failure) == "another"
        failure = await watcher.dismiss_system(0.01)
        assert str(failure) == "another"
        number = await started(watcher)
        await world.record(watcher, DRIVER, number)
        assert number not in watcher.collecting.collections, "the watching goes on"
        assert Close(number) in watcher.processes.outboxes.boxes[DRIVER].commands

    world.run(scenario)
    assert capsys.readouterr().err == "ray-snapshot: a fault\n"


@in_a_world
async def test_before_the_program_has_begun_there_is_nothing_to_take_a_snapshot_of(watcher: Watcher) -> None:
    with pytest.raises(SnapshotAbortedError, match="of app now: its program has not begun"):
        await watcher.snapshot([], 9.0)
    assert await watcher.begin_snapshot() is None


def test_who_waits_for_a_machine_whose_system_has_ended_will_hear_that(world: World) -> None:
    async def scenario(watcher: Watcher) -> Any:
        await begun(world, watcher)
        await watcher.dismiss_system(0.01)
        ledger = world.ledgers["A:a"]
        call = ledger.accept(Header("m", 1, 1, 0, 1), "f", 0.0)
        ledger.wait(call, (), 1, 0.0, owed=(("m", "A:a/1"),))
        await taken(world, watcher, await started(watcher))
        await watcher.collecting.handed_over("")
        return watcher.processes.analyst.taken[-1].snapshot()

    found = world.run(scenario)
    assert [row["caller"] for row in found.tables["calls"].to_pylist()] == ["m"], (
        "it keeps the name that the program gave it"
    )
    assert [row["satisfied"] for row in found.tables["waits"].to_pylist()] == [True]
    assert Deadlock().evaluate(found).holds is False


@pytest.mark.parametrize("has_sent", [False, True])
def test_mail_of_an_actor_that_is_gone_is_named_if_it_may_have_sent_any(world: World, has_sent: bool) -> None:
    """In the first snapshot behind its death, and no longer."""

    async def scenario(watcher: Watcher) -> list[list[str]]:
        await begun(world, watcher)
        if has_sent:
            await watcher.joined_system("A:a")
        watcher.processes.ended("A:a")
        for _ in range(2):
            number = await started(watcher)
            await hosts_report(watcher, number)
            await world.record(watcher, DRIVER, number)
        await watcher.collecting.handed_over("")
        return [one.header.uncovered for one in watcher.processes.analyst.taken]

    assert world.run(scenario) == [["mail of A-0, which is gone"] if has_sent else [], []]


@in_a_world
async def test_a_snapshot_waits_for_no_mail_of_an_actor_that_is_to_start_again(watcher: Watcher, world: World) -> None:
    await begun(world, watcher)
    number = await started(watcher)
    await hosts_report(watcher, number)
    await world.record(watcher, DRIVER, number)
    ledger = world.ledgers["A:a"]
    ledger.request(number)
    ledger.record(lambda: None)
    mail = MailPart(1, HostReport("A:a", {("A:a", "host-0", "link"): 2}))
    await watcher.recorded(ProcessReport(ledger.report(number), time.time(), mail=mail))
    assert number in watcher.collecting.collections, "two messages are on their way"
    world.states["a"] = "RESTARTING", 1
    await watcher.processes._look_once(watcher.collecting.collections[number].header.started_at + 1)
    assert number not in watcher.collecting.collections
