"""Calls with headers: put on where an app calls or creates an actor, taken off where the call runs.

A header is a hidden keyword of every method of a watched class; `headers` says how it travels. A reply carries the colour of
its end only when that is redder than the header was: a process that passes a ref on has heard of the header's colour, and says
so in all that it sends.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import sys
import threading
from collections.abc import AsyncIterator, Callable, Generator
from typing import Any, Protocol

from ray import ObjectRef

from ray_snapshot import redaction
from ray_snapshot.errors import RolledBackError
from ray_snapshot.instrument import shape, task_shape
from ray_snapshot.instrument.capacity import demanded, of_actor
from ray_snapshot.instrument.frames import hide_ours
from ray_snapshot.instrument.guard import Own, give_up, is_of_a_handler, ours
from ray_snapshot.instrument.here import CURRENT, Caller, NotActingError, here, hold, machine_of, process_here
from ray_snapshot.instrument.hooks.envelopes import Enveloped, colour_error, enveloped
from ray_snapshot.instrument.hooks.headers import HEADER, packed, recovering, unpacked
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.instrument.process.reloading import generation_of
from ray_snapshot.protocol.calls import CONSTRUCTOR, Header, call_id_of
from ray_snapshot.runtime.refs import call_of, is_put, tracked

_SKIPPED = ("ray_snapshot.",)

_READY = "__ray_ready__"
"""Ray's own method, which takes no header: a call of it is known to its sender only, until the reply is read."""


# ---- the calling side ------------------------------------------------------------------------------------------------


def calling(original: Callable[..., Any]) -> Callable[..., Any]:
    """What takes the place of `ActorHandle._actor_method_call`."""

    def call(handle: Any, method_name: str, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        own = Own(original)  # as `replaced`, with a frame less: this is the way of every call
        try:
            process = here()
            takes_header = shape.takes_keyword(handle, method_name, HEADER)
            is_followed = takes_header or (method_name == _READY and shape.is_watched(handle, HEADER))
            if process is None or not is_followed:
                return own(handle, method_name, args, kwargs, **options)
            return _called(process, own, takes_header, handle, method_name, args, kwargs, options)
        except BaseException as error:
            if own.is_meant(error):
                if error is not own.error and is_of_a_handler(error):  # as in `replaced`
                    give_up(error)
                own.error = None
                ours(hide_ours, error)
                raise
            give_up(error)
        return own.outcome(handle, method_name, args, kwargs, **options)

    return call


def _called(
    process: Caller,
    own: Own,
    takes_header: bool,
    handle: Any,
    method_name: str,
    args: Any,
    kwargs: Any,
    options: dict[str, Any],
) -> Any:
    journal, entry = process.journal, None
    if journal is not None:
        args, kwargs = journal.current_in(args, kwargs)
    process.check_sending(args, kwargs)
    try:
        target = machine_of(handle)
        if journal is not None:
            entry = journal.entry(handle, method_name, args, kwargs, options)
        is_retried = shape.is_retried(handle, options.get("max_task_retries"))
        group = options.get("concurrency_group_name")
        needed = needs(args, kwargs)
        header, stamp = process.submit(target, method_name, args, is_retried, needed, group, kwargs, entry)
    except NotActingError:  # a thread of a host that is in no machine's action
        return own(handle, method_name, args, kwargs, **options)
    except RolledBackError:
        raise
    except Exception as error:
        process.give_up(error)
        if is_of_a_handler(error):
            raise
        return own(handle, method_name, args, kwargs, **options)
    if takes_header:
        wire = packed(stamp, options.get("num_returns"), header, group)
        kwargs = {**kwargs, HEADER: wire} if kwargs else {HEADER: wire}
    try:  # as `own(...)`, with a frame less
        own.result = refs = own.function(handle, method_name, args, kwargs, **options)
    except BaseException as error:
        own.error = error
        process.guarded(lambda: process.retract(header, target, entry))
        raise
    own.is_done = True
    call_id = call_id_of(header.source, header.incarnation, target, header.number)
    if task_shape.is_stream(refs) and isinstance(process, Process):
        at_most = task_shape.most_unread(options, handle=handle)
        process.guarded(functools.partial(process.take_items, refs, call_id, at_most))
    refs = ours(tracked, refs, call_id) or refs
    return refs if entry is None else process.guarded(lambda: process.made(entry, refs)) or refs


def needs(args: Any, kwargs: Any) -> tuple[str | None, ...]:
    """The calls behind the refs that Ray resolves before the call begins; what `ray.put` has made is there, and needs none."""
    given = (*(args or ()), *kwargs.values()) if kwargs else args or ()
    refs = [item for item in given if isinstance(item, ObjectRef)]
    if not refs:
        return ()
    return tuple([call for ref in refs if (call := call_of(ref)) is not None or not is_put(ref)])


def create(original: Callable[..., Any], actor_class: Any, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
    """In place of `ActorClass._remote`."""
    shape.connect()
    process = here()
    if process is None or options.get("get_if_exists") or not shape.constructor_takes(actor_class, HEADER):
        return original(actor_class, args, kwargs, **options)
    process.check_sending(args, kwargs)
    about = shape.options_of(actor_class, options)
    maker = process_here()
    about["maker"] = None if maker is None else maker.machine
    about["ordinal"] = None if about.get("name") else process.ordinal(about.get("kind", ""))
    if maker is not None and maker.reloading.recovers:
        _warn(about)
    begun = process.guarded(process.begin_creation)
    if begun is None:
        return original(actor_class, args, kwargs, **options)
    machine, incarnation, colour = begun
    wire = (process.stamp, about, machine, incarnation, CONSTRUCTOR, colour, CONSTRUCTOR, about["is_retried"])
    target = None
    try:
        handle = original(actor_class, args, {**(kwargs or {}), HEADER: wire}, **options)
        target, about["key"] = machine_of(handle), shape.actor_key(handle)
        about["demand"] = demanded(of_actor, options)
    finally:
        process.guarded(lambda: process.end_creation(target, args, about))
    return handle


def _warn(about: dict[str, Any]) -> None:
    """Say, once for each class, what will keep the app from going back by itself."""
    if about["kind"] in _warned:
        return
    reason = None
    if not about["max_restarts"]:
        reason = "Ray does not start it again when its process dies: make it with max_restarts=-1"
    elif about["endless"] is not None:
        reason = f"Ray would repeat calls of the past for ever: bound max_task_retries of {about['endless']}"
    if reason is not None:
        _warned.add(about["kind"])
        print(f"ray-snapshot: recover: an actor of {about['kind']} is an obstacle: {reason}", file=sys.stderr)


_warned: set[str] = set()


# ---- the class -------------------------------------------------------------------------------------------------------


def arrive(original: Callable[..., Any], handle: Any, *args: Any, **kwargs: Any) -> None:
    """In place of `ActorHandle.__init__`: this process can call the handle's actor from now on."""
    original(handle, *args, **kwargs)
    process = here()
    if process is None:
        hold(machine_of(handle))
    else:
        process.guarded(lambda: hold(machine_of(handle)))


def modify(original: Callable[..., Any], cls: type) -> type:
    """In place of `ray.actor._modify_class`: the class that Ray makes of the app's gets our methods.

    It is Ray's own subclass of the app's, so nothing is added to the app's class, its bases or its hooks.
    """
    found: type = original(cls)
    if cls.__module__.startswith(_SKIPPED):
        return found
    return watched_class(cls) if found is cls else _followed(found)


def watched_class(cls: type) -> type:
    """A subclass whose methods take the header; the class itself if it is ours, or watched already."""
    if cls.__module__.startswith(_SKIPPED) or _takes_header(vars(cls).get("__init__")):
        return cls
    members = {name: getattr(cls, name) for name in ("__module__", "__qualname__", "__doc__")}
    try:
        watched = type(cls)(cls.__name__, (cls,), members)
    except TypeError:  # a metaclass, or a class that is final: we cannot follow it, and say so in the coverage
        return cls
    return _followed(watched)


def _followed(cls: type) -> type:
    """`cls`, changed so that its methods and its constructor take the header."""
    for name, found in _methods(cls).items():
        if name != "__init__":
            type.__setattr__(cls, name, _method(name, found))  # whatever a metaclass makes of setting
    own: Any = getattr(cls, "__init__")  # noqa: B009 - whichever it inherits
    type.__setattr__(cls, "__init__", _constructor(own if inspect.isfunction(own) else _no_init))
    return cls


def plain_class(cls: type) -> type:
    """The class as Ray makes it without us."""
    if not _takes_header(vars(cls).get("__init__")):
        return cls
    own = vars(cls).get("__ray_actor_class__")
    return cls.__mro__[1] if own is None else shape.as_ray_makes_it(own)


def _no_init(self: Any) -> None:
    """What Ray gives a class whose constructor is not written in Python: one that takes no arguments."""


def _methods(cls: type) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for kind in reversed(cls.__mro__[:-1]):
        for name, member in vars(kind).items():
            if name == "__init__" or not (name.startswith("__") and name.endswith("__")):
                function = member.__func__ if isinstance(member, (staticmethod, classmethod)) else member
                if inspect.isfunction(function) and _takes_header(function):
                    found.pop(name, None)  # inherited from a class that is watched already
                elif inspect.isfunction(function):
                    found[name] = member
                else:
                    found.pop(name, None)
    return found


def _takes_header(function: Any) -> bool:
    return HEADER in getattr(getattr(function, "__signature__", None), "parameters", ())


def _method(name: str, member: Any) -> Any:
    if isinstance(member, (staticmethod, classmethod)):
        return type(member)(_method(name, member.__func__))
    if inspect.isasyncgenfunction(member):
        wrapper = _async_generator(name, member)
    elif inspect.iscoroutinefunction(member):
        wrapper = _coroutine(name, member)
    elif inspect.isgeneratorfunction(member):
        wrapper = _generator(name, member)
    else:
        wrapper = _function(name, member)
    return dressed(wrapper, member)


def dressed(wrapper: Any, member: Any) -> Any:
    """A wrapper that looks like `member`, and takes the header beside."""
    functools.update_wrapper(wrapper, member)
    signature = inspect.signature(member)
    hidden = inspect.Parameter(HEADER, inspect.Parameter.KEYWORD_ONLY, default=None)
    parameters = list(signature.parameters.values())
    at = len(parameters) - (bool(parameters) and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD)
    wrapper.__signature__ = signature.replace(parameters=[*parameters[:at], hidden, *parameters[at:]])
    del wrapper.__wrapped__
    return wrapper


def _function(name: str, member: Any) -> Any:
    def wrapper(*args: Any, _ray_snapshot_header: Any = None, **kwargs: Any) -> Any:
        run = ours(_begun, name, _ray_snapshot_header, args, kwargs) or _Inside()
        with run:
            run.result = member(*args, **kwargs)
        return run.result

    return wrapper


def _coroutine(name: str, member: Any) -> Any:
    async def wrapper(*args: Any, _ray_snapshot_header: Any = None, **kwargs: Any) -> Any:
        run = ours(_begun, name, _ray_snapshot_header, args, kwargs) or _Inside()
        with run:
            try:
                run.result = await run.followed(member(*args, **kwargs))
            except asyncio.CancelledError:
                run.refuse_if_held()
                raise
        return run.result

    return wrapper


def _generator(name: str, member: Any) -> Any:
    def wrapper(*args: Any, _ray_snapshot_header: Any = None, **kwargs: Any) -> Generator[Any, Any, Any]:
        run = ours(_begun, name, _ray_snapshot_header, args, kwargs) or _Inside()
        with run:
            return (yield from delegated(run, member(*args, **kwargs)))

    return wrapper


class Inside(Protocol):
    """A generator that runs, as far as its items go."""

    def generates(self, generator: Any) -> None:
        """The app's own generator, before its first item."""

    def item(self, value: Any) -> Any:
        """An item, as it leaves."""

    def resumed(self) -> None:
        """Ray lets it go on behind an item, or closes it."""


def delegated(run: Inside, inner: Any) -> Generator[Any, Any, Any]:
    """The items of `inner`, each with its colour; what is sent or thrown in reaches it (Ray Data sends statistics)."""
    run.generates(inner)
    try:
        item = next(inner)
        while True:
            out = run.item(item)
            try:
                try:
                    sent = yield out
                finally:
                    del out  # Ray may let go of what it has sent
                    run.resumed()
            except GeneratorExit:
                inner.close()
                raise
            except BaseException as error:
                item = inner.throw(error)
            else:
                item = next(inner) if sent is None else inner.send(sent)
    except StopIteration as end:
        return end.value


def _async_generator(name: str, member: Any) -> Any:
    async def wrapper(*args: Any, _ray_snapshot_header: Any = None, **kwargs: Any) -> AsyncIterator[Any]:
        run = ours(_begun, name, _ray_snapshot_header, args, kwargs) or _Inside()
        with run:
            inner = run.followed(member(*args, **kwargs))
            run.generates(inner)
            try:
                sent = None
                while True:
                    try:
                        item = await (inner.__anext__() if sent is None else inner.asend(sent))
                    except StopAsyncIteration:
                        return
                    except asyncio.CancelledError:
                        run.refuse_if_held()
                        raise
                    out = run.item(item)
                    try:
                        sent = yield out
                    finally:
                        run.resumed()
            finally:
                await inner.aclose()

    return wrapper


def _constructor(member: Any) -> Any:
    if _takes_header(member):
        return member
    return dressed((_async_construction if inspect.iscoroutinefunction(member) else _sync_construction)(member), member)


def _sync_construction(member: Any) -> Any:
    def __init__(self: Any, *args: Any, _ray_snapshot_header: Any = None, **kwargs: Any) -> None:
        with ours(_construction, self, _ray_snapshot_header, args, kwargs) or _Inside():
            member(self, *args, **kwargs)

    return __init__


def _async_construction(member: Any) -> Any:
    """Ray runs such a constructor on the actor's loop."""

    async def __init__(self: Any, *args: Any, _ray_snapshot_header: Any = None, **kwargs: Any) -> None:
        with ours(_construction, self, _ray_snapshot_header, args, kwargs) or _Inside() as run:
            await run.followed(member(self, *args, **kwargs))

    return __init__


def _construction(
    body: Any, wire: tuple[Any, ...] | None, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> _Run | _Inside:
    """The constructor that begins here; with a header it is Ray that calls it, and the machine is born."""
    shape.replace_recovery(recovering)  # where the hook of workers has not; before anything that may fail
    from ray_snapshot.instrument.hooks.attaching import attach_actor

    key = shape.current_actor_key()
    if wire is not None and process_here() is None and key is not None:
        attach_actor(wire[0], key, colour=wire[5], about=wire[1], body=body)
    return _begun("__init__", wire, (body, *args), kwargs)


# ---- a call that runs ------------------------------------------------------------------------------------------------


class _Run:
    """One accepted call, from its first step to its reply."""

    __slots__ = ("call_id", "header", "name", "process", "result", "results", "token")

    def __init__(
        self, process: Process, header: Header | None, name: str, results: Any, group: str | None, stamp: str | None
    ) -> None:
        self.process = process
        self.header = header
        self.name = name
        self.results = results
        self.result: Any = None
        self.call_id = process.enter(header, name, group, stamp)

    def __enter__(self) -> _Run:
        self.token = CURRENT.set(self.call_id)
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            ours(hide_ours, error)
        ours(self._end, error)

    def _end(self, error: BaseException | None) -> None:
        try:
            CURRENT.reset(self.token)
        except ValueError:  # a generator may be closed in another context
            CURRENT.set(None)
        colour = self.process.leave(self.call_id, is_error=error is not None)
        is_secret = redaction.is_active and redaction.returned(self.name, self.result)
        if self.header is not None and (is_secret or colour > self.header.colour):
            self._colour(error, colour)

    def _colour(self, error: BaseException | None, colour: int) -> None:
        """Send the colour of the end along with the result or the error: it is redder than the header, or there is a
        secret."""
        if error is not None:
            colour_error(error, colour)
        else:
            self.result = enveloped(self.result, self.results, colour, self.name)

    def refuse_if_held(self) -> None:
        """What runs was cancelled; raise `RolledBackError` if that was for a restore."""
        refusal = ours(self._refusal)
        if refusal is not None:
            raise refusal from None

    def _refusal(self) -> RolledBackError | None:
        return self.process.reloading.refusal() if self.process.reloading.is_held else None

    def followed(self, coroutine: Any) -> Any:
        """The coroutine, after noting that it is to be looked into when the machine is recorded."""
        ours(self.process.follow, self.call_id, coroutine)
        return coroutine

    def generates(self, generator: Any) -> None:
        """It is a streaming generator: this one."""
        ours(self.process.begin_items, self.call_id, generator)

    def resumed(self) -> None:
        """Ray lets the generator go on."""
        ours(self.process.resume, self.call_id)

    def item(self, value: Any) -> Any:
        """An item of a generator, with the colour of this moment; it counts as yielded from now on."""
        ours(self.process.hand_out, self.call_id)
        return ours(self._item, value, default=value)

    def _item(self, value: Any) -> Any:
        colour = self.process.ledger.colour
        is_secret = redaction.is_active and redaction.returned(self.name, value)
        if self.header is None or (colour <= self.header.colour and not is_secret):
            return value
        return Enveloped(value, colour, self.name)


class _Inside:
    """A method that the actor's own code calls, or that runs unwatched: nothing begins, and nothing is carried."""

    __slots__ = ("result",)
    result: Any

    def __enter__(self) -> _Inside:
        return self

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        ours(hide_ours, error)

    def refuse_if_held(self) -> None:
        """Refuse nothing: the method runs as it would without us."""

    def followed(self, coroutine: Any) -> Any:
        """The coroutine, as it is."""
        return coroutine

    def generates(self, generator: Any) -> None:
        """Follow nothing."""

    def resumed(self) -> None:
        """Follow nothing."""

    def item(self, value: Any) -> Any:
        """The item, as it is."""
        return value


def _begun(name: str, wire: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> _Run | _Inside:
    """The call that begins here, or the method that the actor's own code calls."""
    if redaction.is_active:
        redaction.met(name, args[1:], kwargs)
    process = process_here()
    header = results = group = stamp = None
    if wire is not None:
        stamp, results, header, group = unpacked(wire)
        process = process or _late(stamp, header, args)
        if process is None:
            return _Inside()
        if process.body is None and args:
            process.body = args[0]
        if stamp != process.stamp and generation_of(stamp, process.system) is None:
            header = stamp = None  # two apps that call one actor: it is the first one's
    elif process is None or CURRENT.get() is not None or not _is_rays_thread():
        return _Inside()
    return _Run(process, header, name, results, group, stamp)


def _late(stamp: str, header: Header, args: tuple[Any, ...]) -> Process | None:
    """Attach an actor that was made before the watching began, or by a process that is not watched."""
    from ray_snapshot.instrument.hooks.attaching import attach_actor

    key = shape.current_actor_key()
    if key is None or not args:
        return None
    return attach_actor(stamp, key, colour=header.colour, about={}, body=args[0])


def _is_rays_thread() -> bool:
    """Whether this thread executes calls for Ray, and is none of the app's own."""
    thread = threading.current_thread()
    if thread is threading.main_thread() or isinstance(thread, threading._DummyThread):
        return True
    return thread.name.startswith("AsyncIO Thread") and CURRENT.get() is None
