"""Ray's resources: what a task or an actor demands, what this process holds, what the cluster has.

Private names of Ray's: those that tell of resources. Read `protocol.demands` first.
"""

from __future__ import annotations

import gc
import json
import math
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy, PlacementGroupSchedulingStrategy

from ray_snapshot.instrument.connection import CONNECTION
from ray_snapshot.instrument.guard import ours
from ray_snapshot.instrument.private import importing
from ray_snapshot.instrument.process.blocked_threads import calls_from_outside
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import NAMESPACE
from ray_snapshot.protocol.demands import NOTHING, Demand, Held, Owned, Store, Stored, demand

with importing():
    from ray._private import ray_constants
    from ray._private import state as ray_state
    from ray._private import worker as ray_worker
    from ray._private.accelerators import get_all_accelerator_resource_names
    from ray._raylet import GcsClientOptions, GlobalStateAccessor  # type: ignore[attr-defined]
    from ray.core.generated import gcs_pb2
    from ray.experimental import get_local_object_locations, internal_kv

# ---- what is demanded ------------------------------------------------------------------------------------------------

_PLAIN = ("label_selector", "scheduling_strategy", "placement_group", "placement_group_capture_child_tasks")
"""What says more of a task than which resources it needs."""

_WITHOUT_CPU = {"memory", "object_store_memory"}
"""An actor that says no more than this holds no CPU; one that says anything else, if only that it needs none, holds one."""


@lru_cache(1_024)
def _of_cpus(cpus: float) -> Demand:
    return demand({"CPU": cpus})


def demanded(of: Callable[[Mapping[str, Any]], Demand], options: Mapping[str, Any]) -> Demand | None:
    """`of_task` or `of_actor` of these options; None if they say something that is not known here."""
    try:
        return of(options)
    except Exception:  # of a later Ray, or what Ray itself refuses
        return None


def of_task(options: Mapping[str, Any]) -> Demand:
    """What a plain task demands."""
    cpus = options.get("num_cpus")
    needs = {"CPU": 1.0 if cpus is None else float(cpus), **_others(options)}
    if len(needs) == 1 and not any(options.get(name) for name in _PLAIN) and not _is_captured():
        return _of_cpus(needs["CPU"])
    return _placed(needs, options)


def of_actor(options: Mapping[str, Any]) -> Demand:
    """What the constructor of an actor demands, and the actor holds as long as it lives."""
    needs, cpus = _others(options), options.get("num_cpus")
    if cpus is not None:
        needs["CPU"] = float(cpus)
    elif needs.keys() - _WITHOUT_CPU:
        needs["CPU"] = 1.0
    return _placed(needs, options)


def _others(options: Mapping[str, Any]) -> dict[str, float]:
    """What is demanded beside CPU."""
    found = {name: float(amount) for name, amount in (options.get("resources") or {}).items()}
    for option, name in (("num_gpus", "GPU"), ("memory", "memory"), ("object_store_memory", "object_store_memory")):
        if options.get(option) is not None:
            found[name] = float(options[option])
    if options.get("accelerator_type"):
        found[f"accelerator_type:{options['accelerator_type']}"] = 0.001
    return found


def _placed(needs: Mapping[str, float], options: Mapping[str, Any]) -> Demand:
    strategy, labels = options.get("scheduling_strategy"), options.get("label_selector") or {}
    is_soft = bool(options.get("fallback_strategy"))  # then other labels will do, too
    wanted = [] if is_soft else [(str(key), str(value)) for key, value in labels.items()]
    if isinstance(strategy, NodeAffinitySchedulingStrategy):
        leaves = strategy.soft or strategy._spill_on_unavailable or strategy._fail_on_unavailable
        return demand(needs, node=None if leaves else str(strategy.node_id), labels=wanted)
    if isinstance(strategy, PlacementGroupSchedulingStrategy):
        group, bundle = strategy.placement_group, strategy.placement_group_bundle_index
    elif strategy is None:
        given = options.get("placement_group", "default")
        group, bundle = None if given == "default" else given, options.get("placement_group_bundle_index", -1)
        if given == "default" and _is_captured(options.get("placement_group_capture_child_tasks")):
            return demand(needs, ray_worker.global_worker.placement_group_id.hex(), labels=wanted)
    else:
        group, bundle = None, -1
    if group is None or getattr(group, "is_empty", True):
        return demand(needs, labels=wanted) if needs or wanted else NOTHING
    return demand(needs, group.id.hex(), -1 if bundle is None else int(bundle), labels=wanted)


def _is_captured(told: bool | None = None) -> bool:
    """Whether what is started here runs in the placement group of who starts it; `told`: what its options say of that."""
    worker = ray_worker.global_worker
    wanted = worker.should_capture_child_tasks_in_placement_group if told is None else told
    return bool(wanted) and not worker.placement_group_id.is_nil()


# ---- what is held ----------------------------------------------------------------------------------------------------


class _Collections:
    """When the latest full garbage collections that were asked for here began.

    Of others nothing is heard: a callback that is always there would swallow a Ctrl-C that comes while Python is in it.
    """

    def __init__(self) -> None:
        self.began: deque[float] = deque(maxlen=1_000)
        self._begins = 0.0
        self._asked_at = 0.0
        self._thread: int | None = None
        self.may_be_called = True
        """Whether compiled code might call into the app (`calls_from_outside`), as of the latest."""

    def collect(self) -> None:
        """Collect, in a thread of its own, for finalizers may wait."""
        now = time.time()
        if now > self._asked_at + LIMITS.collect_every_s:
            self._asked_at = now
            threading.Thread(target=self._collect, name="ray-snapshot-collection", daemon=True).start()

    def _collect(self) -> None:
        self._thread, self._begins, hear = threading.get_ident(), 0.0, partial(ours, self._hear)
        gc.callbacks.append(hear)
        try:
            CONNECTION.use(gc.collect, collects=True)
        finally:
            gc.callbacks.remove(hear)
        if not self._begins:  # another thread was collecting, so Python did nothing: the next who asks is not too early
            self._asked_at = 0.0
            return
        self.may_be_called = calls_from_outside()

    def _hear(self, phase: str, info: Mapping[str, int]) -> None:
        """Python calls this around each."""
        if info["generation"] < 2 or threading.get_ident() != self._thread:
            return
        if phase == "start":
            self._begins = time.time()
        else:
            self.began.append(self._begins)

    def are_since(self, quiet_since: float) -> bool:
        """Whether one began after that, so long ago that what was dropped in it has ended."""
        latest = time.time() - LIMITS.dropped_actor_s
        return any(quiet_since < began < latest for began in tuple(self.began))


COLLECTIONS = _Collections()


_MADE: dict[str, None] = {}


def made(original: Callable[..., None], group: Any, *args: Any, **kwargs: Any) -> None:
    """In place of `PlacementGroup.__init__`: one is made here, or looked up; those that arrive come without it."""
    original(group, *args, **kwargs)
    if not group.is_empty:
        _MADE[group.id.hex()] = None
        while len(_MADE) > LIMITS.placement_groups:
            del _MADE[next(iter(_MADE))]


_DEVICES = get_all_accelerator_resource_names()
"""What comes in whole devices: a part of one, and a part of another, are not together what a task needs."""


def held(quiet_since: float) -> Held:
    """What this process has of its node: exact, also while it waits. `quiet_since`: since when nothing acts in it."""
    core = getattr(ray_worker.global_worker, "core_worker", None)
    if core is None:  # Ray has been shut down
        return Held()
    found = core.resource_ids()
    amounts = {name: sum(part for _, part in parts) for name, parts in found.items()}
    devices = {name: tuple(parts) for name, parts in found.items() if name in _DEVICES}
    is_clean = COLLECTIONS.are_since(quiet_since)
    return Held(core.get_current_node_id().hex(), amounts, is_clean, frozenset(_MADE), STORES.stored, devices)


# ---- object stores -----------------------------------------------------------------------------------------------------


_TOLD = {
    "capacity": r"^InitialConfigResources: .*\bobject_store_memory: ([\d.e+]+)",
    "free": r"^- num bytes available for pulled objects: (\d+)$",
    "spilled": r"^- num bytes currently spilled: (\d+)$",
    "waiting": r"^num_waiting_for_plasma_memory: (\d+)$",
}
"""Lines of `debug_state.txt`, which the raylet writes every ten seconds: the same from Ray 2.50 to 2.60."""

_ARGUMENTS = re.compile(r"^Total size of pinned lease arguments: (\d+)$", re.MULTILINE)
"""Ray 2.50 does not tell this."""


def store_of(text: str, node: str, told_at: float) -> Store | None:
    """What a raylet's `debug_state.txt` tells of the store; None if it is another node's, not whole, or of another form."""
    found = {name: re.search(line, text, re.MULTILINE) for name, line in _TOLD.items()}
    if f"Node ID: {node}\n" not in text or not all(found.values()):
        return None
    told = {name: int(float(one[1])) for name, one in found.items() if one is not None}
    in_use, arguments = max(0, told["capacity"] - told.pop("free")), _ARGUMENTS.search(text)
    return Store(**told, in_use=in_use, arguments=int(arguments[1]) if arguments else 0, told_at=told_at)


class _Stores:
    """What this process knows of object stores. Asks Ray nothing: the raylet writes a file, refs are counted here."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.clock = clock
        self.stored = Stored()
        self.is_wanted = False
        """Whether a store of another node is short of room: this process may own what is there."""
        self._read_at = 0
        self._again_at = -math.inf

    def look(self) -> None:
        """Read the file if it is new; if a store is short of room, sum what this process owns."""
        try:
            self._look()
        except Exception:  # another Ray, or it is shut down: then there is no hint, or one that names no owners
            self.stored = Stored(self.stored.store)

    def _look(self) -> None:
        core, store = ray_worker.global_worker.core_worker, self.stored.store
        path = Path(ray_worker._global_node.get_logs_dir_path(), "debug_state.txt")
        written_at = path.stat().st_mtime_ns if path.exists() else self._read_at
        if written_at != self._read_at:
            told = store_of(path.read_text(), core.get_current_node_id().hex(), written_at / 1e9)
            if told is not None:  # nodes on one machine may write to one file
                store, self._read_at = told, written_at
        self.stored = replace(self.stored, store=store)
        if not self.is_wanted and (store is None or not store.is_short):
            self.stored = Stored(store)
        elif (began := self.clock()) >= self._again_at:
            self.stored = Stored(store, *owned(core))
            self._again_at = self.clock() + (self.clock() - began) / LIMITS.owned_refs_share


def owned(core: Any) -> tuple[dict[str, Owned], int]:
    """What this process owns, by node, and how many refs were not looked at."""
    keys, own = list(core.get_all_reference_counts()), core.get_worker_id().binary()
    places = get_local_object_locations([_uncounted(key) for key in keys[: LIMITS.looked_at_refs]])
    found: dict[str, Owned] = {}
    for ref, place in places.items():
        if place["node_ids"] and place["object_size"] and _is_of(own, core, ref):
            size, is_spilled = place["object_size"], place["did_spill"]
            one = Owned(0, 0, 1, size) if is_spilled else Owned(1, size)
            for node in place["node_ids"]:
                found[node] = Owned(*map(sum, zip(found.get(node, Owned()), one, strict=True)))
    return found, max(0, len(keys) - LIMITS.looked_at_refs)


def _is_of(worker: bytes, core: Any, ref: Any) -> bool:
    """Whether the process with this id owns an object."""
    try:
        return worker in core.get_owner_address(ref)
    except Exception:  # it is gone: it had no count of ours
        return False


def _uncounted(key: bytes) -> Any:
    """A ref that Ray does not count: a counted one, which ends here, could be the last of an object that others count on."""
    ref: Any = ray.ObjectRef.__new__(ray.ObjectRef)
    ref._set_id(bytes.fromhex(key.decode()))
    return ref


STORES = _Stores()


# ---- what there is ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Node:
    """A node that lives."""

    amounts: Mapping[str, float]
    """All that it has, free or not."""
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Group:
    """A placement group that is not removed."""

    name: str
    bundles: tuple[Mapping[str, float], ...]
    nodes: tuple[str, ...]
    """Of each bundle; "" as long as it has none."""
    strategy: str
    is_created: bool


@dataclass(frozen=True, slots=True)
class LivingActor:
    """An actor of any program that has a part of its node."""

    key: str
    kind: str
    """Its class."""
    name: str
    namespace: str
    job: str
    is_detached: bool
    node: str
    amounts: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Cluster:
    """What Ray's control store tells at one moment."""

    nodes: Mapping[str, Node]
    groups: Mapping[str, Group]
    grows: bool | None
    """Whether an autoscaler may add nodes; None: not known (yet)."""
    actors: tuple[LivingActor, ...] = ()
    other_jobs: tuple[str, ...] = ()
    """Other programs that run."""
    free: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """By node: what Ray would give away."""


def cluster() -> Cluster:
    """Ask the control store."""
    nodes = {row["NodeID"]: _node(row) for row in ray.nodes() if row["Alive"]}
    table = ray.util.placement_group_table()
    groups = {key: _group(row) for key, row in table.items() if row["state"] != "REMOVED"}
    records = _records(ray.get_runtime_context().gcs_address)
    actors = map(gcs_pb2.ActorTableData.FromString, records.get_actor_table(None, "ALIVE"))
    jobs = records.get_job_table(skip_submission_job_info_field=True, skip_is_running_tasks_field=True)
    return Cluster(
        nodes,
        groups,
        _grows(nodes),
        tuple(_actor(row) for row in actors if row.required_resources),
        tuple(row.job_id.hex() for row in map(gcs_pb2.JobTableData.FromString, jobs) if _is_other(row)),
        ray_state.available_resources_per_node(),
    )


@lru_cache(1)
def _records(address: str) -> Any:
    accessor = GlobalStateAccessor(GcsClientOptions.create(address, None, True, False))
    accessor.connect()
    return accessor


def _actor(row: Any) -> LivingActor:
    return LivingActor(
        row.actor_id.hex(),
        row.class_name,
        row.name,
        row.ray_namespace,
        row.job_id.hex(),
        row.is_detached,
        row.address.node_id.hex(),
        dict(row.required_resources),
    )


def _is_other(job: Any) -> bool:
    """Whether it is a program of a user's that runs, and not this one."""
    space = job.config.ray_namespace
    is_ours = job.job_id.hex() == ray.get_runtime_context().get_job_id() or space == NAMESPACE
    return not (job.is_dead or is_ours or space.startswith("_ray_internal"))


def _node(row: Mapping[str, Any]) -> Node:
    return Node({name: float(amount) for name, amount in row["Resources"].items()}, dict(row.get("Labels") or {}))


def _group(row: Mapping[str, Any]) -> Group:
    places = row.get("bundles_to_node_id") or {}
    order = sorted(row["bundles"], key=int)
    return Group(
        str(row["name"]),
        tuple(dict(row["bundles"][index]) for index in order),
        tuple(str(places.get(index) or "") for index in order),
        str(row["strategy"]),
        row["state"] == "CREATED",
    )


def _grows(nodes: Iterable[str]) -> bool | None:
    """A monitor without a configuration names each node's type after the node."""
    if internal_kv._internal_kv_get(b"__autoscaler_v2_enabled") == b"1":
        return _grows_by_sdk(nodes)
    return may_grow(internal_kv._internal_kv_get(AUTOSCALING_STATUS), nodes)


def may_grow(status: bytes | None, nodes: Iterable[str]) -> bool | None:
    """Whether an autoscaler may add nodes, from what its monitor tells (`AUTOSCALING_STATUS`); None: not known (yet)."""
    types = {} if status is None else (json.loads(status).get("autoscaler_report") or {}).get("active_nodes") or {}
    return any(not _is_of_a_node(name, nodes) for name in types) if types else None


AUTOSCALING_STATUS = ray_constants.DEBUG_AUTOSCALING_STATUS.encode()


def _grows_by_sdk(nodes: Iterable[str]) -> bool | None:
    """The same of the newer autoscaler."""
    try:
        from ray.autoscaler.v2.sdk import get_cluster_status

        status = get_cluster_status(ray.get_runtime_context().gcs_address)
    except Exception:  # whatever it raises: it is not known then
        return None
    types = [node.ray_node_type_name for node in (*status.active_nodes, *status.idle_nodes)]
    return any(not _is_of_a_node(name, nodes) for name in types) if types else None


def _is_of_a_node(name: str, nodes: Iterable[str]) -> bool:
    return name.startswith("node_") and name.removeprefix("node_") in nodes


__all__ = [
    "COLLECTIONS",
    "STORES",
    "Cluster",
    "Group",
    "LivingActor",
    "Node",
    "cluster",
    "demanded",
    "held",
    "of_actor",
    "of_task",
]
