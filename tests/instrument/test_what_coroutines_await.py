"""What a call of an async actor waits for, told from its suspended coroutine: no Ray in here."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from ray_snapshot.instrument.coroutines import is_quiet, parked_at, resolved
from ray_snapshot.protocol.calls import CallWait, MachineReport, RunningCall

CALL = "driver/0/A/1"

_SOURCE = """
class Reply:
    def __init__(self, begun, future):
        self.begun, self.future = begun, future
    def __await__(self):
        wait_id = self.begun()
        return (yield from self.future.__await__())
"""
_SPACE: dict[str, Any] = {}
exec(compile(_SOURCE, "ray_snapshot/stand_in.py", "exec"), _SPACE)
"""A ref that is awaited as a tracked one is: told by its file and the name of the function."""


class World:
    """One call on a loop, and the waits that it, or what it started, has begun."""

    def __init__(self) -> None:
        self.tasks: dict[int, Any] = {}

    def reply(self) -> Any:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        return _SPACE["Reply"](self.begun, future)

    def begun(self) -> int:
        wait_id = len(self.tasks) + 1
        self.tasks[wait_id] = asyncio.current_task()
        return wait_id

    def waits_of(self, body: Callable[[World], Awaitable[Any]]) -> tuple[tuple[CallWait, ...], str, str | None, bool]:
        """(the call's waits, the machine's status, where it is parked, whether the loop is quiet) once nothing moves."""
        return asyncio.run(self._look(body))

    async def _look(self, body: Callable[[World], Awaitable[Any]]) -> Any:
        coroutine: Any = body(self)
        task = asyncio.ensure_future(coroutine)
        for _ in range(5):
            await asyncio.sleep(0)
        waits = tuple(CallWait(wait_id, CALL, (f"A/0/B/{wait_id}",), 1, 0.0) for wait_id in self.tasks)
        report = MachineReport("A", 0, 1, 0, status="blocked", calls=(RunningCall(CALL, "m", 0.0),), waits=waits)
        loop = asyncio.get_running_loop()
        found = resolved(report, {CALL: (task, coroutine)}, self.tasks, loop)
        answer = found.waits, found.status, parked_at(task, coroutine), is_quiet(loop, [task, *self.tasks.values()])
        for left in asyncio.all_tasks() - {asyncio.current_task()}:
            left.cancel()
        return answer


async def alone(world: World) -> None:
    await world.reply()


async def together(world: World) -> None:
    await asyncio.gather(world.reply(), world.reply())


async def beside(world: World) -> None:
    world.side = asyncio.ensure_future(alone(world))  # type: ignore[attr-defined]
    await asyncio.sleep(60)


async def bounded(world: World) -> None:
    await asyncio.wait_for(alone(world), 60)


async def under_a_timeout(world: World) -> None:
    async with asyncio.timeout(60):
        await world.reply()


async def parked(world: World) -> None:
    await asyncio.Event().wait()


async def asleep(world: World) -> None:
    await asyncio.sleep(60)


def test_a_reply_that_the_call_itself_awaits_is_its_wait() -> None:
    waits, status, _, _ = World().waits_of(alone)
    assert [wait.wait_id for wait in waits] == [1]
    assert status == "blocked"


def test_a_gather_is_one_wait_for_all() -> None:
    ((wait,), status, _, _) = World().waits_of(together)
    assert (len(wait.on), wait.k, status) == (2, 2, "blocked")


@pytest.mark.parametrize("body", [beside, bounded, under_a_timeout])
def test_a_call_that_goes_on_by_itself_is_active_whatever_its_tasks_await(body: Any) -> None:
    waits, status, _, _ = World().waits_of(body)
    assert all(wait.may_act for wait in waits)
    assert status == "active"


def test_a_call_that_awaits_an_event_of_its_own_loop_is_parked_where_it_says_so() -> None:
    _, _, site, is_still = World().waits_of(parked)
    assert site is not None
    assert site.startswith(__file__)
    assert is_still


def test_a_call_that_sleeps_is_not_parked_and_its_loop_not_quiet() -> None:
    _, _, site, is_still = World().waits_of(asleep)
    assert site is None
    assert not is_still
