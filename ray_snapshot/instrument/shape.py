"""What of Ray's is replaced, and how its actors are read; the shape of all is checked before anything is replaced.

Two funnels carry every actor call and every actor creation (`ActorHandle._actor_method_call`, `ActorClass._remote`), and one
makes every actor class (`ray.actor._modify_class`). Imports Ray; nothing of ours but errors.
"""

from __future__ import annotations

import asyncio
import base64
import functools
import heapq
import inspect
import pickle
import sys
import threading
import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from types import FrameType, SimpleNamespace
from typing import Any

import ray
import ray.actor
from ray.exceptions import RayError

from ray_snapshot import redaction
from ray_snapshot.instrument import cluster_shape
from ray_snapshot.instrument.deaths import Life, is_meant, lives_of
from ray_snapshot.instrument.frames import hide_ours
from ray_snapshot.instrument.guard import ours as guarded
from ray_snapshot.instrument.guard import replaced
from ray_snapshot.instrument.private import importing, unsupported
from ray_snapshot.limits import LIMITS
from ray_snapshot.runtime.here import BEHIND

with importing():
    from ray._common import signature
    from ray._private import ray_constants, serialization
    from ray._private import worker as ray_worker
    from ray._private.auto_init_hook import auto_init_ray
    from ray._private.function_manager import FunctionActorManager
    from ray._private.serialization import SerializationContext
    from ray.core.generated import gcs_pb2
    from ray.remote_function import RemoteFunction
    from ray.util.placement_group import PlacementGroup

EXIT = "raise_sys_exit_with_custom_error_message"
"""What raises `SystemExit` for Ray; the module that handles signals has imported it."""

_PLACES: dict[str, tuple[Any, str, str]] = {
    "call": (ray.actor.ActorHandle, "_actor_method_call", "self method_name args kwargs"),
    "create": (ray.actor.ActorClass, "_remote", "self args kwargs"),
    "arrive": (ray.actor.ActorHandle, "__init__", "self actor_id"),
    "environment": (ray.remote_function, "get_runtime_env_info", "runtime_env is_job_runtime_env serialize"),
    "task": (RemoteFunction, "_remote", "self args kwargs"),
    "state": (RemoteFunction, "__getstate__", "self"),
    "modify": (ray.actor, "_modify_class", "cls"),
    "execution": (FunctionActorManager, "_make_actor_method_executor", "self method_name method"),
    "unhandled": (ray_worker, "_unhandled_error_handler", "e"),
    "pickled_handle": (ray.actor.ActorHandle, "_serialization_helper", "self"),
    "pickled_ref": (SerializationContext, "add_contained_object_ref", "self object_ref"),
    "packed": (SerializationContext, "_serialize_to_msgpack", "self value"),
    "is_async": (ray.actor, "has_async_methods", "cls"),
    "arrived": (serialization, "_object_ref_deserializer", "binary call_site"),
    "flatten_args": (signature, "flatten_args", "signature_parameters args kwargs"),
    "validate_args": (signature, "validate_args", "signature_parameters args kwargs"),
    "recover_args": (signature, "recover_args", "flattened_args"),
    "group_made": (PlacementGroup, "__init__", "self id"),
    "group_ready": (PlacementGroup, "ready", "self"),
    "named_actors": (ray.util, "list_named_actors", "all_namespaces"),
    "actor_ends": (ray._raylet, "_call_actor_shutdown", ""),
    "worker_exits": (ray._raylet, EXIT, "ray_terminate_msg exit_code"),
    "program_exits": (ray_worker, EXIT, "ray_terminate_msg exit_code"),
    "errors": (RayError, "from_bytes", "b"),
    "actors": (ray._private.state, "actors", "actor_id job_id actor_state_name"),
    "thread_caller": (threading, "_make_invoke_excepthook", ""),
}
"""What is replaced, or called: where it is, and the parameters that it must have."""

_PUBLIC = {
    "get": "object_refs timeout",
    "wait": "ray_waitables num_returns timeout",
    "get_actor": "name namespace",
    "kill": "actor no_restart",
    "init": "address runtime_env",
}
"""Functions that Ray promises, which keep what they call in a cell, and its parameters."""

_READ: tuple[tuple[str, Any, tuple[str, ...]], ...] = (
    ("ray.ObjectRef", ray.ObjectRef, ("call_site", "owner_address", "task_id", "tensor_transport")),
    (
        "ray._raylet.CoreWorker",
        ray._raylet.CoreWorker,
        (
            "get_all_reference_counts",
            "get_current_node_id",
            "get_current_task_id",
            "get_pending_children_task_ids",
            "peek_object_ref_stream",
            "resource_ids",
        ),
    ),
    ("ray._common.signature", signature, ("DUMMY_TYPE",)),
    ("SerializationContext", SerializationContext, ("is_in_band_serialization",)),
    ("ray._raylet", ray._raylet, ("concurrent",)),
    ("ray._private.worker.Worker", ray_worker.Worker, ("main_loop",)),
    *cluster_shape.READ,
)
"""Names of what is compiled, or only read, so that nothing tells its parameters."""


COMPILED_GRAPHS = "ray.dag.compiled_dag_node"
"""The module whose functions call an actor's methods themselves."""


_replaced: dict[str, tuple[Any, str, Any]] = {}
"""By what it does: (owner, attribute, Ray's own function)."""


def check() -> None:
    """Raise `UnsupportedRayError` if a name that is replaced, or read, has not the shape that we rely on."""
    if "call" in _replaced:
        return
    missing = [f"{owner}.{name}" for owner, found, names in _READ for name in names if not hasattr(found, name)]
    if missing:
        raise unsupported(f"there is no {', '.join(missing)}")
    places = [
        (f"{one.__name__}.{name}", functools.partial(getattr, one, name), text) for one, name, text in _PLACES.values()
    ]
    places += [(f"ray._private.worker.{name}", functools.partial(_own, name), text) for name, text in _PUBLIC.items()]
    for name, find, parameters in places:
        try:
            found = tuple(inspect.signature(find()).parameters)
        except (AttributeError, TypeError, ValueError):
            found = ()
        if any(item not in found for item in parameters.split()):
            expected = ", ".join(parameters.split())
            raise unsupported(f"{name} has not the parameters {expected} (it has: {', '.join(found) or 'none'})")


def replace(**ours: Callable[..., Any]) -> None:
    """Put these in place of Ray's functions, by their names in `_PLACES`, or of `ray.get`, `ray.init` and the like; each gets
    the original as its first argument."""
    for name, replacement in ours.items():
        if name in _PLACES:
            _replace(name, *_PLACES[name][:2], replacement)
        elif name not in _replaced:
            own = _own(name)
            _put(name, _inside(name), "cell_contents", _dressed(_with(replacement, own), own), own)


def replace_made(**makers: Callable[..., Any]) -> None:
    """Put what these return in place of Ray's functions, by their names in `_PLACES`; each gets the original.

    Every call of the app goes through what takes the place of `call`.
    """
    for name, make in makers.items():
        owner, attribute, _ = _PLACES[name]
        if name not in _replaced:
            own = getattr(owner, attribute)
            _put(name, owner, attribute, _dressed(make(own), own), own)


def replace_recovery(recovering: Callable[..., Any]) -> None:
    """Put what this returns in place of what takes a call's list of arguments apart where it runs; it gets the original, and
    what stands there before each positional argument."""
    replace_made(recover_args=lambda own: recovering(own, signature.DUMMY_TYPE))


RECOVERY = "recover_args"
"""What `restore` is to keep where calls may be on their way."""


def replace_errors(read: Callable[..., Any]) -> None:
    """Put this in place of what unpickles the error of a call where it is read; it gets the original as its first argument."""
    own = RayError.from_bytes
    _put("errors", RayError, "from_bytes", staticmethod(_dressed(_with(read, own), own)), staticmethod(own))


def replace_wrapping(future_of: Callable[..., Any]) -> None:
    """Put this in place of what makes futures of refs; it gets the original first."""
    own = asyncio.wrap_future
    _replace("wrap_future", asyncio, "wrap_future", future_of)
    _put("futures.wrap_future", asyncio.futures, "wrap_future", asyncio.wrap_future, own)


def replace_loop_errors(handled: Callable[..., Any]) -> None:
    """Put this in place of what event loops call with an error that nothing has read; it gets the original first."""
    for loop in (asyncio.BaseEventLoop, getattr(sys.modules.get("uvloop"), "Loop", None)):
        if loop is not None:
            _replace(f"errors of {loop.__module__}", loop, "call_exception_handler", handled)


def replace_futures(made: Callable[..., Any]) -> None:
    """Put this in place of the class of which `ref.future()` makes its futures; it gets the original first."""
    own = ray._raylet.concurrent

    class Futures:
        """`concurrent.futures` as the module that makes them sees it."""

        Future = staticmethod(functools.partial(replaced, made, own.futures.Future))

        def __getattr__(self, name: str) -> Any:
            return getattr(own.futures, name)

    _put("futures", ray._raylet, "concurrent", SimpleNamespace(futures=Futures()), own)


def replace_environments(told: Callable[..., Any] | None) -> None:
    """Put this in place of what tells Ray the runtime environment of a task or an actor (None: Ray's own); it gets the
    original first."""
    for module in (ray.remote_function, ray.actor):
        name = f"environment in {module.__name__}"
        if told is not None:
            _replace(name, module, "get_runtime_env_info", told)
        elif name in _replaced:
            _, attribute, own = _replaced.pop(name)
            setattr(module, attribute, own)


def key_of_hook(program: str) -> str:
    """What a worker's variable says where the setup hook of this program is in the cluster's store."""
    return "ray_runtime_env_func::" + base64.b64encode(f"FunctionsToRun:ray-snapshot:{program}".encode()).decode()


def put_hook(variable: str, pickled: bytes) -> None:
    """Put a setup hook there, as Ray puts one that is a function."""
    worker, key = ray_worker.global_worker, base64.b64decode(variable.partition("::")[2])
    entry = {"job_id": worker.current_job_id.binary(), "function_id": b"", "function": pickled}
    worker.gcs_client.internal_kv_put(
        key, pickle.dumps(entry), True, ray_constants.KV_NAMESPACE_FUNCTION_TABLE, timeout=LIMITS.cluster_store_s
    )


def is_replaced() -> bool:
    """Whether Ray's functions are replaced in this process."""
    return "call" in _replaced


def restore(keep: tuple[str, ...] = ()) -> None:
    """Put Ray's own functions back, but for those to `keep`."""
    for name in [name for name in _replaced if name not in keep]:
        owner, attribute, own = _replaced.pop(name)
        BEHIND.pop(name, None)
        setattr(owner, attribute, own)


def send_plainly() -> None:
    """Have Ray Client send each actor's class without our mark: at the other end nothing of ours may be installed."""
    try:
        from ray.util.client.worker import Worker
    except ImportError:  # Ray says itself what it lacks, when it is to connect
        return

    def convert(own: Callable[..., Any], worker: Any, actor: Any) -> Any:
        unmark(actor.__ray_metadata__.modified_class)
        return own(worker, actor)

    _replace("convert", Worker, "_convert_actor", convert)


def as_ray_makes_it(cls: type) -> type:
    """What Ray makes of a class of the app's."""
    own = _replaced["modify"][2] if "modify" in _replaced else ray.actor._modify_class
    return own(cls)  # type: ignore[no-any-return]


def original(name: str) -> Callable[..., Any]:
    """Ray's own `get` or `wait`, replaced or not."""
    if name in _replaced:
        found: Callable[..., Any] = _replaced[name][2]
        return found
    return _own(name)  # type: ignore[no-any-return]


def _own(name: str) -> Any:
    """What a function that Ray promises calls in the end: the function itself stays the one that modules have imported."""
    return _inside(name).cell_contents


def _inside(name: str) -> Any:
    """The cell in which Ray's decorator of public functions keeps the function itself."""
    found = getattr(ray_worker, name)
    return found.__closure__[found.__code__.co_freevars.index("func")]


def _replace(name: str, owner: Any, attribute: str, ours: Callable[..., Any]) -> None:
    own = getattr(owner, attribute)
    _put(name, owner, attribute, _dressed(_with(ours, own), own), own)


def _with(ours: Callable[..., Any], own: Callable[..., Any]) -> Callable[..., Any]:
    def replacement(*args: Any, **kwargs: Any) -> Any:
        try:
            return replaced(ours, own, *args, **kwargs)
        except BaseException as error:
            guarded(hide_ours, error)  # this frame, which the error is about to leave
            raise

    return replacement


def _put(name: str, owner: Any, attribute: str, replacement: Any, own: Any) -> None:
    if name not in _replaced:
        _replaced[name] = owner, attribute, own
        BEHIND[name] = own
        setattr(owner, attribute, replacement)


def _dressed(replacement: Any, own: Any) -> Any:
    """A replacement that looks like Ray's own function: name, module, text, signature, and what that function wraps."""
    functools.update_wrapper(replacement, own)
    del replacement.__wrapped__
    vars(replacement).update(vars(own))
    if not hasattr(own, "__wrapped__"):
        replacement.__signature__ = inspect.signature(own)
    return replacement


# ---- handles and classes ---------------------------------------------------------------------------------------------


def actor_key(handle: Any) -> str:
    """The id of a handle's actor, as text."""
    return str(handle._ray_actor_id.hex())


def class_name_of(handle: Any) -> str:
    """The class of a handle's actor."""
    return str(handle._ray_actor_creation_function_descriptor.class_name).rpartition(".")[2]


_MARKED = "__ray_ready__"
_BRINGS = "__ray_snapshot__"


def mark(cls: type, keyword: str, brings: Any) -> type:
    """`cls`, which Ray has made, marked: its actors take this keyword in all calls. `brings`: what is to come with the class.

    A method of Ray's own has the keyword in its signature, and so has every handle; nothing is set on the app's own class.
    """
    ready = inspect.unwrap(getattr(cls, _MARKED))
    hidden = inspect.Parameter(keyword, inspect.Parameter.KEYWORD_ONLY, default=None)
    itself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    ready.__signature__ = inspect.Signature([itself, hidden])
    setattr(ready, _BRINGS, brings)
    return cls


def unmark(cls: type) -> type:
    """`cls` without that mark."""
    ready = getattr(cls, _MARKED)
    while ready is not None:  # Ray's tracing has wrapped it
        for name in (_BRINGS, "__signature__"):
            vars(ready).pop(name, None)
        ready = getattr(ready, "__wrapped__", None)
    return cls


def takes_keyword(handle: Any, keyword: str) -> bool:
    """Whether the class of a handle's actor was marked with this keyword."""
    return _is_marked(handle._ray_method_signatures, keyword)


def _is_marked(signatures: Mapping[str, Sequence[inspect.Parameter]], keyword: str) -> bool:
    return any(item.name == keyword for item in signatures.get(_MARKED, ()))


def is_retried(handle: Any, max_task_retries: int | None) -> bool:
    """Whether Ray runs a call again when its actor dies."""
    found = handle._ray_max_task_retries if max_task_retries is None else max_task_retries
    return bool(found)


def call_again(handle: Any, method: str, args: Any, kwargs: Any, options: Mapping[str, Any]) -> None:
    """Make a call as the app made it."""
    handle._actor_method_call(method, args, kwargs, **options)


def ids_in_use() -> set[bytes]:
    """The ids of the results that this process has refs to."""
    counts = ray_worker.global_worker.core_worker.get_all_reference_counts()
    return {bytes.fromhex(key.decode()) for key, count in counts.items() if count["local"]}


def constructor_takes(actor_class: Any, keyword: str) -> bool:
    """Whether an actor's class was marked with this keyword."""
    meta = actor_class.__ray_metadata__
    return not meta.is_cross_language and _is_marked(meta.method_meta.signatures, keyword)


def options_of(actor_class: Any, options: dict[str, Any]) -> dict[str, Any]:
    """What the machine is told of how it was made: its bounds and its name."""
    meta = actor_class.__ray_metadata__
    on_loop = is_async(meta.modified_class)
    redaction.know(meta.modified_class)
    bound = options.get("max_concurrency") or (1_000 if on_loop else 1)
    groups = {name: int(count) for name, count in (meta.concurrency_groups or {}).items()}
    return {
        "max_concurrency": int(bound),
        "groups": groups,
        "group_of": dict(meta.method_meta.concurrency_group_for_methods),
        "name": options.get("name"),
        "is_private": _is_private(options),
        "is_detached": options.get("lifetime") == "detached",
        "kind": meta.modified_class.__name__,
        "is_async": on_loop,
        "in_order": not (on_loop or groups or bound > 1 or options.get("allow_out_of_order_execution")),
        "endless": _endless(meta.method_meta, options.get("max_task_retries")),
        "is_retried": bool(options.get("max_restarts")),
        "max_restarts": int(options.get("max_restarts") or 0),
        "redacted": redaction.names(),
    }


def _endless(methods: Any, max_task_retries: int | None) -> str | None:
    """A method that Ray repeats without end as long as it raises (whatever it raises)."""
    found = [name for name, retried in methods.retry_exceptions.items() if retried is True]
    return next((name for name in found if methods.max_task_retries.get(name, max_task_retries) == -1), None)


def _is_private(options: dict[str, Any]) -> bool:
    """Whether no other program can look an actor up by its name: the namespace is one that Ray has made for this job."""
    try:
        uuid.UUID(ray.get_runtime_context().namespace)
    except ValueError:
        return False
    return options.get("namespace") is None and options.get("lifetime") != "detached"


def is_async(cls: type) -> bool:
    """Whether Ray runs an actor of this class on an event loop."""
    return bool(ray.actor.has_async_methods(cls))


def connect() -> None:
    """Connect to a cluster as Ray's first call would."""
    auto_init_ray()


def is_connected() -> bool:
    """Whether this process is connected to a cluster."""
    return bool(ray.is_initialized())


def own_address() -> str:
    """The address of the cluster that this process is connected to."""
    return str(ray.get_runtime_context().gcs_address)


def is_driver() -> bool:
    """Whether this process is a driver (and not a worker)."""
    return bool(ray_worker.global_worker.mode == ray_worker.SCRIPT_MODE)


def is_worker() -> bool:
    """Whether this process is a worker."""
    return bool(ray_worker.global_worker.mode == ray_worker.WORKER_MODE)


def current_actor_key() -> str | None:
    """The id of the actor that this process is; None in drivers and in plain tasks."""
    found = ray_worker.global_worker.actor_id
    return None if found is None or found.is_nil() else str(found.hex())


def own_handle() -> Any:
    """A handle of the actor that this process is, which does not keep it alive; None in drivers and in plain tasks."""
    return None if current_actor_key() is None else ray.get_runtime_context().current_actor


def rays_threads() -> frozenset[Any]:
    """Threads that Ray has started from Python: one hands out the items of asynchronous generators, and never ends."""
    find = getattr(getattr(ray_worker.global_worker, "core_worker", None), "get_event_loop_executor", None)
    return frozenset() if find is None else frozenset(find()._threads)


def processes_of_node() -> frozenset[int]:
    """Those of Ray's own that this process has started: of the driver that has begun a cluster."""
    node = ray_worker._global_node
    started = () if node is None else node.all_processes.values()
    return frozenset(one.process.pid for those in started for one in those)


def is_rays_loop(frame: FrameType) -> bool:
    """Whether a thread's innermost frame is Ray's loop for calls: then it runs nothing in Python, the app's or Ray's."""
    return frame.f_code is ray_worker.Worker.main_loop.__code__


def own_name() -> str | None:
    """The name by which the actor that this process is can be looked up."""
    return ray.get_runtime_context().get_actor_name() or None


# ---- what is pickled ---------------------------------------------------------------------------------------------------


def is_pickling_a_message() -> bool:
    """Whether what this thread pickles goes into an argument, a reply or the store, and not out of Ray."""
    if ray_worker.global_worker.get_serialization_context().is_in_band_serialization():
        return True
    frame: FrameType | None = sys._getframe()  # a handle by itself is packed without being in band
    while frame is not None and frame.f_globals.get("__name__", "").startswith("ray_snapshot."):
        frame = frame.f_back
    return frame is not None and frame.f_code is SerializationContext._serialize_to_msgpack.__code__


def run_as_call(work: Callable[..., Any], *args: Any) -> None:
    """Have `work(the actor's object, *args)` run in this process where the actor's calls run: on its thread, or its loop."""
    own_handle().__ray_call__.remote(work, *args)


def actor_state(key: str) -> tuple[str | None, int]:
    """(`ALIVE`, `RESTARTING`, `DEAD`, ..., how often it was started again) as the cluster knows; None for a stranger."""
    found = ray._private.state.actors(key)
    return (None, 0) if not found else (str(found.get("State")), int(found.get("NumRestarts") or 0))


def names_of_actors() -> set[str]:
    """The names of the cluster's actors that live or are to."""
    return {str(one["name"]) for one in ray.util.list_named_actors(all_namespaces=True)}


def has_crashed(key: str) -> bool:
    """Whether an actor that is dead was meant to live, and Ray does not start it again.

    Not if it was killed by `ray.kill`, has left by itself, or nothing held a handle of it: Ray says so only in words.
    """
    return not is_meant(str(ray._private.state.actors(key).get("DeathCause") or ""))


def actors_of_job() -> tuple[dict[str, str], dict[str, Life]]:
    """The actors of this job that live or are to, ours among them: class names by id; and those of all that have died last, or
    were started again last, at most `read_lives` of each."""
    job = ray.get_runtime_context().get_job_id()
    found = {row["ActorID"]: row for row in ray._private.state.actors(job_id=ray.JobID.from_hex(job)).values()}
    living = {key: row["ActorClassName"] for key, row in found.items() if row["State"] != "DEAD"}
    dead = heapq.nlargest(LIMITS.read_lives, found.keys() - living.keys(), key=lambda key: found[key]["EndTime"] or 0)
    again = [key for key in living if found[key].get("NumRestarts")]
    again = heapq.nlargest(LIMITS.read_lives, again, key=lambda key: found[key]["Timestamp"] or 0)
    return living, lives_of({key: found[key] for key in (*dead, *again)})


def exit_details(pids: Collection[int]) -> dict[int, str]:
    """By process id: what Ray records of the end of a worker."""
    accessor = ray._private.state.state._connect_and_get_accessor()
    rows = map(gcs_pb2.WorkerTableData.FromString, accessor.get_worker_table())
    return {row.pid: row.exit_detail for row in rows if row.pid in pids and not row.is_alive}


def ended_actors_of_job() -> set[str]:
    """The ids of the actors of this job that are dead, those too that never began."""
    job = ray.get_runtime_context().get_job_id()
    found = ray._private.state.actors(job_id=ray.JobID.from_hex(job), actor_state_name="DEAD")
    return {row["ActorID"] for row in found.values()}
