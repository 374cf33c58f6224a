"""`ray.get` and `ray.wait` of the results of calls between machines, while machines act without Ray.

Ray is imported with the first call that a machine makes; its functions are given back when the stage is left. A module that
did `from ray import get` gets its own name replaced, too.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from ray_snapshot.errors import SettingError
from ray_snapshot.testing.refs import CallRef

if TYPE_CHECKING:
    from ray_snapshot.testing.stage import Stage

_NAMES = ("get", "wait", "put")


class Tracked:
    """The functions of Ray that one stage has replaced."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.modules: dict[str, None] = {}
        """Of machine classes."""
        self.originals: dict[str, Any] = {}
        self.ours: dict[str, Any] = {}
        self.replaced: list[tuple[ModuleType, str, Any]] = []

    def watch(self, kind: type) -> None:
        """The module of a machine class may have Ray's functions under names of its own."""
        for one in kind.__mro__:
            if one.__module__ not in self.modules:
                self.modules[one.__module__] = None
                if self.originals:
                    self._replace_in(one.__module__)

    @property
    def is_installed(self) -> bool:
        """Whether Ray's functions are replaced."""
        return bool(self.originals)

    def install(self) -> None:
        """From now on Ray's functions know what machines call here; once."""
        if self.originals:
            return
        import ray

        self.originals = {name: getattr(ray, name) for name in _NAMES}
        ours = {"get": self._get, "wait": self._wait, "put": self._put}
        self.ours = {name: _like(self.originals[name], function) for name, function in ours.items()}
        self._replace_in("ray")
        for name in self.modules:
            self._replace_in(name)

    def uninstall(self) -> None:
        """Give Ray's functions back."""
        for module, name, original in reversed(self.replaced):
            setattr(module, name, original)
        self.replaced, self.originals = [], {}

    def _replace_in(self, name: str) -> None:
        module = sys.modules.get(name)
        if module is None or name.startswith("ray_snapshot.") or (name.startswith("ray.")):
            return
        for key, value in [*vars(module).items()]:
            for original in _NAMES:
                if value is self.originals[original]:
                    self.replaced.append((module, key, value))
                    setattr(module, key, self.ours[original])

    def _get(self, *args: Any, **kwargs: Any) -> Any:
        refs = args[0] if args else kwargs.get("object_refs")
        listed = list(refs) if isinstance(refs, list | tuple) else [refs]
        if not _are_ours(listed):
            return self.originals["get"](*args, **kwargs)
        timeout = kwargs.get("timeout")
        found = self.stage.wait(listed, len(listed), timeout, is_get=True)
        return found if isinstance(refs, list | tuple) else found[0]

    def _wait(self, *args: Any, **kwargs: Any) -> Any:
        refs: list[Any] = list(args[0] if args else kwargs.get("ray_waitables") or ())
        if not _are_ours(refs):
            return self.originals["wait"](*args, **kwargs)
        k, timeout = kwargs.get("num_returns", 1), kwargs.get("timeout")
        if not 1 <= k <= len(refs):
            raise ValueError(f"num_returns is {k}: it must be 1 to {len(refs)}, the number of refs")
        there = self.stage.wait(refs, k, timeout, is_get=False)
        return [refs[place] for place in there], [ref for place, ref in enumerate(refs) if place not in there]

    def _put(self, *args: Any, **kwargs: Any) -> Any:
        if self.stage.is_acting:
            raise SettingError("ray.put: under ray_snapshot.testing there is no object store; send the value itself")
        return self.originals["put"](*args, **kwargs)


def _like(original: Any, function: Callable[..., Any]) -> Any:
    @functools.wraps(original)
    def ours(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return ours


def _are_ours(refs: list[Any]) -> bool:
    ours = [ref for ref in refs if isinstance(ref, CallRef)]
    if ours and len(ours) < len(refs):
        raise SettingError(
            "under ray_snapshot.testing a wait is for calls of machines, not for others of Ray's as well"
        )
    return bool(ours)
