"""Calls with headers: put on where an app calls or creates an actor, taken off where the call runs.

A header is a hidden keyword of every call of a watched actor; `headers` says how it travels. A reply carries the colour of
its end only when that is redder than the header was: a process that passes a ref on has heard of the header's colour, and says
so in all that it sends.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import suppress
from typing import Any, Protocol, Self

from ray import ObjectRef
from ray.exceptions import PendingCallsLimitExceeded

from ray_snapshot.errors import RolledBackError
from ray_snapshot.instrument import shape, task_shape
from ray_snapshot.instrument.capacity import demanded, of_actor
from ray_snapshot.instrument.frames import hide_ours
from ray_snapshot.instrument.guard import Own, give_up, is_of_a_handler, ours
from ray_snapshot.instrument.here import CURRENT, Caller, NotActingError, here, hold, machine_of, process_here
from ray_snapshot.instrument.hooks.envelopes import Enveloped, colour_error, enveloped
from ray_snapshot.instrument.hooks.headers import HEADER, packed, recovering, unpacked
from ray_snapshot.instrument.process.answer_uses import TO_CALL
from ray_snapshot.instrument.process.failures import FAILURES
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.instrument.process.reloading import generation_of
from ray_snapshot.protocol.calls import CONSTRUCTOR, Header, call_id_of, parsed
from ray_snapshot.runtime.refs import call_of, is_put, tracked
from ray_snapshot.stderr import LOGGER

_SKIPPED = ("ray_snapshot.",)

_READY = "__ray_ready__"
"""Ray's own method, which takes no header: a call of it is known to its sender only, until the reply is read."""

_RAY_CALL = "__ray_call__"
_UNFOLLOWED = _RAY_CALL, "__ray_terminate__"
"""Those that are not followed at all."""


# ---- the calling side ------------------------------------------------------------------------------------------------


def calling(original: Callable[..., Any]) -> Callable[..., Any]:
    """What takes the place of `ActorHandle._actor_method_call`."""

    def call(handle: Any, method_name: str, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
        own = Own(original)  # as `replaced`, with a frame less: this is the way of every call
        try:
            process = here()
            if process is None or method_name in _UNFOLLOWED or not shape.takes_keyword(handle, HEADER):
                return own(handle, method_name, args, kwargs, **options)
            return _called(process, own, handle, method_name, args, kwargs, options)
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
    process: Caller, own: Own, handle: Any, method_name: str, args: Any, kwargs: Any, options: dict[str, Any]
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
    if method_name != _READY:
        wire = packed(stamp, options.get("num_returns"), header, group)
        kwargs = {**kwargs, HEADER: wire} if kwargs else {HEADER: wire}
    try:  # as `own(...)`, with a frame less
        own.result = refs = own.function(handle, method_name, args, kwargs, **options)
    except BaseException as error:
        own.error = error
        process.guarded(lambda: process.retract(header, target, entry))
        if isinstance(error, PendingCallsLimitExceeded) and isinstance(process, Process):
            asked = f"{TO_CALL} {target.partition(':')[0]}.{method_name}"
            ours(process.asked_ray, asked, type(error).__name__, ())
        raise
    own.is_done = True
    call_id = call_id_of(header.source, header.incarnation, target, header.number)
    if task_shape.is_stream(refs) and isinstance(process, Process):
        at_most = task_shape.most_unread(options, handle=handle)
        process.guarded(functools.partial(process.take_items, refs, call_id, at_most))
    refs = ours(tracked, refs, call_id) or refs
    return refs if entry is None else process.guarded(lambda: process.made(entry, refs)) or refs


def needs(args: Any, kwargs: Any) -> tuple[str | None, ...]:
    """The calls behind the refs that Ray resolves before the call begins.

    What `ray.put` has made is there, and so are items that were taken from a generator: they need none.
    """
    given = (*(args or ()), *kwargs.values()) if kwargs else args or ()
    refs = [item for item in given if isinstance(item, ObjectRef)]
    if not refs:
        return ()
    process = process_here()
    found: list[str | None] = []
    for ref in refs:
        call = call_of(ref)
        if call is not None or not (is_put(ref) or (process is not None and process.has_come(ref))):
            found.append(call)
    for call in found:
        if call is not None:
            FAILURES.passes_on(parsed(call).target)
    return tuple(found)


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
        with suppress(Exception):  # of handlers of the app's
            LOGGER.warning(f"ray-snapshot: recover: an actor of {about['kind']} is an obstacle: {reason}")


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
    """In place of `ray.actor._modify_class`: handles of actors of the app's class say that these take headers."""
    modified: type = original(cls)
    return modified if cls.__module__.startswith(_SKIPPED) else shape.mark(modified, HEADER, _TAKES_HEADERS)


def watched_class(cls: type) -> type:
    """What Ray makes of a class, marked as one whose actors take headers; the class itself if it is ours."""
    return modify(shape.as_ray_makes_it, cls) if not cls.__module__.startswith(_SKIPPED) else cls


class _TakesHeaders:
    """It comes with such a class: from then on a process takes the headers off the calls of its actor, whoever watches it."""

    def __reduce__(self) -> tuple[Any, ...]:
        return take_headers, ()


_TAKES_HEADERS = _TakesHeaders()


def take_headers() -> _TakesHeaders:
    """Put what takes headers off in place of Ray's functions. Raises nothing: it runs where the app's class is unpickled."""
    ours(shape.replace_recovery, recovering)
    ours(lambda: shape.replace_made(execution=executing))
    return _TAKES_HEADERS


# ---- the running side ------------------------------------------------------------------------------------------------


def executing(own: Callable[..., Any]) -> Callable[..., Any]:
    """What takes the place of the function of Ray's that makes of a method what Ray calls in an actor's process.

    Only Ray calls that: the app's own objects, classes and functions are as they are without us.
    """

    def make(manager: Any, method_name: str, method: Any) -> Any:
        plain = own(manager, method_name, method)
        if method_name.startswith("__ray_") and method_name != _RAY_CALL:
            return plain
        followed = ours(_executor, method_name, plain) or _bare(plain)
        vars(followed).update(vars(plain))
        return followed

    return make


def _executor(name: str, plain: Any) -> Any:
    """What runs a call of a method, and follows it. `plain`: as Ray makes it, which is given the actor and the arguments."""
    if name == _RAY_CALL:
        return _ray_call(plain)
    if str(plain.method.__module__).startswith(_SKIPPED):
        return _bare(plain)
    if name == "__init__":
        return (_async_construction if inspect.iscoroutinefunction(plain.method) else _sync_construction)(plain)
    if inspect.isasyncgenfunction(plain.method):
        return _async_generator(name, plain)
    if inspect.iscoroutinefunction(plain.method):
        return _coroutine(name, plain)
    if inspect.isgeneratorfunction(plain.method):
        return _generator(name, plain)
    return _function(name, plain)


def _bare(plain: Any) -> Any:
    """What runs a call, and does not follow it."""

    def wrapper(*args: Any, _ray_snapshot_header: Any = None, **kwargs: Any) -> Any:
        return plain(*args, **kwargs)

    return wrapper


def _ray_call(plain: Any) -> Any:
    """Ray's own `__ray_call__`, which runs a function: one of the app's is a call without a header, Ray's and ours are none."""
    followed = _function(_RAY_CALL, plain)

    def wrapper(actor: Any, *args: Any, **kwargs: Any) -> Any:
        module = str(getattr(args[0] if args else kwargs.get("fn"), "__module__", ""))
        if module == shape.COMPILED_GRAPHS:
            return plain(_Stages(actor), *args, **kwargs)
        return (plain if module.startswith((*_SKIPPED, "ray.")) else followed)(actor, *args, **kwargs)

    return wrapper


class _Stages:
    """An actor as a compiled graph sees it, which calls its methods itself: each such call is one without a header."""

    def __init__(self, actor: Any) -> None:
        self._actor = actor

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._actor, name)
        return functools.partial(_function(name, lambda _, *args, **kwargs: method(*args, **kwargs)), self._actor)


def _function(name: str, member: Any) -> Any:
    def wrapper(*args: Any, _ray_snapshot_header: Any = None, **kwargs: Any) -> Any:
        run = ours(_begun, name, _ray_snapshot_header, args) or Unwatched()
        with run:
            run.result = member(*args, **kwargs)
        return run.result

    return wrapper


def _coroutine(name: str, member: Any) -> Any:
    async def wrapper(*args: Any, _ray_snapshot_header: Any = None, **kwargs: Any) -> Any:
        run = ours(_begun, name, _ray_snapshot_header, args) or Unwatched()
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
        run = ours(_begun, name, _ray_snapshot_header, args) or Unwatched()
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
        run = ours(_begun, name, _ray_snapshot_header, args) or Unwatched()
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


def _sync_construction(member: Any) -> Any:
    def __init__(self: Any, *args: Any, _ray_snapshot_header: Any = None, **kwargs: Any) -> None:
        with ours(_construction, self, _ray_snapshot_header, args) or Unwatched():
            member(self, *args, **kwargs)

    return __init__


def _async_construction(member: Any) -> Any:
    """Ray runs such a constructor on the actor's loop."""

    async def __init__(self: Any, *args: Any, _ray_snapshot_header: Any = None, **kwargs: Any) -> None:
        with ours(_construction, self, _ray_snapshot_header, args) or Unwatched() as run:
            await run.followed(member(self, *args, **kwargs))

    return __init__


def _construction(body: Any, wire: tuple[Any, ...] | None, args: tuple[Any, ...]) -> _Call | Unwatched:
    """The constructor that begins here; with a header the machine is born."""
    from ray_snapshot.instrument.hooks.attaching import attach_actor

    key = shape.current_actor_key()
    if wire is not None and process_here() is None and key is not None:
        attach_actor(wire[0], key, colour=wire[5], about=wire[1], body=body)
    return _begun("__init__", wire, (body, *args))


# ---- a call that runs ------------------------------------------------------------------------------------------------


class Run:
    """What runs in a watched process, from its first step to its reply: a call, or a plain task (`hooks.tasks`)."""

    __slots__ = ("call_id", "colour", "process", "result", "results", "token")

    def __init__(self, process: Process, call_id: str, colour: int | None, results: Any) -> None:
        """`colour`: that of the header; None: nobody hears of the colour of its end."""
        self.process = process
        self.call_id = call_id
        self.colour = colour
        self.results = results
        self.result: Any = None

    def __enter__(self) -> Self:
        self.token = CURRENT.set(self.call_id)
        return self

    def is_redder(self, colour: int) -> bool:
        """Whether a colour has to be told to who reads the reply."""
        return self.colour is not None and colour > self.colour

    def leave(self) -> None:
        """It is no longer what runs here."""
        try:
            CURRENT.reset(self.token)
        except ValueError:  # a generator may be closed in another context
            CURRENT.set(None)

    def send_colour(self, error: BaseException | None, colour: int) -> None:
        """Send the colour of the end along with the result or the error: it is redder than the header."""
        if error is not None:
            colour_error(error, colour)
        else:
            self.result = enveloped(self.result, self.results, colour)

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
        return Enveloped(value, colour) if self.is_redder(colour) else value


class _Call(Run):
    """One accepted call."""

    __slots__ = ("is_retried",)

    def __init__(
        self, process: Process, header: Header | None, name: str, results: Any, group: str | None, stamp: str | None
    ) -> None:
        call_id = process.enter(header, name, group, stamp)
        super().__init__(process, call_id, None if header is None else header.colour, results)
        self.is_retried = bool(header and header.is_retried)

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        if error is not None:
            ours(hide_ours, error)
        ours(self._end, error)

    def _end(self, error: BaseException | None) -> None:
        self.leave()
        if error is not None or FAILURES.raised:
            running = self.process.ledger.running.get(self.call_id)
            method = "" if running is None else running.method
            FAILURES.ended(self.call_id, method, error, self.is_retried)
        colour = self.process.leave(self.call_id, is_error=error is not None)
        if self.is_redder(colour):
            self.send_colour(error, colour)

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


class Unwatched:
    """What runs unwatched: nothing begins, and nothing is carried."""

    __slots__ = ("result",)
    result: Any

    def __enter__(self) -> Self:
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


def _begun(name: str, wire: Any, args: tuple[Any, ...]) -> _Call | Unwatched:
    """The call that begins here; `args`: the actor's object first."""
    process = process_here()
    header = results = group = stamp = None
    if wire is not None:
        stamp, results, header, group = unpacked(wire)
        process = process or _late(stamp, header, args)
        if process is None:
            return Unwatched()
        if process.body is None:
            process.body = args[0]
        if stamp != process.stamp and generation_of(stamp, process.system) is None:
            header = stamp = None  # two apps that call one actor: it is the first one's
    elif process is None:
        return Unwatched()
    return _Call(process, header, name, results, group, stamp)


def _late(stamp: str, header: Header, args: tuple[Any, ...]) -> Process | None:
    """Attach an actor that was made before the watching began, or by a process that is not watched."""
    from ray_snapshot.instrument.hooks.attaching import attach_actor

    key = shape.current_actor_key()
    if key is None:
        return None
    return attach_actor(stamp, key, colour=header.colour, about={}, body=args[0])
