"""An error that a signal handler of the app's raises while a step of ours runs is the app's: it gets it, at once. No Ray."""

import signal
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType
from typing import Any

import pytest
from lone_process import lone_process

from ray_snapshot.instrument.guard import ours, replaced
from ray_snapshot.instrument.hooks import tracking
from ray_snapshot.instrument.process.process import Process


class TimeUp(Exception):
    """The app's own."""


def _up(number: int, frame: FrameType | None) -> None:
    raise TimeUp


class _Alarm:
    """A handler that is an object, or a method of one."""

    def __call__(self, *_: Any) -> None:
        raise TimeUp

    def ring(self, *_: Any) -> None:
        raise TimeUp


HANDLERS: dict[str, Callable[..., Any]] = {
    "a function": _up,
    "a part of a function": partial(_up),
    "a method": _Alarm().ring,
    "an object": _Alarm(),
}


@pytest.fixture(params=HANDLERS)
def process(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    before = signal.signal(signal.SIGALRM, HANDLERS[request.param])
    monkeypatch.setattr("ray_snapshot.instrument.shape.is_connected", lambda: True)
    with lone_process() as found:
        yield found
    signal.signal(signal.SIGALRM, before)


def _rings(*_: Any, **__: Any) -> None:
    """What happens to be under way when the alarm comes."""
    signal.raise_signal(signal.SIGALRM)


def test_amid_a_step_beside_the_apps_own_code(process: Process, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(TimeUp):
        ours(_rings)
    assert process.is_closed, "nobody can say how far the step had come"
    assert "a signal handler of the program has raised amid a step of ours: TimeUp" in capsys.readouterr().err


def test_amid_a_step_in_place_of_rays_function_which_is_watched_on_while_it_waits(process: Process) -> None:
    called: list[int] = []
    with pytest.raises(TimeUp):
        replaced(lambda own: own(), _rings)
    assert not process.is_closed
    with pytest.raises(TimeUp):
        replaced(_rings, lambda: called.append(1))
    assert (called, process.is_closed) == ([], True)


def test_in_a_slice_of_a_wait_where_ray_makes_another_error_of_it_it_is_watched_on(process: Process) -> None:
    def waits() -> None:
        try:
            _rings()
        except TimeUp:
            raise SystemError("returned a result with an exception set")  # noqa: B904  as Ray's compiled code does

    with pytest.raises(TimeUp):
        replaced(lambda own: tracking._bounded(lambda _: own(), 0.1), waits)
    assert not process.is_closed


def test_amid_the_beginning_of_a_wait(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process.waiting, "begin", _rings)
    with pytest.raises(TimeUp):
        tracking._followed(process, ["a ref"], 1, None, lambda _: "a value", tracking._got)


def test_a_fault_of_ours_is_no_alarm(process: Process, capsys: pytest.CaptureFixture[str]) -> None:
    assert ours(lambda: 1 / 0, default=2) == 2
    assert process.is_closed
    assert "by a fault of ours: ZeroDivisionError" in capsys.readouterr().err
