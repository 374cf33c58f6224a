"""Threads that wait in Python for another thread are parked; those that wait with a bound, or elsewhere, may act. No Ray."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ray_snapshot.instrument.process.blocked_threads import BlockedThreads, Threads

LONG_S = 600.0


class Threaded:
    """A thread that waits in a condition which tells when it does."""

    def __init__(self) -> None:
        self.is_waiting, self.condition = threading.Event(), threading.Condition()

    def begin(self, timeout: float | None) -> threading.Thread:
        def work() -> None:
            with self.condition:
                self.is_waiting.set()
                self.condition.wait(timeout)

        thread = threading.Thread(target=work, name="t", daemon=True)
        thread.start()
        assert self.is_waiting.wait(LONG_S)
        with self.condition:  # it has let go of it: it waits
            pass
        return thread


@pytest.fixture
def threaded() -> Iterator[Threaded]:
    found = Threaded()
    yield found
    with found.condition:
        found.condition.notify_all()


def _names(found: Threads) -> tuple[list[str], list[str]]:
    return tuple([name for name in names if name.startswith("t ")] for names in (found.acting, found.parked))  # type: ignore[return-value]


def _told(look: Callable[[], Any], expected: Any) -> None:
    """What it says in the end: a thread that has let go of its lock has a step or two to go."""
    for _ in range(100_000):
        if look() == expected:
            return
    assert look() == expected


def test_a_thread_that_waits_without_a_bound_is_parked(threaded: Threaded) -> None:
    thread = threaded.begin(None)
    _told(lambda: [len(names) for names in _names(BlockedThreads().report([thread], 0.0))], [0, 1])


def test_a_thread_that_waits_with_a_bound_may_act(threaded: Threaded) -> None:
    thread = threaded.begin(LONG_S)
    assert [len(names) for names in _names(BlockedThreads().report([thread], 0.0))] == [1, 0]


def test_a_thread_that_waits_for_a_lock_may_act_unless_it_has_not_run_since_the_look_before() -> None:
    lock, begun = threading.Lock(), threading.Event()

    def work() -> None:
        begun.set()
        with lock:
            pass

    thread = threading.Thread(target=work, name="t", daemon=True)
    looks = BlockedThreads()
    with lock:
        thread.start()
        assert begun.wait(LONG_S)
        assert [len(names) for names in _names(looks.report([thread], 0.0))] == [1, 0]
        now = itertools.count(1.0)
        _told(lambda: [len(names) for names in _names(looks.report([thread], next(now)))], [0, 1])


def test_a_thread_that_was_notified_may_act(threaded: Threaded) -> None:
    thread = threaded.begin(None)
    with threaded.condition:
        threaded.condition.notify()
        assert [len(names) for names in _names(BlockedThreads().report([thread], 0.0))] == [1, 0]


def test_a_thread_that_waits_in_a_queue_is_parked_at_the_apps_own_line() -> None:
    items: queue.Queue[int] = queue.Queue()

    def work() -> None:
        items.get()

    thread = threading.Thread(target=work, name="t", daemon=True)
    thread.start()
    _told(lambda: [len(names) for names in _names(BlockedThreads().report([thread], 0.0))], [0, 1])
    ((name,),) = [names for names in _names(BlockedThreads().report([thread], 0.0)) if names]
    items.put(1)
    assert "test_parked_threads.py:" in name
