"""What plain Ray records of every app: unfinished tasks, actors, groups, nodes, jobs.

Asked of the control store, without a dashboard and without joining the cluster. Private names of Ray's: those that these
records are read with. What they tell, and what not: docs/howto/wrapping.md, "Prepared and not prepared".
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import ray

from ray_snapshot.errors import ClusterError
from ray_snapshot.instrument import cluster_shape
from ray_snapshot.instrument.capacity import AUTOSCALING_STATUS, may_grow
from ray_snapshot.instrument.deaths import in_words, is_meant
from ray_snapshot.instrument.private import importing
from ray_snapshot.limits import LIMITS

with importing():
    from ray._raylet import GcsClientOptions, GlobalStateAccessor  # type: ignore[attr-defined]
    from ray.core.generated import gcs_pb2

WAITS_FOR_ARGUMENTS, WAITS_FOR_NODE = 1, 2
RUNNING = frozenset((8, 9, 10))
IN_QUEUE = frozenset((5, 6, 7))
_ENDED = (11, 12)

KINDS = ("task", "creation", "call", "driver")
ALIVE, DEAD = 2, 4
"""States of actors."""
GROUP_CREATED, GROUP_REMOVED = 2, 3

_NEAR = 0.95
"""From this part of the store's maximum on, records may have been dropped."""

_IN_GROUP = re.compile(r"^(.+)_group_(?:\d+_)?[0-9a-f]{32,}$")
_INTERNAL = "_ray_internal"


@dataclass(frozen=True, slots=True)
class Task:
    """An unfinished task, call, constructor or driver: its latest attempt."""

    key: str
    attempt: int
    job: str
    kind: str
    """One of `KINDS`."""
    name: str
    parent: str
    """The key of the task that has started it."""
    actor: str
    """Whose call or constructor it is."""
    state: int
    """Ray's number; see `RUNNING` and the others above."""
    since_s: float
    """When that state began."""
    needs: Mapping[str, float] = field(default_factory=dict)
    pid: int = 0
    node: str = ""
    group: str = ""

    @property
    def made_in(self) -> str:
        """The actor in which it was started; "" if that was none."""
        return actor_in(self.parent)


@dataclass(frozen=True, slots=True)
class Actor:
    """An actor that is not dead."""

    key: str
    job: str
    kind: str
    """Its class."""
    name: str
    namespace: str
    state: int
    pid: int
    node: str
    holds: Mapping[str, float] = field(default_factory=dict)
    group: str = ""
    began_ms: int = 0
    is_detached: bool = False
    restarts: int = 0
    changed_ms: int = 0
    """When its state has changed last."""


@dataclass(frozen=True, slots=True)
class Dead:
    """An actor that has died."""

    key: str
    job: str
    kind: str
    name: str
    began_ms: int
    ended_ms: int
    cause: str
    """In words; "" if it was not read."""
    is_meant: bool


@dataclass(frozen=True, slots=True)
class Job:
    """A program."""

    key: str
    is_dead: bool
    pid: int
    node: str
    entrypoint: str
    namespace: str

    @property
    def driver(self) -> str:
        """The key of the driver among the tasks."""
        return driver_of(self.key)

    @property
    def is_internal(self) -> bool:
        """Whether it is one of Ray's own."""
        return self.namespace.startswith(_INTERNAL)


@dataclass(frozen=True, slots=True)
class Group:
    """A placement group that is not removed."""

    key: str
    name: str
    job: str
    made_in: str
    """The actor that has made it; "" if that was none."""
    is_created: bool
    bundles: tuple[tuple[Mapping[str, float], str], ...]
    """Amounts and node of each; "" as long as it has none."""


@dataclass(frozen=True, slots=True)
class Node:
    """A node that lives."""

    key: str
    address: str
    has: Mapping[str, float]
    is_here: bool = True
    """Whether it runs on this machine."""


@dataclass(frozen=True, slots=True)
class Look:
    """What Ray told at one moment."""

    at_s: float
    tasks: Mapping[str, Task]
    actors: Mapping[str, Actor]
    jobs: Mapping[str, Job]
    groups: Mapping[str, Group]
    nodes: Mapping[str, Node]
    recorded: frozenset[str] = frozenset()
    """Actors and jobs of which there is any record of a task, also of one that has ended."""
    count: int = 0
    """Records in all."""
    maximum: int = 0
    """So many the control store keeps; 0: not known."""
    grows: bool | None = False
    """Whether an autoscaler may add nodes; None: not known."""
    dead: Mapping[str, Dead] = field(default_factory=dict)
    exits: Mapping[int, str] = field(default_factory=dict)
    """By process that has ended: why, in words; asked for if an actor is started again and again."""

    @property
    def may_be_incomplete(self) -> bool:
        """Whether the control store may have dropped records."""
        return 0 < self.maximum * _NEAR <= self.count


def driver_of(job: str) -> str:
    """The key of a job's driver among the tasks."""
    return "f" * 40 + job


def actor_in(task: str) -> str:
    """The actor that a task's key names; "" if it is a plain task's or a driver's."""
    actor = task[16:]
    return "" if actor.startswith("f" * 24) else actor


def without_group(needs: Mapping[str, float]) -> dict[str, float]:
    """The amounts under their plain names: inside a group Ray gives them others."""
    found: dict[str, float] = {}
    for name, amount in needs.items():
        inside = _IN_GROUP.match(name)
        plain = inside[1] if inside else name
        if plain != "bundle":
            found[plain] = max(amount, found.get(plain, 0.0))
    return found


# ---- asking ------------------------------------------------------------------------------------------------------------


class Records:
    """A connection to a cluster's records; a token must be shown already (`clusters.authorized`)."""

    def __init__(self, address: str, store: Any) -> None:
        self._store = store
        self._accessor = GlobalStateAccessor(GcsClientOptions.create(address, None, True, False))
        if not self._accessor.connect():
            raise ClusterError(f"the Ray cluster at {address} does not tell its records")
        self._here = cluster_shape.nodes_here()
        self._known: dict[bytes, Task] = {}

    def look(self) -> Look:
        """Ask for everything now."""
        tasks, recorded, count = unfinished(self._accessor.get_task_events(), self._known)
        nodes = {
            str(row["NodeID"]): Node(
                str(row["NodeID"]),
                str(row["NodeManagerAddress"]),
                {name: float(amount) for name, amount in row["Resources"].items()},
                str(row["NodeID"]) in self._here,
            )
            for row in self._accessor.get_node_table()
            if row["Alive"]
        }
        rows = [*map(gcs_pb2.ActorTableData.FromString, self._accessor.get_actor_table(None, None))]
        living = actors(rows)
        return Look(
            time.time(),
            tasks,
            living,
            jobs(self._accessor.get_job_table(skip_submission_job_info_field=True, skip_is_running_tasks_field=True)),
            groups(self._accessor.get_placement_group_table()),
            nodes,
            recorded,
            count,
            self._maximum(),
            self._grows(nodes),
            dead(rows),
            self._exits() if any(one.restarts >= LIMITS.looping_restarts for one in living.values()) else {},
        )

    def _exits(self) -> dict[int, str]:
        rows = map(gcs_pb2.WorkerTableData.FromString, self._accessor.get_worker_table())
        return {row.pid: in_words(row.exit_detail) for row in rows if not row.is_alive}

    def _maximum(self) -> int:
        try:
            told = json.loads(self._accessor.get_system_config()).get("task_events_max_num_task_in_gcs")
            return int(told or ray._config.task_events_max_num_task_in_gcs())
        except (AttributeError, TypeError, ValueError):
            return 0

    def _grows(self, nodes: Iterable[str]) -> bool | None:
        if self._store.internal_kv_get(b"__autoscaler_v2_enabled", None, LIMITS.autoscaler_answer_s) == b"1":
            return None
        return may_grow(self._store.internal_kv_get(AUTOSCALING_STATUS, None, LIMITS.autoscaler_answer_s), nodes)


def unfinished(
    events: Iterable[bytes], known: dict[bytes, Task] | None = None
) -> tuple[dict[str, Task], frozenset[str], int]:
    """The unfinished tasks by key, the actors and jobs of which there is any record, and how many records there are.

    `known`: what was parsed before; gets what is parsed now. A record that is the same is not parsed again.
    """
    known = {} if known is None else known
    parse = gcs_pb2.TaskEvents.FromString
    found: dict[str, Task] = {}
    ended: dict[str, int] = {}
    recorded: set[bytes] = set()
    count = 0
    for event in events:
        count += 1
        same = known.get(event)
        if same is not None:
            recorded |= {bytes.fromhex(same.actor), bytes.fromhex(same.job)}
            if same.key not in found or found[same.key].attempt < same.attempt:
                found[same.key] = same
            continue
        one = parse(event)
        recorded.add(one.task_info.actor_id)
        recorded.add(one.job_id)
        times = one.state_updates.state_ts_ns
        key = one.task_id.hex()
        if any(state in times for state in _ENDED):
            ended[key] = max(one.attempt_number, ended.get(key, -1))
        elif times and (key not in found or found[key].attempt < one.attempt_number):
            found[key] = known[event] = _task(one, key)
    alive = {key: task for key, task in found.items() if task.attempt > ended.get(key, -1)}
    return alive, frozenset(one.hex() for one in recorded if one), count


def _task(event: Any, key: str) -> Task:
    info, now = event.task_info, event.state_updates
    since_ns, state = max((moment, state) for state, moment in now.state_ts_ns.items())
    return Task(
        key,
        event.attempt_number,
        event.job_id.hex(),
        KINDS[info.type] if info.type < len(KINDS) else "task",
        info.name or info.func_or_class_name,
        info.parent_task_id.hex(),
        info.actor_id.hex(),
        state,
        since_ns / 1e9,
        without_group(info.required_resources),
        now.worker_pid,
        now.node_id.hex(),
        info.placement_group_id.hex(),
    )


def actors(rows: Iterable[Any]) -> dict[str, Actor]:
    """The actors that are not dead, by key."""
    found: dict[str, Actor] = {}
    for row in rows:
        if row.state != DEAD:
            key = row.actor_id.hex()
            node = row.address.node_id.hex()
            group = row.placement_group_id.hex()
            found[key] = Actor(
                key,
                row.job_id.hex(),
                row.class_name,
                row.name,
                row.ray_namespace,
                row.state,
                row.pid,
                "" if node.startswith("f" * 16) else node,
                without_group(row.required_resources),
                "" if group.startswith("f" * 16) else group,
                row.start_time,
                row.is_detached,
                row.num_restarts,
                row.timestamp,
            )
    return found


def dead(rows: Iterable[Any]) -> dict[str, Dead]:
    """The actors that have died, the latest first, by key."""
    found: dict[str, Dead] = {}
    for row in sorted((one for one in rows if one.state == DEAD), key=lambda one: -one.end_time):
        cause, key = str(row.death_cause) if len(found) < LIMITS.read_lives else "", row.actor_id.hex()
        about = row.job_id.hex(), row.class_name, row.name, row.start_time, row.end_time
        found[key] = Dead(key, *about, in_words(cause) if cause else "", is_meant(cause))
    return found


def jobs(rows: Iterable[bytes]) -> dict[str, Job]:
    """The programs, also those that have ended, by key."""
    return {
        row.job_id.hex(): Job(
            row.job_id.hex(),
            row.is_dead,
            row.driver_pid,
            row.driver_address.node_id.hex(),
            row.entrypoint,
            row.config.ray_namespace,
        )
        for row in map(gcs_pb2.JobTableData.FromString, rows)
    }


def groups(rows: Iterable[bytes]) -> dict[str, Group]:
    """The placement groups that are not removed, by key."""
    found: dict[str, Group] = {}
    for row in map(gcs_pb2.PlacementGroupTableData.FromString, rows):
        if row.state != GROUP_REMOVED:
            key, maker = row.placement_group_id.hex(), row.creator_actor_id.hex()
            found[key] = Group(
                key,
                row.name,
                row.creator_job_id.hex(),
                "" if maker.startswith("f" * 24) else maker,
                row.state == GROUP_CREATED,
                tuple((dict(one.unit_resources), one.node_id.hex()) for one in row.bundles),
            )
    return found
