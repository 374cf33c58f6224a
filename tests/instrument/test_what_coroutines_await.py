"""What a call of an async actor waits for, told from its suspended coroutine: no Ray in here."""

from __future__ import annotations

import asyncio
import socket
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import uvloop

from ray_snapshot.instrument.process import loops
from ray_snapshot.instrument.process.coroutines import (
    background,
    goes_on_elsewhere,
    note_source,
    note_wait,
    parked_at,
    resolved,
)
from ray_snapshot.protocol.calls import CallWait, MachineReport, RunningCall, awaited

LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
"""Ray runs async actors on uvloop where that is installed, and on asyncio's own loop where it is not."""

CALL = "driver/0/A/1"


class Reply:
    """A ref that is awaited as a tracked one is: its wait begins, and the coroutine waits for a future."""

    def __init__(self, begun: Callable[[], int], future: asyncio.Future[None]) -> None:
        self.begun = begun
        self.future = future

    def __await__(self) -> Iterator[Any]:
        note_wait(self.future, self.begun())
        return self.future.__await__()


class World:
    """One call on a loop, and the waits that it, or what it started, has begun."""

    steps = 5

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.tasks: dict[int, Any] = {}
        self.kept: list[Any] = []
        self.on_end: Callable[[], None] = list

    def reply(self) -> Any:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        return Reply(self.begun, future)

    def begun(self) -> int:
        wait_id = len(self.tasks) + 1
        self.tasks[wait_id] = asyncio.current_task()
        return wait_id

    def waits_of(self, body: Callable[[World], Awaitable[Any]]) -> tuple[tuple[CallWait, ...], str, str | None, str]:
        """(the call's waits, the machine's status, where it is parked, what acts on the loop) once nothing moves."""
        with asyncio.Runner(loop_factory=LOOPS[self.kind]) as runner:
            found: Any = runner.run(self._look(body))
        return found  # type: ignore[no-any-return]

    async def _look(self, body: Callable[[World], Awaitable[Any]]) -> Any:
        coroutine: Any = body(self)
        task = asyncio.ensure_future(coroutine)
        for _ in range(self.steps):
            await asyncio.sleep(0)
        waits = tuple(CallWait(wait_id, CALL, awaited([f"A/0/B/{wait_id}"]), 1, 0.0) for wait_id in self.tasks)
        report = MachineReport("A", 0, 1, 0, status="blocked", calls=(RunningCall(CALL, "m", 0.0),), waits=waits)
        loop = asyncio.get_running_loop()
        found = resolved(report, {CALL: (task, coroutine)}, self.tasks, loop)
        answer = found.waits, found.status, parked_at(task, coroutine), background(loop, [task, *self.tasks.values()])
        self.on_end()
        for _ in range(self.steps):
            await asyncio.sleep(0)
        for left in asyncio.all_tasks() - {asyncio.current_task()}:
            left.cancel()
        return answer


async def alone(world: World) -> None:
    await world.reply()


async def together(world: World) -> None:
    await asyncio.gather(world.reply(), world.reply())


async def together_with_exceptions(world: World) -> None:
    await asyncio.gather(world.reply(), failing(), world.reply(), return_exceptions=True)


async def all_completed(world: World) -> None:
    tasks = [asyncio.ensure_future(alone(world)) for _ in range(2)]
    await asyncio.wait(tasks)


async def failing() -> None:
    raise ValueError


async def together_one_parked(world: World) -> None:
    await asyncio.gather(world.reply(), asyncio.Event().wait())


async def beside_a_task_that_awaits(world: World) -> None:
    """What its own task does when its reply is there is not known."""
    await begun_beside(world, only([world.reply()]))
    await world.reply()


async def begun_beside(world: World, coroutine: Any) -> asyncio.Task[Any]:
    """A task that the world keeps; from what it runs there is no way to the world."""
    task = asyncio.ensure_future(coroutine)
    world.kept.append(task)
    await asyncio.sleep(0)
    return task


async def only(replies: list[Any]) -> None:
    """A reply knows its world, and so all tasks: nothing holds it while its future is awaited."""
    await replies.pop()


async def beside(world: World) -> None:
    world.side = asyncio.ensure_future(alone(world))  # type: ignore[attr-defined]
    await asyncio.sleep(60)


async def bounded(world: World) -> None:
    await asyncio.wait_for(alone(world), 60)


async def under_a_timeout(world: World) -> None:
    async with asyncio.timeout(60):
        await world.reply()


async def cancelled_by_a_timer(world: World) -> None:
    asyncio.get_running_loop().call_later(60, asyncio.current_task().cancel)  # type: ignore[union-attr]
    await world.reply()


class Scope:
    """As the timeouts of other libraries: it knows its tasks, and cancels them itself."""

    def __init__(self) -> None:
        self.tasks = {asyncio.current_task()}

    def expire(self) -> None:
        for task in self.tasks:
            task.cancel()  # type: ignore[union-attr]


async def in_a_scope(world: World) -> None:
    asyncio.get_running_loop().call_later(60, Scope().expire)
    await world.reply()


async def in_a_scope_that_refers_weakly(world: World) -> None:
    scope = Scope()
    scope.tasks = weakref.WeakSet(scope.tasks)  # type: ignore[assignment]
    asyncio.get_running_loop().call_later(60, scope.expire)
    await world.reply()


async def under_a_watchdog(world: World) -> None:
    """A task that sleeps, and then cancels this one."""

    async def watch(others: list[Any]) -> None:
        await asyncio.sleep(60)
        others[0].cancel()

    world.side = asyncio.ensure_future(watch([asyncio.current_task()]))  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    await world.reply()


async def under_a_watchdog_that_gathers(world: World) -> None:
    """A task that waits for one that sleeps, and then cancels this one."""

    async def watch(other: Any) -> None:
        await asyncio.gather(asyncio.ensure_future(asyncio.sleep(60)))
        other.cancel()

    world.side = asyncio.ensure_future(watch(asyncio.current_task()))  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    await world.reply()


async def beside_one_that_keeps_its_task(world: World) -> None:
    """A task that sleeps beside an object by which it can reach this one."""
    world.side = asyncio.ensure_future(asleep(world))  # type: ignore[attr-defined]
    await asyncio.sleep(0)
    await world.reply()


async def in_a_closure(world: World) -> None:
    task = asyncio.current_task()

    def expire() -> None:
        task.cancel()  # type: ignore[union-attr]

    asyncio.get_running_loop().call_later(60, expire)
    await world.reply()


async def together_one_under_a_timeout(world: World) -> None:
    await asyncio.gather(alone(world), under_a_timeout(world))


async def together_all_under_a_timeout(world: World) -> None:
    await asyncio.gather(under_a_timeout(world), under_a_timeout(world))


async def any_under_a_timeout(world: World) -> None:
    tasks = [asyncio.ensure_future(under_a_timeout(world)) for _ in range(2)]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)


async def together_one_asleep(world: World) -> None:
    """What sleeps may raise afterwards, and that ends the `gather`."""
    await asyncio.gather(world.reply(), asyncio.sleep(60))


async def begun_and_asleep(world: World) -> None:
    """A reply that is asked for, and not awaited."""
    note_wait(asyncio.get_running_loop().create_future(), world.begun())
    await asyncio.sleep(60)


async def together_begun_and_asleep(world: World) -> None:
    await asyncio.gather(begun_and_asleep(world), begun_and_asleep(world))


async def just_cancelled(world: World) -> None:
    """Its future is done, and its own step is due."""
    task = asyncio.current_task()

    def cancel(times: int) -> None:
        asyncio.get_running_loop().call_soon(cancel, times - 1) if times else task.cancel()  # type: ignore[union-attr]

    asyncio.get_running_loop().call_soon(cancel, world.steps - 2)
    await world.reply()


async def together_in_each_other(world: World) -> None:
    await asyncio.gather(asyncio.gather(world.reply(), world.reply()), together(world))


async def beside_a_heartbeat(world: World) -> None:
    """Timers that wake another task, or call what knows nothing of this one, cancel nothing."""
    world.side = asyncio.ensure_future(asyncio.sleep(60))  # type: ignore[attr-defined]
    asyncio.get_running_loop().call_later(60, asyncio.Event().set)
    await asyncio.sleep(0)
    await world.reply()


async def parked(world: World) -> None:
    await asyncio.Event().wait()


async def asleep(world: World) -> None:
    await asyncio.sleep(60)


async def due(world: World) -> None:
    event = asyncio.Event()
    asyncio.get_running_loop().call_soon(_again, event, 100)
    await event.wait()


def _again(event: asyncio.Event, times: int) -> None:
    asyncio.get_running_loop().call_soon(_again, event, times - 1) if times else event.set()


async def cancelling(world: World) -> None:
    """A task's own method, as a callback, is not the task's next step."""
    task = asyncio.ensure_future(asyncio.Event().wait())
    asyncio.get_running_loop().call_soon(_cancel_later, task, 100)
    await asyncio.Event().wait()


def _cancel_later(task: asyncio.Task[Any], times: int) -> None:
    asyncio.get_running_loop().call_soon(_cancel_later, task, times - 1) if times else task.cancel()


async def timed(world: World) -> None:
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(60, event.set)
    await event.wait()


async def timed_no_more(world: World) -> None:
    event = asyncio.Event()
    asyncio.get_running_loop().call_later(60, event.set).cancel()
    await event.wait()


async def served(world: World) -> None:
    world.here = socket.create_server(("127.0.0.1", 0))  # type: ignore[attr-defined]
    world.server = await asyncio.start_server(lambda *_: None, sock=world.here)  # type: ignore[attr-defined]
    await asyncio.Event().wait()


async def connected(world: World) -> None:
    event, (here, world.there) = asyncio.Event(), socket.socketpair()  # type: ignore[attr-defined]
    world.streams = await asyncio.open_connection(sock=here)  # type: ignore[attr-defined]
    await event.wait()


async def datagrams(world: World) -> None:
    loop, (here, world.there) = asyncio.get_running_loop(), socket.socketpair(type=socket.SOCK_DGRAM)  # type: ignore[attr-defined]
    world.point = await loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=here)  # type: ignore[attr-defined]
    await asyncio.Event().wait()


async def read(world: World) -> None:
    event, (world.here, world.there) = asyncio.Event(), socket.socketpair()  # type: ignore[attr-defined]
    asyncio.get_running_loop().add_reader(world.here, event.set)  # type: ignore[attr-defined]
    await event.wait()


@pytest.fixture(params=LOOPS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    found = World(request.param)
    yield found
    for item in (getattr(found, name, None) for name in ("here", "there")):
        if item is not None:
            item.close()


def test_a_reply_that_the_call_itself_awaits_is_its_wait(world: World) -> None:
    waits, status, _, _ = world.waits_of(alone)
    assert [wait.wait_id for wait in waits] == [1]
    assert status == "blocked"


@pytest.mark.parametrize(("body", "count"), [(together, 2), (together_in_each_other, 4)])
def test_a_gather_waits_for_all_and_each_may_end_it_by_an_error(world: World, body: Any, count: int) -> None:
    (wait, *each), status, _, _ = world.waits_of(body)
    assert (len(wait.calls), wait.k, status) == (count, count, "blocked")
    assert sorted((len(one.calls), one.k) for one in each) == [(1, 1)] * count


@pytest.mark.parametrize("body", [together_with_exceptions, all_completed])
def test_what_collects_exceptions_is_one_wait_for_all(world: World, body: Any) -> None:
    ((wait,), status, _, _) = world.waits_of(body)
    assert (len(wait.calls), wait.k, status) == (2, 2, "blocked")


def test_what_is_parked_in_a_gather_may_be_woken_by_a_later_call_and_raise(world: World) -> None:
    (wait, alone, local), status, _, _ = world.waits_of(together_one_parked)
    assert (wait.calls, wait.k) == (alone.calls, 1)
    assert (local.is_local, local.calls, status) == (True, (), "blocked")


def test_a_task_beside_a_call_that_awaits_a_reply_makes_its_machine_active(world: World) -> None:
    ((wait,), status, _, _) = world.waits_of(beside_a_task_that_awaits)
    assert (wait.wait_id, wait.may_act, status) == (2, False, "active")


def test_a_timer_that_cannot_reach_the_calls_task_is_no_timeout_of_it(world: World) -> None:
    ((wait,), status, _, acting) = world.waits_of(beside_a_heartbeat)
    assert (wait.may_act, status) == (False, "blocked")
    assert "timers" in acting.split(" ")


MAY_GO_ON = (
    beside,
    bounded,
    under_a_timeout,
    cancelled_by_a_timer,
    in_a_scope,
    in_a_scope_that_refers_weakly,
    in_a_closure,
    under_a_watchdog,
    under_a_watchdog_that_gathers,
    beside_one_that_keeps_its_task,
    together_one_under_a_timeout,
    together_all_under_a_timeout,
    any_under_a_timeout,
    together_one_asleep,
    together_begun_and_asleep,
    just_cancelled,
)


@pytest.mark.parametrize("body", MAY_GO_ON)
def test_a_call_that_goes_on_by_itself_is_active_whatever_its_tasks_await(world: World, body: Any) -> None:
    waits, status, _, _ = world.waits_of(body)
    assert [wait.may_act for wait in waits] == [True]
    assert status == "active"


@pytest.mark.parametrize("body", [parked, timed_no_more])
def test_a_call_that_awaits_an_event_of_its_own_loop_is_parked_where_it_says_so(world: World, body: Any) -> None:
    _, _, site, acting = world.waits_of(body)
    assert site is not None
    assert site.startswith(__file__)
    assert acting == ""


def test_a_call_that_sleeps_is_not_parked_and_its_loop_not_quiet(world: World) -> None:
    _, _, site, acting = world.waits_of(asleep)
    assert site is None
    assert acting == "timers on the loop"


@pytest.mark.parametrize(
    ("body", "acting"),
    [
        (timed, "timers"),
        (due, "callbacks"),
        (cancelling, "callbacks"),
        (served, "sockets"),
        (connected, "sockets"),
        (datagrams, "sockets"),
        (read, "sockets"),
    ],
)
def test_what_may_wake_a_parked_call_is_named(world: World, body: Any, acting: str) -> None:
    _, _, site, found = world.waits_of(body)
    assert site is not None
    assert acting in found.split(" ")


def test_a_loop_of_another_kind_is_named_and_nothing_is_said_of_it() -> None:
    found = background(asyncio.AbstractEventLoop(), [])
    assert found == "the event loop (asyncio.events.AbstractEventLoop, whose timers cannot be seen)"


def test_a_uvloop_that_keeps_its_timers_elsewhere_is_one_of_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "_shows", lambda _: False)
    loop = uvloop.new_event_loop()
    found = background(loop, [])
    loop.close()
    assert found == "the event loop (uvloop.Loop, whose timers cannot be seen)"


@pytest.fixture
def elsewhere() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


def _noted(future: Any) -> Any:
    awaited = asyncio.wrap_future(future)
    note_source(awaited, future)
    return awaited


async def _is_elsewhere(body: Any) -> bool:
    task = asyncio.ensure_future(body)
    await asyncio.sleep(0.0)
    await asyncio.sleep(0.0)
    found = goes_on_elsewhere(task)
    task.cancel()
    return found


def test_what_awaits_a_coroutine_on_the_loop_of_another_thread_may_be_freed_by_it_alone(
    elsewhere: asyncio.AbstractEventLoop,
) -> None:
    """A thread of an executor computes: what awaits that is active, as what sleeps is."""
    may_end = threading.Event()

    async def there() -> Any:
        found = asyncio.run_coroutine_threadsafe(asyncio.sleep(600), elsewhere)
        await asyncio.to_thread(asyncio.run_coroutine_threadsafe(asyncio.sleep(0), elsewhere).result)  # it has begun
        return found

    async def through_a_task(future: Any) -> None:
        await asyncio.ensure_future(alone_for(future))

    async def alone_for(future: Any) -> None:
        await _noted(future)

    async def look() -> list[bool]:
        with ThreadPoolExecutor(1) as pool:
            computes = pool.submit(may_end.wait)
            found = [await _is_elsewhere(one(await there())) for one in (alone_for, through_a_task)]
            found += [await _is_elsewhere(one) for one in (alone_for(computes), asyncio.sleep(600))]
            may_end.set()
        return found

    assert asyncio.run(look()) == [True, True, False, False]
