"""What tasks and timers have within reach, and may cancel or wake: one search, under one bound, for all of a report.

Goes from object to object as the garbage collector does (`gc.get_referents`), the small ones first, so no code of the app's
runs, nothing is kept of what is found, and no frame is given variables that would outlive it. What the app's code names
(a global, a method, something of a class or a module) it may have hold of: a search by names finds too much, not too little.
"""

from __future__ import annotations

import asyncio
import gc
import logging
from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping
from contextvars import Context
from heapq import heappop, heappush
from types import CodeType, CoroutineType, FrameType, FunctionType, ModuleType
from typing import Any, NamedTuple
from weakref import ref

from ray_snapshot.instrument.process.called import local_variables
from ray_snapshot.limits import LIMITS
from ray_snapshot.runtime.here import USERS, rank_of

_CLOSED = (type, ModuleType, FrameType, asyncio.AbstractEventLoop, Context, logging.Logger)
"""Kinds of objects through which everything can be reached."""

_CONTAINERS = (list, dict, set, frozenset, tuple, deque)


class _Kind(NamedTuple):
    """What is known of a class of objects."""

    is_closed: bool
    is_future: bool
    has_globals: bool
    """Whether objects of it are compiled functions, which hold the globals of their module."""


class Reach:
    """The tasks and futures that have been reached; asking for one costs nothing."""

    def __init__(
        self,
        calls: Iterable[tuple[Any, Any]],
        wanted: Iterable[Any],
        *,
        by_names: bool = False,
        needs: Iterable[str] = (),
    ) -> None:
        """`calls`: the task and the coroutine of each; `wanted`: the tasks that matter, the search ends with the last.

        `by_names`: what code names is reached, too; `needs`: and counts only if that code has one of these names.
        """
        self._by_names = by_names
        self._needs = frozenset(needs)
        self._names: set[str] = set()
        self._named: defaultdict[str, list[Any]] = defaultdict(list)
        """By name: what classes of objects that were reached have."""
        self.is_all = True
        """Whether everything that can be reached was looked at, or everything that matters found."""
        self._calls = {id(task): coroutine for task, coroutine in calls}
        self._wanted = {id(task) for task in wanted}
        self._found: dict[int, Any] = {}
        self._seen: set[int] = set()
        self._kinds: dict[int, _Kind] = {}
        self._small: deque[Any] = deque()
        self._large: list[tuple[int, int, Any]] = []
        self._left = LIMITS.searched_references

    def __contains__(self, item: object) -> bool:
        return not self._lacks_names and (_ALL_TASKS in self._names or id(item) in self._found)

    def add(self, roots: Iterable[Any]) -> None:
        """Search from these: a task or future that is woken or cancelled wakes by its callbacks those that wait for it."""
        for item in roots:
            self._meet(item)
        while (self._wanted or self._lacks_names) and (item := self._next()) is not None:
            found = self._within(item)
            self._left -= 1 + len(found)
            for one in found:
                self._meet(one)
        self._small.clear()
        self._large.clear()

    @property
    def _lacks_names(self) -> bool:
        return bool(self._needs) and self._needs.isdisjoint(self._names)

    def add_thread(self, thread: Any, frames: Iterable[FrameType]) -> None:
        """Search from a thread, and from what its frames have."""
        self._names.add("run")
        held: list[Any] = [thread]
        for frame in frames:
            held += local_variables(frame, *frame.f_code.co_varnames, *frame.f_code.co_freevars).values()
            if rank_of(frame.f_code.co_filename) == USERS:
                held += self._named_by(frame.f_code, frame.f_globals)
        self.add(held)

    def anew(self, roots: Iterable[Any]) -> dict[int, Any]:
        """What is within reach of these alone, by id; under the same bound."""
        self._seen.clear()
        self._found = {}
        self.add(roots)
        return self._found

    def _next(self) -> Any:
        """What to open next, the small before the large; None if nothing is left or the bound is hit."""
        item = self._small.popleft() if self._small else heappop(self._large)[-1] if self._large else None
        if item is not None and _size(item) >= self._left:
            self.is_all = False
            return None
        return item

    def _meet(self, item: Any) -> None:
        if id(item) in self._seen or not gc.is_tracked(item):
            return
        kind = self._kind(item)
        if kind.is_closed:
            return
        self._seen.add(id(item))
        if kind.is_future:
            self._found[id(item)] = item
            is_wanted = id(item) in self._wanted
            self._wanted.discard(id(item))
            if is_wanted and self._needs:
                return  # the names are to be others' than its own
        if (size := _size(item)) > LIMITS.large_container_items:
            heappush(self._large, (size, len(self._seen), item))
        else:
            self._small.append(item)

    def _within(self, item: Any) -> list[Any]:
        if id(item) in self._calls:  # what Ray puts around a call leads to all calls; its end is waited for elsewhere
            return [self._calls[id(item)], getattr(item, "_fut_waiter", None)]
        if issubclass(type(item), ref):
            return [ref.__call__(item)]
        if type(item) is FunctionType:  # without the globals of its module
            own = [*(item.__closure__ or ()), *(item.__defaults__ or ()), *(item.__kwdefaults__ or {}).values()]
            is_the_apps = self._by_names and rank_of(item.__code__.co_filename) == USERS
            return own + self._named_by(item.__code__, item.__globals__) if is_the_apps else own
        module = item.__globals__ if self._kind(item).has_globals else None
        return [one for one in gc.get_referents(item) if one is not module]

    def _named_by(self, code: CodeType, module: Mapping[str, Any]) -> list[Any]:
        """What code of the app's names: globals, what these have if they are modules or classes, and methods."""
        names = set(_names(code))
        self._names |= names
        found = [module[name] for name in names if name in module]
        for one in [one for one in found if issubclass(type(one), (type, ModuleType))]:
            found += [value for name, value in _attributes(one) if name in names]
        return found + [value for name in names for value in self._named[name]]

    def _kind(self, item: Any) -> _Kind:
        kind = type(item)
        if (known := self._kinds.get(id(kind))) is None:
            known = self._kinds[id(kind)] = _Kind(
                _is_closed(kind), _has(kind, "_asyncio_future_blocking"), _has(kind, "__globals__")
            )
            for name, value in _attributes(kind) if self._by_names and not known.is_closed else ():
                self._named[name].append(value)
                if name in self._names:
                    self._meet(value)
        return known


_ALL_TASKS = "all_tasks"
"""Code that names it may end every task of its loop."""


def _names(code: CodeType) -> Iterator[str]:
    """Of globals and attributes, in the functions inside, too."""
    yield from code.co_names
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _names(one)


def _attributes(owner: Any) -> Iterator[tuple[str, Any]]:
    """What a class or a module has, a method as the function that it is of."""
    kinds = type.__getattribute__(owner, "__mro__") if issubclass(type(owner), type) else ()
    own = [type.__getattribute__(one, "__dict__") for one in kinds] or [ModuleType.__getattribute__(owner, "__dict__")]
    for name, value in [item for each in own for item in list(each.items())]:
        inside = {staticmethod: "__func__", classmethod: "__func__", property: "fget"}.get(type(value))
        yield name, value if inside is None else getattr(value, inside)


def _size(item: Any) -> int:
    """How much a container holds: asked of the built-in kind that it is, for a subclass may answer by code of its own."""
    for kind in _CONTAINERS:
        if issubclass(type(item), kind):
            return kind.__len__(item)
    return 0


def _is_closed(kind: type) -> bool:
    """Whether objects of this kind are not looked into: our own and Ray's private ones know every call there is."""
    try:
        module = type.__getattribute__(kind, "__module__")
    except AttributeError:  # a compiled class may have none
        module = None
    is_private = isinstance(module, str) and module.startswith(("ray_snapshot.", "ray._"))
    is_compiled_coroutine = kind is not CoroutineType and _has(kind, "cr_await")
    return is_private or is_compiled_coroutine or issubclass(kind, _CLOSED)


def _has(kind: type, name: str) -> bool:
    """Whether a class has an attribute, without asking its metaclass."""
    return any(name in one.__dict__ for one in type.__getattribute__(kind, "__mro__"))
