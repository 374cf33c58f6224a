"""What a machine's class extends, and the hooks it may define."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import lru_cache
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from ray_snapshot.errors import NotAMachineError, SettingError
from ray_snapshot.runtime.context import context_of

if TYPE_CHECKING:
    from typing import Self

    from ray_snapshot.runtime.handles import MachineHandle
    from ray_snapshot.runtime.remote import MachineClass
    from ray_snapshot.waits import Wait

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
M = TypeVar("M", bound="SnapshotMixin")


class _Own(Generic[T]):
    """An attribute of every machine that gives way to one of the same name in the user's class or object."""

    def __init__(self, read: Callable[[Any], T], doc: str) -> None:
        self.read = read
        self.__doc__ = doc

    def __get__(self, machine: Any, kind: type) -> T:
        return self if machine is None else self.read(machine)  # type: ignore[return-value]


class SnapshotMixin:
    """A machine: its methods are atomic actions, run one at a time; its state is what `snapshot_state` returns.

    Hooks, all optional: `snapshot_state()` and `restore_state(state)` (default: `__dict__`); `waiting_for()` returns
    `rs.all_of(...)`, `rs.any_of(...)`, `rs.at_least(k, ...)` or None; `is_active()` says whether the machine may act
    unasked; `snapshot_kept(snapshot_id, state)` hears that a snapshot can be restored. Hooks must not send.
    """

    volatile: ClassVar[bool | None] = None
    """Whether the state may change outside of this machine's actions: in threads of its own, or in objects that it shares with
    others. True: every snapshot reads it anew. None: only the state of a machine whose attributes nothing else refers to, and
    which has no hooks of its own, is not read again until it acts. False promises that it does not change: hooks that ask for
    nothing but its attributes, and shared objects that stay as they are, do no harm then."""

    def snapshot_state(self) -> Any:
        """What a snapshot records of this machine; by default all its attributes."""
        return self.__dict__

    def restore_state(self, state: Any) -> None:
        """Take a recorded state back."""
        self.__dict__.clear()
        self.__dict__.update(state)

    def snapshot_kept(self, snapshot_id: str, state: Any) -> None:
        """The snapshot that holds `state` of this machine is kept: what happened before it will not be undone.

        Called between two actions, in no action: it may not send. Not called where the system is rolled back before: then
        `restore_state` is, with the same state. By itself the system never goes back behind it; `system.restore` may.
        """

    def waiting_for(self) -> Wait | None:
        """The machines whose message this one needs before it can go on; None if any message will do."""
        return None

    def is_active(self) -> bool:
        """Whether this machine may act without being sent anything."""
        return False

    if TYPE_CHECKING:  # what `@rs.remote` adds: a type checker sees no decorator of a class

        @classmethod
        def remote(cls, *args: Any, **kwargs: Any) -> MachineHandle[Self]: ...

        @classmethod
        def options(
            cls, *, name: str | None = None, resources: dict[str, float] | None = None, role: str | None = None
        ) -> MachineClass[Self]: ...

    machine_name = _Own[str](lambda machine: str(_context(machine).record.name), "This machine's name.")
    handle = _Own["MachineHandle"](lambda machine: _context(machine).handle, "This machine's own handle.")

    random = _Own[Random](
        lambda machine: _chance(machine),  # noqa: PLW0108 - it is defined below
        "This machine's generator of chance; under `ray_snapshot.testing` an input of the schedule.",
    )

    def now(self) -> float:
        """The time in seconds since 1970; under `ray_snapshot.testing` virtual time, from 0, an input of the schedule."""
        context = context_of(self)
        return time.time() if context is None else float(context.now())

    def machine(self, name: str) -> MachineHandle:
        """A machine of this system by name, existing or not."""
        found: MachineHandle = _context(self).machine(name)
        return found

    def spawn(
        self, kind: type[M] | MachineClass[M], *args: Any, name: str | None = None, **kwargs: Any
    ) -> MachineHandle[M]:
        """Create a machine on this machine's host; raises `DuplicateMachineError`."""
        found: MachineHandle[M] = _context(self).spawn(kind, args, kwargs, name)
        return found

    def stop(self) -> None:
        """Stop this machine behind the current action: it accepts nothing any more, and sending to it is an error."""
        _context(self).stop()

    def request_snapshot(self) -> None:
        """Start a snapshot of the whole system, without waiting for it."""
        _context(self).request_snapshot()


_CHANCE = Random()
"""For machines that were not spawned: such a class can be tried by itself."""


def _chance(machine: SnapshotMixin) -> Random:
    context = context_of(machine)
    found: Random = _CHANCE if context is None else context.random
    return found


def _context(machine: SnapshotMixin) -> Any:
    context = context_of(machine)
    if context is None:
        raise NotAMachineError(
            f"{type(machine).__name__} object was not spawned: create machines with system.spawn(...) or .remote(...)"
        )
    return context


def join(*ports: str) -> Callable[[F], F]:
    """Make a method an action that takes one message from each port at once.

    Senders use `handle.left.send(x)` for port "left"; the method gets one argument per port, in the order given. The
    messages come from the fronts of channels (EWD864a: at most one message per input buffer; here one sender may serve
    several ports). A class may have several joins; what its machines wait for follows from them once
    `system.connect(source, target, port=...)` says which machines send to each port.
    """
    if len(ports) < 2 or len(set(ports)) != len(ports) or not all(isinstance(port, str) for port in ports):
        raise SettingError(f"@rs.join{ports!r}: name two or more different ports")

    def decorate(method: F) -> F:
        method.__join_ports__ = tuple(ports)  # type: ignore[attr-defined]
        return method

    return decorate


@lru_cache(10_000)
def may_have(kind: type, name: str) -> bool:
    """Whether machines of a class may have a method or a port of that name; also if some method of it only mentions it.

    (That one may set an attribute that can be called.)
    """
    if hasattr(kind, name) or hasattr(kind, "__getattr__") or any(name in ports for ports in joins_of(kind)):
        return True
    functions = [item for one in kind.__mro__ for item in vars(one).values()]
    return any(name in getattr(getattr(item, "__code__", None), "co_names", ()) for item in functions)


def joins_of(kind: type) -> dict[tuple[str, ...], str]:
    """The joins that a class declares: ports to method name; raises `SettingError` where they clash."""
    found: dict[tuple[str, ...], str] = {}
    for name in dir(kind):
        ports = getattr(getattr(kind, name, None), "__join_ports__", None)
        if ports is None:
            continue
        for port in ports:
            if hasattr(kind, port):
                raise SettingError(f"{kind.__name__}.{name}: port {port!r} is also a method; name the port otherwise")
        if ports in found:
            raise SettingError(f"{kind.__name__}: {found[ports]} and {name} join the same ports {ports}")
        found[ports] = name
    return found
