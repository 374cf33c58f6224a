"""A watcher that does not answer, cannot be reached, or ends: who goes on without it, for how long, and what it hears of that.

Without Ray: watchers that answer when the test says so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any

import pytest
from limited import limit
from ray.exceptions import ActorDiedError, ActorUnavailableError
from until import until

from ray_snapshot.instrument.here import settle_in
from ray_snapshot.instrument.hooks import attaching
from ray_snapshot.instrument.process import process as processes
from ray_snapshot.instrument.process import until_heard
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.protocol.commands import Leave, ProcessCommand, Request

BOUND_S = 10.0
AWAY = ActorUnavailableError("its connection broke", None)


class Answer(Future[Any]):
    """Of one call: as much of a ref as is asked for, and the future of it."""

    def future(self) -> Answer:
        return self


class Slow:
    """A watcher that is asked for methods; each answer comes from `answers`, or when the test gives it."""

    def __init__(self, **answers: list[Any]) -> None:
        self.answers = {method: deque(given) for method, given in answers.items()}
        self.asked: list[tuple[str, Answer]] = []

    def __getattr__(self, method: str) -> Any:
        return Method(self, method)

    def of(self, method: str) -> list[Answer]:
        """Its answers to this method, in the order of the calls."""
        return [answer for name, answer in self.asked if name == method]


class Method:
    """One method of a `Slow`."""

    def __init__(self, watcher: Slow, name: str) -> None:
        self.watcher, self.name = watcher, name

    def remote(self, *_: Any) -> Answer:
        answer = Answer()
        self.watcher.asked.append((self.name, answer))
        if given := self.watcher.answers.get(self.name):
            match given.popleft():
                case Exception() as error:
                    answer.set_exception(error)
                case result:
                    answer.set_result(result)
        return answer


@pytest.fixture
def telling(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Waits for the threads that say something to the watcher."""
    threads = []

    def said(*args: Any, **kwargs: Any) -> Any:
        threads.append(until_heard.until_heard(*args, **kwargs))
        return threads[-1]

    def ended() -> None:
        for thread in threads:
            thread.join(BOUND_S)
            assert not thread.is_alive()

    for module in (attaching, processes):
        monkeypatch.setattr(module, "until_heard", said)
    limit(monkeypatch, deaf_watcher_pause_s=0.0)
    return ended


@pytest.fixture
def begin(monkeypatch: pytest.MonkeyPatch, telling: Callable[[], None]) -> Iterator[Callable[[Slow], Any]]:
    """Begins an actor, or its next call, where this is the watcher."""
    for name in ("_given_up", "_mute"):
        monkeypatch.setattr(attaching, name, set())
    limit(monkeypatch, register_s=0.0)
    monkeypatch.setattr(attaching, "replace_ray", lambda: None)
    monkeypatch.setattr(attaching, "name_here", lambda: "A:1")
    monkeypatch.setattr(attaching.shape, "own_name", lambda: None)

    def attached(watcher: Slow) -> Any:
        monkeypatch.setattr(attaching, "watcher_of", lambda _: watcher)
        return attaching.attach_actor("app:1", "key", colour=0, about={}, body=object())

    yield attached
    settle_in(None)


def test_an_actor_that_is_taken_in_too_late_asks_no_more_and_the_watcher_hears_that_it_does_not_see_it(
    begin: Callable[[Slow], Any], telling: Callable[[], None], capsys: Any
) -> None:
    watcher = Slow(unwatched=[None])
    assert begin(watcher) is None
    assert watcher.of("unwatched") == []
    watcher.of("join")[0].set_result("a welcome")
    telling()
    assert len(watcher.of("unwatched")) == 1
    assert [begin(watcher), begin(watcher)] == [None, None]
    assert len(watcher.of("join")) == 1
    said = capsys.readouterr().err.splitlines()
    assert said == [
        "ray-snapshot: an actor of object is not watched: TimeoutError: its watcher has not answered for 0 s"
    ]


def test_a_watcher_of_another_app_hears_nothing(begin: Callable[[Slow], Any], telling: Callable[[], None]) -> None:
    watcher = Slow()
    assert begin(watcher) is None
    watcher.of("join")[0].set_result(None)
    telling()
    assert watcher.of("unwatched") == []


def test_a_watcher_that_could_not_be_reached_hears_of_the_actor_when_it_can(
    begin: Callable[[Slow], Any], telling: Callable[[], None], capsys: Any
) -> None:
    watcher = Slow(join=[AWAY], unwatched=[AWAY, AWAY, None])
    assert begin(watcher) is None
    telling()
    assert len(watcher.of("unwatched")) == 3
    said = ["ray-snapshot: an actor of object is not watched: its watcher could not be reached"]
    assert capsys.readouterr().err.splitlines() == said


def test_of_a_watcher_that_has_ended_nothing_is_said(
    begin: Callable[[Slow], Any], telling: Callable[[], None], capsys: Any
) -> None:
    watcher = Slow(join=[AWAY], unwatched=[AWAY, ActorDiedError()])
    assert begin(watcher) is None
    telling()
    assert len(watcher.of("unwatched")) == 2
    assert capsys.readouterr().err == ""


def test_a_process_whose_poll_is_cut_off_takes_part_no_more_and_the_watcher_hears_it(
    monkeypatch: pytest.MonkeyPatch, telling: Callable[[], None], capsys: Any
) -> None:
    monkeypatch.setattr(processes.shape, "is_connected", lambda: True)
    watcher = Slow(commands_for=[AWAY], unwatched=[AWAY, None])
    process = Process("app:1", watcher, CallLedger("A"), {})
    settle_in(process)
    try:
        process.control.thread.join(BOUND_S)
        telling()
    finally:
        settle_in(None)
    assert process.is_closed
    assert len(watcher.of("unwatched")) == 2
    assert capsys.readouterr().err == "ray-snapshot: A is not watched any more: its watcher could not be reached\n"


def test_a_poll_that_is_cut_off_behind_the_end_of_a_process_is_told_to_nobody(
    monkeypatch: pytest.MonkeyPatch, telling: Callable[[], None], capsys: Any
) -> None:
    monkeypatch.setattr(processes.shape, "is_connected", lambda: True)
    watcher = Slow(unwatched=[None])
    process = Process("app:1", watcher, CallLedger("A"), {})
    until(lambda: watcher.of("commands_for"), seconds=BOUND_S)
    process.is_closed = True
    watcher.of("commands_for")[0].set_exception(AWAY)
    process.control.thread.join(BOUND_S)
    telling()
    assert watcher.of("unwatched") == []
    assert capsys.readouterr().err == ""


def test_a_process_that_is_told_to_leave_asks_no_more() -> None:
    """Ray may crash where it ends the watcher while a call comes."""
    watcher = Slow(commands_for=[(1, [Leave()])])
    process = Process("app:1", watcher, CallLedger("A"), {})
    process.control.thread.join(BOUND_S)
    assert process.is_closed
    assert len(watcher.of("commands_for")) == 1


@pytest.mark.parametrize(("commands", "is_sent"), [([Request(1)], True), ([Request(1), Leave()], False)])
def test_what_was_recorded_when_a_process_ends_goes_out_unless_the_watcher_ends(
    monkeypatch: pytest.MonkeyPatch, commands: list[ProcessCommand], is_sent: bool
) -> None:
    obey = Process.obey

    def obeyed(process: Process, command: ProcessCommand) -> None:
        obey(process, command)
        if command == commands[-1]:
            process.leave_system()  # another thread does that just now

    monkeypatch.setattr(Process, "obey", obeyed)
    watcher = Slow(commands_for=[(1, commands)], recorded=[None], left=[None])
    process = Process("app:1", watcher, CallLedger("A"), {})
    process.control.thread.join(BOUND_S)
    assert len(watcher.of("recorded")) == is_sent
    assert len(watcher.of("commands_for")) == 1


def test_a_worker_waits_once_and_then_a_little_until_its_watcher_has_answered(
    monkeypatch: pytest.MonkeyPatch, telling: Callable[[], None]
) -> None:
    waited: list[float] = []
    now = [0.0]
    for name, value in (("_given_up", set()), ("_mute", set()), ("_refused", {}), ("_watchers", {})):
        monkeypatch.setattr(attaching, name, value)
    monkeypatch.setattr(attaching, "replace_ray", lambda: None)
    monkeypatch.setattr(attaching.task_shape, "worker_key", lambda: "key")
    monkeypatch.setattr(attaching.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(Answer, "result", lambda self, timeout=None: _answered(self, timeout, waited))
    watcher = Slow(join=[TimeoutError(), TimeoutError(), None, TimeoutError()], left=[None] * 3)
    monkeypatch.setattr(attaching, "watcher_of", lambda _: watcher)
    for now[0] in (0.0, 1.0, LIMITS.unwatched_s + 1, LIMITS.unwatched_s + 2, 2 * LIMITS.unwatched_s + 2):
        assert attaching.attach_worker("app:1", 0) is None
    monkeypatch.setattr(attaching, "_refused", {})
    assert attaching.attach_worker("app:1", 0) is None
    telling()
    assert waited == [LIMITS.register_s, LIMITS.register_again_s, LIMITS.register_again_s, LIMITS.register_s]
    assert len(watcher.of("left")) == 3


def _answered(answer: Answer, timeout: float, waited: list[float]) -> Any:
    if timeout <= LIMITS.register_s:
        waited.append(timeout)
    return Future.result(answer, BOUND_S)
