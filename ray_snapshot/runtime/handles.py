"""Handles: how machines, the driver and users name a machine and send to it.

A handle is a name and a run, nothing more: it may be made before its machine exists, pickled into messages, states and
constructor arguments, and compared. Sending goes through the process's `Post` for that run, found in `POSTS`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Generic, Protocol

from ray_snapshot.errors import NotAMachineError
from ray_snapshot.names import one_of

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    from ray_snapshot.runtime.transport.post import Post

    K_co = TypeVar("K_co", covariant=True, default=Any)
    """The machine's class; `MachineHandle` alone is a handle of any."""
else:
    from typing import TypeVar

    K_co = TypeVar("K_co", covariant=True)

POSTS: dict[str, Post] = {}
"""This process's part in each run it takes part in, by run id."""


class Entrance(Protocol):
    """How the process of a watched actor comes to take part in a run of machines."""

    def open(self, run_id: str) -> Post | None:
        """This process's part in a run, when it first sends to a machine of it; None if the run is another's."""

    def heard(self, run_id: str, colour: Any) -> None:
        """A reply of a machine of that run is being read here, though this process has sent nothing to any."""


ENTRANCES: list[Entrance] = []
"""One at most; in the process of a watched actor."""

_SET = object.__setattr__


KINDS: dict[str, dict[str, type]] = {}
"""By run: the classes of the machines that this process, as its driver, has spawned."""

_ALIASES: dict[str, str] = {}
"""By a run that another run was restored from: that other run. Handles in the recorded states mean machines of it."""


class MachineHandle(Generic[K_co]):
    """A machine by name; `handle.method.send(...)`, `.send_after(seconds, ...)` and `.remote(...)` address its methods."""

    __slots__ = ("__dict__", "__weakref__", "_host", "_kind", "_name", "_run_id")
    # Its dictionary holds senders, and is made for the first of them: in slots the rest takes a third of the room.

    _run_id: str
    _name: str
    _host: str | None
    _kind: type | None
    """Its class, in the driver that has spawned it: then what does not fit is refused there.

    Never in a host: whether a send between machines raises must not depend on which of them live together.
    """

    def __init__(self, run_id: str, name: str, host: str | None = None) -> None:
        _SET(self, "_kind", None)
        _SET(self, "_run_id", run_id)
        _SET(self, "_name", name)
        _SET(self, "_host", host)

    @staticmethod
    def __machine_name__(handle: MachineHandle) -> str:
        return handle._name

    def __getattr__(self, method: str) -> MethodSender:
        if method.startswith(("__", "_repr_", "_ipython_")):  # what shows objects asks whether they know how
            raise AttributeError(method)
        try:
            method.encode()
        except UnicodeEncodeError:
            raise AttributeError(f"{method!r} cannot be a method's name: it holds half of a surrogate pair") from None
        sender = MethodSender(self, method)
        _SET(self, method, sender)
        return sender

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{self!r} is a handle: the machine's state lives with the machine, not here")

    def __eq__(self, other: object) -> bool:
        return type(other) is MachineHandle and (other._run_id, other._name) == (self._run_id, self._name)

    def __hash__(self) -> int:
        return hash((self._run_id, self._name))

    def __repr__(self) -> str:
        return f"<machine {self._name}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return handle_of, (self._run_id, self._name, self._host)


_INTERNED: dict[str, dict[str, MachineHandle]] = {}
"""The handles of this process, by run and name."""


def handle_of(run_id: str, name: str, host: str | None = None) -> MachineHandle:
    """The handle of a machine; one object per process and machine, so that its method senders are made once."""
    if run_id in _ALIASES:  # recorded in another run, which this one goes on from; its hosts are others
        run_id, host = _ALIASES[run_id], None
    handles = _INTERNED.get(run_id)
    if handles is None:
        handles = _INTERNED.setdefault(run_id, {})
    found = handles.get(name)
    if found is None:
        name = one_of(name)
        found = handles[name] = MachineHandle(run_id, name, host)
        if KINDS and (kinds := KINDS.get(run_id)) is not None:
            _SET(found, "_kind", kinds.get(name))
    elif host is not None and found._host is None:
        _SET(found, "_host", host)
    return found


def note_kinds(run_id: str, names: Iterable[str], kind: type | None) -> None:
    """This process, as its driver, has spawned these machines of a class: handles that are there know it, too."""
    kinds, handles = KINDS.setdefault(run_id, {}), _INTERNED.get(run_id, {})
    for name in names:
        if kind is not None:
            kinds[name] = kind
        if (handle := handles.get(name)) is not None:
            _SET(handle, "_kind", kind)


def forget_places(run_id: str, aliases: Iterable[str] = ()) -> None:
    """The machines of a run may live elsewhere from now on; handles of `aliases` mean its machines."""
    for handle in [*_INTERNED.get(run_id, {}).values()]:
        _SET(handle, "_host", None)
    _ALIASES.update((alias, run_id) for alias in aliases)


def forget_all_handles() -> None:
    """Drop every interned handle: the machines are gone, and others may bear their names."""
    _INTERNED.clear()


def forget_handles(run_id: str) -> None:
    """Drop the interned handles of a run that is over."""
    KINDS.pop(run_id, None)
    _INTERNED.pop(run_id, None)


class MethodSender:
    """One method of one machine."""

    __slots__ = ("handle", "method")

    def __init__(self, handle: MachineHandle, method: str) -> None:
        self.handle = handle
        self.method = method

    def send(self, *args: Any, **kwargs: Any) -> None:
        """Send a one-way message: FIFO per channel, arguments isolated now.

        Raises `MachineStoppedError`, `UnpicklableMessageError`, `NotAMachineError`; in the driver also `MailboxFullError`, and
        to machines that it has spawned `UnknownMethodError` and `WrongArgumentsError`.
        """
        post = POSTS.get(self.handle._run_id)
        if post is None:
            post = _opened(self)
        post.send(self.handle, self.method, args, kwargs)

    def send_after(self, seconds: float, *args: Any, **kwargs: Any) -> None:
        """Send the message `seconds` from now; until then it is a pending timer of the sender, in every snapshot."""
        post = POSTS.get(self.handle._run_id)
        if post is None:
            post = _opened(self)
        post.send_after(seconds, self.handle, self.method, args, kwargs)

    def remote(self, *args: Any, **kwargs: Any) -> Any:
        """Call the method; returns the ObjectRef of its result."""
        post = POSTS.get(self.handle._run_id)
        if post is None:
            post = _opened(self)
        return post.call(self.handle, self.method, args, kwargs)

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"{self!r} is on another machine: use .send(...) or .remote(...)")

    def __repr__(self) -> str:
        return f"{self.handle._name}.{self.method}"


def _opened(sender: MethodSender) -> Post:
    """This process's part in a run that it has sent nothing in yet; raises `NotAMachineError`."""
    for entrance in ENTRANCES:
        if (post := entrance.open(sender.handle._run_id)) is not None:
            return post
    raise _not_a_machine(sender)


def _not_a_machine(sender: MethodSender) -> NotAMachineError:
    return NotAMachineError(
        f"{sender!r}: this process is no part of the machine's system (the system was closed, or this is a plain Ray task"
        " or actor); send from a machine, from the driver, or from an actor that is watched (@rs.remote, or ray-snapshot run)"
    )
