"""Where an app enters our code, a step of ours that fails changes nothing of what the app gets: no Ray in here."""

import asyncio
import concurrent.futures
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
import ray
from lone_process import Silent, acting, lone_process, wire

from ray_snapshot.errors import ProtocolError
from ray_snapshot.instrument.guard import ours
from ray_snapshot.instrument.hooks import calls, envelopes, tracking
from ray_snapshot.instrument.process.control import Control
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.instrument.process.recording import Recording
from ray_snapshot.runtime.refs import tracked


class Kinds:
    def one(self) -> int:
        return 1

    def items(self) -> Iterator[int]:
        yield from (1, 2)

    async def later(self) -> int:
        return 1

    async def stream(self) -> AsyncIterator[int]:
        yield 1
        yield 2


@pytest.fixture
def process() -> Iterator[Process]:
    with lone_process() as found:
        yield found


def fail(*_: Any, **__: Any) -> Any:
    raise LookupError("ours")


async def _collected(items: AsyncIterator[int]) -> list[int]:
    return [item async for item in items]


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (calls, "_begun"),
        (calls._Call, "_end"),
        (calls.Run, "_item"),
        (Process, "enter"),
        (Process, "leave"),
        (Process, "follow"),
        (Process, "begin_items"),
        (Process, "hand_out"),
        (Process, "resume"),
    ],
)
def test_a_method_of_each_kind_gives_what_it_gives(
    process: Process, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    body = acting(process, Kinds())
    monkeypatch.setattr(owner, name, fail)
    headers = [{"_ray_snapshot_header": wire(process, number)} for number in range(1, 5)]
    assert body.one(**headers[0]) == 1
    process.is_closed = False  # else the others run unwatched
    assert list(body.items(**headers[1])) == [1, 2]
    process.is_closed = False
    assert asyncio.run(body.later(**headers[2])) == 1
    process.is_closed = False
    assert asyncio.run(_collected(body.stream(**headers[3]))) == [1, 2]
    assert process.is_closed or name == "_item", "it is watched no more"


@pytest.mark.parametrize(("owner", "name"), [(calls, "hide_ours"), (calls._Call, "_end"), (calls, "colour_error")])
def test_an_error_of_a_method_leaves_it(
    process: Process, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str
) -> None:
    class Failing:
        def fail(self) -> None:
            process.ledger.turning.hear(1)
            process.ledger.record(None)
            raise KeyError("the app's")

    monkeypatch.setattr(owner, name, fail)
    with pytest.raises(KeyError, match="the app's"):
        acting(process, Failing()).fail(_ray_snapshot_header=wire(process, 1))
    assert process.is_closed, "it is watched no more"


def test_a_reply_is_read_though_its_colour_cannot_be_heard(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(envelopes, "here", fail)
    assert envelopes.opened("the reply", 3) == "the reply"


def test_a_broken_protocol_is_a_fault_of_ours(process: Process) -> None:
    def broken() -> None:
        raise ProtocolError("ours")

    assert ours(broken) is None


@pytest.mark.parametrize("broken", ["awaiting", "recording"])
def test_a_loop_hears_of_no_fault_of_ours(process: Process, monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    said: list[Any] = []

    async def work() -> str:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: said.append(context))
        future: Any = concurrent.futures.Future()
        future.object_ref = tracked(ray.ObjectRef(b"1" * 28), "A/0/B:1/1")
        process.actor_loop.loop = loop
        awaited = tracking.future_of(asyncio.wrap_future, future)
        process.ledger.request(1)
        process.recording.record_soon()
        future.set_exception(KeyError("the app's"))
        try:
            await awaited
        except KeyError as error:
            return str(error)
        return ""

    monkeypatch.setattr(*((tracking._End, "by") if broken == "awaiting" else (Recording, "_record_on_loop")), fail)
    token = calls.CURRENT.set(process.enter(None, "m"))
    try:
        assert asyncio.run(work()) == '"the app\'s"'
    finally:
        calls.CURRENT.reset(token)
    assert said == []


def test_an_answer_of_the_watcher_that_cannot_be_read_is_logged_by_no_one(
    process: Process, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    answer: Any = concurrent.futures.Future()
    monkeypatch.setattr(Silent, "future", lambda _: answer)
    monkeypatch.setattr(Control, "_answered", fail)
    process.control._poll(0)
    answer.set_result(None)
    assert caplog.records == []
