"""An `await` of one of Ray's refs is a tracked wait; which awaits of others nothing seen ends. No Ray in here."""

import asyncio
import concurrent.futures
import inspect
import itertools
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any

import pytest
import ray
from lone_process import BOUND_S, acting, lone_process, wire
from ray.exceptions import GetTimeoutError

from ray_snapshot.instrument.guard import replaced
from ray_snapshot.instrument.here import CURRENT
from ray_snapshot.instrument.hooks import tracking
from ray_snapshot.instrument.process.answer_uses import Use, asking
from ray_snapshot.instrument.process.awaited import A_FUTURE, awaited_futures
from ray_snapshot.instrument.process.blocked_threads import BlockedThreads
from ray_snapshot.instrument.process.coroutines import reply_of
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.instrument.process.reports import LongWait
from ray_snapshot.names import LONG_S
from ray_snapshot.protocol.calls import Awaited, MachineReport
from ray_snapshot.runtime.refs import call_of, tracked

CALL = "A/0/B:1/1"


class Ref:
    """Awaited as Ray's are: `asyncio.wrap_future` of a future that holds the ref."""

    def __init__(self, call_id: str) -> None:
        self.future: Any = concurrent.futures.Future()
        self.future.object_ref = tracked(ray.ObjectRef(b"1" * 28), call_id)

    def __await__(self) -> Iterator[Any]:
        return tracking.future_of(asyncio.wrap_future, self.future).__await__()  # type: ignore[no-any-return]


class Compiled(Coroutine[Any, Any, Any]):
    """What Ray runs an async method in: a coroutine that shows no frame."""

    def __init__(self, inner: Coroutine[Any, Any, Any]) -> None:
        self.inner = inner

    def send(self, value: Any) -> Any:
        return self.inner.send(value)

    def throw(self, *error: Any) -> Any:
        return self.inner.throw(*error)

    def __await__(self) -> Any:
        return self.inner.__await__()


class Asking:
    """An actor that awaits what it is given."""

    async def one(self, ref: Ref) -> Any:
        return await ref

    async def both(self, *refs: Ref) -> Any:
        return await asyncio.gather(*refs)

    async def all_of_a_group(self, *refs: Ref) -> Any:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.one(ref)) for ref in refs]
        return [task.result() for task in tasks]

    async def inside_a_task(self, *refs: Ref) -> Any:
        return await asyncio.ensure_future(self.both(*refs))

    async def all_of_a_wait(self, *refs: Ref) -> Any:
        tasks = [asyncio.ensure_future(ref) for ref in refs]
        await asyncio.wait(tasks)
        return [task.result() for task in tasks]


@pytest.fixture
def process() -> Iterator[Process]:
    with lone_process() as found:
        found.actor_loop.is_async = True
        yield found


def _run(process: Process, method: str, *refs: Ref) -> tuple[MachineReport, Any]:
    """(what was recorded while the call was suspended, what it returned when all refs were answered)."""

    async def inner() -> tuple[MachineReport, Any]:
        body = acting(process, Asking())
        task = asyncio.ensure_future(Compiled(getattr(body, method)(*refs, _ray_snapshot_header=wire(process, 1))))
        for _ in range(5):
            await asyncio.sleep(0)
        with process.lock:
            process.ledger.request(1)
            process.recording.record()
        report = process.ledger.report(1)
        for place, ref in enumerate(refs):
            ref.future.set_result(place)
        result = await asyncio.wait_for(task, BOUND_S)  # in an envelope: the call has ended redder than it was sent
        return report, result.value

    return asyncio.run(inner())


def test_a_call_that_awaits_a_ref_is_recorded_as_waiting_for_the_call_that_answers_it(process: Process) -> None:
    report, result = _run(process, "one", Ref(CALL))
    ((wait,), status) = report.waits, report.status
    assert (wait.calls, wait.k, wait.may_act, status) == ((CALL,), 1, False, "blocked")
    assert result == 0
    assert not process.ledger.waits, "the wait has ended with the reply"
    assert not process.actor_loop.wait_tasks


@pytest.mark.parametrize("method", ["both", "all_of_a_group", "inside_a_task", "all_of_a_wait"])
def test_a_gather_of_refs_waits_for_all_of_them(process: Process, method: str) -> None:
    report, result = _run(process, method, Ref(CALL), Ref("A/0/C:1/1"))
    wait, *each = process.recording.reports[1].report.waits
    assert (set(wait.calls), wait.k, wait.may_act) == ({CALL, "A/0/C:1/1"}, 2, False)
    singly = set() if method == "all_of_a_wait" else {(CALL,), ("A/0/C:1/1",)}
    assert {one.calls for one in each} == singly, "any of them may end it by an error"
    assert (report.has_state, result) == (True, [0, 1])


def test_an_await_of_a_ref_that_no_known_call_answers_is_no_wait_and_the_call_counts_as_active(
    process: Process,
) -> None:
    unknown = Ref(CALL)
    unknown.future.object_ref = ray.ObjectRef(b"2" * 28)
    report, _ = _run(process, "one", unknown)
    assert (report.waits, report.status) == ((), "active")


def test_a_future_that_has_come_on_the_loop_of_a_thread_keeps_no_ref(process: Process) -> None:
    found: list[Any] = []

    async def asks() -> None:
        ref = Ref(CALL)
        awaited = tracking.future_of(asyncio.wrap_future, ref.future)
        found.append(reply_of(awaited))
        ref.future.set_result(1)
        await awaited
        found.append(reply_of(awaited))

    thread = threading.Thread(target=asyncio.run, args=(asks(),))
    thread.start()
    thread.join(BOUND_S)
    assert found[0].on == (Awaited(CALL),)
    assert found[1:] == [None]


class Polling:
    """An actor that asks until it gets what it wants; of three refs the first two bring nothing."""

    async def in_wait_for(self, made: Iterator[Ref]) -> Any:
        while True:
            with suppress(TimeoutError):
                return await asyncio.wait_for(next(made), SOON_S)  # given up

    async def of_a_coroutine(self, made: Iterator[Ref]) -> Any:
        while True:
            try:
                return await asyncio.wait_for(self._next(made), SOON_S)  # given up
            except TimeoutError:
                continue

    async def in_timeout(self, made: Iterator[Ref]) -> Any:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(SOON_S):
                    return await next(made)  # given up

    async def in_a_gather(self, made: Iterator[Ref]) -> Any:
        while True:
            found = await asyncio.gather(*itertools.islice(made, 1), asyncio.sleep(0))  # None
            if any(found):
                return found[0]

    async def _next(self, made: Iterator[Ref]) -> Any:
        return await next(made)


SOON_S = 0.05


@pytest.mark.parametrize("method", ["in_wait_for", "of_a_coroutine", "in_timeout", "in_a_gather"])
def test_a_loop_around_awaits_that_bring_nothing_asks(process: Process, method: str) -> None:
    noted = dict[Any, int]()

    def made() -> Iterator[Ref]:
        for number in range(1, 4):
            for caller in process.polls.callers.values():
                noted.update({key: one.count for key, one in caller.questions.items()})
            process.polls.unread["B:1", number] = "get", True
            ref = Ref(f"A/0/B:1/{number}")
            if number == 3 or method == "in_a_gather":
                ref.future.set_result(7 if number == 3 else None)
            yield ref

    async def ask() -> Any:
        body = acting(process, Polling())
        called = Compiled(getattr(body, method)(made(), _ray_snapshot_header=wire(process, 1)))
        return await asyncio.ensure_future(called)

    process.polls.is_armed = True
    assert asyncio.run(ask()) == 7
    answer = "None" if method == "in_a_gather" else "given up"
    lines, begin = inspect.getsourcelines(getattr(Polling, method))
    line = begin + next(at for at, text in enumerate(lines) if text.endswith(f"# {answer}\n"))
    asked = ("B:1", "get") if method == "in_a_gather" else ("", "await")
    found = {(*key, asking(place)): count for (*key, place), count in noted.items()}
    assert found == {(*asked, (f"{__file__}:{line}", Use.OPEN)): 1}, "the second is a repeat"


class Again:
    """Its calls wait with a timeout."""

    ready = False

    async def for_an_event(self, ref: Ref) -> None:
        event = asyncio.Event()
        while not event.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(event.wait(), BOUND_S)

    async def under_a_timeout(self, ref: Ref) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(BOUND_S):
                    return await asyncio.Queue().get()

    async def for_a_reply(self, ref: Ref) -> None:
        left = {asyncio.ensure_future(ref)}
        while left:
            _, left = await asyncio.wait(left, timeout=BOUND_S)

    async def for_its_own_future(self, ref: Ref) -> None:
        future = asyncio.get_running_loop().create_future()
        while not future.done():
            await asyncio.wait([future], timeout=BOUND_S)

    async def shields_a_reply(self, ref: Ref) -> None:
        reply = asyncio.ensure_future(ref)
        while not reply.done():
            with suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(reply), BOUND_S)

    async def pauses(self, ref: Ref) -> None:
        while not self.ready:
            await asyncio.sleep(BOUND_S)

    async def for_tasks_that_do(self, ref: Ref) -> None:
        await asyncio.gather(self.pauses(ref), self.for_a_reply(ref))

    async def once(self, ref: Ref) -> None:
        await asyncio.wait_for(asyncio.Event().wait(), BOUND_S)

    async def pauses_for_a_time(self, ref: Ref) -> None:
        async with asyncio.timeout(BOUND_S):
            await self.pauses(ref)

    async def for_a_thread(self, ref: Ref) -> None:
        while True:
            await asyncio.wait([asyncio.wrap_future(concurrent.futures.Future[int]())], timeout=BOUND_S)

    async def for_what_goes_on(self, ref: Ref) -> None:
        await asyncio.gather(self.pauses(ref), self.for_a_thread(ref))


TIMED: dict[str, list[tuple[str, list[str], bool, Use]]] = {
    "for_an_event": [("asyncio.wait_for, for asyncio.Event", [], True, Use.OPEN)],
    "under_a_timeout": [("asyncio.Queue.get, 0 in the queue", [], True, Use.OPEN)],
    "for_a_reply": [("asyncio.wait", [CALL], False, Use.OPEN)],
    "for_its_own_future": [("asyncio.wait", [], True, Use.OPEN)],
    "shields_a_reply": [("asyncio.wait_for", [CALL], False, Use.OPEN)],
    "pauses": [("asyncio.sleep", [], True, Use.OPEN)],
    "for_tasks_that_do": [("asyncio.sleep", [CALL], True, Use.OPEN), ("asyncio.wait", [CALL], True, Use.OPEN)],
    "once": [("asyncio.wait_for, for asyncio.Event", [], True, Use.ONCE)],
    **{name: [] for name in ("pauses_for_a_time", "for_a_thread", "for_what_goes_on")},
}


@pytest.mark.parametrize("method", TIMED)
def test_a_call_that_waits_with_a_timeout_is_noted_with_what_else_ends_that(process: Process, method: str) -> None:
    async def inner() -> None:
        body = acting(process, Again())
        task = asyncio.ensure_future(Compiled(getattr(body, method)(Ref(CALL), _ray_snapshot_header=wire(process, 1))))
        for _ in range(5):
            await asyncio.sleep(0)
        with process.lock:
            process.ledger.request(1)
            process.recording.record()
        task.cancel()
        await asyncio.wait([task])

    noted = list[tuple[Any, ...]]()
    process.polls.wait = lambda call, _thread, waits, *_: noted.extend(  # type: ignore[method-assign]
        (one.what, one.calls, one.is_local, asking(one.place).use) for one in waits if call
    )
    asyncio.run(inner())
    assert sorted(noted, key=str) == sorted(TIMED[method], key=str)
    assert [one.is_local for one in process.recording.reports[1].report.waits] in ([], [False]), "none is parked"


def test_a_ref_stays_rays_own_and_keeps_what_was_written_on_it() -> None:
    ref = tracked(ray.ObjectRef(b"1" * 28, "", "here.py:3"), CALL)
    assert type(ref) is ray.ObjectRef
    assert (call_of(ref), ref.call_site()[:9], ref == ray.ObjectRef(b"1" * 28)) == (CALL, "here.py:3", True)
    assert call_of(ray.ObjectRef(b"1" * 28)) is None
    assert call_of("no ref") is None


def test_what_is_read_red_in_an_await_is_recorded_for_before_the_coroutine_goes_on(process: Process) -> None:
    colours: list[int] = []

    class Looking(Asking):
        async def one(self, ref: Ref) -> Any:
            found = await ref
            colours.append(process.ledger.colour)
            return found

    async def inner() -> None:
        body = acting(process, Looking())
        ref = Ref(CALL)
        task = asyncio.ensure_future(body.one(ref, _ray_snapshot_header=wire(process, 1)))
        await asyncio.sleep(0)
        process.heard(5)  # as Ray's thread does that unpickles the reply
        ref.future.set_result("red")
        await asyncio.wait_for(task, BOUND_S)

    asyncio.run(inner())
    assert colours == [5]


@pytest.fixture
def alarm() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 3_600)
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, before)


def _may_act(process: Process) -> bool:
    """Whether a wait without a timeout that begins now may end by itself."""
    ref = tracked(ray.ObjectRef(b"1" * 28), CALL)
    wait_id, _ = process.waiting.begin([ref], 1, None, "here.py:3", is_blocking=True)
    found = process.ledger.waits[wait_id].may_act
    process.waiting.end(wait_id, ())
    return found


def test_a_wait_in_the_main_thread_that_an_alarm_may_interrupt_may_act(process: Process, alarm: None) -> None:
    assert _may_act(process)
    with concurrent.futures.ThreadPoolExecutor(1) as other:
        assert not other.submit(_may_act, process).result(BOUND_S), "handlers run in the main thread"
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    assert not _may_act(process), "this alarm interrupts nothing"


@pytest.mark.parametrize("broken", ["check_waiting", "_exist"])
def test_a_fault_of_ours_between_two_slices_of_a_get_leaves_the_app_its_reply(
    process: Process, broken: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    slices: list[float | None] = []

    def get(_: Any, timeout: float | None = None) -> str:
        """Ray's: there only when it is asked a third time."""
        slices.append(timeout)
        if len(slices) < 3:
            raise GetTimeoutError("not yet")
        return "the reply"

    def fail(*_: Any) -> None:
        if slices:
            raise ValueError("broken")

    process.reloading.keeps = True
    monkeypatch.setattr(tracking, "_exist", lambda *_: False)
    monkeypatch.setattr(process.reloading if broken == "check_waiting" else tracking, broken, fail)
    call = process.enter(None, "m")
    token = CURRENT.set(call)
    ref = tracked(ray.ObjectRef(b"1" * 28), CALL)
    try:
        assert replaced(tracking.get, get, ref) == "the reply"
    finally:
        CURRENT.reset(token)
    assert process.is_closed, "it is watched no more"


def test_a_get_ends_at_the_first_error_and_a_wait_does_not(process: Process) -> None:
    seen: list[bool] = []

    def own(_: Any, **options: Any) -> Any:
        seen.extend(wait.raises for wait in process.ledger.waits.values())
        return [], []

    refs = [tracked(ray.ObjectRef(str(number).encode() * 28), f"A/0/B:1/{number}") for number in (1, 2)]
    token = CURRENT.set(process.enter(None, "m"))
    try:
        tracking.get(own, refs)
        tracking.wait(own, refs, num_returns=2)
    finally:
        CURRENT.reset(token)
    assert seen == [True, False]


def test_a_method_that_raises_is_remembered_as_an_error(process: Process) -> None:
    class Failing:
        def fail(self, is_error: bool) -> None:
            if is_error:
                raise ValueError("as the app means it")

    body = acting(process, Failing())
    body.fail(False, _ray_snapshot_header=wire(process, 1))
    with pytest.raises(ValueError, match="as the app means it"):
        body.fail(True, _ray_snapshot_header=wire(process, 2))
    (channel,) = process.ledger._report(0).inputs
    assert channel.errors == ((2, 2),)


OVER = threading.Event()
"""Ends the threads of all scenarios."""


def _stand() -> None:
    OVER.wait()


async def a_future() -> None:
    await asyncio.get_running_loop().create_future()


async def both() -> None:
    await asyncio.gather(asyncio.to_thread(_stand), asyncio.get_running_loop().create_future())


async def a_blocked_thread() -> None:
    await asyncio.to_thread(_stand)


async def a_sleep() -> None:
    await asyncio.sleep(3_600)


async def a_bound() -> None:
    await asyncio.wait_for(asyncio.get_running_loop().create_future(), 3_600)


async def any_of_two() -> None:
    futures = [asyncio.get_running_loop().create_future() for _ in range(2)]
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)


async def an_acting_thread() -> None:
    await asyncio.to_thread(_work)


def _work() -> None:
    while not OVER.wait(0.01):
        pass


def _told(scenario: Callable[[], Awaitable[None]]) -> tuple[LongWait, ...]:
    """What is told of a call in `scenario`, as of a moment that is `LONG_S` after the first look."""
    threads = BlockedThreads()
    OVER.clear()

    async def main() -> tuple[LongWait, ...]:
        coroutine: Any = scenario()
        task, loop = asyncio.ensure_future(coroutine), asyncio.get_running_loop()
        await asyncio.sleep(0.2)  # its thread has come to rest
        now = time.time()
        looks = [
            awaited_futures(now + later, [(task, coroutine)], threads, (), loop) for later in (0, LONG_S, 2 * LONG_S)
        ]
        OVER.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        assert looks[0] == ()
        return looks[2]

    return asyncio.run(main())


@pytest.mark.parametrize("scenario", [a_future, both, a_blocked_thread])
def test_an_await_that_nothing_seen_ends_is_told_with_its_place(scenario: Callable[[], Awaitable[None]]) -> None:
    ((_, site, what, _),) = _told(scenario)
    assert site.partition(",")[0] == f"{__file__}:{scenario.__code__.co_firstlineno + 1}"
    if scenario is a_future:
        assert what == A_FUTURE
    else:
        assert what.startswith("for thread asyncio_0, which waits in threading.Event.wait")


@pytest.mark.parametrize("scenario", [a_sleep, a_bound, any_of_two, an_acting_thread])
def test_a_timer_another_future_or_a_thread_that_acts_may_end_it(scenario: Callable[[], Awaitable[None]]) -> None:
    assert _told(scenario) == ()
