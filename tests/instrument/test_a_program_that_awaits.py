"""A driver in `asyncio.run(main())` waits as its tasks do: for their replies, or for nothing that can be told. No Ray."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

import pytest
import uvloop
from lone_process import BOUND_S, lone_process
from until import until

from ray_snapshot.instrument.hooks import tracking
from ray_snapshot.instrument.process import program_loop
from ray_snapshot.instrument.process.coroutines import note_wait
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.instrument.process.reports import ProcessReport
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.protocol.commands import Request

LONG_S = 600.0
ASKED, OTHER = "driver/0/A/1", "driver/0/B/1"

LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": asyncio.SelectorEventLoop,
    "uvloop": uvloop.new_event_loop,
}


class Program:
    """A program whose awaits of refs are followed as `hooks.tracking` has it."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.may_end, self.computes = threading.Event(), threading.Event()
        self.will_compute = False

    async def asks(self, ref: str | None = ASKED) -> None:
        """`await ref`, which is never answered."""
        awaited = asyncio.get_running_loop().create_future()
        wait_id, _ = self.process.waiting.begin([ref], 1, None, "app.py:7", is_blocking=False)
        note_wait(awaited, wait_id)
        try:
            await awaited
        finally:
            self.process.waiting.end(wait_id, [])

    def recorded_in(self, body: Callable[[Program], Awaitable[Any]], loop: str = "asyncio") -> ProcessReport:
        """What is recorded of the program once nothing of it runs any more, or once it sits in a wait that blocks it."""
        new_loop = LOOPS[loop]

        async def main() -> None:
            asked = asyncio.ensure_future(body(self))
            watching = asyncio.get_running_loop()
            ends = asyncio.Event()
            thread = threading.Thread(target=self._record, args=(watching, ends), daemon=True)
            thread.start()
            ending = asyncio.ensure_future(
                ends.wait()
            )  # a task that awaits an event acts no more than one that has ended
            await asyncio.wait([asked, ending], return_when=asyncio.FIRST_COMPLETED)
            for task in asyncio.all_tasks() - {asyncio.current_task()}:
                task.cancel()

        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(main())
        return self.process.recording.reports[1]

    def _sits_still(self) -> bool:
        return self.process.program_loop.blocking is not None or program_loop._selects()

    def _record(self, loop: asyncio.AbstractEventLoop, ends: asyncio.Event) -> None:
        until(lambda: self.process.program_loop.blocking is not None or self.process.program_loop.waits)
        if self.will_compute:
            until(self.computes.is_set)
        elif isinstance(loop, asyncio.BaseEventLoop):  # of another kind it cannot be seen from here
            until(self._sits_still)
        try:
            self.process.obey(Request(1))
            until(lambda: 1 in self.process.recording.reports, seconds=BOUND_S)
        finally:
            self.may_end.set()
            loop.call_soon_threadsafe(ends.set)


@pytest.fixture
def program(refs_are_calls: None) -> Iterator[Program]:
    with lone_process(CallLedger(DRIVER, acts_unasked=True)) as process:
        yield Program(process)


async def _in_a_group(program: Program) -> None:
    async with asyncio.TaskGroup() as group:
        group.create_task(program.asks())
        group.create_task(program.asks(OTHER))


async def _in_a_task(program: Program) -> None:
    await asyncio.create_task(program.asks())


async def _as_they_come(program: Program) -> None:
    for one in asyncio.as_completed([program.asks(), program.asks(OTHER)]):
        await one


WAITING: dict[str, tuple[Callable[[Program], Awaitable[Any]], set[str]]] = {
    "a ref": (lambda program: program.asks(), {ASKED}),
    "gather": (lambda program: asyncio.gather(program.asks(), program.asks(OTHER)), {ASKED, OTHER}),
    "a task": (_in_a_task, {ASKED}),
    "a task group": (_in_a_group, {ASKED, OTHER}),
    "as_completed": (_as_they_come, {ASKED, OTHER}),
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("how", WAITING)
def test_a_program_whose_tasks_all_await_replies_waits_for_any_of_these(program: Program, how: str, loop: str) -> None:
    body, asked = WAITING[how]
    found = program.recorded_in(body, loop)
    waits = [wait for wait in found.report.waits if not wait.is_local]
    assert {call for wait in waits for call in wait.calls} == asked
    assert all(wait.k == len(wait.calls) == 1 and not wait.may_act for wait in waits)
    assert (found.report.status, found.background) == ("blocked", "")


async def _beside_a_timer(program: Program) -> None:
    await asyncio.gather(program.asks(), asyncio.sleep(LONG_S))


async def _within(program: Program) -> None:
    async with asyncio.timeout(LONG_S):
        await program.asks()


async def _beside_a_thread(program: Program) -> None:
    await asyncio.gather(program.asks(), asyncio.to_thread(program.may_end.wait))


async def _beside_what_is_not_known(program: Program) -> None:
    await asyncio.gather(program.asks(), asyncio.get_running_loop().create_future())


async def _of_nobody_known(program: Program) -> None:
    await program.asks(None)


ACTING: dict[str, Callable[[Program], Coroutine[Any, Any, None]]] = {
    "a timer": _beside_a_timer,
    "a timeout": _within,
    "a thread": _beside_a_thread,
    "a future of its own": _beside_what_is_not_known,
    "a reply of nobody known": _of_nobody_known,
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("what", ACTING)
def test_a_program_with_anything_else_on_its_loop_may_act(program: Program, what: str, loop: str) -> None:
    found = program.recorded_in(ACTING[what], loop)
    assert found.report.status == "active"


@pytest.mark.parametrize("loop", LOOPS)
def test_a_program_that_computes_is_recorded_at_once_and_acts_though_its_other_tasks_wait(
    program: Program, loop: str
) -> None:
    program.will_compute = True

    async def computes(program: Program) -> None:
        asked = asyncio.create_task(program.asks())
        await asyncio.sleep(0)
        program.computes.set()
        program.may_end.wait()
        assert asked in asyncio.all_tasks()

    assert program.recorded_in(computes, loop).report.status == "active"


def test_a_callback_that_computes_acts_though_all_tasks_wait(program: Program) -> None:
    program.will_compute = True

    def computes() -> None:
        program.computes.set()
        program.may_end.wait()

    async def asks(program: Program) -> None:
        asyncio.get_running_loop().call_soon(computes)
        await program.asks()

    assert program.recorded_in(asks).report.status == "active"


def test_a_blocking_wait_in_a_coroutine_holds_up_all_other_tasks(program: Program) -> None:
    async def blocks(program: Program) -> None:
        asyncio.create_task(program.asks(OTHER))  # noqa: RUF006
        await asyncio.sleep(0)
        wait_id, _ = program.process.waiting.begin([ASKED], 1, None, "app.py:9", is_blocking=True)
        program.may_end.wait()
        program.process.waiting.end(wait_id, [])

    found = program.recorded_in(blocks)
    assert [(wait.calls, wait.may_act) for wait in found.report.waits] == [((ASKED,), False)]
    assert found.report.status == "blocked"


def test_a_server_in_the_program_is_told_for_a_request_may_come(program: Program) -> None:
    async def serves(program: Program) -> None:
        server = await asyncio.start_server(lambda reader, writer: None, "127.0.0.1", 0)
        async with server:
            await program.asks()

    found = program.recorded_in(serves)
    assert (found.report.status, found.background) == ("blocked", "sockets on the loop")


@pytest.mark.parametrize("how", ["a ref", "gather"])
def test_when_ctrl_c_cancels_a_program_it_is_recorded_as_it_waited(
    program: Program, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """asyncio cancels all awaits in one step; who is told of that first is asked for a diagnosis while all of them stand."""
    recorded: list[tuple[str, set[str | None]]] = []

    def diagnose(runner: Any) -> None:
        assert isinstance(runner, asyncio.Runner)
        number = len(recorded) + 1
        thread = threading.Thread(target=program.process.obey, args=(Request(number),))  # the control thread
        thread.start()
        thread.join(BOUND_S)
        report = program.process.recording.reports[number].report
        recorded.append((report.status, {call for wait in report.waits for call in wait.calls}))

    async def asks(ref: str) -> None:
        awaited = asyncio.get_running_loop().create_future()
        tracking._follow(awaited, ref, awaited)
        await awaited

    async def main() -> None:
        asyncio.get_running_loop().call_later(0.0, signal.raise_signal, signal.SIGINT)
        await (asks(ASKED) if how == "a ref" else asyncio.gather(asks(ASKED), asks(OTHER)))

    monkeypatch.setattr(tracking, "ON_INTERRUPT", [diagnose])
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # PySpark may have put one of its own there
    try:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(main())
    finally:
        signal.signal(signal.SIGINT, before)
    assert recorded[0] == ("blocked", {ASKED} if how == "a ref" else {ASKED, OTHER})
