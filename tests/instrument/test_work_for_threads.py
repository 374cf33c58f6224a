"""A call that waits for a thread waits for what the thread waits for; one that a thread may free is active. No Ray."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

import pytest
from lone_process import BOUND_S, lone_process
from until import until

from ray_snapshot.instrument.process.process import Process
from ray_snapshot.protocol.calls import Header, MachineReport
from ray_snapshot.protocol.commands import Overdue, Request
from ray_snapshot.runtime.here import frames_of_threads

LONG_S = 600.0
ASKED = "A/0/B/1"


class Actor:
    """One call of it hands work to threads."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.may_end, self.may_read = threading.Event(), threading.Event()
        self.pool = ThreadPoolExecutor(1)
        self.begun = 0

    def asks(self, timeout: float | None = None, refs: tuple[str | None, ...] = (ASKED,)) -> None:
        """What a thread does in a `ray.get`."""
        before = self.process.waiting.begin_in_thread(list(refs), len(refs), timeout, "app.py:7", raises=True)
        self.begun += 1
        while not self.may_end.wait(0.01):
            pass  # as in C, its frames do not say that it waits to be woken
        self.process.waiting.end_in_thread(before)

    def computes(self) -> None:
        self.begun += 1
        self.may_end.wait()

    def in_a_pool(self, work: Callable[[], Any]) -> Future[Any]:
        """The future of what the pool's one thread does now."""
        found = self.pool.submit(work)
        until(lambda: self.begun)
        return found

    def in_a_thread(self, work: Callable[[], Any]) -> threading.Thread:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        until(lambda: self.begun)
        return thread

    def calling(self, body: Callable[[Actor], Any]) -> threading.Thread:
        """The thread of a call that does this, once that stands still."""

        def call() -> None:
            call_id = self.process.enter(Header("driver", 0, 1, 0, 1), "step")
            body(self)
            self.process.leave(call_id)

        thread = threading.Thread(target=call, daemon=True)
        thread.start()
        until(lambda: self.begun and _stands_still(thread))
        return thread

    def recorded_in(self, body: Callable[[Actor], Any]) -> MachineReport:
        thread = self.calling(body)
        self.process.obey(Request(1))
        self.process.obey(Overdue(1))
        report = self.process.ledger.report(1)
        assert not self.process.ledger.waits, "it was noted for the record alone"
        self.may_end.set()
        thread.join(BOUND_S)
        until(lambda: not self.process.handed.waits)  # a thread that the call has not waited for may end behind it
        return report


def _stands_still(thread: threading.Thread) -> bool:
    """Whether the call waits, and not for a thread of its own to be begun."""
    frame, names = frames_of_threads().get(thread.ident or 0), []
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names[0] in ("wait", "join", "_wait_for_tstate_lock") and not {"start", "until"} & {*names}


@pytest.fixture
def actor(refs_are_calls: None) -> Iterator[Actor]:
    with lone_process() as process:
        yield Actor(process)


def _through_another(actor: Actor) -> None:
    asked = actor.in_a_pool(actor.asks)
    actor.in_a_thread(asked.result).join()


def _closing(actor: Actor) -> None:
    with ThreadPoolExecutor(1) as pool:
        pool.submit(actor.asks)


@pytest.mark.parametrize(
    "body",
    [
        lambda actor: actor.in_a_pool(actor.asks).result(),
        lambda actor: actor.in_a_pool(actor.asks).exception(),
        lambda actor: actor.in_a_thread(actor.asks).join(),
        lambda actor: list(ThreadPoolExecutor(1).map(lambda _: actor.asks(), [1])),
        _through_another,
        _closing,
    ],
    ids=["result", "exception", "join", "map", "a thread that waits for another", "the end of a pool"],
)
def test_a_call_that_waits_for_a_thread_waits_for_its_replies(actor: Actor, body: Callable[[Actor], Any]) -> None:
    report = actor.recorded_in(body)
    (found,) = report.waits
    assert (found.calls, found.k, found.call_site, found.raises, found.may_act) == (
        (ASKED,),
        1,
        "app.py:7",
        True,
        False,
    )
    assert (report.status, report.was_inside) == ("blocked", False)
    acting = [one for one in actor.process.recording.reports[1].threads.acting if "test_work_for_threads.py" in one]
    assert acting == [], "the thread wakes nothing before its reply has come"


def _beside_the_asking(actor: Actor) -> None:
    actor.in_a_thread(actor.asks)
    actor.pool.submit(actor.computes).result()


def _before_it_has_begun(actor: Actor) -> None:
    """Its work waits for the pool's only thread, which the pool may be rid of."""
    actor.in_a_pool(actor.asks)
    actor.pool.submit(actor.computes).result()


def _for_the_first_of_two(actor: Actor) -> None:
    wait([actor.in_a_pool(actor.asks), Future()], return_when=FIRST_COMPLETED)


@pytest.mark.parametrize(
    "body",
    [
        lambda actor: actor.in_a_pool(actor.computes).result(),
        lambda actor: actor.in_a_pool(actor.asks).result(LONG_S),
        lambda actor: actor.in_a_thread(actor.asks).join(LONG_S),
        lambda actor: actor.in_a_pool(lambda: actor.asks(LONG_S)).result(),
        lambda actor: actor.in_a_pool(lambda: actor.asks(refs=(ASKED, None))).result(),
        _beside_the_asking,
        _before_it_has_begun,
        _for_the_first_of_two,
    ],
    ids=[
        "a thread that computes",
        "result with a timeout",
        "join with a timeout",
        "a thread that asks with a timeout",
        "a thread that waits for what is not known",
        "another thread asks",
        "the work has not begun",
        "the first of two",
    ],
)
def test_a_call_that_may_go_on_though_a_thread_waits_is_active(actor: Actor, body: Callable[[Actor], Any]) -> None:
    report = actor.recorded_in(body)
    assert (report.waits, report.status) == ((), "active")


def test_what_is_read_in_a_thread_is_recorded_for_while_the_thread_still_waits(actor: Actor) -> None:
    """The reply is not in the snapshot: the call must be waiting in it."""

    def reads() -> None:
        before = actor.process.waiting.begin_in_thread([ASKED], 1, None, "app.py:7")
        actor.begun += 1
        actor.may_read.wait()
        actor.process.heard(1)
        actor.process.waiting.end_in_thread(before)

    thread = actor.calling(lambda actor: actor.in_a_pool(reads).result())
    actor.may_read.set()
    thread.join(BOUND_S)
    assert [one.calls for one in actor.process.ledger.report(1).waits] == [(ASKED,)]
