"""A restore that is given up, or fails, at any moment: who goes on, who stands still, and what is not done any more."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from limited import limit
from rolled_back_app import ACTORS, BOUND_S, SYSTEM, App, on_paper
from scenarios import played_by

from ray_snapshot.errors import MachineFailedError, RolledBackError, SnapshotAbortedError, SnapshotTimeoutError
from ray_snapshot.instrument import shape
from ray_snapshot.instrument.watcher.sections import Section
from ray_snapshot.protocol.calls import Acks
from ray_snapshot.protocol.rollback import Phase

A, B, C = ACTORS


def play(story: Callable[[App], Awaitable[None]], seed: int = 1) -> None:
    app = App(seed)

    async def whole() -> None:
        await app.begin()
        await story(app)

    with pytest.MonkeyPatch.context() as patch:
        on_paper(patch, app)
        limit(patch, release_s=0.5)
        asyncio.run(asyncio.wait_for(whole(), BOUND_S))


on_an_app = played_by(lambda _, story: play(story), "app")
"""The test is given one."""


async def settled(app: App, but: str | None = None) -> None:
    """Everything that was told arrives, except at `but`."""
    for _ in range(50):
        for machine in app.machines:
            if machine != but:
                await app.carry_all(machine)
        await asyncio.sleep(0)


async def snapshot(app: App) -> str:
    before = set(app.analyst.found)
    await app.snapshot()
    while not (found := set(app.analyst.found) - before):
        await settled(app)
    return found.pop()


def restoring(app: App, snapshot_id: str, timeout: float = BOUND_S) -> asyncio.Task[Any]:
    return asyncio.get_running_loop().create_task(app.watcher.go_back(snapshot_id, timeout))


def phases(app: App) -> set[Phase]:
    return {process.reloading.host.phase for process in app.machines.values()}


@on_an_app
async def test_two_restores_at_once_come_one_after_the_other(app: App) -> None:
    first = await snapshot(app)
    app.machines[A].body.tokens, app.machines[B].body.tokens = 0, 100
    second = await snapshot(app)
    app.analyst.checkpoint_of = Slow(app.analyst.checkpoint_of)
    one, other = restoring(app, first), restoring(app, second)
    while not (one.done() and other.done()):
        await settled(app)
    assert (one.exception(), other.exception()) == (None, None)
    assert app.watcher.processes.rolling.restored_from == second
    assert app.tokens() == 100
    assert app.machines[B].body.tokens == 100


@on_an_app
async def test_who_stops_or_starts_again_after_a_restore_was_given_up_changes_nothing(app: App) -> None:
    good = await snapshot(app)
    await app.join("D:d")  # made since: it would be ended
    task = restoring(app, good, 0.2)
    while not task.done():
        await settled(app, but=A)
        if (
            app.watcher.processes.rolling.way.released
        ):  # the others go on already; now the last one stops, and another dies
            await app.carry_all(A)
            app.states[B] = "ALIVE", 1
            if app.machines[B].ledger.incarnation == 0:
                await app.join(B)
    await settled(app)
    assert isinstance(task.exception(), SnapshotTimeoutError)
    assert phases(app) == {Phase.RUNNING}
    assert "D:d" in app.watcher.processes.parties.machines


@on_an_app
async def test_an_app_of_which_some_have_loaded_stands_still_until_it_is_restored(app: App) -> None:
    good = await snapshot(app)
    app.machines[A].body.tokens, app.machines[C].body.tokens = 0, 100
    app.machines[C].body.__class__ = Stubborn
    failing = restoring(app, good)
    while not failing.done():
        await settled(app)
    assert isinstance(failing.exception(), MachineFailedError)
    with pytest.raises(SnapshotAbortedError, match="stands still"):
        await app.watcher.snapshot([], BOUND_S)
    late = restoring(app, good, 0.2)  # given up before anybody has loaded, and yet nobody is as he was
    while not late.done():
        await settled(app, but=B)
    assert "the app stands still" in str(late.exception())
    await settled(app)
    assert Phase.RUNNING not in phases(app)
    del Stubborn.__setstate__
    last = restoring(app, good)
    while not last.done():
        await settled(app)
    assert last.exception() is None
    assert (phases(app), app.machines[A].body.tokens) == ({Phase.RUNNING}, 100)
    await snapshot(app)


@on_an_app
async def test_a_handle_of_an_actor_that_had_died_before_stays_a_handle(app: App) -> None:
    await app.join("D:d")
    handle, shown = app.watcher.processes.rolling.handles["D:d"], app.watcher.processes.roster.name_of("D:d")
    app.watcher.processes.ended("D:d")
    name = app.watcher.processes.roster.name_of(A)
    app.watcher.processes.rolling.way.section = Section({name: (b"", ("D:d",))}, [], {"D:d": shown})
    app.watcher.processes.rolling.way.who = {name: A}
    assert app.watcher.processes.rolling.dealing().to_process(A).actors == {"D:d": ("D:d", [handle])}


@on_an_app
async def test_an_actor_that_registers_while_a_restore_begins_is_of_the_past(app: App) -> None:
    """The watcher asks the cluster about it meanwhile: it was made in a past that is given up when that answers."""
    asked, answer = threading.Event(), threading.Event()

    def state(key: str) -> tuple[str, int]:
        if key == "D:d":
            asked.set()
            answer.wait(BOUND_S)
        return "ALIVE", 0

    good = await snapshot(app)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shape, "actor_state", state)
        late = asyncio.get_running_loop().create_task(app.join("D:d"))
        while not asked.is_set():
            await asyncio.sleep(0)
        task = restoring(app, good)
        while not app.watcher.processes.rolling.is_rolling:
            await asyncio.sleep(0)
        answer.set()
        while not (task.done() and late.done()):
            await settled(app)
    assert isinstance(late.exception(), RolledBackError)
    assert task.exception() is None
    assert "D:d" not in app.watcher.processes.parties.machines


@on_an_app
async def test_an_actor_that_is_to_end_for_a_restore_may_end_by_itself_before(app: App) -> None:
    """Ray ends it with its maker, say: the restore waits for nobody that has not been asked."""
    good = await snapshot(app)
    await app.join("D:d")
    task = restoring(app, good)
    while not app.watcher.processes.rolling.is_rolling:
        await asyncio.sleep(0)
    app.states["D:d"] = "DEAD", 0
    app.machines.pop("D:d")
    await app.watcher.processes.rolling.look()
    while not task.done():
        await settled(app)
    assert task.exception() is None
    assert phases(app) == {Phase.RUNNING}


@on_an_app
async def test_an_actor_that_takes_the_name_of_a_dead_one_takes_its_place_at_once(app: App) -> None:
    facts = {"class": "D", "name": "dora", "pid": 1}
    await app.watcher.join(SYSTEM, "D:1", {**facts, "key": "D:1"}, 0)
    app.states["D:1"] = "DEAD", 0
    await app.watcher.join(SYSTEM, "D:2", {**facts, "key": "D:2"}, 0)
    assert app.watcher.processes.rolling._living()["dora"] == "D:2"
    assert "D:1" not in app.watcher.processes.parties.machines


@pytest.mark.parametrize("keeps", [True, False])
@on_an_app
async def test_who_keeps_arguments_for_a_restore_is_told_at_once_that_they_are_not_needed(
    app: App, keeps: bool
) -> None:
    app.watcher.processes.rolling.keeps = keeps
    box = app.watcher.processes.outboxes.boxes[A]
    box.changed.clear()
    await app.watcher.acknowledge([Acks(A, 0, B, 0, ((1, 2),))])
    assert box.changed.is_set() == keeps


class Slow:
    def __init__(self, answers: Any) -> None:
        self.answers = answers

    def remote(self, *args: Any) -> Any:
        async def answer() -> Any:
            await asyncio.sleep(0)
            return await self.answers.remote(*args)

        return asyncio.get_running_loop().create_task(answer())


class Stubborn:
    """Does not take its state back."""

    def __setstate__(self, state: Any) -> None:
        raise ValueError("no")
