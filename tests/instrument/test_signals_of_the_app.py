"""A timer that is set, and a handler of the app's, may act in a process in which nothing else does. No Ray."""

import signal
from collections.abc import Iterator

import pytest

from ray_snapshot.instrument.process.signals import signals

LONG_S = 3_600.0


def _handles(*_: object) -> None:
    """A handler of the app's."""


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    kept = {one: signal.getsignal(one) for one in (signal.SIGALRM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGCHLD)}
    yield
    signal.setitimer(signal.ITIMER_REAL, 0)
    for one, handler in kept.items():
        signal.signal(one, handler)


def test_where_nothing_is_set_nothing_acts() -> None:
    assert signals(is_program=False) == signals(is_program=True) == ""


def test_a_timer_that_ends_an_actor_frees_who_waits_for_it_and_one_that_ends_the_program_frees_nobody() -> None:
    signal.setitimer(signal.ITIMER_REAL, LONG_S)
    assert signals(is_program=False) == "a timer"
    assert signals(is_program=True) == ""


def test_a_timer_that_is_handled_acts_in_the_program_too() -> None:
    signal.signal(signal.SIGALRM, _handles)
    assert signals(is_program=True) == "", "no timer is set"
    signal.setitimer(signal.ITIMER_REAL, LONG_S)
    assert signals(is_program=True) == "a timer"


@pytest.mark.parametrize("number", [signal.SIGCHLD, signal.SIGUSR1, signal.SIGUSR2])
def test_a_handler_of_the_apps_may_act_at_any_time(number: signal.Signals) -> None:
    signal.signal(number, _handles)
    assert signals(is_program=True) == f"the handler of {number.name}"


def test_a_handler_of_rays_is_none_of_the_apps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_handles, "__module__", "ray._private.worker")
    signal.signal(signal.SIGUSR1, _handles)
    assert signals(is_program=False) == ""
