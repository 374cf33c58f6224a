"""What an app drops is gone at once, as without us: none of our steps leaves a cycle that holds its frames. No Ray."""

import gc
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import pytest
from lone_process import lone_process

from ray_snapshot.instrument.guard import ours, replaced
from ray_snapshot.instrument.here import own_threads
from ray_snapshot.instrument.process import program_loop
from ray_snapshot.instrument.process.blocked_threads import BlockedThreads
from ray_snapshot.instrument.process.callbacks import callback_wait, future_made
from ray_snapshot.instrument.process.handed import HandedWork
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.instrument.running import Options, Reporter
from ray_snapshot.protocol.calls import CallLedger, Header
from ray_snapshot.protocol.commands import Overdue, Request


class Kept:
    """Something of the app's, such as a handle: Ray ends its actor when it is dropped."""


@pytest.fixture(autouse=True)
def _no_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def process(refs_are_calls: None) -> Iterator[Process]:
    with lone_process() as found:
        yield found


def _is_dropped_behind(step: Callable[[], object]) -> bool:
    """Whether what a function had beside this step is gone when it has returned."""

    def of_the_app() -> weakref.ref[Kept]:
        kept = Kept()
        with suppress(ValueError):
            step()
        return weakref.ref(kept)

    return of_the_app()() is None


def _fails(*_: Any) -> None:
    raise ValueError("the app's own")


def test_behind_an_error_of_rays_that_the_app_catches() -> None:
    assert _is_dropped_behind(lambda: replaced(lambda own: own(), _fails))


def test_behind_a_step_that_is_guarded() -> None:
    assert _is_dropped_behind(lambda: ours(int))


def test_behind_a_look_at_the_threads() -> None:
    assert _is_dropped_behind(lambda: BlockedThreads().report([threading.main_thread(), *own_threads()], 0.0))


def test_behind_a_look_at_what_threads_wait_for() -> None:
    ledger, handed = CallLedger("A"), HandedWork()
    call_id = ledger.accept(Header("driver", 0, 1, 0, 1), "step", 0.0)
    assert _is_dropped_behind(lambda: handed.park(ledger, {call_id: threading.get_ident()}))


def test_behind_a_look_at_callbacks() -> None:
    future = future_made(Future)
    future.add_done_callback(print)
    future.set_result(1)
    assert _is_dropped_behind(callback_wait)


def test_behind_a_look_at_the_loop() -> None:
    assert _is_dropped_behind(program_loop._selects)


def test_behind_a_record(process: Process) -> None:
    process.enter(Header("driver", 0, 1, 0, 1), "step")

    def record() -> None:
        process.obey(Request(1))
        process.obey(Overdue(1))

    assert _is_dropped_behind(record)
    assert 1 in process.recording.reports


def test_behind_a_ctrl_c_that_the_app_catches() -> None:
    reporter = Reporter(Options(every=1.0, history=None, detectors=[], exit_on=None, name=None))

    class Silent:
        def snapshot(self, **_: Any) -> None:
            raise ValueError("no snapshot")

    reporter.watch = Silent()  # type: ignore[assignment]

    def of_the_app() -> weakref.ref[Kept]:
        kept = Kept()
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            reporter.last_words(error)
        return weakref.ref(kept)

    assert of_the_app()() is None
