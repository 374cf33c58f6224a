"""What guards an action: real clocks and chance, globals that change, and code that catches what ends an action.

While a stage is entered, the functions of `time`, `random`, `uuid`, `secrets` and `os.urandom` are replaced by ones that look
who asks, also under the names by which the user's modules have imported them: an action of a machine is told so, with the
line; a library that an action calls (logging, say) is answered. The methods of `datetime` cannot be replaced: each call is
looked at while a class acts whose code has their names. Never imports Ray.
"""

from __future__ import annotations

import datetime
import os
import pickle
import random
import secrets
import sys
import threading
import time
import types
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from ray_snapshot.runtime import unwinding
from ray_snapshot.runtime.staged_calls import Replaced, inspected

_CLOCKS = (
    "time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "process_time", "process_time_ns",
    "thread_time", "thread_time_ns", "clock_gettime", "clock_gettime_ns",
)  # fmt: skip
_CHANCES = (
    "random", "randint", "randrange", "choice", "choices", "shuffle", "sample", "uniform", "getrandbits", "randbytes",
    "gauss", "normalvariate", "lognormvariate", "expovariate", "betavariate", "gammavariate", "paretovariate",
    "vonmisesvariate", "weibullvariate", "triangular", "seed",
)  # fmt: skip
_DATES = frozenset({"now", "utcnow", "today"})
_ASKED: tuple[tuple[types.ModuleType, tuple[str, ...], str], ...] = (
    (time, _CLOCKS, "self.now()"),
    (random, _CHANCES, "self.random"),
    (uuid, ("uuid1", "uuid4"), "self.random"),
    (secrets, ("randbelow", "randbits", "choice", "token_hex", "token_bytes", "token_urlsafe"), "self.random"),
    (os, ("urandom",), "self.random"),
)
_MOST_BYTES = 100_000
"""Globals that are larger are compared by identity."""
_ATOMS = (int, float, str, bool, bytes, type(None), tuple, frozenset)
_ABSENT = "(absent)"


class _Stopped(BaseException):
    """Ends an action that asks the real clock or real chance."""


Site = tuple[types.CodeType, int] | None
"""Where a frame is in its code."""


def told_site(site: Site) -> str | None:
    """ "file:line"."""
    if site is None:
        return None
    code, place = site
    line = next((line for first, last, line in code.co_lines() if first <= place < last), None)
    return f"{code.co_filename}:{line}"


class Guards:
    """The guards of one stage."""

    def __init__(self) -> None:
        self.is_acting = False
        self.thread = threading.get_ident()
        """The one that acts."""
        self.trouble: tuple[str, str, str] | None = None
        """(what was asked, at which line, what to ask instead)."""
        self.globals: dict[int, list[tuple[Any, str]]] = {0: []}
        """By class: the names outside of its machines that its methods may change."""
        self.own: set[str] = set()
        """Files of machine classes, wherever they are installed."""
        self._library: dict[str, bool] = {}
        """By file: what `is_library` says."""
        self._replaced = Replaced()
        self.dated: set[int] = set()
        """Classes whose code may ask `datetime`."""
        self._outer: Any = None
        """The profiler of others while an action acts."""

    # ---- time and chance --------------------------------------------------------------------------------------------

    def enter(self) -> None:
        """Replace the functions."""
        for module, names, instead in _ASKED:
            for name in names:
                original = getattr(module, name, None)
                if original is not None:  # not every system has every clock
                    self._replaced.replace(
                        module, name, self._guarded(original, f"{module.__name__}.{name}()", instead)
                    )
        self._replaced.replace(time, "sleep", self._sleep(time.sleep))
        for name, module in [*sys.modules.items()]:
            if not self.is_library(getattr(module, "__file__", None) or "<frozen "):
                self._replaced.replace_in(name)

    def exit(self) -> None:
        """Give them back."""
        self._replaced.give_back()

    def _guarded(self, original: Callable[..., Any], what: str, instead: str) -> Callable[..., Any]:
        def asked(*args: Any, **kwargs: Any) -> Any:
            if self.is_acting and threading.get_ident() == self.thread:
                self._told(sys._getframe(1), what, instead)
            return original(*args, **kwargs)

        return asked

    def _told(self, frame: types.FrameType, what: str, instead: str) -> None:
        """Ends the action if the frame that asks is the user's."""
        if not self.is_library(frame.f_code.co_filename):
            self.trouble = self.trouble or (what, f"{frame.f_code.co_filename}:{frame.f_lineno}", instead)
            raise _Stopped

    def _look(self, frame: types.FrameType, event: str, called: Any) -> None:
        """The profiler while an action acts that may ask `datetime`."""
        if event == "c_call" and called.__name__ in _DATES and isinstance(getattr(called, "__self__", None), type):
            kind: type = called.__self__
            if issubclass(kind, datetime.date):
                self._told(frame, f"{kind.__name__}.{called.__name__}()", "self.now()")

    def _sleep(self, original: Callable[[float], None]) -> Callable[[float], None]:
        def sleep(seconds: float) -> None:
            if not (self.is_acting and threading.get_ident() == self.thread):
                original(seconds)

        return sleep

    def is_library(self, file: str) -> bool:
        """Whether a file is Python's, a library's, or ours, and no machine's."""
        found = self._library.get(file)
        if found is None:
            found = self._library[file] = file not in self.own and unwinding.is_library(file)
        return found

    def site(self) -> str | None:
        """ "file:line" of the innermost frame that is the user's."""
        return told_site(self.place())

    def place(self) -> Site:
        """The same, to be put in words by `told_site` if it is asked for."""
        frame: types.FrameType | None = sys._getframe(1)
        library = self._library
        while frame is not None:
            code = frame.f_code
            is_library = library.get(code.co_filename)
            if not (self.is_library(code.co_filename) if is_library is None else is_library):
                return code, frame.f_lasti
            frame = frame.f_back
        return None

    # ---- globals ----------------------------------------------------------------------------------------------------

    def watch(self, kind: type) -> None:
        """The next class."""
        for one in kind.__mro__:
            file = getattr(sys.modules.get(one.__module__), "__file__", None)
            if file is not None and one is not object and not _is_ours(one):
                self.own.add(file)
                self._library.clear()
                self._replaced.replace_in(one.__module__)
        if _may_ask_dates(kind):
            self.dated.add(len(self.globals))
        self.globals[len(self.globals)] = list(_names_of(kind))

    def begin(self, kind: int) -> list[Any]:
        """An action of a class begins: what its globals are."""
        self.is_acting, self.thread = True, threading.get_ident()
        if kind in self.dated:
            self._outer = sys.getprofile()
            if self._may_be_put_back():
                sys.setprofile(self._look)
        return [_token(owner, name) for owner, name in self.globals[kind]]

    def _may_be_put_back(self) -> bool:
        """Not so a profiler in C, as `cProfile` is before Python 3.12: while it is on, dates are not looked for."""
        return self._outer is None or callable(self._outer)

    def end(self, kind: int, before: list[Any]) -> list[str]:
        """It is over: the globals that are not what they were."""
        self.is_acting = False
        if kind in self.dated and self._may_be_put_back():
            sys.setprofile(self._outer)
        watched = self.globals[kind]
        if not watched:
            return []
        now = [_token(owner, name) for owner, name in watched]
        return [
            f"{owner.__name__}.{name}"
            for (owner, name), was, new in zip(watched, before, now, strict=True)
            if was != new
        ]


def _is_ours(kind: type) -> bool:
    """Whether it is what machines inherit of ours: what is asked there is answered by the stage."""
    return kind.__module__.startswith("ray_snapshot.runtime")


def _names_of(kind: type) -> Iterator[tuple[Any, str]]:
    """(module or class, name) of what the methods of a class may change outside of its machines."""
    seen: set[tuple[str, str]] = set()
    for one in _users(kind):
        yield from ((one, name) for name, value in vars(one).items() if not name.startswith("__") and _is_data(value))
        module = sys.modules.get(one.__module__)
        held = {} if module is None else vars(module)
        for name in [name for code in _codes_of(one, is_own=True) for name in code.co_names]:
            if name in held and _is_data(held[name]) and (one.__module__, name) not in seen:
                seen.add((one.__module__, name))
                yield module, name


def _may_ask_dates(kind: type) -> bool:
    """Whether some code of a class, or of what it uses, has a name of a method that asks the date."""
    return any(not _DATES.isdisjoint(code.co_names) for one in _users(kind) for code in _codes_of(one, is_own=False))


def _users(kind: type) -> list[type]:
    """A class and those that it inherits from, but ours."""
    return [one for one in kind.__mro__ if one is not object and not _is_ours(one)]


def _codes_of(kind: type, *, is_own: bool) -> Iterator[types.CodeType]:
    """The code of a class, what is inside it, and that of the functions of its module which it names.

    `is_own`: only of those that are defined there.
    """
    module = sys.modules.get(kind.__module__)
    names = {} if module is None else vars(module)
    waiting: list[Any] = [_code_of(item) for item in vars(kind).values()]
    seen = set()
    while waiting:
        code = waiting.pop()
        if not isinstance(code, types.CodeType) or code in seen:
            continue
        seen.add(code)
        yield code
        used = [names[name] for name in code.co_names if name in names]
        if is_own:
            used = [
                item for item in used if isinstance(item, types.FunctionType) and item.__module__ == kind.__module__
            ]
        waiting += [*code.co_consts, *map(_code_of, used)]


def _code_of(item: Any) -> Any:
    return getattr(inspected(item), "__code__", None)


def _is_data(value: Any) -> bool:
    return not (
        callable(value)
        or isinstance(value, types.ModuleType | staticmethod | classmethod | property)
        or hasattr(type(value), "__get__")
        or isinstance(value, Guards)
    )


def _token(owner: Any, name: str) -> Any:
    """Something that differs once the value does."""
    value = vars(owner).get(name, _ABSENT)
    kind = type(value)
    if kind in _ATOMS:
        return kind, value
    try:
        data = pickle.dumps(value, 5)
    except Exception:  # no value to be compared
        return id(value)
    return data if len(data) <= _MOST_BYTES else id(value)
