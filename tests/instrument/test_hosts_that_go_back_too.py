"""Machines and actors go back under one coordinator: who is asked for what, and who gets which share, without Ray."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from limited import limit
from scenarios import played_by
from test_watcher_alone import World

from ray_snapshot.errors import MachineFailedError, NotRestorableError, SnapshotTimeoutError
from ray_snapshot.history.checkpoints import Checkpoint
from ray_snapshot.instrument.watcher.sections import Section
from ray_snapshot.instrument.watcher.watcher import Watcher
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.commands import Release, Roll
from ray_snapshot.protocol.rollback import Step
from ray_snapshot.runtime.planning import Ground, Share, planned

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
    back = app.go_back()
    await app.take(STOP)
    await app.take(LOAD)
    await app.take(START)
    await back
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
    again = app.go_back()
    for step in (STOP, LOAD, START):
        await app.take(step, 2)
    await again
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
    back = app.go_back()
    for step in (STOP, LOAD, START):
        await app.take(step)
    await back
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
        "n does not take its state back",
        machine="n",
        method="restore_state",
        message=None,
        source=None,
        traceback="",
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
    again = app.go_back()
    for step in (STOP, LOAD, START):
        await app.take(step, 2)
    await again
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
    back = app.go_back()
    for step in (STOP, LOAD, START):
        await app.take(step)
    await back
    await app.watcher.dismiss_system(1.0)
    joined = await app.watcher.admit_system("observer", 5.0)
    assert (joined.life, joined.generation, app.watcher.recovery.generation) == (2, 1, 1)
