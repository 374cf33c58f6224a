"""Which machine this process is, and what actors are called between processes.

Imports nothing of the process itself: the code that attaches it (`attaching`) says so here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from urllib.parse import quote, unquote

from ray_snapshot.instrument import shape
from ray_snapshot.limits import LIMITS

if TYPE_CHECKING:
    from ray_snapshot.instrument.process.journal import Entry, Journal
    from ray_snapshot.instrument.process.process import Process
    from ray_snapshot.protocol.calls import Header

CURRENT: ContextVar[str | None] = ContextVar("ray_snapshot_call", default=None)
"""The call that this thread, or this task of an event loop, is executing; inherited by what copies the context."""

HOOK = "a hook"
"""In its place while the actor's own hooks run, between two calls."""

_T = TypeVar("_T")


class NotActingError(Exception):
    """The thread that calls an actor is in no action of a machine: the call is not followed."""


class Caller(Protocol):
    """Who calls actors here: an actor or the driver (`process.Process`), or machines of a host (`crossing.hosted`)."""

    is_closed: bool
    stamp: str
    """What its calls say of the watch."""

    def check_sending(self, args: Any = None, kwargs: Any = None) -> None:
        """Raise `RolledBackError` if nothing may be sent now."""

    def submit(
        self,
        target: str,
        method: str,
        args: Any,
        is_retried: bool,
        needs: tuple[str | None, ...],
        group: str | None = None,
        kwargs: Any = None,
        entry: Any = None,
    ) -> tuple[Header, str]:
        """Number, colour and log a call that is about to be made; returns its header and the stamp.

        `entry`: what the journal keeps of it.

        Raises `NotActingError` if no machine makes it.
        """

    @property
    def journal(self) -> Journal | None:
        """The calls that may have to be made again; None where there are none."""

    def made(self, entry: Entry, refs: Any) -> Any:
        """A call that is in the journal has been made; returns the refs that answer it."""

    def retract(self, header: Header, target: str, entry: Entry | None = None) -> None:
        """Take a call back: making it raised."""

    def ordinal(self, class_name: str) -> int | None:
        """Which actor of its class it is about to make; None where that names no actor."""

    def begin_creation(self) -> tuple[str, int, int] | None:
        """An actor is about to be made: (machine, incarnation, colour) for its header; None if no machine makes it."""

    def end_creation(self, target: str | None, args: Any, birth: Mapping[str, Any]) -> None:
        """An actor has been made (`target` None: that raised)."""

    def hold(self, machine: str) -> None:
        """A handle of an actor has come to this process."""

    def may_read(self, call_id: str) -> None:
        """A ref to the reply of this call has come to this process."""

    def heard(self, colour: int) -> None:
        """Something of this colour is being read in this process."""

    def guarded(self, step: Callable[[], _T]) -> _T | None:
        """Take one step; a fault in it is ours."""

    def give_up(self, error: BaseException) -> None:
        """A fault of ours."""


_here: list[Caller] = []
_own: list[Process] = []


def attached() -> list[Caller]:
    """Who calls actors here, also when it is watched no more."""
    return _here


def here() -> Caller | None:
    """Who calls actors in this process, once it is watched."""
    return _here[0] if _here and not _here[0].is_closed else None


def process_here() -> Process | None:
    """This process's own machine (an actor, or the driver), once it is watched; None in a host."""
    found = settled()
    return None if found is None or found.is_closed else found


def settled() -> Process | None:
    """The same, taking part or not."""
    return _own[0] if _own else None


def is_settled(process: Process) -> bool:
    """Whether this is the process's own machine, taking part or not."""
    return settled() is process


def call_for(caller: Caller) -> None:
    """Calls of actors from this process are the caller's from now on."""
    _here[:] = [caller]
    for name in _held:
        caller.hold(name)


@contextmanager
def asking() -> Iterator[None]:
    """The actor's own hooks run inside, between two calls: what they use of its methods is no call that begins."""
    token = CURRENT.set(HOOK)
    try:
        yield
    finally:
        CURRENT.reset(token)


def settle_in(process: Process | None) -> None:
    """This process's machine is `process` from now on."""
    _here.clear()
    _own.clear()
    if process is not None:
        _own.append(process)
        call_for(process)


def hold(machine: str) -> None:
    """A handle of `machine` has come to this process."""
    process = here()
    if process is None:
        _held.add(machine)
    else:
        process.hold(machine)


_early: list[int] = []
"""Colours of what was read before this process was watched: arguments come before the call that they are for."""


def hear_early(colour: int) -> None:
    """Something of this colour is being read, and nothing here is watched yet."""
    _early[:] = [max(colour, *_early)] if _early else [colour]


def heard_early() -> int:
    """The reddest of them, for what is watched here from now on; it is forgotten."""
    found = max(_early, default=0)
    _early.clear()
    return found


_read: set[str] = set()
"""Machines of whose replies a ref came before this process was watched."""


def read_early(machine: str) -> None:
    """A ref to a reply of `machine` has come, and nothing here is watched yet."""
    _read.add(machine)


def take_early_refs() -> set[str]:
    """Those machines; they are forgotten."""
    found = set(_read)
    _read.clear()
    return found


def forget_early_handles() -> None:
    """What is watched here has been told of the handles that came before."""
    _held.clear()


_held: set[str] = set()
"""Handles that came before this process was watched."""


def machine_of(handle: Any) -> str:
    """The internal name of a handle's actor, the same in every process; the watcher gives it a name for people."""
    key = handle._ray_actor_id
    found = _names.get(key)
    if found is None:
        found = _names[key] = internal_name(shape.class_name_of(handle), shape.actor_key(handle))
    return found


def internal_name(class_name: str, key: str) -> str:
    """What an actor is called between processes: of the class only letters, digits and _ . - ~ stay as they are.

    So it can stand in headers and in ids of calls, which are taken apart again at spaces and slashes.
    """
    return f"{quote(class_name[: LIMITS.header_class_characters], safe='', errors='surrogatepass')}:{key[:16]}"


def class_in(machine: str) -> str:
    """The class in an internal name; all of it if it has no key, as the driver's."""
    class_name, colon, _ = machine.rpartition(":")
    return unquote(class_name, errors="surrogatepass") if colon else machine


def name_here() -> str:
    """The name that other processes have for this process's actor, from their handles; asked before it is watched.

    They know the class's name from the handle; the name of the object's class may be another. The handle that is looked
    at here does not count as one that came to the actor.
    """
    held = set(_held)
    name = machine_of(shape.own_handle())
    if name not in held:
        _held.discard(name)
    return name


_names: dict[Any, str] = {}


def own_threads() -> list[threading.Thread]:
    """The threads of this process that are neither Ray's nor ours nor the one that runs calls."""
    found = [
        thread
        for thread in threading.enumerate()
        if thread is not threading.main_thread()
        and not isinstance(thread, threading._DummyThread)
        and thread.name not in _RAYS_THREADS
        and not thread.name.startswith((*_KNOWN_THREADS, *HARNESS))
        and not _module_of(thread).startswith(tuple(HARNESS))
    ]
    rays = shape.rays_threads() if found else ()
    return [thread for thread in found if thread not in rays]


def is_own_thread() -> bool:
    """Whether this thread is neither the main one, nor Ray's nor ours by its name."""
    name = threading.current_thread().name
    is_main = threading.current_thread() is threading.main_thread()
    return not is_main and name not in _RAYS_THREADS and not name.startswith(_KNOWN_THREADS)


def _module_of(thread: threading.Thread) -> str:
    """Where what a thread runs was written."""
    does = getattr(thread, "_target", None) or type(thread)  # Python forgets the target when it has ended
    return str(getattr(does, "__module__", ""))


HARNESS: set[str] = {
    *(f"ipykernel.{name}" for name in ("control", "heartbeat", "iostream", "parentpoller", "shellchannel", "thread")),
    *("IPython.core.history", "zmq.utils.garbage"),
    *("pydevd", "_pydevd_bundle.", "debugpy."),
    "tqdm._monitor",
}
"""How modules begin that run a program or show how far it is: a notebook's kernel, a debugger, progress bars; the pytest plugin
adds what runs tests. Their threads, timers and handlers may end it, and end no wait of it. A kernel's subshell is none of
these, for cells run in it; nor is `_pydev_bundle`, through which a debugger starts the app's own."""


def is_rays_thread() -> bool:
    """Whether this thread has a name of Ray's own."""
    return threading.current_thread().name in _RAYS_THREADS


_RAYS_THREADS = frozenset(
    {
        "CompiledGraphMonitorThread",
        "ray_client_streaming_rpc",
        "ray_import_thread",
        "ray_listen_error_messages",
        "ray_print_error_messages",
        "ray_print_logs",
        "PythonGCThread",
    }
)
"""What Ray calls its own, whole: an app may have a `ray_watchdog`."""

_KNOWN_THREADS = ("ray-snapshot", "AsyncIO Thread")
