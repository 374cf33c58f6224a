"""Which waits lack an object that no watched call gives, and which of them a snapshot tells of. No Ray in here."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
import ray
from lone_process import lone_process

from ray_snapshot.instrument.here import CURRENT
from ray_snapshot.instrument.process import callbacks, recording, waiting
from ray_snapshot.instrument.process.awaited import awaited_objects
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.instrument.process.reports import OF_A_GRAPH
from ray_snapshot.names import DRIVER, LONG_S
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.protocol.commands import Overdue, Request
from ray_snapshot.runtime.refs import put_ref, tracked

CALL = tracked(ray.ObjectRef(b"1" * 28), "driver/0/A/1")
PUT = put_ref(ray.ObjectRef(b"2" * 28))
UNKNOWN = ray.ObjectRef(b"3" * 28)
MINE = put_ref(ray.ObjectRef(b"4" * 28))
"""What this process has put."""
STRANGE = object()
"""A value of a compiled graph."""


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    monkeypatch.setattr(waiting.task_shape, "is_own", lambda ref: ref is MINE)
    callbacks._FUTURES.clear()  # other tests of this run leave theirs
    with lone_process() as found:
        CURRENT.set(found.enter(None, "m"))
        yield found


@pytest.mark.parametrize(
    ("refs", "k", "timeout", "objects"),
    [
        ([PUT], 1, None, 1),
        ([UNKNOWN], 1, None, 1),
        ([PUT], 1, 5.0, 0),
        ([MINE], 1, None, 0),
        ([STRANGE], 1, None, 0),
        ([CALL], 1, None, 0),
        ([CALL, PUT, UNKNOWN], 3, None, 2),
        ([CALL, MINE, UNKNOWN], 3, None, 1),
        ([CALL, PUT], 1, None, 0),
        ([PUT, UNKNOWN], 1, None, 1),
    ],
)
def test_a_wait_lacks_what_it_needs_beyond_the_replies_of_calls(
    process: Process, refs: list[Any], k: int, timeout: float | None, objects: int
) -> None:
    wait_id, _ = process.waiting.begin(refs, k, timeout, "app.py:1", is_blocking=True)
    assert process.ledger.waits[wait_id].objects == objects


def test_of_an_await_the_tasks_of_its_loop_tell(process: Process) -> None:
    wait_id, _ = process.waiting.begin([PUT], 1, None, "app.py:1", is_blocking=False)
    assert process.ledger.waits[wait_id].objects == 0


class Graph:
    """As much of a compiled graph as is read of one."""

    def __init__(self, get_timeout: float) -> None:
        self._get_timeout = get_timeout
        self.worker_task_refs: dict[Any, Any] = {}


class Output:
    """What `execute` of a compiled graph returns."""

    __module__ = "ray.experimental.compiled_dag_ref"

    def __init__(self, get_timeout: float) -> None:
        self._dag = Graph(get_timeout)


@pytest.mark.parametrize(
    ("bound_of_the_graph", "timeout", "objects"), [(10.0, None, 0), (-1, None, 1), (10.0, -1, 1), (-1, 5.0, 0)]
)
def test_the_output_of_a_compiled_graph_is_waited_for_as_what_it_is_unless_the_wait_is_bounded(
    process: Process, bound_of_the_graph: float, timeout: float | None, objects: int
) -> None:
    wait_id, _ = process.waiting.begin([Output(bound_of_the_graph)], 1, timeout, "app.py:1", is_blocking=True)
    found = process.ledger.waits[wait_id]
    assert found.objects == objects
    assert found.what.startswith(OF_A_GRAPH)
    assert (found.timeout_at is None) is bool(objects)


def test_the_thread_in_which_ray_looks_after_a_compiled_graph_waits_for_nothing_of_the_app() -> None:
    with lone_process(CallLedger(DRIVER)) as process:
        found: list[bool] = []
        for name in ("CompiledGraphMonitorThread", "a thread"):
            thread = threading.Thread(target=lambda: found.append(process.waiting.follows()), name=name)
            thread.start()
            thread.join()
        assert found == [False, True]


# ---- awaits ----------------------------------------------------------------------------------------------------------


def _later() -> float:
    return _NOW() + 2 * LONG_S


_NOW = time.time
Await = Callable[[Any], Awaitable[Any]]
"""Makes of a ref what awaits it."""


async def alone(ref: Await) -> None:
    await ref(UNKNOWN)


async def put_elsewhere(ref: Await) -> None:
    await ref(PUT)


async def all_of_two(ref: Await) -> None:
    await asyncio.gather(ref(UNKNOWN), ref(PUT))


async def in_a_task(ref: Await) -> None:
    await asyncio.ensure_future(alone(ref))


async def a_reply(ref: Await) -> None:
    await ref(CALL)


async def a_reply_too(ref: Await) -> None:
    await asyncio.gather(ref(UNKNOWN), ref(CALL))


async def with_a_bound(ref: Await) -> None:
    await asyncio.wait_for(ref(UNKNOWN), 600)


async def inside_of_a_bound(ref: Await) -> None:
    async with asyncio.timeout(600):
        await ref(UNKNOWN)


async def the_first_of_two(ref: Await) -> None:
    await asyncio.wait([asyncio.ensure_future(ref(one)) for one in (UNKNOWN, PUT)], return_when=asyncio.FIRST_COMPLETED)


async def beside(ref: Await) -> None:
    event, task = asyncio.Event(), asyncio.ensure_future(alone(ref))
    task.add_done_callback(lambda _: event.set())
    await event.wait()


TOLD = (alone, put_elsewhere, all_of_two, in_a_task)
UNTOLD = (a_reply, a_reply_too, with_a_bound, inside_of_a_bound, the_first_of_two, beside)


def _while(scenario: Callable[[Await], Any], look: Callable[[Any, Any], Any], *, in_program: bool = True) -> Any:
    """What `look` finds while this scenario awaits: as the loop's own task, or as a call, whose task and coroutine it gets."""
    made: list[Future[Any]] = []
    found: list[Any] = []

    def ref(item: Any) -> Any:
        made.append(callbacks.future_made(Future))
        made[-1].object_ref = item  # type: ignore[attr-defined]
        return asyncio.wrap_future(made[-1])

    def look_now(*call: Any) -> None:
        found.append(look(*call))
        for one in made:
            one.set_result(None)

    async def main() -> None:
        loop, is_over, coroutine = asyncio.get_running_loop(), asyncio.Event(), scenario(ref)
        if in_program:
            loop.call_soon(loop.call_soon, loop.call_soon, look_now, None, None)
            await coroutine
        else:
            task = asyncio.ensure_future(coroutine)
            task.add_done_callback(lambda _: is_over.set())
            loop.call_soon(loop.call_soon, loop.call_soon, look_now, task, coroutine)
            await is_over.wait()

    asyncio.run(main())
    return found[0]


def _objects(task: Any, coroutine: Any, until: float | None = None) -> Any:
    calls = [] if coroutine is None else [(task, coroutine)]
    return awaited_objects(until or _later(), calls, lambda _: False)


@pytest.mark.parametrize("scenario", TOLD)
def test_an_await_of_a_program_is_told_with_its_place(process: Process, scenario: Any) -> None:
    ((since, site, *_),) = _while(scenario, _objects)
    assert site == f"{__file__}:{scenario.__code__.co_firstlineno + 1}"
    assert since == pytest.approx(_NOW(), abs=LONG_S)


@pytest.mark.parametrize("scenario", TOLD)
def test_so_is_one_of_a_call(process: Process, scenario: Any) -> None:
    ((_, site, *_),) = _while(scenario, _objects, in_program=False)
    assert site == f"{__file__}:{scenario.__code__.co_firstlineno + 1}"


@pytest.mark.parametrize("in_program", [True, False])
@pytest.mark.parametrize("scenario", UNTOLD)
def test_nothing_is_told_where_anything_else_may_end_it(process: Process, scenario: Any, in_program: bool) -> None:
    assert _while(scenario, _objects, in_program=in_program) == ()


def test_nor_of_what_may_be_on_its_way_or_is_answered_otherwise(process: Process) -> None:
    assert _while(alone, lambda task, _: _objects(task, None, _NOW() - 1)) == ()
    assert _while(alone, lambda *_: awaited_objects(_later(), [], lambda ref: ref is UNKNOWN)) == ()


def test_nor_of_what_has_come_just_now(process: Process) -> None:
    done: Future[Any] = callbacks.future_made(Future)
    assert [one for _, one in callbacks.pending_futures()] == [done]
    done.set_result(None)
    assert not list(callbacks.pending_futures())


def test_of_a_loop_that_is_not_as_we_know_it_nothing_is_told(process: Process) -> None:
    assert awaited_objects(_later(), [(None, None)], lambda _: 1 / 0) == ()  # type: ignore[arg-type, return-value]
    assert _while(alone, lambda *_: awaited_objects(_later(), [], lambda _: 1 // 0 == 1)) == ()


def test_it_is_recorded(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    def record(*_: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(recording.time, "time", _later)
            process.obey(Request(1))
            process.obey(Overdue(1))
        return process.recording.reports[1].long_waits

    assert len(_while(alone, record)) == 1
