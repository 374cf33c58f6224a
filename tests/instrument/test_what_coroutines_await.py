"""What a call of an async actor waits for, told from its suspended coroutine, and what may end that: no Ray in here."""

from __future__ import annotations

import asyncio
import gc
import inspect
import socket
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing
from typing import Any, ClassVar

import pytest
import uvloop
from ray.util.tracing.tracing_helper import _inject_tracing_into_class

from ray_snapshot.instrument.process import loops, reach
from ray_snapshot.instrument.process.awaited import main_tasks
from ray_snapshot.instrument.process.coroutines import (
    awaited_within,
    background,
    note_wait,
    parked_at,
    resolved,
    timers_of,
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


async def together_in_each_other(world: World) -> None:
    await asyncio.gather(asyncio.gather(world.reply(), world.reply()), together(world))


async def together_with_exceptions(world: World) -> None:
    await asyncio.gather(world.reply(), failing(), world.reply(), return_exceptions=True)


async def all_completed(world: World) -> None:
    await asyncio.wait([asyncio.ensure_future(alone(world)) for _ in range(2)])


async def failing() -> None:
    raise ValueError


async def together_one_parked(world: World) -> None:
    await asyncio.gather(world.reply(), asyncio.Event().wait())


async def begun_beside(world: World, coroutine: Any) -> asyncio.Task[Any]:
    """A task that the world keeps; from what it runs there is no way to the world."""
    task = asyncio.ensure_future(coroutine)
    world.kept.append(task)
    await asyncio.sleep(0)
    return task


async def only(replies: list[Any]) -> None:
    """A reply knows its world, and so all tasks: nothing holds it while its future is awaited."""
    await replies.pop()


async def cancel_after(wait: Any, *items: Any) -> None:
    await wait
    for item in items:
        item.cancel()


async def asleep(world: World) -> None:
    await asyncio.sleep(60)


async def under_a_timeout(world: World) -> None:
    async with asyncio.timeout(60):
        await world.reply()


def later(work: Callable[..., object]) -> asyncio.TimerHandle:
    return asyncio.get_running_loop().call_later(60, work)


def this() -> Any:
    return asyncio.current_task()


class Scope:
    """As the timeouts of other libraries: it knows its tasks, and cancels them itself."""

    def __init__(self, tasks: Any = None) -> None:
        self.tasks = {this()} if tasks is None else tasks

    def expire(self) -> None:
        for task in self.tasks:
            task.cancel()


# ---- what ends a wait for a reply ---------------------------------------------------------------------------------------


async def _two_that_gather(world: World) -> None:
    both = [await begun_beside(world, only([world.reply()])) for _ in range(2)]
    await begun_beside(world, cancel_after(asyncio.gather(*both), this()))


async def _callback(world: World) -> None:
    task, sleeper = this(), await begun_beside(world, asyncio.sleep(60))
    sleeper.add_done_callback(lambda _: task.cancel())


async def _one_that_wakes_another(world: World) -> None:
    """It sets an event; the task that waits for the event cancels."""
    event = asyncio.Event()

    async def watch(event: asyncio.Event) -> None:
        await asyncio.sleep(60)
        event.set()

    await begun_beside(world, watch(event))
    await begun_beside(world, cancel_after(event.wait(), this()))


def _with_a_coroutine_in_hand(world: World) -> Any:
    async def cancel(item: Any) -> None:
        item.cancel()

    async def watch(coroutine: Any) -> None:
        with closing(coroutine):
            await asyncio.sleep(60)
            await coroutine

    return begun_beside(world, watch(cancel(this())))


def _with_a_large_cache(world: World) -> Any:
    state: Any = Scope(set())
    state.before, state.held = [[] for _ in range(100_000)], [[[this()]]]

    async def watch(state: Any) -> None:
        await asyncio.sleep(60)
        state.held[0][0][0].cancel()

    return begun_beside(world, watch(state))


def _closure(world: World) -> Any:
    task = this()

    def expire() -> None:
        task.cancel()

    return later(expire)


async def cancel_all() -> None:
    await asyncio.sleep(60)
    for task in asyncio.all_tasks():
        task.cancel()


TASKS: list[Any] = []


class Keeper:
    """Its tasks are found by names alone."""

    tasks: ClassVar[list[Any]] = []

    async def by_a_method(self) -> None:
        await asyncio.sleep(60)
        self.expire()

    async def by_its_class(self) -> None:
        await asyncio.sleep(60)
        self.tasks.pop().cancel()

    @classmethod
    async def by_another_class(cls) -> None:
        await asyncio.sleep(60)
        Keeper.tasks.pop().cancel()

    async def by_a_static_method(self) -> None:
        await asyncio.sleep(60)
        self.end()

    @staticmethod
    def end() -> None:
        end_all()

    def expire(self) -> None:
        end_all()


_inject_tracing_into_class(Keeper)  # as Ray does with an actor's

NAMES = ("by_a_method", "by_its_class", "by_another_class", "by_a_static_method")


def end_all() -> None:
    while TASKS:
        TASKS.pop().cancel()


def _by_names(name: str) -> Callable[[World], Any]:
    def begin(world: World) -> Any:
        TASKS[:] = Keeper.tasks[:] = [this()]
        return begun_beside(world, getattr(Keeper(), name)())

    return begin


def _just_now(world: World) -> None:
    """Its future is done, and its own step is due."""
    _again(this().cancel, world.steps - 1)


BESIDE: dict[str, Callable[[World], Any]] = {
    "a timer that cancels": lambda world: later(this().cancel),
    "a scope": lambda world: later(Scope().expire),
    "a scope that refers weakly": lambda world: later(Scope(weakref.WeakSet({this()})).expire),
    "a closure": _closure,
    "a watchdog": lambda world: begun_beside(world, cancel_after(asyncio.sleep(60), this())),
    "one that gathers": lambda world: begun_beside(
        world, cancel_after(asyncio.gather(asyncio.ensure_future(asyncio.sleep(60))), this())
    ),
    "one that keeps its task": lambda world: begun_beside(world, asleep(world)),
    "one that wakes another": _one_that_wakes_another,
    "one with a coroutine in hand": _with_a_coroutine_in_hand,
    "one with a large cache": _with_a_large_cache,
    "a callback that cancels": _callback,
    "a task that awaits and cancels": lambda world: begun_beside(world, cancel_after(only([world.reply()]), this())),
    "a task that gathers and cancels": _two_that_gather,
    "what has just cancelled it": _just_now,
}
"""What is beside a call that awaits a reply."""


async def beside(world: World) -> None:
    world.kept.append(asyncio.ensure_future(alone(world)))
    await asyncio.sleep(60)


async def bounded(world: World) -> None:
    await asyncio.wait_for(alone(world), 60)


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
    note_wait(asyncio.get_running_loop().create_future(), world.begun())
    await asyncio.sleep(60)


async def together_begun_and_asleep(world: World) -> None:
    await asyncio.gather(begun_and_asleep(world), begun_and_asleep(world))


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
    later(gathered.cancel)
    await gathered


MAY_GO_ON = (
    beside, bounded, under_a_timeout, together_one_under_a_timeout, together_all_under_a_timeout, any_under_a_timeout,
    together_one_asleep, together_begun_and_asleep, in_a_task_group, in_a_task_group_that_awaits,
    under_a_watchdog_over_a_future, under_a_watchdog_over_a_gather, under_a_watchdog_over_one_of_a_gather,
    under_a_timer_over_a_gather,
)  # fmt: skip


def awaits_beside(begin: Callable[[World], Any]) -> Callable[[World], Awaitable[None]]:
    """A call that awaits a reply beside what this begins."""

    async def body(world: World) -> None:
        begun = begin(world)
        if inspect.isawaitable(begun):
            await begun
        del begun
        await world.reply()

    return body


# ---- what wakes a parked call -------------------------------------------------------------------------------------------


def _again(work: Callable[[], object], times: int) -> None:
    asyncio.get_running_loop().call_soon(_again, work, times - 1) if times else work()


def _cancelling(world: World, event: asyncio.Event) -> None:
    """A task's own method, as a callback, is not the task's next step."""
    _again(asyncio.ensure_future(asyncio.Event().wait()).cancel, 100)


async def _server(world: World, event: asyncio.Event) -> None:
    world.here = socket.create_server(("127.0.0.1", 0))  # type: ignore[attr-defined]
    world.kept.append(await asyncio.start_server(lambda *_: None, sock=world.here))  # type: ignore[attr-defined]


async def _connection(world: World, event: asyncio.Event) -> None:
    here, world.there = socket.socketpair()  # type: ignore[attr-defined]
    world.kept.append(await asyncio.open_connection(sock=here))


async def _datagrams(world: World, event: asyncio.Event) -> None:
    here, world.there = socket.socketpair(type=socket.SOCK_DGRAM)  # type: ignore[attr-defined]
    loop = asyncio.get_running_loop()
    world.kept.append(await loop.create_datagram_endpoint(asyncio.DatagramProtocol, sock=here))


def _reader(world: World, event: asyncio.Event) -> None:
    world.here, world.there = socket.socketpair()  # type: ignore[attr-defined]
    asyncio.get_running_loop().add_reader(world.here, event.set)  # type: ignore[attr-defined]


WAKES: dict[str, tuple[Callable[[World, asyncio.Event], Any], str]] = {
    "nothing": (lambda world, event: None, ""),
    "a timer that was cancelled": (lambda world, event: later(event.set).cancel(), ""),
    "a timer": (lambda world, event: later(event.set), "timers"),
    "a callback": (lambda world, event: _again(event.set, 100), "callbacks"),
    "a callback that cancels": (_cancelling, "callbacks"),
    "a server": (_server, "sockets"),
    "a connection": (_connection, "sockets"),
    "datagrams": (_datagrams, "sockets"),
    "a reader": (_reader, "sockets"),
}


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


@pytest.mark.parametrize(
    "body", [*MAY_GO_ON, *map(awaits_beside, BESIDE.values())], ids=[*(one.__name__ for one in MAY_GO_ON), *BESIDE]
)
def test_a_call_that_goes_on_by_itself_or_that_something_beside_it_may_cancel_is_active(
    world: World, body: Any
) -> None:
    waits, status, _, _ = world.waits_of(body)
    assert [wait.may_act for wait in waits] == [True]
    assert status == "active"


def _a_task_that_awaits(world: World) -> Any:
    """What its own task does when its reply is there is not known."""
    return begun_beside(world, only([world.reply()]))


async def _a_gather_that_awaits(world: World) -> None:
    """What a task beside it gathers is joined to no call."""

    async def both(replies: list[Any]) -> None:
        await asyncio.gather(only([replies.pop()]), only([replies.pop()]))

    await begun_beside(world, both([world.reply(), world.reply()]))
    await asyncio.sleep(0)


@pytest.mark.parametrize("begin", [_a_task_that_awaits, _a_gather_that_awaits])
def test_a_task_beside_a_call_that_awaits_a_reply_makes_its_machine_active_and_leaves_the_call_as_it_is(
    world: World, begin: Any
) -> None:
    ((wait,), status, _, _) = world.waits_of(awaits_beside(begin))
    assert (wait.may_act, status) == (False, "active")


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


class Proxy:
    """So does one of another thing, asked for anything; it is called, too."""

    def __call__(self, *_: Any) -> None: ...

    def __getattr__(self, name: str) -> Any:
        raise LookupError(name)


def test_of_timers_and_callbacks_nothing_is_asked_that_runs_code_of_the_app() -> None:
    async def looked_at() -> Any:
        later(Proxy())
        future, task = asyncio.get_running_loop().create_future(), this()
        for one in (future, task):
            one.add_done_callback(Proxy())
        return timers_of(task.get_loop()), awaited_within(future, ()), [*main_tasks([task.get_loop()])], task

    timers, awaited_there, mains, task = asyncio.run(looked_at())
    assert timers[id(task)] == 0
    assert (awaited_there, [one for one, _ in mains]) == ([], [task])


def _a_heartbeat(world: World) -> Any:
    """Timers that wake another task, or call what knows nothing of this one, cancel nothing."""
    later(asyncio.Event().set)
    return begun_beside(world, asyncio.sleep(60))


def _of_rays(**about: Any) -> Callable[[World], Any]:
    """What Ray puts around its calls is not looked into: it leads to all of them."""
    return lambda world: later(type("Around", (Scope,), about)().expire)


@pytest.mark.parametrize(
    "begin",
    [
        _a_heartbeat,
        lambda world: later(Unwilling([Unwilling()]).clear),
        _of_rays(__module__="ray._private.worker"),
        _of_rays(__module__="app", cr_await=None),
    ],
    ids=["a heartbeat", "what would run code of the app's", "a module of Ray's", "a coroutine's"],
)
def test_what_cannot_reach_the_calls_task_or_is_not_looked_into_is_no_timeout_of_it(world: World, begin: Any) -> None:
    ((wait,), status, _, acting) = world.waits_of(awaits_beside(begin))
    assert (wait.may_act, status) == (False, "blocked")
    assert "timers" in acting.split(" ")


@pytest.mark.parametrize(
    "begin", [lambda world: begun_beside(world, cancel_all()), *map(_by_names, NAMES)], ids=["all tasks", *NAMES]
)
def test_a_call_that_something_beside_it_may_have_hold_of_by_names_cannot_be_told(world: World, begin: Any) -> None:
    (wait, other), *_ = world.waits_of(awaits_beside(begin))
    assert (wait.may_act, other.calls) == (False, (None,))


class Canceller(threading.Thread):
    def __init__(self, *work: Any) -> None:
        super().__init__()
        self.work = work

    def run(self) -> None:
        END.wait()
        cancel_from_a_thread(*self.work)


def cancel_from_a_thread(loop: Any, task: Any) -> None:
    loop.call_soon_threadsafe(task.cancel)


def _taken_from_a_queue(*work: Any) -> None:
    END.wait()
    cancel_from_a_thread(*work)


END = threading.Event()
THREADS = {
    "a class": Canceller,
    "a function": lambda *work: threading.Thread(target=_taken_from_a_queue, args=work),
    "its variables": lambda *work: threading.Thread(
        target=lambda held: _taken_from_a_queue(*held.pop()), args=([work],)
    ),
    "nothing": lambda *work: threading.Thread(target=END.wait),
    "no work for the loop": lambda *work: threading.Thread(target=lambda *_: END.wait(), args=work),
}


@pytest.mark.parametrize("by", THREADS)
def test_so_is_one_that_a_thread_has_hold_of_which_hands_work_to_its_loop(world: World, by: str) -> None:
    async def body(world: World) -> None:
        thread = THREADS[by](asyncio.get_running_loop(), this())
        thread.start()
        try:
            await world.reply()
        finally:
            END.set()
            thread.join()
            END.clear()

    waits, *_ = world.waits_of(body)
    assert len(waits) == (1 if by.startswith("no") else 2)


def test_what_a_call_awaits_beside_too_much_to_search_cannot_be_told(world: World) -> None:
    body = awaits_beside(lambda world: later([[] for _ in range(100_000)].clear))
    (wait, other), status, _, _ = world.waits_of(body)
    assert (wait.calls, wait.may_act, status) == (("A/0/B/1",), False, "blocked")
    assert (other.calls, other.k, other.may_act) == ((None,), 1, False)


@pytest.mark.parametrize(("wakes", "acting"), WAKES.values(), ids=WAKES)
def test_a_parked_call_is_told_with_its_place_and_with_what_may_wake_it(world: World, wakes: Any, acting: str) -> None:
    async def body(world: World) -> None:
        event = asyncio.Event()
        begun = wakes(world, event)
        if inspect.isawaitable(begun):
            await begun
        await event.wait()

    _, _, site, found = world.waits_of(body)
    assert site is not None
    assert site.startswith(__file__)
    assert (acting in found.split(" ")) if acting else found == ""


def test_a_call_that_sleeps_is_not_parked_and_its_loop_not_quiet(world: World) -> None:
    _, _, site, acting = world.waits_of(asleep)
    assert (site, acting) == (None, "timers on the loop")


def test_a_loop_of_another_kind_is_named_and_nothing_is_said_of_it() -> None:
    found = background(asyncio.AbstractEventLoop(), [])
    assert found == "the event loop (asyncio.events.AbstractEventLoop, whose timers cannot be seen)"


def test_a_uvloop_that_keeps_its_timers_elsewhere_is_one_of_another_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops, "_shows", lambda _: False)
    loop = uvloop.new_event_loop()
    found = background(loop, [])
    loop.close()
    assert found == "the event loop (uvloop.Loop, whose timers cannot be seen)"


def test_what_a_coroutine_lets_go_of_is_freed_though_it_has_been_searched(world: World) -> None:
    freed: list[bool] = []

    async def watch(go_on: asyncio.Event) -> None:
        item = Scope(set())
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
