"""Plain tasks: followed where an app starts one, and where it runs.

A function is exported once more, in a wrapper, before its first task. The wrapper travels by value and finds the rest of us
where it runs; where nothing of ours is, it runs the function and no more. A task has a header (its sender's colour) only while
others may not have recorded what its sender has; its name is made of Ray's id of it, which both ends know (`protocol.tasks`).

A task without a result (`num_returns=0`) gives no ref, so no id: it is started with one that nobody reads, and gives nothing.

Not followed: tasks of machines of hosts, functions of other languages, our own, and all where a restore must be possible
(`checkpoint=True`); `unfollowed` counts them.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

from ray_snapshot.instrument import shape, task_shape
from ray_snapshot.instrument.capacity import demanded, of_task
from ray_snapshot.instrument.frames import hide_ours
from ray_snapshot.instrument.guard import ours, replaced
from ray_snapshot.instrument.here import CURRENT, process_here
from ray_snapshot.instrument.hooks.calls import Run, Unwatched, delegated, needs
from ray_snapshot.instrument.hooks.ends import end_process
from ray_snapshot.instrument.hooks.headers import HEADER
from ray_snapshot.instrument.process.process import Process
from ray_snapshot.instrument.process.unfollowed import UNFOLLOWED, task
from ray_snapshot.protocol.demands import demand
from ray_snapshot.protocol.tasks import call_of_task, function_name, task_name
from ray_snapshot.runtime.refs import call_of, tracked

_OURS = "ray_snapshot."

# ---- the starting side -----------------------------------------------------------------------------------------------


def start(original: Callable[..., Any], function: Any, args: Any = None, kwargs: Any = None, **options: Any) -> Any:
    """In place of `RemoteFunction._remote`."""
    shape.connect()
    if task_shape.module_of(function).startswith(_OURS):
        return original(function, args, kwargs, **options)
    process = process_here()
    if process is None or not process.started_tasks.are_followed or not _can_be_followed(function, options):
        return task(original, function, args, kwargs, **options)
    if task_shape.decorator_of(function) is not None:
        return _decorated(original, function, args, kwargs, options)
    if task_shape.is_exported(function, process.stamp):
        return _started(process, original, function, args, kwargs, options)
    own = task_shape.function_of(function)
    wrapper = wrapped(own, process.stamp, task_shape.results_of(function))
    with UNFOLLOWED.into("function"), task_shape.exporting(function, wrapper, process.stamp):
        refs = _started(process, original, function, args, kwargs, options)
    process.started_tasks.exported(UNFOLLOWED.in_functions)
    return refs


def _decorated(original: Any, function: Any, args: Any, kwargs: Any, options: dict[str, Any]) -> Any:
    """Of a function with a `__ray_invocation_decorator__`: that gets the app's own arguments, and starts what it likes."""
    plain = task_shape.undecorated(function)
    invocation = functools.partial(replaced, start, original.function, plain, **options)
    try:
        return task_shape.decorator_of(function)(invocation)(args or [], kwargs or {})
    except BaseException as error:
        original.error = error  # the app's, as if Ray had called the decorator
        raise


def state(original: Callable[..., Any], function: Any) -> Any:
    """In place of `RemoteFunction.__getstate__`: a function that starts itself travels in its wrapper without one."""
    return task_shape.as_exported(function, original(function))


def _can_be_followed(function: Any, options: dict[str, Any]) -> bool:
    is_lazy = inspect.isgeneratorfunction(task_shape.function_of(function))
    return task_shape.can_be_followed(function) and not (is_lazy and options.get("num_returns") == 0)


def _started(
    process: Process, original: Callable[..., Any], function: Any, args: Any, kwargs: Any, options: dict[str, Any]
) -> Any:
    colour, results, refs = process.started_tasks.begin(), options.get("num_returns"), None
    given = kwargs
    if colour is not None or results != task_shape.results_of(function):
        given = {**(kwargs or {}), HEADER: (colour or 0, results)}
    if results == 0:
        options = {**options, "num_returns": 1}
    try:
        refs = original(function, args, given, **options)
    finally:
        name = _logged(process, function, args, kwargs, options, refs)
    if results == 0:
        process.started_tasks.keep_unread(name, refs)
        return None
    if name is not None and task_shape.is_stream(refs):
        at_most = task_shape.most_unread(options, function)
        process.guarded(lambda: process.take_items(refs, call_of_task(name), at_most))
    return refs if name is None else tracked(refs, call_of_task(name))


def _logged(process: Process, function: Any, args: Any, kwargs: Any, options: dict[str, Any], refs: Any) -> str | None:
    """The task is in the ledger; returns its name. None if starting it raised."""
    key = task_shape.task_key(refs)
    if key is None:
        process.started_tasks.end(None, "", (), is_retried=False)
        return None
    kind = function_name(task_shape.name_of(function))
    name = task_name(kind, key)
    is_retried = task_shape.is_run_again(function, options)
    wanted = demanded(of_task, options)
    process.started_tasks.end(name, kind, args, is_retried=is_retried, needs=needs(args, kwargs), demand=wanted)
    return name


def ready(original: Callable[..., Any], group: Any) -> Any:
    """In place of `PlacementGroup.ready`: the refs that it gives are answered as if a task began and ended in the group."""
    process = process_here()
    if process is None or not process.started_tasks.are_followed or group.is_empty:
        return original(group)
    key, groups, name = group.id.hex(), process.started_tasks.groups, None
    known = groups.get(key)
    if known is not None:  # it was asked for before
        return tracked(original(group), call_of_task(known[0]))
    process.started_tasks.begin()
    try:
        ref = original(group)
        if call_of(ref) is None:  # else it is a task of Ray's own
            name = task_name(READY, ref.hex())
            groups[key] = name, ref
    finally:
        process.started_tasks.end(name, READY, (), is_retried=False, demand=demand({}, key))
    return ref if name is None else tracked(ref, call_of_task(name))


READY = function_name("placement_group_ready")
"""What the function is called that such a ref is the end of."""


# ---- the running side ------------------------------------------------------------------------------------------------


def wrapped(function: Any, stamp: str, results: Any = None) -> Any:
    """A function that takes the header and runs `function`; it can be read, by value, where nothing of ours is.

    `results`: the `num_returns` of tasks whose header has no other.
    """
    make = _generating if inspect.isgeneratorfunction(function) else _running
    return functools.update_wrapper(make(function, stamp, results), function)


def _running(function: Any, stamp: str, results: Any) -> Any:
    name = function.__name__

    def wrapper(*args: Any, _ray_snapshot_header: Any = None, **kwargs: Any) -> Any:
        is_read = (_ray_snapshot_header[1] if _ray_snapshot_header else results) != 0
        try:
            from ray_snapshot.instrument.hooks.tasks import begun
        except Exception:
            result = function(*args, **kwargs)
            return result if is_read else None
        run = begun(name, stamp, _ray_snapshot_header, results)
        with run:
            run.result = function(*args, **kwargs)
            if run.is_lazy:  # Ray takes the items when we are gone
                return run.lazily()
        return run.result if is_read else None

    return wrapper


def _generating(function: Any, stamp: str, results: Any) -> Any:
    name = function.__name__

    def wrapper(*args: Any, _ray_snapshot_header: Any = None, **kwargs: Any) -> Any:
        try:
            from ray_snapshot.instrument.hooks.calls import delegated
            from ray_snapshot.instrument.hooks.tasks import begun
        except Exception:
            return (yield from function(*args, **kwargs))
        with begun(name, stamp, _ray_snapshot_header, results) as run:
            return (yield from delegated(run, function(*args, **kwargs)))

    return wrapper


def begun(name: str, stamp: str, header: tuple[int, Any] | None, results: Any) -> TaskRun | NoRun:
    """The task that begins here."""
    colour, results = header or (0, results)
    run: TaskRun | NoRun | None = ours(_begun, name, stamp, colour, results)
    return run or NoRun()


def _begun(name: str, stamp: str, colour: int, results: Any) -> TaskRun | NoRun:
    from ray_snapshot.instrument.hooks.attaching import attach_worker

    if CURRENT.get() is not None or shape.current_actor_key() is not None:
        return NoRun()
    while (process := process_here() or attach_worker(stamp, colour)) is not None:
        call_id = process.worker_tasks.enter(task_name(function_name(name), task_shape.task_here()), name, colour)
        if call_id is not None:
            return TaskRun(process, call_id, colour, results)
    return NoRun()


class TaskRun(Run):
    """One task."""

    __slots__ = ("is_left",)

    def __init__(self, process: Process, call_id: str, colour: int, results: Any) -> None:
        super().__init__(process, call_id, colour, results)
        self.is_left = False
        """The function has returned a generator, of which Ray takes the items."""

    @property
    def is_lazy(self) -> bool:
        """Whether the function has returned a generator, and Ray takes items from it."""
        return self.results not in (None, 1) and inspect.isgenerator(self.result)

    def lazily(self) -> Any:
        """The function's generator; the task lasts until it ends."""
        self.is_left = True
        return self._items()

    def _items(self) -> Any:
        self.is_left = False
        with self:
            return (yield from delegated(self, self.result))

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        ours(hide_ours, error)
        ours(self.leave)
        if not self.is_left:
            ours(self._end, error)

    def _end(self, error: BaseException | None) -> None:
        colour = self.process.worker_tasks.leave(self.call_id, is_error=error is not None)
        if self.is_redder(colour):
            self.send_colour(error, colour)
        if isinstance(error, SystemExit):
            end_process()

    def is_redder(self, colour: int) -> bool:
        """Nothing has to be told once all have recorded what this process has."""
        return super().is_redder(colour) and self.process.ledger.is_ahead


class NoRun(Unwatched):
    """A function that runs unwatched."""

    __slots__ = ()
    is_lazy = False

    def lazily(self) -> Any:
        """Its result, as it is."""
        return self.result

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> None:
        super().__exit__(kind, error, trace)
        if isinstance(error, SystemExit):
            ours(end_process)
