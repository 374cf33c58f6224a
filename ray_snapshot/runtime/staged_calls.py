"""`ray.get` and `ray.wait` of the results of calls between machines that act on a stage (`runtime.staged`), without Ray.

Ray is imported with the first call that a machine makes, or with the first machine (or program) whose code names it; its
functions are given back when the stage is left. A module that did `from ray import get` gets its own name replaced, too. An
action never reaches Ray itself: that would start a Ray.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import CodeType, ModuleType
from typing import Any

from ray_snapshot.errors import SettingError
from ray_snapshot.runtime.staged import Stage


class CallRef:
    """The result of a call that may still be to come: what `handle.method.remote(...)` returns on a stage."""

    __slots__ = ("caller", "number")

    def __init__(self, caller: str, number: int) -> None:
        self.caller = caller
        self.number = number

    @property
    def key(self) -> tuple[Any, ...]:
        return self.caller, self.number

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, CallRef) and other.key == self.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"<result of call {self.number} of {self.caller}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return CallRef, self.key


class LoggedRef(CallRef):
    """The result of a call of a run that is done again: recorded as Ray's reference to it was."""

    __slots__ = ("recorded", "target")

    def __init__(self, caller: str, target: str, number: int, recorded: str) -> None:
        super().__init__(caller, number)
        self.target = target
        """`number` is that of the call among those of its caller to this machine."""
        self.recorded = recorded
        """Ray's name of the result, in hexadecimal digits; empty if none was logged."""

    @property
    def key(self) -> tuple[Any, ...]:
        return self.caller, self.target, "call", self.number

    def hex(self) -> str:
        return self.recorded

    def __reduce__(self) -> tuple[Any, ...]:
        return LoggedRef, (self.caller, self.target, self.number, self.recorded)


class Replaced:
    """Functions in whose place others stand, also under the names by which modules have imported them."""

    def __init__(self) -> None:
        self._ours: dict[int, Any] = {}
        """By `id` of a function: what stands in its place."""
        self._originals: list[tuple[ModuleType, str, Any]] = []

    def replace(self, module: ModuleType, name: str, ours: Any) -> None:
        original = getattr(module, name)
        self._ours[id(original)] = ours
        self._originals.append((module, name, original))
        setattr(module, name, ours)

    def replace_in(self, name: str) -> None:
        """What a module has imported of them."""
        module = sys.modules.get(name)
        if module is None or self._ours.keys().isdisjoint(map(id, vars(module).values())):
            return
        for key, value in [*vars(module).items()]:
            if id(value) in self._ours:
                self._originals.append((module, key, value))
                setattr(module, key, self._ours[id(value)])

    def give_back(self) -> None:
        for module, name, original in reversed(self._originals):
            setattr(module, name, original)
        self._originals, self._ours = [], {}


class Tracked:
    """The functions of Ray that one stage has replaced."""

    def __init__(self, stage: Stage, where: str, refused: Callable[[str], Exception] = SettingError) -> None:
        self.stage = stage
        self.where = where
        """Where actions are done, for errors."""
        self.refused = refused
        """Makes the error of what a machine cannot ask of Ray there."""
        self.modules: dict[str, None] = {}
        """Of machine classes."""
        self.is_installed = False
        """Whether Ray's functions are replaced."""
        self.replaced = Replaced()

    def watch(self, kind: type) -> None:
        """The module of a machine class may have Ray's functions under names of its own."""
        for one in kind.__mro__:
            if one.__module__ not in self.modules:
                self.modules[one.__module__] = None
                if self.is_installed:
                    self._replace_in(one.__module__)
            for function in vars(one).values():
                self.watch_code(getattr(inspected(function), "__code__", None))

    def watch_code(self, code: Any) -> None:
        """What is to run may ask Ray before it has called another machine."""
        if names_ray(code):
            self.install()

    def look(self) -> None:
        """An action begins: Ray may have been imported meanwhile."""
        if not self.is_installed and "ray" in sys.modules:
            self.install()

    def install(self) -> None:
        """From now on Ray's functions know what machines call here; once."""
        if self.is_installed:
            return
        import ray

        self.is_installed = True
        for name, ours in {"get": self._get, "wait": self._wait, "put": self._put}.items():
            self.replaced.replace(ray, name, self._in_place_of(getattr(ray, name), ours))
        for name in self.modules:
            self._replace_in(name)

    def uninstall(self) -> None:
        """Give Ray's functions back."""
        self.replaced.give_back()
        self.is_installed = False

    def _in_place_of(self, original: Any, function: Callable[..., Any]) -> Any:
        @functools.wraps(original)
        def ours(*args: Any, **kwargs: Any) -> Any:
            return (function if self.stage.is_acting else original)(*args, **kwargs)

        return ours

    def _replace_in(self, name: str) -> None:
        if not name.startswith(("ray_snapshot.", "ray.")):
            self.replaced.replace_in(name)

    def _get(self, *args: Any, **kwargs: Any) -> Any:
        refs = args[0] if args else kwargs.get("object_refs")
        if not isinstance(refs, list | CallRef) and not _is_rays(refs):
            raise ValueError(f"ray.get takes a reference or a list of references, not {type(refs).__name__}")
        listed = list(refs) if isinstance(refs, list) else [refs]
        self._check(listed, "ray.get", ValueError)
        found = self.stage.wait(listed, len(listed), kwargs.get("timeout"), is_get=True) if listed else []
        return found if isinstance(refs, list) else found[0]

    def _wait(self, *args: Any, **kwargs: Any) -> Any:
        refs = args[0] if args else kwargs.get("ray_waitables")
        if not isinstance(refs, list):
            raise TypeError(f"ray.wait takes a list of references, not {type(refs).__name__}")
        self._check(refs, "ray.wait", TypeError)
        k, timeout = kwargs.get("num_returns", 1), kwargs.get("timeout")
        if timeout is not None and timeout < 0:
            raise ValueError(f"timeout is {timeout}: it must not be negative")
        if not refs:
            return [], []
        if len(refs) != len(set(refs)):
            raise ValueError("ray.wait takes a list of references that are all different")
        if not 1 <= k <= len(refs):
            raise ValueError(f"num_returns is {k}: it must be 1 to {len(refs)}, the number of refs")
        there = self.stage.wait(refs, k, timeout, is_get=False)
        return [refs[place] for place in there], [ref for place, ref in enumerate(refs) if place not in there]

    def _put(self, *_: Any, **__: Any) -> Any:
        raise self.refused(f"ray.put: {self.where} there is no object store; send the value itself")

    def _check(self, refs: list[Any], function: str, error: type[Exception]) -> None:
        """References of machines' calls are waited for, and nothing else."""
        for ref in refs:
            if _is_rays(ref):
                raise self.refused(
                    f"{function}: {self.where} a wait is for calls of machines, not for others of Ray's as well"
                )
            if not isinstance(ref, CallRef):
                raise error(f"{function}: {ref!r} is no reference to a result")


def _is_rays(item: Any) -> bool:
    """Whether it is a reference of Ray's own."""
    return type(item).__module__.partition(".")[0] == "ray"


def names_ray(code: Any) -> bool:
    """Whether some code, or code inside it, has the name `ray`: it may import it in an action."""
    if not isinstance(code, CodeType):
        return False
    return "ray" in code.co_names or any(names_ray(constant) for constant in code.co_consts)


def inspected(function: Any) -> Any:
    """The function behind a method, a property or a wrapper."""
    for name in ("__func__", "fget", "__wrapped__"):
        function = getattr(function, name, None) or function
    return function


def as_raised(error: BaseException, told: str) -> Any:
    """What a wait raises for an error of a called action: as on Ray, one of its class and `RayTaskError`; says `told`."""
    from ray.exceptions import RayTaskError

    return RayTaskError("", told, error, "ray", 1, "127.0.0.1").as_instanceof_cause()
