"""A driver waits when all its threads do: for replies, for each other, for work. One that may act keeps it active. No Ray."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from lone_process import BOUND_S, lone_process
from until import until

from ray_snapshot.instrument.process import handed, program_threads, waiting
from ray_snapshot.instrument.process.answer_uses import Asking, Place, Use
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.instrument.process.reports import ProcessReport
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.pytest_plugin.watching import HARNESS as OF_PYTEST
from ray_snapshot.runtime.here import frames_of_threads

ASKED, OTHER = "driver/0/A/1", "driver/0/B/1"


class Program:
    """What its threads do; it is recorded when they stand still, and then they may end."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.may_end = threading.Event()
        self.begun = 0

    def asks(self, ref: str | None = ASKED, timeout: float | None = None) -> None:
        """`ray.get(ref)`, as far as a process is told of it."""
        wait_id, _ = self.process.waiting.begin([ref], 1, timeout, "app.py:7", is_blocking=True)
        self.begun += 1
        self.may_end.wait(BOUND_S)  # with a bound: so it is parked for its wait alone
        self.process.waiting.end(wait_id, [])

    def computes(self) -> None:
        self.begun += 1
        self.may_end.wait(BOUND_S)

    def recorded_in(self, body: Callable[[Program], Any], count: int) -> ProcessReport:
        """What is recorded while the main thread is in `body`, and `count` waits or computations have begun."""
        found: list[ProcessReport] = []
        own = {*threading.enumerate()}

        def record() -> None:
            until(lambda: self.begun == count and all(map(_stands_still, {*threading.enumerate()} - own - {recorder})))
            until(lambda: _stands_still(threading.main_thread()))
            with self.process.lock:
                self.process.ledger.request(1)
                self.process.recording.record(is_forced=True)
                found.append(self.process.recording.reports[1])
            self.may_end.set()

        recorder = threading.Thread(target=record, name="ray-snapshot-test", daemon=True)
        recorder.start()
        body(self)
        recorder.join(BOUND_S)
        return found[0]


def _stands_still(thread: threading.Thread) -> bool:
    frame = frames_of_threads().get(thread.ident or 0)
    return frame is not None and frame.f_code.co_name in ("wait", "join", "_wait_for_tstate_lock", "_worker")


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Iterator[Program]:
    apart = waiting, "apart", lambda refs: (list(refs), list(refs), [])
    for patch in (apart, (handed, "HARNESS", OF_PYTEST)):  # xdist has a thread without a name
        monkeypatch.setattr(*patch)
    with lone_process(CallLedger(DRIVER, acts_unasked=True)) as process:
        own = {*threading.enumerate()}
        monkeypatch.setattr(program_threads, "own_threads", lambda: _apps(own))
        yield Program(process)


def _apps(own: set[threading.Thread]) -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one not in own and not one.name.startswith("ray-snapshot")]


def _pool(program: Program) -> None:
    with ThreadPoolExecutor() as pool:
        list(pool.map(program.asks, (ASKED, OTHER)))


def _joined(program: Program) -> None:
    thread = threading.Thread(target=program.asks)
    thread.start()
    thread.join()


def _beside_the_main_thread(program: Program) -> None:
    thread = threading.Thread(target=program.asks, args=(OTHER,))
    thread.start()
    program.asks()
    thread.join()


def _beside_one_that_has_nothing_to_do(program: Program) -> None:
    with ThreadPoolExecutor() as pool:
        pool.submit(int).result()
        _joined(program)


@pytest.mark.parametrize(
    ("body", "count", "on"),
    [
        (_pool, 2, [ASKED, OTHER]),
        (_joined, 1, [ASKED]),
        (_beside_the_main_thread, 2, [ASKED, OTHER]),
        (_beside_one_that_has_nothing_to_do, 1, [ASKED]),
    ],
)
def test_a_driver_whose_threads_all_wait_is_blocked(
    program: Program, body: Callable[[Program], None], count: int, on: list[str]
) -> None:
    recorded = program.recorded_in(body, count)
    assert recorded.report.status == "blocked"
    assert sorted(name for wait in recorded.report.waits for name in wait.calls if name) == on
    assert not any(wait.may_act for wait in recorded.report.waits)
    named = [one for one in recorded.threads.acting if not one.startswith("without a name")]  # what runs tests has such
    assert not named, "they wait for replies"


def _beside_one_that_computes(program: Program) -> None:
    thread = threading.Thread(target=program.computes)
    thread.start()
    _joined(program)


def _beside_a_timeout(program: Program) -> None:
    thread = threading.Thread(target=program.asks, args=(OTHER, 60.0))
    thread.start()
    _joined(program)


def _main_thread_computes(program: Program) -> None:
    thread = threading.Thread(target=program.asks)
    thread.start()
    program.computes()
    thread.join()


def _joined_with_a_bound(program: Program) -> None:
    thread = threading.Thread(target=program.asks)
    thread.start()
    thread.join(BOUND_S)


def _for_what_is_not_known(program: Program) -> None:
    thread = threading.Thread(target=program.asks, args=(None,))
    thread.start()
    thread.join()


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (_beside_one_that_computes, 2),
        (_beside_a_timeout, 2),
        (_main_thread_computes, 2),
        (_joined_with_a_bound, 1),
        (_for_what_is_not_known, 1),
    ],
)
def test_a_driver_of_which_a_thread_may_act_is_active(
    program: Program, body: Callable[[Program], None], count: int
) -> None:
    assert program.recorded_in(body, count).report.status == "active"
    until(lambda: not program.process.program_threads.thread_of)  # nothing is kept of waits that are over


OF_AN_EVENT = threading.Event, threading.Event.set, threading.Event.wait
OF_A_QUEUE = queue.Queue, lambda items: items.put(1), queue.Queue.get


@pytest.mark.parametrize(("make", "wake", "wait"), [OF_AN_EVENT, OF_A_QUEUE])
@pytest.mark.parametrize("others", [(), ("computes",)])
def test_a_thread_that_asks_again_and_again_does_so_for_the_program_that_waits_for_any_thread(
    program: Program, make: Any, wake: Any, wait: Any, others: tuple[str, ...]
) -> None:
    awaited, chain, polls, now = make(), ((_joined.__code__, 0),), program.process.polls, time.time()
    polls.places[Place(chain, "ray.get_actor")] = Asking("app.py:7", Use.OPEN)

    def asks() -> None:
        for seconds in range(-20, 40):  # it goes on, whenever it is recorded
            polls.asked_ray("ray.get_actor('x')", "ValueError", (), chain, now + seconds)
        program.computes()
        wake(awaited)

    def body(program: Program) -> None:
        for target in (asks, *(getattr(program, one) for one in others)):
            threading.Thread(target=target, name=target.__name__).start()
        wait(awaited)

    found = program.recorded_in(body, 1 + len(others)).polls
    assert [one.thread for one in found] == ([] if others else [""]), "the other one may bring an answer"
