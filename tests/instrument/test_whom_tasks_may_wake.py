"""Whom timers and tasks beside a call may cancel or wake, found by one bounded search: no Ray in here."""

from __future__ import annotations

import asyncio
import gc
import weakref
from contextlib import closing
from typing import Any

import pytest
from test_what_coroutines_await import LOOPS, Reply, Scope, World, alone, begun_beside, only

from ray_snapshot.instrument.process import reach


@pytest.fixture(params=LOOPS)
def world(request: pytest.FixtureRequest) -> World:
    return World(request.param)


async def beside_too_much_to_search(world: World) -> None:
    asyncio.get_running_loop().call_later(60, [[] for _ in range(100_000)].clear)
    await world.reply()


async def in_a_task_group(world: World) -> None:
    """A task of it that raises makes it cancel the task that has opened it."""
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.sleep(60))
        await world.reply()


async def in_a_task_group_that_awaits(world: World) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(only([world.reply()]))
        await asyncio.sleep(0)
        await world.reply()


async def under_a_callback_that_cancels(world: World) -> None:
    task: Any = asyncio.current_task()
    sleeper = await begun_beside(world, asyncio.sleep(60))
    sleeper.add_done_callback(lambda _: task.cancel())
    await world.reply()


async def cancel_after(wait: Any, item: Any) -> None:
    await wait
    item.cancel()


async def beside_a_task_that_awaits_and_cancels(world: World) -> None:
    async def kill(replies: list[Any], other: Any) -> None:
        await replies.pop()
        other.cancel()

    await begun_beside(world, kill([world.reply()], asyncio.current_task()))
    await world.reply()


async def beside_a_task_that_gathers_and_cancels(world: World) -> None:
    both = [await begun_beside(world, only([world.reply()])) for _ in range(2)]
    await begun_beside(world, cancel_after(asyncio.gather(*both), asyncio.current_task()))
    await world.reply()


async def under_a_watchdog_over_a_future(world: World) -> None:
    """What is cancelled is not the task, but what it awaits."""
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    await begun_beside(world, cancel_after(asyncio.sleep(60), future))
    await Reply(world.begun, future)


async def under_a_watchdog_over_a_gather(world: World) -> None:
    gathered = asyncio.gather(alone(world), asyncio.gather(alone(world), alone(world)))
    await begun_beside(world, cancel_after(asyncio.sleep(60), gathered))
    await gathered


async def under_a_watchdog_over_one_of_a_gather(world: World) -> None:
    one = asyncio.ensure_future(alone(world))
    await begun_beside(world, cancel_after(asyncio.sleep(60), one))
    await asyncio.gather(asyncio.gather(one, alone(world)), alone(world))


async def under_a_timer_over_a_gather(world: World) -> None:
    gathered = asyncio.gather(alone(world), alone(world))
    asyncio.get_running_loop().call_later(60, gathered.cancel)
    await gathered


async def under_a_watchdog_that_wakes_another(world: World) -> None:
    """It sets an event; the task that waits for the event cancels."""
    event = asyncio.Event()

    async def watch(event: asyncio.Event) -> None:
        await asyncio.sleep(60)
        event.set()

    await begun_beside(world, watch(event))
    await begun_beside(world, cancel_after(event.wait(), asyncio.current_task()))
    await world.reply()


async def under_a_watchdog_with_a_coroutine_in_hand(world: World) -> None:
    async def cancel(item: Any) -> None:
        item.cancel()

    async def watch(coroutine: Any) -> None:
        with closing(coroutine):
            await asyncio.sleep(60)
            await coroutine

    await begun_beside(world, watch(cancel(asyncio.current_task())))
    await world.reply()


async def under_a_watchdog_with_a_large_cache(world: World) -> None:
    state = Scope()
    state.before, state.held = [[] for _ in range(100_000)], [[[asyncio.current_task()]]]  # type: ignore[attr-defined]
    state.tasks = set()

    async def watch(state: Any) -> None:
        await asyncio.sleep(60)
        state.held[0][0][0].cancel()

    await begun_beside(world, watch(state))
    await world.reply()


async def beside_a_gather_that_awaits(world: World) -> None:
    """What a task beside it gathers is joined to no call."""

    async def both(replies: list[Any]) -> None:
        await asyncio.gather(only([replies.pop()]), only([replies.pop()]))

    await begun_beside(world, both([world.reply(), world.reply()]))
    await asyncio.sleep(0)
    await world.reply()


MAY_BE_CANCELLED = (
    in_a_task_group,
    in_a_task_group_that_awaits,
    under_a_callback_that_cancels,
    beside_a_task_that_awaits_and_cancels,
    beside_a_task_that_gathers_and_cancels,
    under_a_watchdog_over_a_future,
    under_a_watchdog_over_a_gather,
    under_a_watchdog_over_one_of_a_gather,
    under_a_timer_over_a_gather,
    under_a_watchdog_that_wakes_another,
    under_a_watchdog_with_a_coroutine_in_hand,
    under_a_watchdog_with_a_large_cache,
)


@pytest.mark.parametrize("body", MAY_BE_CANCELLED)
def test_a_call_that_something_beside_it_may_cancel_is_active(world: World, body: Any) -> None:
    waits, status, _, _ = world.waits_of(body)
    assert [wait.may_act for wait in waits] == [True]
    assert status == "active"


def test_a_gather_beside_a_call_that_awaits_a_reply_leaves_the_call_as_it_is(world: World) -> None:
    ((wait,), status, _, _) = world.waits_of(beside_a_gather_that_awaits)
    assert (wait.may_act, status) == (False, "active")


def test_what_a_call_awaits_beside_too_much_to_search_cannot_be_told(world: World) -> None:
    (wait, other), status, _, _ = world.waits_of(beside_too_much_to_search)
    assert (wait.calls, wait.may_act, status) == (("A/0/B/1",), False, "blocked")
    assert (other.calls, other.k, other.may_act) == ((None,), 1, False)


class Meta(type):
    """Asked for what a class does not have, it runs code of the app's."""

    def __getattr__(cls, name: str) -> Any:
        raise LookupError(name)


class Unwilling(list[Any], metaclass=Meta):
    """So does an object that is asked how long it is, or looked up in a set."""

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        raise LookupError

    def __eq__(self, other: object) -> bool:
        raise LookupError


async def beside_an_app_that_looks_back(world: World) -> None:
    asyncio.get_running_loop().call_later(60, Unwilling([Unwilling()]).clear)
    await world.reply()


def test_no_code_of_the_apps_is_run_by_a_search(world: World) -> None:
    ((wait,), status, _, _) = world.waits_of(beside_an_app_that_looks_back)
    assert (wait.may_act, status) == (False, "blocked")


@pytest.mark.parametrize("about", [{"__module__": "ray._private.worker"}, {"__module__": "app", "cr_await": None}])
def test_what_ray_puts_around_its_calls_is_not_looked_into_for_it_leads_to_all_of_them(
    world: World, about: dict[str, Any]
) -> None:
    async def body(world: World) -> None:
        around = type("Around", (Scope,), about)()
        asyncio.get_running_loop().call_later(60, around.expire)
        await world.reply()

    ((wait,), status, _, _) = world.waits_of(body)
    assert (wait.may_act, status) == (False, "blocked")


def test_what_a_coroutine_lets_go_of_is_freed_though_it_has_been_searched(world: World) -> None:
    freed: list[bool] = []

    async def watch(go_on: asyncio.Event) -> None:
        item = Scope()
        item.tasks = set()
        freed_with = weakref.ref(item)
        await asyncio.wait([asyncio.ensure_future(go_on.wait())], timeout=60)
        del item
        freed.append(freed_with() is None)

    async def body(world: World) -> None:
        go_on = asyncio.Event()
        world.on_end = go_on.set
        await begun_beside(world, watch(go_on))
        await world.reply()

    world.waits_of(body)
    assert freed == [True]


def test_the_search_of_a_report_is_bounded_in_all_however_many_tasks_sleep(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    followed: list[int] = []
    referents = gc.get_referents

    def counted(item: Any) -> list[Any]:
        found = referents(item)
        followed.append(len(found))
        return found

    async def watch(state: Any) -> None:
        await asyncio.sleep(60)
        state.clear()

    async def body(world: World) -> None:
        state = {number: [number, {}] for number in range(40)}
        for number in range(100):
            state[number] = [[[number]] for _ in range(90)]
            await begun_beside(world, watch({**state}))
        await world.reply()

    monkeypatch.setattr(reach.gc, "get_referents", counted)
    world.steps = 200
    (_, other), _, _, _ = world.waits_of(body)
    assert other.calls == (None,)
    assert 10_000 < sum(followed) < 21_000


def test_the_end_of_a_call_wakes_no_other_but_what_it_does_may() -> None:
    """Ray has callbacks of its own on the task of a call, and they know all calls."""

    async def inner() -> tuple[bool, bool]:
        ended, done, other = (asyncio.ensure_future(asyncio.sleep(60)) for _ in range(3))
        ended.add_done_callback(lambda _: other.cancel())
        found = reach.Reach([(ended, None), (done, [other])], [other])
        found.add([ended])
        by_its_end = other in found
        found.add([done])
        answer = by_its_end, other in found
        for task in (ended, done, other):
            task.cancel()
        return answer

    assert asyncio.run(inner()) == (False, True)
