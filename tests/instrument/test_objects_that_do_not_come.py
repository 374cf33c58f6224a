"""Which waits lack what no watched call gives, or what ought to have come, and which of them a snapshot tells of. No Ray."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
import ray
from lone_app import snapshot_of
from lone_process import lone_process

from ray_snapshot.detectors import Deadlock
from ray_snapshot.instrument.here import CURRENT
from ray_snapshot.instrument.process import callbacks, recording, waiting
from ray_snapshot.instrument.process.awaited import awaited_objects
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.instrument.process.reports import OF_A_GRAPH, LongWait
from ray_snapshot.instrument.watcher.late import Late
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER, LONG_S, NO_CALL
from ray_snapshot.protocol.calls import CallLedger, call_id_of, parsed
from ray_snapshot.protocol.commands import Overdue, Request
from ray_snapshot.protocol.coordinator import Coordinator
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
    """It runs a call."""
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
    ("bound_of_the_graph", "timeout", "objects"),
    [(10.0, None, 0), (-1, None, 1), (10.0, -1, 1), (-1, 5.0, 0)],
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
    ((since, site, _),) = _while(scenario, _objects)
    assert site == f"{__file__}:{scenario.__code__.co_firstlineno + 1}"
    assert since == pytest.approx(_NOW(), abs=LONG_S)


@pytest.mark.parametrize("scenario", TOLD)
def test_so_is_one_of_a_call(process: Process, scenario: Any) -> None:
    ((_, site, _),) = _while(scenario, _objects, in_program=False)
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


# ---- in a snapshot ---------------------------------------------------------------------------------------------------


class App:
    """A driver that has called A twice, and waits for one of the calls and for an object, or for an object alone."""

    def __init__(self) -> None:
        self.coordinator = Coordinator()
        self.ledgers = {DRIVER: CallLedger(DRIVER, acts_unasked=True), "A": CallLedger("A")}
        for name in self.ledgers:
            self.coordinator.join(name, 0, 0)

    def told(
        self, since: float, *, beside: bool = False, is_answered: bool = False, owed: Any = (), known: Any = None
    ) -> Any:
        """The coverage's list; the snapshot is taken at 0."""
        driver, actor = self.ledgers[DRIVER], self.ledgers["A"]
        header = driver.submit("A", "m", None, 0.0)
        call = call_id_of(DRIVER, 0, "A", header.number)
        running = actor.accept(header, "m", 0.0)
        if is_answered:
            actor.finish(running)
        on = [call] if beside else [None]
        driver.wait(None, on, len(on), since, call_site="app.py:1", may_act=not beside, objects=1, owed=owed)
        return snapshot_of(self.coordinator, self.ledgers, {}, known=known).coverage.get("unexplained")


def test_a_snapshot_tells_of_a_wait_that_has_lasted() -> None:
    assert App().told(-2 * LONG_S) == [
        {"machine": DRIVER, "call_site": "app.py:1", "since": "1969-12-31T23:59:40+00:00", "what": NO_CALL}
    ]


def test_not_of_one_whose_object_may_be_on_its_way() -> None:
    assert App().told(-LONG_S / 2) is None


def test_of_one_that_waits_for_a_call_beside_when_that_is_answered() -> None:
    assert App().told(-2 * LONG_S, beside=True) is None
    assert App().told(-2 * LONG_S, beside=True, is_answered=True) is not None


def test_not_of_one_that_a_machine_of_a_host_has_to_answer_beside() -> None:
    assert App().told(-2 * LONG_S, owed=[("m", "driver/0/m/1")]) is None


def test_and_of_what_a_process_has_seen_awaited() -> None:
    found = App().told(0.0, known={"A": {"long_waits": (LongWait(-42.0, "app.py:9"),)}})
    assert found == [{"machine": "A", "call_site": "app.py:9", "since": "1969-12-31T23:59:18+00:00", "what": NO_CALL}]


# ---- over several snapshots ------------------------------------------------------------------------------------------


class Looks:
    """A driver that waits for a call of A, an actor with one slot, and the snapshots of that one after the other."""

    def __init__(self, **facts: Any) -> None:
        self.coordinator, self.late = Coordinator(), Late()
        self.ledgers = {name: CallLedger(name, acts_unasked=name == DRIVER) for name in (DRIVER, "A", "B")}
        self.facts = {name: {"shown": name, "max_concurrency": 1, **facts} for name in self.ledgers}
        for name in self.ledgers:
            self.coordinator.join(name, 0, 0)

    def call(self, target: str = "A", source: str = DRIVER, *, accepts: bool = False, needs: Any = ()) -> str:
        """The id of a call that was made, and runs if it is accepted."""
        header = self.ledgers[source].submit(target, "m", None, 0.0, needs=needs)
        if accepts:
            return self.ledgers[target].accept(header, "m", 0.0)
        return call_id_of(source, 0, target, header.number)

    def waits(self, *calls: str, who: str | None = None, since: float = 0.0) -> int:
        """This call (None: the program) waits for these."""
        machine = DRIVER if who is None else parsed(who).target
        return self.ledgers[machine].wait(who, calls, len(calls), since, call_site="app.py:1")

    def answer(self, *moments: float) -> tuple[bool | None, str]:
        """Of a snapshot at each of these moments the last one's."""
        for at in moments:
            snapshot = snapshot_of(self.coordinator, self.ledgers, self.facts, late=self.late, at=at)
        found = Deadlock().evaluate(snapshot)
        return found.holds, found.sentence


def test_a_reply_that_has_not_come_long_after_its_call_has_ended_may_never_come() -> None:
    app = Looks()
    call = app.call(accepts=True)
    app.ledgers["A"].finish(call)
    wait_id = app.waits(call)
    assert app.answer(0, LONG_S - 1)[0] is False
    holds, sentence = app.answer(LONG_S)
    assert (holds, "driver (app.py:1) has waited for 10 s for the reply of A, which has ended:" in sentence) == (
        None,
        True,
    )
    app.ledgers[DRIVER].wake(wait_id)
    app.waits(call, since=LONG_S)
    assert app.answer(LONG_S + 1)[0] is False, "another wait"


def test_a_call_that_nothing_keeps_from_beginning_may_never_begin() -> None:
    app = Looks()
    app.waits(app.call())
    assert app.answer(0, LIMITS.late_call_s - 1)[0] is False
    assert app.answer(LIMITS.late_call_s) == (
        None,
        "Deadlock cannot be told: m of A has not begun for 20 s, though nothing that is seen keeps it from that.",
    )
    app.waits(app.call("B", accepts=True, source="A"), who=app.call(accepts=True, source="B"))
    assert app.answer(LIMITS.late_call_s + 1)[0] is False, "the slot is taken"


def test_nobody_asks_for_a_call_that_nothing_waits_for() -> None:
    app = Looks()
    app.call()
    assert app.answer(0, LIMITS.late_call_s)[0] is False


@pytest.mark.parametrize("in_order", [True, False])
def test_a_call_to_an_actor_in_order_waits_for_the_one_before_it_that_lacks_an_argument(in_order: bool) -> None:
    app = Looks(in_order=in_order)
    argument = app.call("B", accepts=True)
    app.call(needs=(argument,))
    behind = app.call()
    app.waits(behind)
    app.waits(behind, who=argument)
    assert app.answer(0, 2 * LIMITS.late_call_s)[0] is (True if in_order else None)
