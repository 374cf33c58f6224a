"""Ray's private names about plain tasks: functions and how they are exported, ids, what is over, what a ref stands for.

Their shape is checked by `shape.check`, with that of all others. Imports Ray; nothing of ours.
"""

from __future__ import annotations

import copy
import inspect
import threading
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import ray

from ray_snapshot.instrument.private import importing
from ray_snapshot.limits import LIMITS

with importing():
    from ray._private import worker as ray_worker
    from ray.experimental import internal_kv

_NO_ACTOR = "f" * 24
"""What a plain task's id has in place of an actor's."""

_BEGIN_MORE = b"ray_snapshot plain tasks begin more "


def current_task() -> Any:
    """The id of what this thread does for Ray: the driver's, an actor's call."""
    return ray_worker.global_worker.core_worker.get_current_task_id()


def pending_tasks(parent: Any) -> int:
    """How many plain tasks that `parent` has started have not ended."""
    return len(pending_task_keys(parent))


_MARK = "_ray_snapshot_stamp"
"""The attribute of a remote function that says for which watch it was exported; it travels with the function."""


def module_of(function: Any) -> str:
    """The module of a remote function."""
    return str(getattr(function._function, "__module__", ""))


def name_of(function: Any) -> str:
    """The name of a remote function."""
    return str(getattr(function._function, "__name__", ""))


def function_of(function: Any) -> Any:
    """The app's own function in a remote one."""
    return function._function


def results_of(function: Any) -> Any:
    """The `num_returns` of a remote function, unless a task says another."""
    return function._default_options.get("num_returns")


def is_run_again(function: Any, options: Mapping[str, Any]) -> bool:
    """Whether Ray runs a task again that raises."""
    return bool(options.get("retry_exceptions", function._default_options.get("retry_exceptions")))


def can_be_followed(function: Any) -> bool:
    """Whether a wrapper can be exported in a remote function's place."""
    return inspect.isfunction(function._function) and not function._is_cross_language


def decorator_of(function: Any) -> Any:
    """The app's `__ray_invocation_decorator__` of a remote function; None if it has none."""
    return function._decorator


def undecorated(function: Any) -> Any:
    """A copy of a remote function that has no such decorator, always the same one."""
    if (found := _undecorated.get(function)) is None:
        found = _undecorated[function] = copy.copy(function)
        found._decorator = None
        del found.remote  # it holds the function itself
    return found


_undecorated: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()


def is_exported(function: Any, stamp: str) -> bool:
    """Whether a remote function was exported for this watch, to the cluster that this process is connected to."""
    is_here = function._last_export_cluster_and_job == ray_worker.global_worker.current_cluster_and_job
    return is_here and getattr(function, _MARK, None) == stamp


@contextmanager
def exporting(function: Any, wrapper: Any, stamp: str) -> Iterator[None]:
    """In the block, the first task of a remote function exports `wrapper` in its place, under a new id.

    One that starts itself has come to a worker with the id under which it was being exported, and keeps that.

    Raises `TimeoutError` if another thread is at it, and stays there.
    """
    if not _exporting.acquire(timeout=LIMITS.export_s):
        raise TimeoutError(f"another thread has been exporting a function for {LIMITS.export_s} s")
    own = function._function
    try:
        function._function, function._function_signature = wrapper, None
        function._last_export_cluster_and_job = None
        if getattr(function, _MARK, None) != stamp:
            function._uuid = uuid.uuid4()
        setattr(wrapper, _MARK, stamp)
        yield
        setattr(function, _MARK, stamp)
    finally:
        function._function = own
        _exporting.release()


def as_exported(function: Any, state: dict[str, Any]) -> dict[str, Any]:
    """What is pickled of a remote function, with its own function in place of the wrapper that is being exported."""
    stamp = getattr(function._function, _MARK, None)
    return state if stamp is None else {**state, "_function": function._function.__wrapped__, _MARK: stamp}


_exporting = threading.RLock()


def task_key(refs: Any) -> str | None:
    """Ray's id of the task whose results these are: a ref, a list of refs, or a generator of them."""
    first = refs[0] if isinstance(refs, list) and refs else refs
    if isinstance(first, ray.ObjectRefGenerator):
        first = first._generator_ref
    return str(first.task_id().hex()) if isinstance(first, ray.ObjectRef) else None


# ---- streaming generators --------------------------------------------------------------------------------------------

_FIRST_ITEM = 2
"""The number that Ray gives to the object of a streaming generator's first item; that of its end is one less."""


def stream_of(item: Any) -> tuple[bytes, int] | None:
    """(the task, which of its items) that a ref stands for, or a generator of refs; -1: the end of the task."""
    ref = item._generator_ref if is_stream(item) else item
    if not isinstance(ref, ray.ObjectRef):
        return None
    return ref.binary()[:-4], int.from_bytes(ref.binary()[-4:], "little") - _FIRST_ITEM


def items_taken(refs: Any) -> int | None:
    """How many items were taken from a generator of refs, which must be of this session of Ray's; None if that is over."""
    core = getattr(ray_worker.global_worker, "core_worker", None)
    place = None if core is None else stream_of(core.peek_object_ref_stream(refs._generator_ref)[0])
    return None if place is None else place[1]


def is_stream(refs: Any) -> bool:
    """Whether a call or task has given a generator of refs."""
    return isinstance(refs, ray.ObjectRefGenerator)


def most_unread(options: Mapping[str, Any], function: Any = None, handle: Any = None) -> int | None:
    """So many items a generator may be ahead of who takes them; None: without a bound. 0: by a rule that is not known here.

    `options`: of a task of `function`, or of a call, as Ray's own function for it gets them.
    """
    if function is not None:
        options = {**function._default_options, **options}
        names = "_generator_backpressure_num_objects", "_num_objects_per_yield"
    else:
        names = "generator_backpressure_num_objects", "num_objects_per_yield"
    at_most, at_once = (options.get(name) for name in names)
    if at_once not in (None, 1) or any(_is_bounded(handle, name) for name in _OF_ACTORS):
        return 0
    return None if at_most is None or at_most < 0 else int(at_most)


_OF_ACTORS = ("_ray_actor_generator_backpressure_num_objects", "_ray_actor_generator_backpressure_num_bytes")
"""Bounds for all generators of an actor together, of Ray 2.60 and later."""


def _is_bounded(handle: Any, name: str) -> bool:
    found = getattr(handle, name, None)
    return isinstance(found, int) and found > 0


def task_here() -> str:
    """Ray's id of the task that this thread runs."""
    return str(current_task().hex())


def worker_key() -> str:
    """Ray's id of this process."""
    found = ray_worker.global_worker.core_worker.get_worker_id()
    return str(found.hex())


def living_workers() -> set[str]:
    """The ids of the workers of the cluster that live."""
    return set(ray._private.state.state.workers())


def pending_task_keys(parent: Any) -> set[str]:
    """The ids of the plain tasks that `parent` has started and that are not over."""
    found = ray_worker.global_worker.core_worker.get_pending_children_task_ids(parent)
    return {key for task in found if (key := task.hex()) and task.actor_id().hex().startswith(_NO_ACTOR)}


def is_error(ref: Any) -> bool | None:
    """Whether what this process has of a ref is an error; None if it has nothing, or it lies in the object store.

    Asks the memory of this process only. (`get_if_local` would end the process where the store has nothing.)
    """
    core = ray_worker.global_worker.core_worker
    if not core.object_exists(ref, memory_store_only=True):
        return None
    found = core.get_objects([ref], 0)
    if not found or found[0] is None or found[0].metadata is None:
        return None
    return bool(found[0].metadata.split(b",")[0].isdigit())


def is_own(ref: Any) -> bool:
    """Whether this process owns what a ref stands for: then it ends in no error as long as this process lives."""
    try:
        owner = ref.owner_address()
    except Exception:  # Ray does not know who owns it
        return False
    return ray_worker.global_worker.core_worker.get_worker_id().binary() in owner


def is_in_store(ref: Any) -> bool:
    """Whether the object store of this node has what a ref stands for. Fetches nothing."""
    return bool(ray_worker.global_worker.core_worker.object_exists(ref))


def is_reply(item: Any) -> bool:
    """Whether this is a ref to the reply of an actor's call (or of what one has put into the store)."""
    return isinstance(item, ray.ObjectRef) and not item.task_id().actor_id().hex().startswith(_NO_ACTOR)


def say_tasks_begin_more() -> None:
    """Tell the cluster that plain tasks of this job have started others; known when it returns."""
    internal_kv._internal_kv_put(_BEGIN_MORE + _job().encode(), b"1")


def tasks_begin_more() -> bool:
    """Whether `say_tasks_begin_more` was called by any process of this job."""
    return internal_kv._internal_kv_get(_BEGIN_MORE + _job().encode()) is not None


def _job() -> str:
    return str(ray.get_runtime_context().get_job_id())
