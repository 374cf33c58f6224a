"""What the watcher makes of machines that die, start again or never report, of its own faults and its beginning. No Ray."""

import asyncio
import pickle
import re
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from limited import limit
from ray.exceptions import RayActorError
from scenarios import played_by

from ray_snapshot import redaction
from ray_snapshot.detectors import Collective
from ray_snapshot.detectors.happened import happened
from ray_snapshot.errors import ClusterError, RaySnapshotError, SettingError, SnapshotAbortedError
from ray_snapshot.instrument import shape
from ray_snapshot.instrument.capacity import Cluster
from ray_snapshot.instrument.deaths import Life
from ray_snapshot.instrument.process.collectives import Membership, Stand
from ray_snapshot.instrument.process.reloading import Terms
from ray_snapshot.instrument.process.reports import ProcessReport
from ray_snapshot.instrument.watcher import surroundings
from ray_snapshot.instrument.watcher.collected import CollectedCalls
from ray_snapshot.instrument.watcher.resources import Looks
from ray_snapshot.instrument.watcher.watcher import Watcher
from ray_snapshot.instrument.watching import Watch, open_beside
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import CALLS, DRIVER
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.protocol.commands import Close, Died, Leave, Request, Restarted
from ray_snapshot.protocol.demands import Held, Store, Stored
from ray_snapshot.protocol.tasks import worker_name
from ray_snapshot.runtime.collected import SnapshotHeader
from ray_snapshot.runtime.service.config import ServiceConfig

RUN = "app:1"
TIMEOUT_S = 60.0


class Analyst:
    def __init__(self) -> None:
        self.taken: list[Any] = []
        self.add = self

    def remote(self, found: Any, place: int) -> Any:
        self.taken.append(found)
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


class World:
    """A watcher whose cluster says what the test says."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.patch = monkeypatch
        self.actors: dict[str, str] = {}
        self.lives: dict[str, Life] = {}
        self.states: dict[str, tuple[str, int]] = {}
        self.ledgers: dict[str, CallLedger] = {}
        monkeypatch.setattr(shape, "actors_of_job", lambda: (self.actors, self.lives))
        monkeypatch.setattr(shape, "ended_actors_of_job", set)
        monkeypatch.setattr(shape, "actor_state", lambda key: self.states.get(key, ("ALIVE", 0)))
        monkeypatch.setattr(shape, "current_actor_key", lambda: "the watcher's")
        monkeypatch.setattr(shape, "actor_key", lambda handle: "a host's")
        monkeypatch.setattr(surroundings, "living_nodes", dict)
        limit(monkeypatch, heard_s=0.0)

    def run(self, scenario: Callable[[Watcher], Awaitable[Any]], **settings: Any) -> Any:
        async def inner() -> Any:
            watcher = Watcher(ServiceConfig("app", "1", CALLS, 8, TIMEOUT_S), Analyst(), **settings)
            try:
                return await scenario(watcher)
            finally:
                watcher.processes.looker.cancel()

        return asyncio.run(inner())

    async def join(self, watcher: Watcher, machine: str, **facts: Any) -> None:
        """A process registers, as a new incarnation if there was one."""
        kind, _, key = machine.partition(":")
        welcome = await watcher.join(RUN, machine, {"class": kind, "key": key or None, "pid": 1, **facts}, 0)
        assert welcome is not None
        born = {"incarnation": welcome.incarnation, "colour": welcome.colour}
        ledger = CallLedger(machine, **born, acts_unasked=machine == DRIVER)
        ledger.welcome(welcome.pending, welcome.last, welcome.settled)
        self.ledgers[machine] = ledger

    async def record(self, watcher: Watcher, machine: str, number: int, held: Held | None = None, **knows: Any) -> None:
        """`knows`: what the process of the machine knows beside its report."""
        ledger = self.ledgers[machine]
        ledger.request(number)
        ledger.record(lambda: None)
        report = ProcessReport(replace(ledger.report(number), held=held), time.time(), **knows)
        await watcher.recorded(pickle.loads(pickle.dumps(report)))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


in_a_world = played_by(lambda fixtures, scenario: fixtures["world"].run(scenario), "watcher", "world")
"""The test is given its watcher, too."""


async def _snapshot(watcher: Watcher) -> int:
    number = await watcher.snapshot([], TIMEOUT_S, wait=False)
    assert isinstance(number, int)
    return number


def _soon(watcher: Watcher, number: int) -> float:
    """The moment at which nobody who lives should be missing any more."""
    return watcher.collecting.collections[number].header.started_at + 2 * LIMITS.unheard_s


def test_a_look_that_fails_is_said_and_the_next_one_is_taken(world: World, caplog: pytest.LogCaptureFixture) -> None:
    limit(world.patch, deaths_look_s=0.001)

    async def scenario(watcher: Watcher) -> None:
        looked = asyncio.Event()
        faults = iter([ConnectionError("the cluster does not answer")])

        async def look(now: float) -> None:
            for fault in faults:
                raise fault
            looked.set()

        watcher.processes._look_once = look  # type: ignore[method-assign]
        await asyncio.wait_for(looked.wait(), TIMEOUT_S)
        assert not watcher.processes.looker.done()

    world.run(scenario)
    assert "ray-snapshot: the watcher could not look: ConnectionError: the cluster does not answer" in caplog.messages


@pytest.mark.parametrize("where", ["completed", "found", "report"])
def test_a_fault_ends_the_watching_and_no_snapshot_stays_open(world: World, capsys: Any, where: str) -> None:
    """Processes that tell the watcher something get no error; those that wait for a snapshot get the reason."""

    def fail(*_: Any) -> None:
        raise KeyError("ours")

    async def scenario(watcher: Watcher) -> None:
        await world.join(watcher, DRIVER)
        await world.join(watcher, "A:a")
        waiting = asyncio.ensure_future(watcher.snapshot([], TIMEOUT_S))
        while not watcher.collecting.collections:
            await asyncio.sleep(0)
        world.patch.setattr(watcher.coordinator if where == "completed" else watcher.processes, where, fail)
        for machine in (DRIVER, "A:a"):
            await world.record(watcher, machine, 1)
        with pytest.raises(
            SnapshotAbortedError, match="app is not watched any more, by a fault of ours: KeyError: 'ours'"
        ):
            await asyncio.wait_for(waiting, TIMEOUT_S)
        assert not watcher.collecting.collections
        with pytest.raises(RaySnapshotError, match="by a fault of ours"):
            await watcher.snapshot([], TIMEOUT_S)
        _, commands = await watcher.commands_for(DRIVER, 0, [])
        assert commands[-1] == Leave(str(watcher.fault))
        assert await watcher.join(RUN, "B:b", {"class": "B", "key": "b"}, 0) is None
        assert await watcher.settle(TIMEOUT_S) is None, "the program has heard of it"

    limit(world.patch, watcher_end_s=0.0)
    world.run(scenario)
    assert capsys.readouterr().err == ""


def test_who_waits_for_a_verdict_in_vain_hears_how_many_snapshots_there_were(world: World) -> None:
    async def scenario(watcher: Watcher) -> list[int]:
        await world.join(watcher, DRIVER)
        for _ in range(2):
            await world.record(watcher, DRIVER, await _snapshot(watcher))
        await watcher.collecting.abort(watcher.coordinator.abort(await _snapshot(watcher), "enough"))
        return [await watcher.completed_after(number) for number in (0, 1, 2)]

    assert world.run(scenario) == [2, 1, 0]


def test_an_actor_that_never_reports_is_gone_without_and_named(world: World) -> None:
    async def scenario(watcher: Watcher) -> Any:
        await world.join(watcher, DRIVER)
        world.ledgers[DRIVER].submit("Busy:b1", "work", (), 0.0)
        number = await _snapshot(watcher)
        await world.record(watcher, DRIVER, number)
        assert number in watcher.collecting.collections, "it waits for Busy, which is named in the cut"
        await watcher.processes._look_once(_soon(watcher, number))
        assert number not in watcher.collecting.collections
        return watcher.processes.analyst.taken

    (found,) = world.run(scenario)
    assert found.header.uncovered[-1] == "Busy-0, which does not report"


def test_deaths_and_restarts_that_ray_lists_are_in_the_coverage_by_peoples_names(world: World) -> None:
    async def scenario(watcher: Watcher) -> Any:
        await world.join(watcher, DRIVER)
        for name in ("a", "b", "c"):
            await world.join(watcher, f"A:{name}", key=name, **{"class": "A"})
        watcher.processes.ended("A:a")
        now = time.time()
        for number, line in enumerate((5, 7, 9)):
            watcher.processes.happened.at["A:b"] = "work", f"app.py:{line}"
            watcher.processes.happened.joined("A:b", {"incarnation": number}, now - 22 + 10 * number)
        cause = "Worker exits with an exit code 3. reason: WORKER_DIED"
        world.lives = {"a": Life(True, 0, now - 5, cause), "b": Life(False, 41, now - 1), "c": Life(False, 2, now - 1)}
        number = await _snapshot(watcher)
        for machine in (DRIVER, "A:b", "A:c"):
            await world.record(watcher, machine, number)
        while not watcher.processes.analyst.taken:
            await asyncio.sleep(0)
        return watcher.processes.analyst.taken[0].snapshot()

    found = world.run(scenario)
    again, died = happened(found)
    assert again.startswith("A-1 has been restarted 3 times in 20 s, ")
    assert again.endswith(", each time inside A.work (app.py:9)")
    assert re.fullmatch(r"A-0 died at \d\d:\d\d:\d\d \(exit code 3\)", died)


def test_ranks_that_wait_for_one_that_has_died_are_told_with_their_group(world: World) -> None:
    async def scenario(watcher: Watcher) -> Any:
        names = [f"Rank:{name}" for name in "abc"]
        await world.join(watcher, DRIVER)
        groups, driver = {}, world.ledgers[DRIVER]
        for rank, machine in enumerate(names):
            await world.join(watcher, machine, **{"class": "Rank"})
            call = world.ledgers[machine].accept(driver.submit(machine, "step", None, 0.0), "step", 0.0)
            since = time.time() - 37
            stand = Stand("all_reduce", "/app/train.py:99", since, since + 1_800, (), True, call)
            groups[machine] = (
                Membership("host:29500 0", "world", 3, rank, 412 - rank // 2, None if rank == 2 else stand),
            )
        for alive in (names, names[:2]):
            number = await _snapshot(watcher)
            for machine in (DRIVER, *alive):
                await world.record(watcher, machine, number, groups=groups.get(machine, ()))
            watcher.processes.ended(names[2])
            world.lives = {"c": Life(True, 0, time.time(), "exit code 3")}
        while len(watcher.processes.analyst.taken) < 2:
            await asyncio.sleep(0)
        return [taken.snapshot() for taken in watcher.processes.analyst.taken]

    first, second = world.run(scenario)
    assert Collective().evaluate(first).holds is False, "it runs"
    verdict = Collective().evaluate(second)
    assert (verdict.holds, verdict.evidence["stuck"]) == (True, ["Rank-0", "Rank-1"])
    told = r"group world: 2 of 3 are in all_reduce number 412 \(/app/train.py:99\) for \d+ s; rank 2 \(Rank-2\) died; ends "
    assert re.match(told, verdict.evidence["groups"][0]), verdict.evidence


@in_a_world
async def test_an_actor_whose_constructor_runs_again_is_waited_for_and_one_that_is_gone_is_not(
    watcher: Watcher, world: World
) -> None:
    await world.join(watcher, DRIVER)
    await world.join(watcher, "A:a")
    world.states["a"] = "RESTARTING", 1
    await world.join(watcher, "A:a")
    number = await _snapshot(watcher)
    await world.record(watcher, DRIVER, number)
    await watcher.processes._look_once(_soon(watcher, number))
    assert number in watcher.collecting.collections, "it is this incarnation that Ray calls restarting"
    assert not watcher.processes.parties.restarting
    world.states["a"] = "RESTARTING", 2
    await watcher.processes._look_once(_soon(watcher, number))
    assert number not in watcher.collecting.collections, "that incarnation has died"
    assert list(watcher.processes.parties.restarting) == ["A:a"]


@in_a_world
async def test_an_actor_that_registers_again_while_the_dead_are_looked_for_is_not_one_of_them(
    watcher: Watcher, world: World
) -> None:
    await world.join(watcher, DRIVER)
    await world.join(watcher, "A:a")
    number = await _snapshot(watcher)
    await world.record(watcher, DRIVER, number)
    loop = asyncio.get_running_loop()

    def state(key: str) -> tuple[str, int]:
        world.patch.setattr(shape, "actor_state", lambda key: ("ALIVE", 1))
        asyncio.run_coroutine_threadsafe(world.join(watcher, "A:a"), loop).result(TIMEOUT_S)
        return "RESTARTING", 1

    world.patch.setattr(shape, "actor_state", state)
    await watcher.processes._look_once(_soon(watcher, number))
    assert watcher.processes.roster.facts["A:a"]["incarnation"] == 1
    assert not watcher.processes.parties.restarting


def test_actors_that_are_called_as_ours_are_covered_like_all_others(world: World) -> None:
    async def scenario(watcher: Watcher) -> list[str]:
        await world.join(watcher, DRIVER)
        await world.join(watcher, "Host:theirs")
        world.actors = {"the watcher's": "Watcher", "theirs": "Host", "0123456789": "Watcher", "abcdefghij": "Analyst"}
        processes = watcher.processes
        seen = await processes.surroundings.look()
        return surroundings.strangers(seen.actors, processes._known_actors({}))

    assert world.run(scenario) == ["actor Watcher (01234567)", "actor Analyst (abcdefgh)"]


@in_a_world
async def test_nodes_are_looked_at_once_more_behind_a_cut_in_which_something_waits_for_room(
    watcher: Watcher, world: World
) -> None:
    looks = iter(Cluster({}, {}, grows=bool(number)) for number in range(3))
    world.patch.setattr(surroundings.capacity, "cluster", lambda: next(looks))
    await world.join(watcher, DRIVER)
    header = SnapshotHeader(7, "app", "1", "calls", [], 100.0)
    processes = watcher.processes
    seen = await processes.surroundings.look()
    plain = CollectedCalls(header, None, {}, {})  # type: ignore[arg-type]
    assert await processes.settled(plain) is plain
    found = replace(plain, looks=Looks(seen.cluster, None))
    told = await asyncio.gather(processes.settled(found), processes.settled(found))
    assert [one.looks.before.grows for one in told] == [False, False]
    assert [one.looks.after.grows for one in told] == [True, True], "asked once"


@pytest.mark.parametrize("in_use", [80, 81])
def test_every_process_hears_at_the_end_of_a_snapshot_that_a_store_is_short_of_room(world: World, in_use: int) -> None:
    async def scenario(watcher: Watcher) -> list[bool]:
        await world.join(watcher, DRIVER)
        await world.join(watcher, "A:a")
        number = await _snapshot(watcher)
        store = Store(100, in_use, 0, 0, 0, 5.0)
        await world.record(watcher, "A:a", number, Held("n", stored=Stored(store)))
        await world.record(watcher, DRIVER, number, Held("m"))
        boxes = watcher.processes.outboxes.boxes
        closes = [one for name in (DRIVER, "A:a") for one in boxes[name].commands if isinstance(one, Close)]
        return [one.is_store_short for one in closes]

    assert world.run(scenario) == [in_use == 81] * 2


def test_an_actor_that_nobody_watches_is_named_in_the_first_snapshot_after_it_was_made(world: World) -> None:
    """It may act at once, or later: nothing is seen of it. Of a watched one the report of its maker tells."""
    births = {"Shop:77": {"class": "Shop", "name": None, "ordinal": 0, "key": "77-in-ray"}}

    async def uncovered(watcher: Watcher) -> list[str]:
        number = await _snapshot(watcher)
        driver = world.ledgers[DRIVER]
        driver.request(number)
        driver.record(lambda: None)
        await watcher.recorded(ProcessReport(driver.report(number), time.time(), births=births))
        while len(watcher.processes.analyst.taken) < number:
            await asyncio.sleep(0)
        return list(watcher.processes.analyst.taken[-1].snapshot().coverage["uncovered"])

    async def scenario(watcher: Watcher) -> None:
        await world.join(watcher, DRIVER)
        world.ledgers[DRIVER].create("Shop:77", "__init__", (), time.time())
        assert await uncovered(watcher) == []
        world.actors = {"77-in-ray": "Shop", "88-in-ray": "Shop"}
        assert await uncovered(watcher) == ["actor Shop (88-in-ra)"]
        world.patch.setattr(shape, "actors_of_job", lambda: 1 / 0)
        assert await uncovered(watcher) == ["actors and nodes that Ray did not list"]
        limit(world.patch, ray_lists_s=0.0)
        world.patch.setattr(shape, "actors_of_job", lambda: ({}, {}))
        assert await uncovered(watcher) == ["actors and nodes that Ray did not list"]

    world.run(scenario)


@pytest.mark.parametrize("setting", [{"trace": True}, {"protocol": "observer"}])
def test_what_only_machines_of_ones_own_can_do_is_refused(setting: dict[str, Any]) -> None:
    with pytest.raises(SettingError, match=f"watch\\({next(iter(setting))}=...\\).*rs.System"):
        Watch("refused", **setting)


@in_a_world
async def test_an_actor_that_starts_again_does_not_begin_before_everybody_has_heard_of_it(
    watcher: Watcher, world: World
) -> None:
    limit(world.patch, heard_s=TIMEOUT_S, watcher_poll_s=0.001)
    await world.join(watcher, DRIVER)
    await world.join(watcher, "A:a")
    again = asyncio.ensure_future(world.join(watcher, "A:a"))
    while not watcher.processes.outboxes.boxes[DRIVER].commands:
        await asyncio.sleep(0)
    seen, commands = await watcher.commands_for(DRIVER, 0, [])
    assert commands == [Restarted("A:a", 1)]
    assert not again.done(), "the driver has not obeyed it yet, for all that is known"
    asking = asyncio.ensure_future(watcher.commands_for(DRIVER, seen, []))
    await asyncio.wait_for(again, TIMEOUT_S)
    await asking


@in_a_world
async def test_a_worker_that_has_left_is_kept_by_no_poll_of_before_or_behind(watcher: Watcher, world: World) -> None:
    """Its thread may ask at the very moment at which the worker leaves, and Ray ends a process when its calls are answered."""
    limit(world.patch, watcher_poll_s=100 * TIMEOUT_S)
    worker = worker_name("w", 1)
    await world.join(watcher, worker)
    before = asyncio.ensure_future(watcher.commands_for(worker, 0, []))
    await asyncio.sleep(0)
    await watcher.left(world.ledgers[worker].leave())
    await asyncio.wait_for(before, TIMEOUT_S)
    assert await asyncio.wait_for(watcher.commands_for(worker, 0, []), TIMEOUT_S) == (0, [Leave()])


@in_a_world
async def test_a_watcher_that_ends_waits_until_every_process_is_told_to_leave(watcher: Watcher, world: World) -> None:
    limit(world.patch, watcher_poll_s=100 * TIMEOUT_S, watcher_end_s=100 * TIMEOUT_S)
    await world.join(watcher, DRIVER)
    await world.join(watcher, "A:a")
    asking = asyncio.ensure_future(watcher.commands_for(DRIVER, 0, []))
    await asyncio.sleep(0)
    closing = asyncio.ensure_future(watcher.close())
    assert await asyncio.wait_for(asking, TIMEOUT_S) == (1, [Leave()])
    for _ in range(100):
        await asyncio.sleep(0)
    assert not closing.done(), "the actor's next poll may come while the watcher is killed"
    assert await watcher.commands_for("A:a", 0, []) == (1, [Leave()])
    await asyncio.wait_for(closing, TIMEOUT_S)


@pytest.mark.parametrize("is_gone", ["unwatched", "left"])
@in_a_world
async def test_nor_for_one_that_will_never_ask_again(watcher: Watcher, world: World, is_gone: str) -> None:
    limit(world.patch, watcher_end_s=100 * TIMEOUT_S)
    await world.join(watcher, "A:a")
    await (watcher.unwatched("A:a") if is_gone == "unwatched" else watcher.left(world.ledgers["A:a"].leave()))
    await asyncio.wait_for(watcher.close(), TIMEOUT_S)


@in_a_world
async def test_and_for_one_that_does_not_ask_a_second_at_most(watcher: Watcher, world: World) -> None:
    limit(world.patch, watcher_end_s=0.0)
    await world.join(watcher, DRIVER)
    await asyncio.wait_for(watcher.close(), TIMEOUT_S)


class Host:
    """A host that says when it has obeyed."""

    def __init__(self) -> None:
        self.told: list[Any] = []
        self.obeyed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self.control = self

    def remote(self, commands: list[Any], generation: int) -> Any:
        self.told += commands
        return self.obeyed


@in_a_world
async def test_nor_before_the_hosts_of_machines_beside_it_have(watcher: Watcher, world: World) -> None:
    limit(world.patch, heard_s=TIMEOUT_S)
    await world.join(watcher, "A:a")
    host, gone = Host(), Host()
    watcher.directory.actors.update({"host-0": host, "host-1": gone})
    again = asyncio.ensure_future(world.join(watcher, "A:a"))
    while not gone.told:
        await asyncio.sleep(0)
    assert host.told == [Restarted("A:a", 1)]
    gone.obeyed.set_exception(RayActorError())
    for _ in range(100):
        await asyncio.sleep(0)
    assert not again.done(), "a call of its machines could be taken for one that died with the actor before"
    host.obeyed.set_result(True)
    await asyncio.wait_for(again, TIMEOUT_S)


def test_what_is_redacted_and_a_checkpoint_exclude_each_other() -> None:
    redaction.redact("password")
    with pytest.raises(SettingError, match=r"watch\(checkpoint=True\) after rs\.redact\('password'\)"):
        Watch("redacted", checkpoint=True)


@in_a_world
async def test_an_actor_bears_one_name_from_the_snapshot_that_first_shows_it_on(watcher: Watcher, world: World) -> None:
    """Also before its constructor has begun, and of whomever it is; never one made of its id."""
    await world.join(watcher, DRIVER)
    await world.join(watcher, "Worker:0a", ordinal=0)
    births = {
        "Worker:5e4654": {"class": "Worker", "name": None, "ordinal": 2, "key": "5e4654"},
        "Boss:77": {"class": "Boss", "name": "chief", "ordinal": None, "key": "77"},
    }
    driver = world.ledgers[DRIVER]
    for made in births:
        driver.create(made, "__init__", (), time.time())
    driver.hold("Helper:c0ffee")
    driver.submit("Helper:c0ffee", "help", (), time.time())  # nobody has told of it: it was made unwatched
    number = await _snapshot(watcher)
    driver.request(number)
    driver.record(lambda: None)
    await watcher.recorded(ProcessReport(driver.report(number), time.time(), births=births))
    await world.record(watcher, "Worker:0a", number)
    await watcher.processes._look_once(_soon(watcher, number))
    while not watcher.processes.analyst.taken:
        await asyncio.sleep(0)
    snapshot = watcher.processes.analyst.taken[0].snapshot()
    assert {target for _, target, _ in snapshot.channels} == {"Worker-2", "chief", "Helper-0"}
    assert not [text for text in snapshot.obstacles if any(key in text for key in ("5e4654", ":77", "c0ffee"))]
    for made, birth in births.items():
        await world.join(watcher, made, name=birth["name"])
    await world.join(watcher, "Helper:c0ffee")
    await world.join(watcher, "Worker:1b")
    shown = [watcher.processes.roster.name_of(name) for name in (*births, "Helper:c0ffee", "Worker:1b")]
    assert shown == ["Worker-2", "chief", "Helper-0", "Worker-1"]


@in_a_world
async def test_an_actor_that_dies_before_its_constructor_begins_is_in_flight_no_longer(
    watcher: Watcher, world: World
) -> None:
    """Its last handle is dropped, or its environment cannot be made: no process of it ever says so."""
    births = {
        name: {"class": "Shop", "name": None, "ordinal": 0, "key": f"{name}-in-ray"} for name in ("S:1", "S:2", "S:3")
    }
    world.patch.setattr(shape, "ended_actors_of_job", lambda: {"S:1-in-ray", "S:3-in-ray", "another"})
    await world.join(watcher, DRIVER)
    driver = world.ledgers[DRIVER]
    for made in births:
        driver.create(made, "__init__", (), time.time())
    await world.join(watcher, "S:3")  # it is heard of by what it says, and not in this way
    for _ in range(2):
        number = await _snapshot(watcher)
        driver.request(number)
        driver.record(lambda: None)
        await world.record(watcher, "S:3", number)
        await watcher.recorded(ProcessReport(driver.report(number), time.time(), births=births))
        await watcher.processes._look_once(
            _soon(watcher, number) if number in watcher.collecting.collections else time.time()
        )
    _, told = await watcher.processes.outboxes.after(DRIVER, 0)
    assert [command for command in told if isinstance(command, Died)] == [Died("S:1")]
    driver.target_died("S:1")
    assert {name: len(driver.outputs[name].log) for name in births} == {"S:1": 0, "S:2": 1, "S:3": 1}


@pytest.mark.parametrize("error", [SystemExit(3), KeyboardInterrupt()])
def test_what_would_end_the_event_loop_is_an_error_for_who_has_asked(world: World, error: BaseException) -> None:
    class Inside:
        async def drain(self, seconds: float) -> None:
            raise error

    async def scenario(watcher: Watcher) -> str:
        watcher.inside = Inside()
        with pytest.raises(RaySnapshotError, match="when it was asked to drain") as found:
            await watcher.ask_analyst("drain", 1.0)
        return str(found.value)

    assert type(error).__name__ in world.run(scenario)


BOUND_S = 10.0


# ---- the driver is there before it has asked ---------------------------------------------------------------------------


def test_a_watcher_that_is_made_with_the_drivers_facts_asks_it_for_its_part_at_once(world: World) -> None:
    async def scenario(watcher: Watcher) -> Any:
        number = await watcher.snapshot([], 60.0, wait=False)
        _, commands = await asyncio.wait_for(watcher.commands_for(DRIVER, 0, []), BOUND_S)
        return number, commands, watcher.processes.roster.facts[DRIVER]["pid"]

    number, commands, pid = world.run(scenario, driver={"class": DRIVER, "key": None, "pid": 7})
    assert (commands, pid) == ([Request(number)], 7)


def test_the_driver_takes_part_under_the_terms_that_it_would_have_been_told(world: World) -> None:
    async def scenario(watcher: Watcher) -> Any:
        return await watcher.join(RUN, DRIVER, {"class": DRIVER, "key": None, "pid": 1}, 0)

    welcome = world.run(scenario)
    assert (welcome.incarnation, welcome.colour, welcome.pending, welcome.last) == (0, 0, [], 0)
    assert welcome.terms == Terms()
    assert welcome.settled == 0


# ---- waiting for the services beside the program -----------------------------------------------------------------------


def test_where_the_services_do_not_start_the_program_goes_on_and_a_line_says_so(
    capsys: pytest.CaptureFixture[str],
) -> None:
    done: list[str] = []

    def none() -> None:
        raise ClusterError("no worker starts")

    open_beside([none, partial(done.append, "clock")], partial(done.append, "closed"))
    assert done == ["closed"]
    assert capsys.readouterr().err == "ray-snapshot: nothing is watched: no worker starts\n"
