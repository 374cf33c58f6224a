"""Going back on paper, case by case: who is not there or does not stop, what is an obstacle, what fails at any moment."""

import asyncio
import threading
from collections.abc import Awaitable
from dataclasses import replace
from typing import Any

import pytest
from limited import limit
from rolled_back_app import ACTORS, BOUND_S, DRIVER, SYSTEM, TOKENS, App, played
from scenarios import played_by

from ray_snapshot.errors import (
    MachineFailedError,
    NotRestorableError,
    RolledBackError,
    SnapshotAbortedError,
    SnapshotTimeoutError,
)
from ray_snapshot.history.checkpoints import Checkpoint
from ray_snapshot.instrument import shape
from ray_snapshot.instrument.process.blocked_threads import Threads
from ray_snapshot.instrument.process.states import SavedValue
from ray_snapshot.instrument.watcher.sections import CHECKPOINT_OFF, Section
from ray_snapshot.protocol.calls import Acks
from ray_snapshot.protocol.rollback import Phase

A, B, C = ACTORS


def play(scenario: Any) -> Any:
    """A scenario on a fresh app, in which nothing is left to chance but the order of what travels."""

    async def whole(app: App) -> Any:
        await app.begin()
        return await scenario(app)

    with pytest.MonkeyPatch.context() as patch:
        limit(patch, release_s=0.5)
        return played(App(seed=1), whole, patch=patch)


on_an_app = played_by(lambda _, scenario: play(scenario), "app")
"""The test is given one."""


async def taken(app: App) -> Any:
    await app.snapshot()
    await app.quiet()
    return list(app.analyst.found.values())[-1]


async def carried(app: App, work: Awaitable[Any]) -> Any:
    task = asyncio.ensure_future(work)
    while not task.done():
        await app.carry()
        await asyncio.sleep(0)
    return task.result()


async def back(app: App, found: Any, timeout: float = BOUND_S) -> Any:
    return await carried(app, app.watcher.go_back(found.header.snapshot_id, timeout))


async def held(app: App, machine: str) -> None:
    while not app.machines[machine].reloading.is_held:
        await app.carry()
        await asyncio.sleep(0)


def as_of_another_run(app: App, found: Any) -> None:
    section = found.checkpoints
    known = {"snapshot_id": found.header.snapshot_id, "run_id": "an earlier one", "sections_of_actors": 1}
    app.analyst._checkpoint_of = lambda _: Checkpoint(known, section)  # type: ignore[method-assign]
    app.analyst.checkpoint_of.work = app.analyst._checkpoint_of


@on_an_app
async def test_actors_that_the_program_does_not_make_are_named(app: App) -> None:
    found = await taken(app)
    as_of_another_run(app, found)
    app.watcher.processes.roster.facts[B]["shown"] = "bob"
    with pytest.raises(NotRestorableError, match=r"actors not made by the program: B-0; make actors of") as caught:
        await app.watcher.go_back(found.header.snapshot_id, 0.1)
    assert caught.value.obstacles == ["B-0"]
    assert app.watcher.processes.rolling.generation == 0


@on_an_app
async def test_an_actor_that_has_ended_is_named_at_once_and_one_made_anew_under_its_name_takes_its_state(
    app: App,
) -> None:
    app.watcher.processes.roster.facts[A]["shown"] = "ann"
    found = await taken(app)
    app.watcher.processes.ended(A)
    del app.machines[A]
    with pytest.raises(NotRestorableError, match="actors not there any more: ann"):
        await app.watcher.go_back(found.header.snapshot_id, BOUND_S)
    await app.join("A:2", name="ann")
    await back(app, found)
    assert app.machines["A:2"].body.tokens == TOKENS


@on_an_app
async def test_an_actor_that_was_killed_just_before_is_named_and_nothing_is_rolled_back(app: App) -> None:
    """Ray knows it, and the watcher has not heard of it."""
    app.watcher.processes.roster.facts[A]["shown"] = "ann"
    found = await taken(app)
    app.states[A] = "DEAD", 0
    with pytest.raises(NotRestorableError, match="actors not there any more: ann"):
        await app.watcher.go_back(found.header.snapshot_id, BOUND_S)
    assert app.watcher.processes.rolling.generation == 0
    assert A not in app.watcher.processes.parties.machines


@on_an_app
async def test_actors_made_since_are_ended_and_those_that_have_not_begun_never_begin(app: App) -> None:
    found = await taken(app)
    await app.join("D:d")
    await back(app, found)
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
    assert await back(app, found) == ["D-0"]
    assert app.machines["D:d"].body.tokens == 7
    assert await app.watcher.join(SYSTEM, "E:e", {"class": "E", "key": "E:e", "pid": 1}, 0) is not None


@on_an_app
async def test_who_does_not_stop_gives_the_restore_up_and_calls_of_before_are_accepted_again(app: App) -> None:
    found = await taken(app)
    app.send(app.machines[DRIVER], A, 0)
    await app.deliver()
    app.send(app.machines[DRIVER], B, 0)
    with pytest.raises(SnapshotTimeoutError, match=r"waiting for A-0 .* to stop; all go on as they were"):
        await back(app, found, 0.2)
    await app.deliver()
    assert [action.process.machine for action in app.actions] == [A, B]
    await app.quiet()
    later = await taken(app)
    later.snapshot().verify()
    await back(app, found)


@on_an_app
async def test_a_call_that_is_refused_meanwhile_is_not_in_flight_for_ever(app: App) -> None:
    found = await taken(app)
    app.send(app.machines[DRIVER], A, 0)
    await app.deliver()
    app.send(app.machines[DRIVER], B, 0)
    task = asyncio.ensure_future(app.watcher.go_back(found.header.snapshot_id, 2.0))
    await held(app, B)
    await app.deliver()
    assert len(app.actions) == 1, "B has refused it"
    with pytest.raises(SnapshotTimeoutError):
        await carried(app, task)
    await app.quiet()
    assert (await taken(app)).snapshot().in_flight_count == 0


@on_an_app
async def test_an_action_of_before_sends_nothing_once_its_actor_is_to_stop(app: App) -> None:
    found = await taken(app)
    app.send(app.machines[DRIVER], A, 0)
    await app.deliver()
    task = asyncio.ensure_future(app.watcher.go_back(found.header.snapshot_id, BOUND_S))
    await held(app, A)
    with pytest.raises(RolledBackError):
        app.machines[A].reloading.check_sending()
    with pytest.raises(RolledBackError):
        app.machines[A].reloading.check_waiting(())
    await app.end()
    await carried(app, task)


def test_each_obstacle_names_its_machine() -> None:
    async def scenario(app: App) -> list[str]:
        driver, a = app.machines[DRIVER], app.machines[A]
        app.send(driver, A, 0)
        await app.deliver()
        driver.ledger.create("N:n", "__init__", (), 0.0)
        driver.ledger.submit(B, "move", (1,), 0.0, kept=SavedValue(None, (), "an ObjectRef in its arguments"))
        driver.ledger.submit(B, "move", (1,), 0.0, kept=SavedValue(b"", ("Z:z",)))
        driver.ledger.submit(B, "move", (1,), 0.0, needs=("A/0/B/1",), kept=SavedValue(b"", ()))
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

    assert sorted(play(scenario)) == [
        "A-0: inside move at app.py:7, where it waits",
        "N-0: it is just being made",
        "driver, in its call of B-0.move: a handle of an actor that is not watched (Z) in its arguments",
        "driver, in its call of B-0.move: an ObjectRef in its arguments",
        "driver: it waits inside its script, at app.py:99",
        "driver: its call of B-0.move waits for the reply of another",
    ]


def test_a_task_of_an_actor_that_awaits_a_reply_is_an_obstacle_for_it_would_be_gone() -> None:
    async def scenario(app: App) -> list[str]:
        a = app.machines[A]
        header = a.ledger.submit(B, "move", (1,), 0.0, kept=SavedValue(b"", ()))
        a.ledger.wait(None, (f"A:a/0/B:b/{header.number}",), 1, 0.0, call_site="app.py:7")
        obstacles: list[str] = (await taken(app)).snapshot().obstacles
        return obstacles

    assert play(scenario) == ["A-0: a task of its own waits for a reply at app.py:7"]


def test_threads_of_an_actor_are_an_obstacle_and_those_of_the_program_are_not() -> None:
    async def scenario(app: App) -> list[list[str]]:
        found = await taken(app)
        told = []
        for machine in (DRIVER, A):
            recorded = {**found.recorded, machine: replace(found.recorded[machine], threads=Threads(("monitor",)))}
            snapshot = replace(found, recorded=recorded).snapshot()
            assert snapshot.coverage["uncovered"] == [f"thread monitor of {'driver' if machine == DRIVER else 'A-0'}"]
            told.append(snapshot.obstacles)
        return told

    assert play(scenario) == [[], ["it is not known what this does: thread monitor of A-0"]]


# ---- a restore that is given up, or fails -----------------------------------------------------------------------------------


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


async def ended(app: App, *tasks: asyncio.Task[Any], but: str | None = None) -> BaseException | None:
    """The error of the last of them."""
    while not all(task.done() for task in tasks):
        await settled(app, but=but)
    return tasks[-1].exception()


def phases(app: App) -> set[Phase]:
    return {process.reloading.host.phase for process in app.machines.values()}


@on_an_app
async def test_two_restores_at_once_come_one_after_the_other(app: App) -> None:
    first = await snapshot(app)
    app.machines[A].body.tokens, app.machines[B].body.tokens = 0, 100
    second = await snapshot(app)
    app.analyst.checkpoint_of = Slow(app.analyst.checkpoint_of)
    one, other = restoring(app, first), restoring(app, second)
    assert (await ended(app, other, one), other.exception()) == (None, None)
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
    assert isinstance(await ended(app, restoring(app, good)), MachineFailedError)
    with pytest.raises(SnapshotAbortedError, match="stands still"):
        await app.watcher.snapshot([], BOUND_S)
    late = restoring(app, good, 0.2)  # given up before anybody has loaded, and yet nobody is as he was
    assert "the app stands still" in str(await ended(app, late, but=B))
    await settled(app)
    assert Phase.RUNNING not in phases(app)
    del Stubborn.__setstate__
    assert await ended(app, restoring(app, good)) is None
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
        assert isinstance(await ended(app, task, late), RolledBackError)
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
    assert (await ended(app, task), phases(app)) == (None, {Phase.RUNNING})


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
    def __setstate__(self, state: Any) -> None:
        raise ValueError("no")
