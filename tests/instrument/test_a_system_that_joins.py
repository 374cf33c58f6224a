"""A system of machines joins a watch, goes back with it, and ends: who is asked for what, and told what, without Ray."""

import asyncio
import pickle
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from limited import limit
from scenarios import played_by
from test_watcher_alone import World, in_a_world

from ray_snapshot.detectors import Deadlock
from ray_snapshot.errors import (
    MachineFailedError,
    NotRestorableError,
    RaySnapshotError,
    SnapshotAbortedError,
    SnapshotTimeoutError,
)
from ray_snapshot.history.checkpoints import Checkpoint
from ray_snapshot.instrument.process.blocked_threads import Threads
from ray_snapshot.instrument.process.reports import ProcessReport
from ray_snapshot.instrument.process.unfollowed import Loose
from ray_snapshot.instrument.watcher.sections import Section
from ray_snapshot.instrument.watcher.watcher import Watcher
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.calls import Acks, Header
from ray_snapshot.protocol.collector import HostReport
from ray_snapshot.protocol.commands import Abort, Acknowledged, Close, Died, HostsLeft, Release, Request, Roll, Stopped
from ray_snapshot.protocol.rollback import Step
from ray_snapshot.runtime.collected import HostPayload, MachineCalls
from ray_snapshot.runtime.planning import Ground, Share, planned
from ray_snapshot.runtime.rows import MailPart

ACTOR = "A:a"
STOP, LOAD, START = (int(step) for step in Step)
BOUND_S = 20.0
KEPT = (True, pickle.dumps((1,)))
MAIL = [
    ("A:a+1", "m", "mail", 2, "put", KEPT, 0.0, 5.0),
    ("A:a+1", "m", "mail", 1, "put", KEPT, 0.0, 4.0),
    ("m", "n", "mail", 1, "put", KEPT, 0.0, 5.0),
    (DRIVER, "m", "mail", 7, "put", KEPT, 0.0, 5.0),
]
CALLS = [("m", "A-0", 2, "lend", None, (b"second", ())), ("m", "A-0", 1, "lend", "io", (b"first", ()))]


class Analyst:
    """Has one checkpoint; `about` is changed by the tests."""

    is_silent = False

    def __init__(self) -> None:
        self.about: dict[str, Any] = {
            "snapshot_id": "s", "run_id": "1", "number": 4, "protocol": "chandy-lamport", "aliases": [],
            "sections_of_actors": 1, "life": 1,
        }  # fmt: skip
        actors = Section({"A-0": (b"state", ())}, [*CALLS], {ACTOR: "A-0", DRIVER: DRIVER})
        machines = [("m", "kind", b"m's", False), ("n", "kind", b"n's", True)]
        hosts = pickle.dumps(("host-0", machines, MAIL, [], {"kind": b""}))
        self.sections = [actors.dumps(), hosts]

    def __getattr__(self, name: str) -> Any:
        return _Method(self, name)

    def answer(self, name: str, args: tuple[Any, ...]) -> Any:
        checkpoint = Checkpoint(self.about, self.sections)
        if name == "checkpoint_of":
            return checkpoint
        if name == "plan":
            ground: Ground = args[1]
            return planned(self.about, checkpoint.of_hosts, ground)
        return None


class Host:
    """A host's Ray actor; `fault` is raised when it is to load."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.rolled: list[tuple[int, int]] = []
        self.share: Share | None = None
        self.fault: Exception | None = None
        self.is_cut_short_by_actors = False
        self.is_silent = False
        """Whether it never says that it has done a step."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # it travels in the driver's share
            raise AttributeError(name)
        return _Method(self, name)

    def answer(self, name: str, args: tuple[Any, ...]) -> Any:
        if name in ("control", "ask"):
            self.told += args[0]
            return None if name == "ask" else []
        if name == "is_cut_short":
            return self.is_cut_short_by_actors
        if name != "roll":
            return []
        step, generation, _, share = args
        self.rolled.append((step, generation))
        if step == LOAD:
            self.share = pickle.loads(share)
            if self.fault is not None:
                raise self.fault
        return [step]


class _Method:
    def __init__(self, owner: Any, name: str) -> None:
        self.owner, self.name = owner, name

    def remote(self, *args: Any) -> Any:
        answer = asyncio.get_running_loop().create_future()
        if self.name == "watched" or self.owner.is_silent:
            return answer
        try:
            answer.set_result(self.owner.answer(self.name, args))
        except Exception as error:
            answer.set_exception(error)
        return answer


class App:
    """The driver and actor `A:a` are watched; a system has joined, with machines `m` and `n` on a host."""

    def __init__(self, watcher: Watcher) -> None:
        self.watcher = watcher
        self.host = Host()
        self.analyst = Analyst()
        watcher.processes.analyst = watcher.handing.analyst = self.analyst

    async def begin(self, world: World) -> None:
        for machine in (DRIVER, ACTOR):
            await world.join(self.watcher, machine)
        await self.watcher.handle_of(ACTOR, ["the handle of A"])
        await self.watcher.admit_system("chandy-lamport", 5.0)
        await self.watcher.register("host-0", [self.host])
        await self.watcher.claim("M", 2, ["m", "n"], ["host-0", "host-0"], None, 0, True)
        await self.until(lambda: self.host.rolled)
        assert self.host.rolled.pop() == (START, 0), "at its birth it has nothing to load"

    def told(self, machine: str) -> list[tuple[int, int]]:
        """(step, generation) of what a process has been asked for."""
        commands = self.watcher.processes.outboxes.boxes[machine].commands
        return [(int(one.asked.step), one.asked.generation) for one in commands if isinstance(one, Roll)]

    def share(self, machine: str) -> Any:
        commands = self.watcher.processes.outboxes.boxes[machine].commands
        return [one.share for one in commands if isinstance(one, Roll) and one.asked.step is Step.LOAD][-1]

    async def until(self, holds: Callable[[], Any]) -> None:
        async with asyncio.timeout(BOUND_S):
            while not holds():
                await asyncio.sleep(0)

    async def take(self, step: int, generation: int = 1) -> None:
        """Both processes are asked for a step, and do it."""
        for machine in (DRIVER, ACTOR):
            await self.until(lambda machine=machine: (step, generation) in self.told(machine))
            await self.watcher.stepped(machine, step, generation)

    async def went_back(self, generation: int = 1) -> None:
        back = self.go_back()
        for step in (STOP, LOAD, START):
            await self.take(step, generation)
        await back

    def go_back(self, seconds: float = BOUND_S) -> asyncio.Task[Any]:
        return asyncio.get_running_loop().create_task(self.watcher.go_back("s", seconds))


def played(monkeypatch: pytest.MonkeyPatch, scenario: Callable[[App], Awaitable[None]]) -> None:
    world = World(monkeypatch)
    limit(monkeypatch, release_s=0.5)

    async def whole(watcher: Watcher) -> None:
        app = App(watcher)
        await app.begin(world)
        await scenario(app)

    world.run(whole)


on_an_app = played_by(lambda fixtures, scenario: played(fixtures["monkeypatch"], scenario), "app", "monkeypatch")
"""The test is given one."""


@on_an_app
async def test_hosts_stop_when_all_processes_have_and_all_load_before_any_goes_on(app: App) -> None:
    back = app.go_back()
    await app.until(lambda: app.told(DRIVER) and app.told(ACTOR))
    await app.watcher.stepped(DRIVER, STOP, 1)
    assert app.host.rolled == [], "A may never stop, and the machines could not go on as they were"
    await app.watcher.stepped(ACTOR, STOP, 1)
    await app.until(lambda: (LOAD, 1) in app.host.rolled)
    assert app.host.rolled == [(STOP, 1), (LOAD, 1)]
    await app.take(LOAD)
    await app.until(lambda: (START, 1) in app.host.rolled)
    assert not back.done()
    await app.take(START)
    assert await back == []
    watcher = app.watcher
    assert (watcher.recovery.generation, watcher.processes.rolling.loaded) == (1, 1)
    assert (watcher.recovery.is_rolling, watcher.recovery.wider) == (False, None)
    assert watcher.directory.places == {DRIVER: DRIVER, "m": "host-0", "n": "host-0"}
    told = await watcher.joined_system(ACTOR)
    assert told is not None
    assert told.stopped == ("n",)


@on_an_app
async def test_what_was_in_flight_goes_to_who_has_sent_it(app: App) -> None:
    await app.went_back()
    of_actor, of_driver, of_host = app.share(ACTOR), app.share(DRIVER), app.host.share
    assert [one[:4] for one in of_actor.mail] == [("A:a+1", "m", "mail", 1), ("A:a+1", "m", "mail", 2)]
    assert (of_actor.post, of_driver.mail) == (None, [])
    assert of_actor.joined.run_id == "1"
    assert [one[3] for one in pickle.loads(of_driver.post).messages] == [7]
    assert of_host is not None
    assert [one[:2] for one in of_host.messages] == [("m", "n")]
    again = of_host.abroad
    assert again is not None
    assert again.calls == [("m", "A-0", "lend", "io", b"first"), ("m", "A-0", "lend", None, b"second")]
    assert again.actors[ACTOR] == again.actors["A-0"] == (ACTOR, ["the handle of A"])
    assert again.incarnations == {DRIVER: 1, ACTOR: 1}
    assert of_actor.incarnations == {DRIVER: 1, ACTOR: 1, "m": 2, "n": 2}, "machines call as others than before"


@on_an_app
async def test_who_does_not_stop_leaves_the_machines_as_they_were(app: App) -> None:
    back = app.go_back(0.3)
    await app.until(lambda: app.told(DRIVER))
    await app.watcher.stepped(DRIVER, STOP, 1)
    with pytest.raises(SnapshotTimeoutError, match=r"waiting for A-0 to stop; all go on as they were"):
        await back
    assert app.host.rolled == []
    assert app.watcher.recovery.generation == app.watcher.processes.rolling.loaded == 0
    assert Release(1) in app.watcher.processes.outboxes.boxes[ACTOR].commands
    await app.went_back(2)
    assert app.host.rolled == [(STOP, 2), (LOAD, 2), (START, 2)]


@on_an_app
async def test_a_machine_whose_action_was_cut_short_cannot_go_on_as_it_was(app: App) -> None:
    app.host.is_cut_short_by_actors = True
    with pytest.raises(SnapshotTimeoutError, match=r"waiting for .*A-0.* to stop; the app stands still"):
        await app.go_back(0.3)
    assert app.host.rolled == []
    assert Release(1) not in app.watcher.processes.outboxes.boxes[ACTOR].commands


@on_an_app
async def test_that_a_machine_has_stopped_in_the_past_is_no_news(app: App) -> None:
    await app.went_back()
    await app.watcher.stopped(["m"], 1, 0)
    told = await app.watcher.joined_system(ACTOR)
    assert told is not None
    assert told.stopped == ("n",)
    assert ACTOR in app.watcher.processes.senders.known, "it has sent mail again"


@pytest.mark.nightly
@on_an_app
async def test_machines_that_have_stopped_cannot_go_on_as_they_were(app: App) -> None:
    app.host.is_silent = True
    back = app.go_back(0.3)
    await app.take(STOP)
    with pytest.raises(SnapshotTimeoutError, match=r"waiting for host-0 to stop; the app stands still: restore again"):
        await back
    assert app.watcher.processes.rolling.is_torn


@on_an_app
async def test_a_machine_that_does_not_take_its_state_back_ends_the_restore_and_the_next_begins_anew(app: App) -> None:
    app.host.fault = MachineFailedError(
        "n does not take its state back", machine="n", method="restore_state", message=None, source=None, traceback=""
    )
    back = app.go_back()
    await app.take(STOP)
    with pytest.raises(MachineFailedError, match="n does not take its state back"):
        await back
    assert app.watcher.processes.rolling.is_torn
    await app.watcher.rolled("host-0", LOAD, 1)  # what it has done, or could not do, may come late
    fault = asyncio.sleep(0, None)
    await app.watcher.recovery._could_not(app.host.fault, 1, fault)
    assert app.watcher.course.failure is None
    app.host.fault = None
    await app.went_back(2)
    assert not app.watcher.processes.rolling.is_torn


@pytest.mark.parametrize(
    ("about", "is_closed", "reason"),
    [
        ({"life": 0}, False, "it has no machines, and a system of them is open"),
        ({}, True, "it has machines, and no system of them is open"),
        ({"life": 2}, False, "its machines are of a system that was closed"),
        ({"run_id": "earlier"}, False, "it has no machines of these names: o"),
    ],
)
@on_an_app
async def test_a_snapshot_of_other_machines_is_refused_with_nothing_changed(
    app: App, about: dict[str, Any], is_closed: bool, reason: str
) -> None:
    app.analyst.about |= about
    await app.watcher.claim("M", 1, ["o"], ["host-0"], None, 0, True)
    if is_closed:
        await app.watcher.dismiss_system(1.0)
    with pytest.raises(NotRestorableError, match=reason):
        await app.go_back()
    assert (app.told(DRIVER), app.told(ACTOR), app.host.rolled) == ([], [], [])


@on_an_app
async def test_a_system_that_is_opened_after_a_restore_begins_in_its_generation(app: App) -> None:
    await app.went_back()
    await app.watcher.dismiss_system(1.0)
    joined = await app.watcher.admit_system("observer", 5.0)
    assert (joined.life, joined.generation, app.watcher.recovery.generation) == (2, 1, 1)


# ---- joining, and ending ----------------------------------------------------------------------------------------------------


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


async def begun(world: World, watcher: Watcher) -> Host:
    """The driver and actor `A:a` are watched; a system joins, with a host that has machine `m`."""
    await world.join(watcher, DRIVER)
    await world.join(watcher, ACTOR)
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
    for machine in (DRIVER, ACTOR):
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
    assert (len(found.parts), found.header.protocol, sorted(found.recorded)) == (2, "chandy-lamport", [ACTOR, DRIVER])


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
    acks = Acks("m", 1, ACTOR, 0, ((1, 2),))
    await watcher.acknowledge([acks])
    watcher.processes.ended(ACTOR)
    assert host.told[-2:] == [Acknowledged(acks), Died(ACTOR)]


@in_a_world
async def test_processes_hear_that_a_machine_has_stopped_and_who_asks_later_too(watcher: Watcher, world: World) -> None:
    await begun(world, watcher)
    await watcher.stopped(["m"], 3, 0)
    assert watcher.processes.outboxes.boxes[ACTOR].commands == [Stopped(("m",), 3)]
    told = await watcher.joined_system(ACTOR)
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
    assert [type(one) for one in watcher.processes.outboxes.boxes[ACTOR].commands] == [Request, Abort, HostsLeft]
    number = await started(watcher)
    late = HostReport(DRIVER, {(DRIVER, "host-0", "link"): 7})
    await watcher.report(HostPayload(number, late, b""))
    await taken(world, watcher, number)
    assert number not in watcher.collecting.collections
    assert await watcher.joined_system(ACTOR) is None


async def actor_reports(world: World, watcher: Watcher, number: int, mail: MailPart) -> None:
    ledger = world.ledgers[ACTOR]
    ledger.request(number)
    ledger.record(lambda: None)
    await watcher.recorded(ProcessReport(ledger.report(number), time.time(), mail=mail))


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
        await actor_reports(world, watcher, number, MailPart(life, HostReport(ACTOR, {(ACTOR, "host-0", "link"): 7})))
        assert (number not in watcher.collecting.collections) is is_complete


@in_a_world
async def test_a_caller_of_a_system_that_has_ended_is_waited_for_no_more(watcher: Watcher, world: World) -> None:
    """Though no snapshot has shown that it called, and a machine of the next system bears its name."""
    await begun(world, watcher)
    ledger = world.ledgers[ACTOR]
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
        ledger = world.ledgers[ACTOR]
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
            await watcher.joined_system(ACTOR)
        watcher.processes.ended(ACTOR)
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
    await actor_reports(world, watcher, number, MailPart(1, HostReport(ACTOR, {(ACTOR, "host-0", "link"): 2})))
    assert number in watcher.collecting.collections, "two messages are on their way"
    world.states["a"] = "RESTARTING", 1
    await watcher.processes._look_once(watcher.collecting.collections[number].header.started_at + 1)
    assert number not in watcher.collecting.collections
