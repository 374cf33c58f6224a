"""`@rs.remote`: a machine class whose `.remote(...)` spawns a machine in the current system, as Ray's does an actor."""

from __future__ import annotations

from typing import Any, Generic, TypeVar, overload

from ray_snapshot.errors import SettingError
from ray_snapshot.runtime.handles import MachineHandle
from ray_snapshot.runtime.here import HERE
from ray_snapshot.runtime.mixin import SnapshotMixin

M = TypeVar("M", bound=SnapshotMixin)


class MachineClass(Generic[M]):
    """What `@rs.remote` makes of a class; `.machine_class` is the class itself."""

    def __init__(self, machine_class: type[M], options: dict[str, Any] | None = None) -> None:
        self.machine_class = machine_class
        self._options = options or {}
        self.__name__ = machine_class.__name__
        self.__doc__ = machine_class.__doc__

    def remote(self, *args: Any, **kwargs: Any) -> MachineHandle[M]:
        """Create a machine: on a host of its own from the driver, on the creator's host from a machine."""
        if HERE.post is not None and HERE.machine is not None:
            name = self._options.get("name")
            found: MachineHandle[M] = HERE.post.spawn_here(HERE.machine, self.machine_class, args, kwargs, name)
            return found
        from ray_snapshot.runtime.system import current_system

        return current_system().spawn(self.machine_class, *args, **self._options, **kwargs)

    def options(self, **options: Any) -> MachineClass[M]:
        """The same class with `name`, `resources` or `role` set for the next machine."""
        unknown = set(options) - {"name", "resources", "role"}
        if unknown:
            raise SettingError(
                f"{self.__name__}.options: no option {', '.join(sorted(unknown))}; there are name, resources, role"
            )
        return MachineClass(self.machine_class, {**self._options, **options})

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"{self.__name__} is a machine's class: create machines with {self.__name__}.remote(...)")


@overload
def remote(kind: type[M], **options: Any) -> MachineClass[M]: ...


@overload
def remote(kind: Any = None, **options: Any) -> Any: ...


def remote(kind: Any = None, **options: Any) -> Any:
    """In place of `ray.remote`: a class that extends `rs.SnapshotMixin` becomes a machine's, any other class a watched actor's.

    Functions and options are as for `ray.remote`. Raises `SettingError` for options that a machine's class does not have.
    """
    if kind is None:
        return lambda decorated: remote(decorated, **options)
    if isinstance(kind, type) and issubclass(kind, SnapshotMixin):
        return MachineClass(kind).options(**options) if options else MachineClass(kind)
    import ray

    if isinstance(kind, type):
        from ray_snapshot.instrument.hooks.calls import watched_class

        kind = watched_class(kind)
    return ray.remote(**options)(kind) if options else ray.remote(kind)
