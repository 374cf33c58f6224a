"""Going back on paper, case by case: who is not there, who must not be any more, who does not stop, what is an obstacle."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest
from rolled_back_app import DRIVER, SYSTEM, TOKENS, App, on_paper
from scenarios import played_by

from ray_snapshot.errors import NotRestorableError, RolledBackError, SnapshotTimeoutError
from ray_snapshot.history.checkpoints import Checkpoint
from ray_snapshot.instrument.process.blocked_threads import Threads
from ray_snapshot.instrument.process.states import SavedValue
from ray_snapshot.instrument.watcher.sections import CHECKPOINT_OFF

BOUND_S = 60.0


def played(scenario: Callable[[App], Awaitable[Any]]) -> Any:
    """A scenario on a fresh app, in which nothing is left to chance but the order of what travels."""
    app = App(seed=1)

    async def whole() -> Any:
        await app.begin()
        return await scenario(app)

    with pytest.MonkeyPatch.context() as patch:
        on_paper(patch, app)
        return asyncio.run(asyncio.wait_for(whole(), BOUND_S))


on_an_app = played_by(lambda _, scenario: played(scenario), "app")
"""The test is given one."""


async def taken(app: App) -> Any:
    await app.snapshot()
    await app.quiet()
    return list(app.analyst.found.values())[-1]


async def carried(app: App, work: Awaitable[Any]) -> Any:
    """What comes of it, while what is said travels."""
    task = asyncio.ensure_future(work)
    while not task.done():
        await app.carry()
        await asyncio.sleep(0)
    return task.result()


def as_of_another_run(app: App, found: Any) -> None:
    """What was recorded was recorded by an earlier program."""
    section = found.checkpoints
    known = {"snapshot_id": found.header.snapshot_id, "run_id": "an earlier one", "sections_of_actors": 1}
    app.analyst._checkpoint_of = lambda _: Checkpoint(known, section)  # type: ignore[method-assign]
    app.analyst.checkpoint_of.work = app.analyst._checkpoint_of


@on_an_app
async def test_actors_that_the_program_does_not_make_are_named(app: App) -> None:
    found = await taken(app)
    as_of_another_run(app, found)
    app.watcher.processes.roster.facts["B:b"]["shown"] = "bob"
    with pytest.raises(NotRestorableError, match=r"actors not made by the program: B-0; make actors of") as caught:
        await app.watcher.go_back(found.header.snapshot_id, 0.1)
    assert caught.value.obstacles == ["B-0"]
    assert app.watcher.processes.rolling.generation == 0


@on_an_app
async def test_an_actor_that_has_ended_is_named_at_once_and_one_made_anew_under_its_name_takes_its_state(
    app: App,
) -> None:
    app.watcher.processes.roster.facts["A:a"]["shown"] = "ann"
    found = await taken(app)
    app.watcher.processes.ended("A:a")
    del app.machines["A:a"]
    with pytest.raises(NotRestorableError, match="actors not there any more: ann"):
        await app.watcher.go_back(found.header.snapshot_id, BOUND_S)
    await app.join("A:2", name="ann")
    await carried(app, app.watcher.go_back(found.header.snapshot_id, BOUND_S))
    assert app.machines["A:2"].body.tokens == TOKENS


@on_an_app
async def test_an_actor_that_was_killed_just_before_is_named_and_nothing_is_rolled_back(app: App) -> None:
    """Ray knows it, and the watcher has not heard of it."""
    app.watcher.processes.roster.facts["A:a"]["shown"] = "ann"
    found = await taken(app)
    app.states["A:a"] = "DEAD", 0
    with pytest.raises(NotRestorableError, match="actors not there any more: ann"):
        await app.watcher.go_back(found.header.snapshot_id, BOUND_S)
    assert app.watcher.processes.rolling.generation == 0
    assert "A:a" not in app.watcher.processes.parties.machines


@on_an_app
async def test_actors_made_since_are_ended_and_those_that_have_not_begun_never_begin(app: App) -> None:
    found = await taken(app)
    await app.join("D:d")
    await carried(app, app.watcher.go_back(found.header.snapshot_id, BOUND_S))
    assert [handle.machine for handle in app.killed] == ["D:d"]
    with pytest.raises(RolledBackError, match="rolled back before this actor had begun"):
        await app.watcher.join(SYSTEM, "E:e", {"class": "E", "key": "E:e", "pid": 1}, 0)
    stamp = app.machines[DRIVER].stamp
    assert await app.watcher.join(stamp, "F:f", {"class": "F", "key": "F:f", "pid": 1}, 0) is not None


@on_an_app
async def test_in_a_new_run_whoever_the_program_makes_may_stay(app: App) -> None:
    found = await taken(app)
    as_of_another_run(app, found)
    await app.join("D:d")
    app.machines["D:d"].body.tokens = 7
    assert await carried(app, app.watcher.go_back(found.header.snapshot_id, BOUND_S)) == ["D-0"]
    assert app.machines["D:d"].body.tokens == 7
    assert await app.watcher.join(SYSTEM, "E:e", {"class": "E", "key": "E:e", "pid": 1}, 0) is not None


@on_an_app
async def test_who_does_not_stop_gives_the_restore_up_and_calls_of_before_are_accepted_again(app: App) -> None:
    found = await taken(app)
    app.send(app.machines[DRIVER], "A:a", 0)
    await app.deliver()
    app.send(app.machines[DRIVER], "B:b", 0)
    with pytest.raises(SnapshotTimeoutError, match=r"waiting for A-0 .* to stop; all go on as they were"):
        await carried(app, app.watcher.go_back(found.header.snapshot_id, 0.2))
    await app.deliver()
    assert [action.process.machine for action in app.actions] == ["A:a", "B:b"]
    await app.quiet()
    later = await taken(app)
    later.snapshot().verify()
    await carried(app, app.watcher.go_back(found.header.snapshot_id, BOUND_S))


@on_an_app
async def test_a_call_that_is_refused_meanwhile_is_not_in_flight_for_ever(app: App) -> None:
    found = await taken(app)
    app.send(app.machines[DRIVER], "A:a", 0)
    await app.deliver()
    app.send(app.machines[DRIVER], "B:b", 0)
    task = asyncio.ensure_future(app.watcher.go_back(found.header.snapshot_id, 2.0))
    while not app.machines["B:b"].reloading.is_held:
        await app.carry()
        await asyncio.sleep(0)
    await app.deliver()
    assert len(app.actions) == 1, "B has refused it"
    with pytest.raises(SnapshotTimeoutError):
        await carried(app, task)
    await app.quiet()
    assert (await taken(app)).snapshot().in_flight_count == 0


@on_an_app
async def test_an_action_of_before_sends_nothing_once_its_actor_is_to_stop(app: App) -> None:
    found = await taken(app)
    app.send(app.machines[DRIVER], "A:a", 0)
    await app.deliver()
    task = asyncio.ensure_future(app.watcher.go_back(found.header.snapshot_id, BOUND_S))
    while not app.machines["A:a"].reloading.is_held:
        await app.carry()
        await asyncio.sleep(0)
    with pytest.raises(RolledBackError):
        app.machines["A:a"].reloading.check_sending()
    with pytest.raises(RolledBackError):
        app.machines["A:a"].reloading.check_waiting(())
    await app.end()
    await carried(app, task)


def test_each_obstacle_names_its_machine() -> None:
    async def scenario(app: App) -> list[str]:
        driver, a = app.machines[DRIVER], app.machines["A:a"]
        app.send(driver, "A:a", 0)
        await app.deliver()
        driver.ledger.create("N:n", "__init__", (), 0.0)
        driver.ledger.submit("B:b", "move", (1,), 0.0, kept=SavedValue(None, (), "an ObjectRef in its arguments"))
        driver.ledger.submit("B:b", "move", (1,), 0.0, kept=SavedValue(b"", ("Z:z",)))
        driver.ledger.submit("B:b", "move", (1,), 0.0, needs=("A/0/B/1",), kept=SavedValue(b"", ()))
        a.ledger.wait(app.actions[0].call_id, ("A:a/0/B:b/1",), 1, 0.0, call_site="app.py:7")
        driver.ledger.wait(None, ("driver/0/A:a/1",), 1, 0.0, call_site="app.py:99")
        await app.snapshot()
        while not app.analyst.found:
            await app.carry()
            await asyncio.sleep(0)
        (found,) = app.analyst.found.values()
        assert not found.snapshot().restorable
        obstacles: list[str] = found.snapshot().obstacles
        found.header.is_kept = False
        assert found.snapshot().obstacles == [CHECKPOINT_OFF]
        return obstacles

    assert sorted(played(scenario)) == [
        "A-0: inside move at app.py:7, where it waits",
        "N-0: it is just being made",
        "driver, in its call of B-0.move: a handle of an actor that is not watched (Z) in its arguments",
        "driver, in its call of B-0.move: an ObjectRef in its arguments",
        "driver: it waits inside its script, at app.py:99",
        "driver: its call of B-0.move waits for the reply of another",
    ]


def test_a_task_of_an_actor_that_awaits_a_reply_is_an_obstacle_for_it_would_be_gone() -> None:
    async def scenario(app: App) -> list[str]:
        a = app.machines["A:a"]
        header = a.ledger.submit("B:b", "move", (1,), 0.0, kept=SavedValue(b"", ()))
        a.ledger.wait(None, (f"A:a/0/B:b/{header.number}",), 1, 0.0, call_site="app.py:7")
        obstacles: list[str] = (await taken(app)).snapshot().obstacles
        return obstacles

    assert played(scenario) == ["A-0: a task of its own waits for a reply at app.py:7"]


def test_threads_of_an_actor_are_an_obstacle_and_those_of_the_program_are_not() -> None:
    async def scenario(app: App) -> list[list[str]]:
        found = await taken(app)
        told = []
        for machine in (DRIVER, "A:a"):
            recorded = {**found.recorded, machine: replace(found.recorded[machine], threads=Threads(("monitor",)))}
            snapshot = replace(found, recorded=recorded).snapshot()
            assert snapshot.coverage["uncovered"] == [f"thread monitor of {'driver' if machine == DRIVER else 'A-0'}"]
            told.append(snapshot.obstacles)
        return told

    assert played(scenario) == [[], ["it is not known what this does: thread monitor of A-0"]]
