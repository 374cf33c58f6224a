"""Faults of ours stay ours: what guards each place at which an app enters our code.

An app enters through Ray's functions that are replaced (`replaced`), and through the wrappers of its methods, its event loop
and our threads (`ours`, around each step). What raises there, and is neither the app's own error or Ray's nor one that is
meant for the app, ends the watching of this process with one line on stderr; the app goes on as if unwatched.

A signal handler of the app's may raise anywhere in the main thread, so also amid a step of ours (a time-out by `signal.alarm`).
The app gets that error, as it would without us; how far our step has come nobody can say, so the watching ends, too.
"""

from __future__ import annotations

import functools
import inspect
import signal
from collections.abc import Callable
from typing import Any

from ray_snapshot.errors import ProtocolError, RaySnapshotError
from ray_snapshot.instrument.frames import hide_ours
from ray_snapshot.stderr import say


def ours(step: Callable[..., Any], *args: Any, default: Any = None) -> Any:
    """A step of ours amid the app's own; `default` if it fails."""
    try:
        return step(*args)
    except Exception as error:
        if is_of_a_handler(error):
            give_up(error)
            raise
        if _is_for_the_app(error):
            raise
        give_up(error)
        return default


def replaced(step: Callable[..., Any], function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Run a step of ours in place of Ray's `function`; the step calls it. If the step fails, `function` is called all
    the same."""
    own = Own(function)
    try:
        return step(own, *args, **kwargs)
    except BaseException as error:
        if own.is_meant(error):
            if not own.has_raised(error) and is_of_a_handler(error):
                give_up(error)
            own.error = None  # or the error would hold itself: its traceback has our frames, and they have `own`
            ours(hide_ours, error)
            raise
        if own.takes(*args, **kwargs):
            give_up(error)
    return own.outcome(*args, **kwargs)


class Own:
    """Ray's function as a step of ours calls it: it remembers how it has ended."""

    __slots__ = ("error", "function", "is_done", "result")

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self.error: BaseException | None = None
        self.is_done = False
        self.result: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        self.error = None
        try:
            self.result = self.function(*args, **kwargs)
        except BaseException as error:
            self.error = error
            raise
        self.is_done = True
        return self.result

    def has_raised(self, error: BaseException) -> bool:
        """Whether Ray's function has ended in this error, or in a `SystemError` that it made of it."""
        return error is self.error or (isinstance(self.error, SystemError) and error is self.error.__context__)

    def is_meant(self, error: BaseException) -> bool:
        """Whether the app is to get this error: Ray's own, one that is meant for it, or an interruption."""
        is_of_the_app = _is_for_the_app(error) or not isinstance(error, Exception) or is_of_a_handler(error)
        return error is self.error or is_of_the_app

    def takes(self, *args: Any, **kwargs: Any) -> bool:
        """Whether Ray's function has parameters for what the app has given it; if not, the fault is the app's."""
        try:
            inspect.signature(self.function).bind(*args, **kwargs)
        except TypeError:
            return False
        return True

    def outcome(self, *args: Any, **kwargs: Any) -> Any:
        """What the app would have got without us; calls the function if that was not done."""
        if self.error is not None:
            raise self.error
        return self.result if self.is_done else self.function(*args, **kwargs)


def _is_for_the_app(error: BaseException) -> bool:
    """Whether we mean to raise it: a refusal, a setting that is wrong; a broken protocol is a fault of ours."""
    return isinstance(error, RaySnapshotError) and not isinstance(error, ProtocolError)


def is_of_a_handler(error: BaseException) -> bool:
    """Whether a signal handler that is set has raised an error: one of its functions is in the traceback."""
    found = {getattr(_function(signal.getsignal(number)), "__code__", None) for number in signal.valid_signals()}
    trace = error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code in found:
            return True
        trace = trace.tb_next
    return False


def _function(handler: Any) -> Any:
    """The function behind a handler, a method of an object, or a part of either."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    return handler if hasattr(handler, "__code__") else inspect.getattr_static(type(handler), "__call__", None)


def blamed(error: BaseException) -> str:
    """What has ended the watching, for a person."""
    from ray_snapshot.runtime.faults import named

    if is_of_a_handler(error):
        return f"for a signal handler of the program has raised amid a step of ours: {named(error)}"
    return f"by a fault of ours: {named(error)}"


_told: list[str] = []
"""What was said of a fault in a process that has no machine."""


def give_up(error: BaseException) -> None:
    """This process is watched no more. Raises nothing."""
    try:
        from ray_snapshot.instrument import here

        for process in here.attached():
            if process.is_closed:
                return
            process.is_closed = True
            process.give_up(error)
            return
        if not _told:
            _told.append(f"nothing is watched in this process, {blamed(error)}")
            say(f"ray-snapshot: {_told[0]}")
    except Exception:  # whatever of ours is broken, the app goes on
        return
