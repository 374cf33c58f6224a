"""A callback that the app has left on a reply to come may act when that comes: so a process that waits can go on. No Ray."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import partial
from typing import Any

import pytest
from lone_process import BOUND_S, lone_process
from until import until

from ray_snapshot.instrument.here import CURRENT
from ray_snapshot.instrument.process import callbacks
from ray_snapshot.instrument.process.callbacks import future_made
from ray_snapshot.instrument.process.coroutines import note_wait
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.protocol.calls import CallWait, Header
from ray_snapshot.protocol.commands import Overdue, Request

ASKED, OTHER = "A/0/B/1", "A/0/C/1"


@pytest.fixture
def process(refs_are_calls: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    monkeypatch.setattr(callbacks, "call_of", lambda ref: ref)
    callbacks._FUTURES.clear()  # other tests of this run leave theirs
    with lone_process() as found:
        yield found


def _future_of(ref: str | None) -> Future[Any]:
    future = future_made(Future)
    future.object_ref = ref
    return future  # type: ignore[no-any-return]


def _left(process: Process) -> list[CallWait]:
    process.obey(Request(1))
    process.obey(Overdue(1))
    return [wait for wait in process.recording.reports[1].report.waits if wait.is_callback]


def test_the_replies_with_a_callback_are_recorded_and_no_others(process: Process) -> None:
    asked, plain = _future_of(ASKED), _future_of("A/0/D/1")
    asked.add_done_callback(print)
    (found,) = _left(process)
    assert (found.calls, found.k, found.call_id, found.is_ready) == ((ASKED,), 1, None, False)
    assert not plain.done()


def test_a_reply_that_nobody_knows_may_come_at_any_time(process: Process) -> None:
    strange = _future_of(None)
    strange.add_done_callback(print)
    assert [wait.calls for wait in _left(process)] == [(None,)]


def test_the_place_is_that_of_the_callback(process: Process) -> None:
    asked = _future_of(ASKED)
    asked.add_done_callback(partial(test_the_place_is_that_of_the_callback, process))
    assert _left(process)[0].call_site == f"{__file__}:{_line_of(test_the_place_is_that_of_the_callback)}"


def _line_of(function: Callable[..., Any]) -> int:
    return function.__code__.co_firstlineno


@pytest.mark.parametrize("name", callbacks._OUR_THREADS)
def test_what_our_own_threads_await_is_nothing_of_the_apps(process: Process, name: str) -> None:
    made: list[Future[Any]] = []
    thread = threading.Thread(target=lambda: made.append(_future_of(ASKED)), name=name)
    thread.start()
    thread.join(BOUND_S)
    made[0].add_done_callback(print)
    assert _left(process) == []


def test_what_is_done_acts_no_more(process: Process) -> None:
    asked = _future_of(ASKED)
    asked.add_done_callback(lambda _: None)
    asked.set_result(1)
    assert _left(process) == []


def test_a_callback_that_runs_acts(process: Process) -> None:
    """The reply is there, the thread is Ray's, and nothing but the callback shows that something goes on."""
    asked, begun, may_end = _future_of(ASKED), threading.Event(), threading.Event()

    def runs(_: Future[Any]) -> None:
        begun.set()
        may_end.wait()

    asked.add_done_callback(runs)
    thread = threading.Thread(target=asked.set_result, args=(1,), daemon=True)
    thread.start()
    until(begun.is_set)
    (found,) = _left(process)
    may_end.set()
    thread.join(BOUND_S)
    assert (found.calls, found.is_ready) == ((ASKED,), True)


def test_an_await_that_is_followed_leaves_no_callback_of_the_apps(process: Process) -> None:
    loop = asyncio.new_event_loop()
    try:
        followed, not_followed = _future_of(ASKED), _future_of(OTHER)
        note_wait(asyncio.wrap_future(followed, loop=loop), 1)
        kept = asyncio.wrap_future(not_followed, loop=loop)
        assert [wait.calls for wait in _left(process)] == [(OTHER,)]
        assert not kept.done()
    finally:
        loop.close()


def test_a_call_that_waits_stays_blocked_beside_it(process: Process) -> None:
    """The callback is another way for the machine to go on; for the call there is still one."""
    asked = _future_of(OTHER)
    asked.add_done_callback(print)
    call_id = process.enter(Header("driver", 0, 1, 0, 1), "step")
    CURRENT.set(call_id)
    process.waiting.begin([ASKED], 1, None, "app.py:7", is_blocking=True)
    process.obey(Request(1))
    process.obey(Overdue(1))
    report = process.recording.reports[1].report
    assert report.status == "blocked"
    assert [(wait.call_id, wait.calls) for wait in report.waits] == [(call_id, (ASKED,)), (None, (OTHER,))]
