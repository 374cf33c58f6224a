"""Who waits for a coroutine on the loop of a thread waits for what that awaits, or for nothing that can be told. No Ray."""

import _thread
import asyncio
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Generator, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import pytest
import uvloop
from lone_process import BOUND_S, lone_process
from until import until

from ray_snapshot.instrument.here import HARNESS
from ray_snapshot.instrument.process import loops
from ray_snapshot.instrument.process.coroutines import first_seen
from ray_snapshot.instrument.process.handed import unlisted
from ray_snapshot.instrument.process.kernel_waits import kernel_wait
from ray_snapshot.instrument.process.other_loops import is_at_rest, loop_between_steps
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.instrument.process.reports import LongWait
from ray_snapshot.protocol.calls import CallWait, Header, MachineReport
from ray_snapshot.protocol.commands import Overdue, Request
from ray_snapshot.pytest_plugin.watching import HARNESS as OF_PYTEST
from ray_snapshot.runtime.here import frames_of_threads

LONG_S = 600.0
ASKED, OTHER = "A/0/B/1", "A/0/C/1"

LOOPS = {"asyncio": asyncio.SelectorEventLoop, "uvloop": uvloop.new_event_loop}


class LoopThread:
    """A thread of the app's own that runs an event loop."""

    def __init__(self, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self.loop = new_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def run(self, body: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(body, self.loop)

    @property
    def frame(self) -> FrameType:
        return frames_of_threads()[self.thread.ident or 0]

    def end(self) -> None:
        self.run(_end_here())
        self.thread.join(BOUND_S)


async def _end_here() -> None:
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for one in left:
        one.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    asyncio.get_running_loop().stop()


class App:
    """What hands coroutines to two such threads, in one call or as the program."""

    def __init__(self, process: Process, new_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
        self.process = process
        self.one, self.two = LoopThread(new_loop), LoopThread(new_loop)
        self.ends = threading.Event()
        self.awaited = 0

    async def asks(self, ref: str | None = ASKED) -> None:
        """`await ref`, which is never answered."""
        await self.awaits(self.asked(ref))

    def asked(self, ref: str | None = ASKED) -> asyncio.Future[None]:
        """The future by which this is awaited."""
        future = asyncio.get_running_loop().create_future()
        self.process.waiting.begin_elsewhere(future, ref, "app.py:7")
        return future

    async def awaits(self, future: Any) -> None:
        self.awaited += 1
        await future

    def begun(self, body: Coroutine[Any, Any, Any]) -> Future[Any]:
        """What `body` comes to on the first loop, which has nothing more to run now."""
        result = self.one.run(body)
        until(lambda: self.awaited and loop_between_steps(self.one.frame) is self.one.loop)
        return result

    def recorded_in(self, body: Coroutine[Any, Any, Any]) -> MachineReport:
        """What is recorded while a call waits for the result of `body` on the first loop."""
        with self.waiting_for(body):
            self.process.obey(Request(1))
            self.process.obey(Overdue(1))
            assert not self.process.ledger.waits, "it was noted for the record alone"
        return self.process.ledger.report(1)

    @contextmanager
    def waiting_for(self, body: Coroutine[Any, Any, Any]) -> Iterator[None]:
        """A call waits for the result of `body` on the first loop meanwhile."""
        result = self.begun(body)
        call = threading.Thread(target=self.call, args=(1, result.exception), daemon=True)
        call.start()
        until(lambda: _stands(call))
        yield
        self.ends.set()
        self.one.loop.call_soon_threadsafe(result.cancel)
        call.join(BOUND_S)

    def call(self, number: int, work: Callable[[], Any]) -> None:
        """A call of that number does this, until it is cancelled."""
        call_id = self.process.enter(Header("driver", 0, number, 0, 1), "step")
        with suppress(CancelledError):
            work()
        self.process.leave(call_id)

    def end(self) -> None:
        self.ends.set()
        self.one.end()
        self.two.end()


def _stands(thread: threading.Thread) -> bool:
    frame = frames_of_threads().get(thread.ident or 0)
    found = kernel_wait(thread.native_id or 0)
    return frame is not None and frame.f_code.co_name == "wait" and found is not None


@pytest.fixture(params=LOOPS)
def app(request: pytest.FixtureRequest, refs_are_calls: None) -> Iterator[App]:
    ours = OF_PYTEST - HARNESS  # threads of whatever runs the tests are not the app's
    HARNESS.update(ours)
    with lone_process() as process:
        found = App(process, LOOPS[request.param])
        yield found
        found.end()
    HARNESS.difference_update(ours)


async def _in_a_task(app: App) -> None:
    await asyncio.ensure_future(app.asks())


async def _on_another_loop(app: App) -> None:
    await asyncio.wrap_future(app.two.run(app.asks()))


async def _beside_a_timer_of_another(app: App) -> None:
    asyncio.get_running_loop().call_later(LONG_S, app.awaited.bit_length)
    await app.asks()


async def _both(app: App) -> None:
    await asyncio.gather(app.asks(), app.asks(OTHER))


ASKING: dict[str, tuple[Callable[[App], Coroutine[Any, Any, None]], set[str]]] = {
    "itself": (lambda app: app.asks(), {ASKED}),
    "in a task": (_in_a_task, {ASKED}),
    "on another loop": (_on_another_loop, {ASKED}),
    "beside a timer that has nothing to do with it": (_beside_a_timer_of_another, {ASKED}),
    "two at once": (_both, {ASKED, OTHER}),
}


@pytest.mark.parametrize("how", ASKING)
def test_who_waits_for_a_coroutine_there_waits_for_the_replies_that_it_awaits(app: App, how: str) -> None:
    body, asked = ASKING[how]
    found = app.recorded_in(body(app))
    (wait,) = _of_calls(found)
    assert ({*wait.calls}, wait.k, wait.call_site, wait.may_act) == (asked, 1, "app.py:7", False)
    assert found.status == "blocked"


def _of_calls(report: MachineReport) -> list[CallWait]:
    return [wait for wait in report.waits if not wait.is_callback]


async def _within(app: App) -> None:
    async with asyncio.timeout(LONG_S):
        await app.asks()


async def _cancelled_by_another(app: App) -> None:
    own = asyncio.current_task()
    assert own is not None

    async def watches() -> None:
        await asyncio.sleep(LONG_S)
        own.cancel()

    watching = asyncio.ensure_future(watches())
    await app.asks()
    await watching


async def _beside_a_thread_that_acts(app: App) -> None:
    def acts() -> None:
        while not app.ends.wait(0.01):
            pass

    threading.Thread(target=acts, daemon=True).start()
    await app.asks()


async def _in_a_group_that_fails_later(app: App) -> None:
    async def fails() -> None:
        await app.asks(OTHER)
        raise ValueError

    async with asyncio.TaskGroup() as group:
        group.create_task(fails())
        await app.asks()


async def _cancelled_when_another_ends(app: App) -> None:
    own, other = (asyncio.ensure_future(app.asks(one)) for one in (ASKED, OTHER))
    other.add_done_callback(lambda _: own.cancel())
    await own


async def _on_a_loop_that_stands_in_a_callback(app: App) -> None:
    async def asks() -> None:
        asyncio.get_running_loop().call_soon(app.ends.wait)
        await _within(app)

    await asyncio.wrap_future(app.two.run(asks()))


async def _beside_a_timer_that_stops_the_loop(app: App) -> None:
    loop = asyncio.get_running_loop()
    loop.call_later(LONG_S, loop.stop)
    await app.asks()


async def _beside_one_that_ends_all(app: App) -> None:
    async def ends() -> None:
        await asyncio.sleep(LONG_S)
        for one in asyncio.all_tasks():
            one.cancel()

    ending = asyncio.ensure_future(ends())
    await app.asks()
    await ending


async def _beside_a_thread_without_a_name(app: App) -> None:
    def acts() -> None:
        app.ends.wait()

    _thread.start_new_thread(acts, ())
    until(lambda: unlisted(frames_of_threads()))
    await app.asks()


async def _beside_another_call(app: App) -> None:
    threading.Thread(target=app.call, args=(2, app.ends.wait), daemon=True).start()
    until(lambda: len(app.process.threads) == 1)
    await app.asks()


@pytest.mark.parametrize(
    "body",
    [
        _within,
        _beside_a_timer_that_stops_the_loop,
        _beside_one_that_ends_all,
        _beside_a_thread_without_a_name,
        _beside_another_call,
        _cancelled_by_another,
        _cancelled_when_another_ends,
        _in_a_group_that_fails_later,
        _on_a_loop_that_stands_in_a_callback,
        _beside_a_thread_that_acts,
    ],
)
def test_what_else_may_end_that_is_told_as_not_known(
    app: App, body: Callable[[App], Coroutine[Any, Any, None]]
) -> None:
    (wait,) = (one for one in _of_calls(app.recorded_in(body(app))) if one.calls)
    assert ({*wait.calls}, wait.k) == ({ASKED, None}, 1)


async def _sleeps(app: App) -> None:
    await app.awaits(asyncio.ensure_future(asyncio.sleep(LONG_S)))


async def _first_of_two(app: App) -> None:
    await asyncio.wait([asyncio.ensure_future(app.asks(one)) for one in (ASKED, OTHER)], return_when="FIRST_COMPLETED")


async def _of_nobody_known(app: App) -> None:
    await app.asks(None)


async def _beside_what_is_not_known(app: App) -> None:
    await asyncio.gather(app.asks(), app.awaits(asyncio.get_running_loop().create_future()))


@pytest.mark.parametrize("body", [_sleeps, _first_of_two, _of_nobody_known, _beside_what_is_not_known])
def test_what_awaits_anything_else_there_leaves_the_call_active(
    app: App, body: Callable[[App], Coroutine[Any, Any, None]]
) -> None:
    found = app.recorded_in(body(app))
    assert all(wait.may_act for wait in _of_calls(found))
    assert found.status == "active"


async def _an_event(app: App) -> None:
    app.awaited += 1
    await asyncio.Event().wait()


async def _two_replies(app: App) -> None:
    await app.awaits(asyncio.gather(app.asked(), app.asked(OTHER)))


@pytest.mark.parametrize("body", [_an_event, _in_a_task, _both, _on_another_loop, _two_replies])
def test_a_loop_rests_while_all_its_tasks_await_replies_or_each_other(
    app: App, body: Callable[[App], Coroutine[Any, Any, None]]
) -> None:
    result = app.begun(body(app))
    assert is_at_rest(app.one.frame)
    app.one.loop.call_soon_threadsafe(result.cancel)


async def _serves(app: App) -> None:
    server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
    async with server:
        await app.asks()


async def _a_future(app: App) -> None:
    await app.awaits(asyncio.get_running_loop().create_future())


async def _a_thread(app: App) -> None:
    await app.awaits(asyncio.ensure_future(asyncio.to_thread(app.ends.wait)))


@pytest.mark.parametrize("body", [_sleeps, _within, _serves, _a_future, _a_thread])
def test_a_loop_with_a_timer_a_socket_or_what_is_not_known_acts(
    app: App, body: Callable[[App], Coroutine[Any, Any, None]]
) -> None:
    result = app.begun(body(app))
    assert not is_at_rest(app.one.frame)
    app.ends.set()
    app.one.loop.call_soon_threadsafe(result.cancel)


async def _works_in_a_pool(app: App) -> None:
    def works() -> None:
        while not app.ends.wait(0.01):
            pass

    await app.awaits(asyncio.get_running_loop().run_in_executor(None, works))


def test_a_loop_acts_that_selects_inside_a_callback(app: App) -> None:
    here, there = socket.socketpair()

    def selects() -> None:
        with selectors.DefaultSelector() as own:
            own.register(here, selectors.EVENT_READ)
            own.select()

    app.one.loop.call_soon_threadsafe(selects)
    until(lambda: getattr(app.one.frame.f_back, "f_code", None) is selects.__code__)
    assert loop_between_steps(app.one.frame) is None
    there.send(b"now")
    until(lambda: loop_between_steps(app.one.frame) is app.one.loop)
    here.close()
    there.close()


def test_a_loop_is_looked_at_while_what_it_waits_for_comes_and_goes(app: App) -> None:
    loop, pairs = app.one.loop, [socket.socketpair() for _ in range(100)]

    def come_and_go() -> None:
        for one, _ in pairs:
            loop.add_reader(one, one.fileno)
        for one, _ in pairs:
            loop.remove_reader(one)
        if not app.ends.is_set():
            loop.call_soon(come_and_go)

    loop.call_soon_threadsafe(come_and_go)
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        assert all(loops.pending(loop) is not None for _ in range(2_000))
    finally:
        sys.setswitchinterval(before)
        app.ends.set()
        until(lambda: is_at_rest(app.one.frame))
        for here, there in pairs:
            here.close()
            there.close()


@pytest.mark.parametrize("body", [_sleeps, _works_in_a_pool])
def test_a_long_wait_is_not_told_if_the_coroutine_is_seen_to_go_on(
    app: App, body: Callable[[App], Coroutine[Any, Any, None]]
) -> None:
    assert _told(app, body(app)) == ()


class _Wrapped(Coroutine[Any, Any, None]):
    """A coroutine that a compiled library, or `aiohttp`, has made: it has no name."""

    __slots__ = ("_body",)

    def __init__(self, body: Coroutine[Any, Any, None]) -> None:
        self._body = body

    def send(self, value: Any) -> Any:
        return self._body.send(value)

    def throw(self, *error: Any) -> Any:
        return self._body.throw(*error)

    def __await__(self) -> Generator[Any, Any, None]:
        return self._body.__await__()


def test_a_long_wait_is_told_with_the_name_of_the_coroutine(app: App) -> None:
    told, *_ = _told(app, _of_nobody_known(app))
    assert told.call_site.startswith(f"{__file__}:")
    assert told.what.endswith("for _of_nobody_known, on the event loop of another thread")


def test_a_long_wait_is_told_for_a_coroutine_without_a_name(app: App) -> None:
    told, *_ = _told(app, _Wrapped(_of_nobody_known(app)))
    assert told.what.endswith("for a coroutine, on the event loop of another thread")


def _told(app: App, body: Coroutine[Any, Any, None]) -> tuple[LongWait, ...]:
    """What is told of a call that waits for the result of `body` for long."""
    now, process = time.time(), app.process
    with app.waiting_for(body):
        for later in (0.0, LONG_S, 2 * LONG_S):
            for wait_id in process.blocked.park(now + later):
                process.ledger.wake(wait_id)
        return process.blocked.long_waits


def test_what_a_task_awaits_may_come_before_it_is_asked_since_when() -> None:
    async def asks() -> float:
        return first_seen(asyncio.current_task(), LONG_S)

    assert asyncio.run(asks()) == LONG_S
