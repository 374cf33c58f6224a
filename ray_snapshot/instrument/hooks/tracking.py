"""Waits that are followed: `ray.get`, `ray.wait` and, in async actors, `await` of a ref."""

from __future__ import annotations

import functools
import math
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import ray
from ray.actor import ActorHandle
from ray.exceptions import GetTimeoutError, RayActorError, RayTaskError, TaskCancelledError

from ray_snapshot.errors import RolledBackError
from ray_snapshot.instrument import shape
from ray_snapshot.instrument.connection import CONNECTION
from ray_snapshot.instrument.guard import is_of_a_handler, ours
from ray_snapshot.instrument.here import here, machine_of, process_here, read_early
from ray_snapshot.instrument.hooks.envelopes import colour_of_error
from ray_snapshot.instrument.process.coroutines import current_task, forget_wait, note_wait
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.instrument.process.program_loop import was_interrupted
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.calls import parsed
from ray_snapshot.protocol.tasks import is_task
from ray_snapshot.runtime.here import place_here
from ray_snapshot.runtime.refs import call_of, is_put

ON_INTERRUPT: list[Callable[[Any], None]] = []
"""Called when Ctrl-C has ended a wait of the program, which counts as waiting until they return; given what it came as: an
error, or the `asyncio.Runner` that cancels the program."""


def get(
    original: Callable[..., Any], object_refs: Any, *args: Any, timeout: float | None = None, **options: Any
) -> Any:
    """In place of `ray.get`."""

    def call(refs: Any, seconds: float | None) -> Any:
        return original(refs, *args, timeout=seconds, **options)

    if (process := process_here()) is None:
        return call(object_refs, timeout)
    try:
        return _got_all(process, call, object_refs, timeout)
    except GetTimeoutError as error:
        if timeout is not None and not isinstance(error, RayTaskError):
            ours(_not_all_came, process, object_refs)
        raise


_Call = Callable[[Any, float | None], Any]
"""Ray's own function, of refs and a timeout."""


def _got_all(process: Process, call: _Call, object_refs: Any, timeout: float | None) -> Any:
    """What `ray.get` returns."""
    is_many = isinstance(object_refs, (list, tuple))
    refs = list(object_refs) if is_many else [object_refs]
    if (plain := _plainly(process, call, object_refs, refs, len(refs), timeout, raises=True)) is not None:
        return _compared(process, refs, plain[0], is_many)
    if not process.waiting.blocks():
        plainly = functools.partial(call, object_refs, timeout)
        found = _beside(process, refs, len(refs), timeout, plainly, raises=True)
        return _compared(process, refs, found, is_many)

    def attempt(now: list[Any], left: float | None) -> Any:
        asked = object_refs if now is refs else now if is_many else now[0]
        work = functools.partial(call, asked)
        return _compared(process, now, _followed(process, now, len(now), left, work, _got, raises=True), is_many)

    return _outliving(process, refs, timeout, attempt)


def _not_all_came(process: Process, object_refs: Any) -> None:
    """A `ray.get` has not got within its timeout what it is for."""
    refs = list(dict.fromkeys(object_refs if isinstance(object_refs, (list, tuple)) else [object_refs]))
    if process.polls.is_armed:
        _, refs = shape.original("wait")(refs, num_returns=len(refs), timeout=0, fetch_local=False)
    process.asked_ray("ray.get", "GetTimeoutError", refs)


def get_actor(original: Callable[..., Any], name: str, *args: Any, **options: Any) -> Any:
    """In place of `ray.get_actor`."""
    try:
        return original(name, *args, **options)
    except ValueError:
        if (process := process_here()) is not None:
            ours(process.asked_ray, f"ray.get_actor({name!r})", "ValueError", ())
        raise


def _plainly(
    process: Process, call: _Call, asked: Any, refs: list[Any], k: int, timeout: float | None, *, raises: bool
) -> tuple[Any] | None:
    """The result of a wait of which nothing is noted beforehand; None if it must be."""
    try:
        plain = ours(process.waiting.begin_plain, refs, k, timeout, raises) if refs else None
        if plain is None:
            return None
        try:
            found = call(asked, timeout)
        except BaseException as error:
            noted, end = ours(process.waiting.note_plain, plain), _End(len(refs))
            if noted is not None:
                try:
                    end.met(error, noted[1])
                finally:
                    process.guarded(
                        lambda: process.waiting.end(noted[0], end.answered, end.colour, settled=end.settled)
                    )
            raise
        ours(process.waiting.end_plain, plain, raises)  # who has only waited has read no reply
    except BaseException:  # it may have come amid a step of ours, where nothing else ends the wait
        process.waiting.forget_plain(threading.get_ident())
        raise
    return (found,)


def _compared(process: Process, refs: Sequence[Any], found: Any, is_many: bool) -> Any:
    """The result of a `ray.get`, as it is."""
    if process.polls.is_armed and refs:
        ours(process.answers_read, refs, found if is_many else [found])
    return found


def wait(
    original: Callable[..., Any],
    ray_waitables: Any,
    *args: Any,
    num_returns: int = 1,
    timeout: float | None = None,
    **options: Any,
) -> Any:
    """In place of `ray.wait`."""

    def call(refs: Any, seconds: float | None) -> Any:
        return original(refs, *args, num_returns=num_returns, timeout=seconds, **options)

    process = process_here()
    if process is None or not isinstance(ray_waitables, (list, tuple)):
        return call(ray_waitables, timeout)
    found = _ready(process, call, ray_waitables, num_returns, timeout)
    if (is_late := len(found[0]) < num_returns) or process.polls.is_armed:
        answer = f"{len(found[0]):,} of {len(ray_waitables):,} ready" if found[0] else "nothing ready"
        ours(process.asked_ray, "ray.wait", answer if is_late else "", found[is_late])
    return found


def _ready(process: Process, call: _Call, ray_waitables: Any, k: int, timeout: float | None) -> Any:
    """What `ray.wait` returns."""
    journal, refs = process.journal, list(ray_waitables)
    if not process.waiting.blocks():
        return _beside(process, refs, k, timeout, functools.partial(call, ray_waitables, timeout))
    if (plain := _plainly(process, call, ray_waitables, refs, k, timeout, raises=False)) is not None:
        return plain[0]
    now = refs if journal is None else journal.all_current(refs)
    is_same = now == refs
    work = functools.partial(call, ray_waitables if is_same else now)
    found = _followed(process, now, k, timeout, work, _waited(k))
    if is_same:
        return found
    asked = dict(zip(now, refs, strict=True))  # in the refs that the program has
    return tuple([asked.get(ref, ref) for ref in part] for part in found)


def _beside(
    process: Process, refs: list[Any], k: int, timeout: float | None, work: Callable[[], Any], *, raises: bool = False
) -> Any:
    """A thread of the app's own waits, in no call: so does a call that has handed its work to that thread (`handed`)."""
    site, colour = place_here(), 0
    before = process.guarded(lambda: process.waiting.begin_in_thread(refs, k, timeout, site, raises=raises))
    try:
        return work()
    except BaseException as error:
        colour = colour_of_error(error)
        raise
    finally:
        process.guarded(lambda: process.waiting.end_in_thread(before, colour))


def _outliving(
    process: Process, refs: list[Any], timeout: float | None, attempt: Callable[[list[Any], float | None], Any]
) -> Any:
    """Wait for refs; where the app goes back by itself, whatever a death has done to that wait is not seen by the program."""
    journal, reloading = process.journal, process.reloading
    if not reloading.recovers:
        return attempt(refs, timeout)
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        with process.lock:  # refs of a generation that has been entered: while all load, those of the past still stand
            generation = reloading.entered
            now = refs if journal is None else journal.all_current(refs)
        try:
            return attempt(now, None if timeout is None else max(0.0, deadline - time.monotonic()))
        except (RolledBackError, RayActorError) as error:
            if not _is_undone(process, error, generation, deadline):
                raise
            if journal is None or journal.all_current(refs) == now:
                raise


def _is_undone(process: Process, error: Exception, generation: int, deadline: float) -> bool:
    """Whether the app has gone back behind what this error tells of; waits for it."""
    bound = min(deadline, time.monotonic() + LIMITS.held_program_s)
    is_undone: bool = ours(process.reloading.outlive, error, generation, bound, default=False)
    return is_undone


_Work = Callable[[float | None], Any]
"""A function that waits at most so many seconds (None: without a bound) and returns the result."""


def _got(work: _Work, seconds: float) -> tuple[bool, Any]:
    """(whether it was there within so many seconds, the result) of a `ray.get`."""
    try:
        return True, _bounded(work, seconds)
    except GetTimeoutError as error:
        if isinstance(error, RayTaskError):  # that is the result
            raise
        return False, error


def _bounded(work: _Work, seconds: float) -> Any:
    """What a wait with a bound comes to. Where a signal handler raises in one, Ray makes a `SystemError` of that."""
    try:
        return work(seconds)
    except SystemError as error:
        if error.__context__ is None or not is_of_a_handler(error.__context__):
            raise
        cause = error.__context__
    raise cause


def _waited(k: int) -> Callable[[_Work, float], tuple[bool, Any]]:
    """What `_got` is for `ray.get`, for a `ray.wait` for `k` refs."""

    def waited(work: _Work, seconds: float) -> tuple[bool, Any]:
        found = _bounded(work, seconds)
        return len(found[0]) >= k, found

    return waited


def _sliced(
    process: Process,
    wait_id: int,
    refs: list[Any],
    k: int,
    timeout: float | None,
    work: _Work,
    one: Callable[[_Work, float], tuple[bool, Any]],
) -> Any:
    """Wait in slices, and look between them whether the wait is to end: the app is being rolled back, or it is deadlocked.

    What exists, and has only to be fetched from another node, is fetched in one piece: with each wait that ends, Ray gives up
    the transfers that it has begun, and what takes longer than a slice would never come.
    """
    deadline = math.inf if timeout is None else time.monotonic() + timeout
    while True:
        left = max(0.0, deadline - time.monotonic())
        is_there, found = one(work, min(LIMITS.wait_look_s, left))
        if is_there or left <= LIMITS.wait_look_s:
            break
        if process.machine != DRIVER:
            ours(process.reloading.check_waiting, ())
        ours(process.raising.check, wait_id)
        if ours(_exist, refs, k):
            return work(None if timeout is None else max(0.0, deadline - time.monotonic()))
    if isinstance(found, GetTimeoutError) and not is_there:
        raise found
    return found


def _exist(refs: list[Any], k: int) -> bool:
    """Whether `k` of them are there, on whichever node."""
    different = list(dict.fromkeys(refs))
    if not all(isinstance(ref, ray.ObjectRef) for ref in different):
        return False
    least = min(k, len(different))
    ready, _ = shape.original("wait")(different, num_returns=least, timeout=0, fetch_local=False)
    return len(ready) >= least


def _followed(
    process: Process,
    refs: list[Any],
    k: int,
    timeout: float | None,
    work: _Work,
    one: Callable[[_Work, float], tuple[bool, Any]],
    *,
    raises: bool = False,
) -> Any:
    if not refs:
        return work(timeout)
    process.reloading.check_waiting(refs)
    site = place_here()
    begun = process.guarded(lambda: process.waiting.begin(refs, k, timeout, site, is_blocking=True, raises=raises))
    if begun is None:
        return work(timeout)
    wait_id, on = begun
    end = _End(len(refs))
    try:
        is_sliced = process.raising.is_on or (process.reloading.keeps and process.machine != DRIVER)
        is_sliced = is_sliced and (timeout is None or timeout >= 0) and all(map(_is_plain, refs))
        found = _sliced(process, wait_id, refs, k, timeout, work, one) if is_sliced else work(timeout)
        if raises:  # who has only waited has read no reply
            end.answered = on
    except BaseException as error:
        end.met(error, on)
        raise
    finally:
        process.guarded(lambda: process.waiting.end(wait_id, end.answered, end.colour, settled=end.settled))
    return found


def _is_plain(ref: Any) -> bool:
    """Whether a wait with a bound is the same as one without, but for the bound: of a compiled graph's refs it is not."""
    return type(ref) in (ray.ObjectRef, ray.ObjectRefGenerator)


class _End:
    """How a wait has ended: which calls were answered, which will never be, and the colour that came with it."""

    answered: Sequence[str | None] = ()
    settled: Sequence[str | None] = ()
    colour = 0

    def __init__(self, count: int) -> None:
        self.count = count
        """How many refs were waited for."""

    def met(self, error: BaseException, on: list[str | None]) -> None:
        """The wait raised, and counts as one until all have been told of a Ctrl-C."""
        self.by(error, on)
        if isinstance(error, KeyboardInterrupt):
            for tell in ON_INTERRUPT:
                tell(error)

    def by(self, error: BaseException, on: list[str | None]) -> None:
        """The wait raised."""
        self.colour = colour_of_error(error)
        if self.count == len(on) == 1 and not isinstance(error, GetTimeoutError):
            if isinstance(error, (RayActorError, TaskCancelledError)):
                self.settled = on
            elif isinstance(error, RayTaskError):
                self.answered = on


def kill(original: Callable[..., Any], actor: Any, *, no_restart: bool = True) -> Any:
    """In place of `ray.kill`: a death that the app wants, though Ray starts the actor again, is not undone."""
    process = process_here()
    if process is not None and process.reloading.recovers and not no_restart and isinstance(actor, ActorHandle):
        ours(_say_intended, process, machine_of(actor))
    return original(actor, no_restart=no_restart)


def _say_intended(process: Process, machine: str) -> None:
    if (reply := CONNECTION.use(process.watcher.intended.remote, machine)) is not None:
        shape.original("get")(reply, timeout=LIMITS.fate_answer_s)


def unhandled(original: Callable[..., Any], error: Exception) -> None:
    """In place of what logs the error of a call whose reply is never read: that it was given up is no news to anybody."""
    if not any(isinstance(one, RolledBackError) for one in (error, getattr(error, "cause", None))):
        original(error)


def arrived(original: Callable[..., Any], *args: Any) -> Any:
    """In place of what makes a ref that another process has passed on."""
    ref = original(*args)
    process, call_id = here(), call_of(ref)
    if call_id is not None and process is not None:
        process.guarded(lambda: process.may_read(call_id))
    elif call_id is not None and not is_task(target := parsed(call_id).target):
        read_early(target)
    return ref


def future_of(original: Callable[..., Any], future: Any, **options: Any) -> Any:
    """In place of `asyncio.wrap_future`, with which Ray makes an `await` of a ref: what is awaited then is a tracked wait."""
    awaited = original(future, **options)
    ref = getattr(future, "object_ref", None)
    if ref is not None and _is_known(ref):  # whatever answers another may do so unseen
        _follow(awaited, ref, future)
    return awaited


def _is_known(ref: Any) -> bool:
    """Whether it is known what answers a ref, or that nothing has to."""
    process = process_here()
    return (
        call_of(ref) is not None or is_put(ref) or (process is not None and (process.owes(ref) or process.knows(ref)))
    )


def _follow(awaited: Any, ref: Any, future: Any) -> None:
    process = process_here()
    is_elsewhere = process is not None and process.waiting.is_elsewhere()
    if process is None or not (is_elsewhere or process.waiting.follows()):
        return
    process.reloading.check_waiting([ref])
    site, task = place_here(), current_task()
    if is_elsewhere:
        replies = process.guarded(lambda: process.waiting.begin_elsewhere(awaited, ref, site)) or []

        def ended_elsewhere(done: Any) -> None:
            forget_wait(done)
            end = _end_of(done, replies)
            process.guarded(lambda: process.waiting.end_elsewhere(end.answered, end.colour, settled=end.settled))
            _compare(process, ref, done, end, task)

        awaited.add_done_callback(lambda done: ours(ended_elsewhere, done))
        return
    begun = process.guarded(lambda: process.waiting.begin([ref], 1, None, site, is_blocking=False))
    if begun is None:
        return
    wait_id, on = begun
    note_wait(awaited, wait_id)
    if process.knows(ref):  # of the errors of items Ray makes others
        process.raising.spare(wait_id)
    process.raising.awaited(wait_id, future)

    def ended(done: Any) -> None:
        """Before the coroutine goes on: callbacks run in the order in which they were added."""
        if done.cancelled() and (runner := was_interrupted()) is not None and process.machine == DRIVER:
            with process.program_loop.held():
                for tell in ON_INTERRUPT:
                    tell(runner)
        end = _end_of(done, on)
        process.guarded(lambda: process.waiting.end(wait_id, end.answered, end.colour, settled=end.settled))
        _compare(process, ref, done, end, task)

    awaited.add_done_callback(lambda done: ours(ended, done))


def _compare(process: Process, ref: Any, done: Any, end: _End, task: Any) -> None:
    """An `await` of a ref is over, before its task goes on: it has an answer, or was given up, as by `asyncio.wait_for`."""
    if task is not None and done.cancelled():
        process.asked_ray("await", "given up", [ref], task)
    elif task is not None and process.polls.is_armed and end.answered and done._exception is None:
        process.answers_read([ref], [done._result], task)


def _end_of(done: Any, on: list[str | None]) -> _End:
    end = _End(1)
    if not done.cancelled() and done._exception is None:  # asking with `exception()` would count as having read it
        end.answered = on
    elif not done.cancelled():
        end.by(done._exception, on)
    return end
