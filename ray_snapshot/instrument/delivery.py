"""Our package on its way to the workers of an app, and the proof that it has arrived on every node.

The setup hook of the runtime environment is sent by value and holds the sources that a worker needs: a node on which we are
not installed, or in another version, takes them from there. Where there is no hook (`rs.watch` alone) the package must be
installed. Either way each node but the driver's own is asked once, by a task pinned to it.
"""

from __future__ import annotations

import asyncio
import json
import os
import uuid
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ray_snapshot import __version__
from ray_snapshot.errors import NodeNotReadyError
from ray_snapshot.instrument import arriving, shape
from ray_snapshot.limits import LIMITS
from ray_snapshot.runtime.faults import first_line

HOOK = "worker_process_setup_hook"
"""The field of a runtime environment."""

JOB = "RAY_JOB_CONFIG_JSON_ENV_VAR"
"""The variable in which `ray job submit` hands its runtime environment to the program's `ray.init`."""

_SENT = ("detectors", "instrument", "parts", "plain", "protocol", "runtime", "views")
"""What workers import of us: these packages, without the command line and the history."""


KEY = shape.key_of_hook(uuid.uuid4().hex)
"""Where a cluster has the hook of this program, by value: another program's may have another hook behind it."""


def hook(own: Callable[[], Any] | str | None, key: str | None = None) -> Callable[[], None]:
    """The setup hook that brings our package, and calls the app's own hook; `key`: as of `arriving.hook_with`."""
    cloudpickle.register_pickle_by_value(arriving)
    return arriving.hook_with(__version__, sources(), own, key)


@contextmanager
def hook_of_the_job(given: dict[str, Any] | None) -> Iterator[Callable[[], Any] | str | None]:
    """The setup hook of the app: that of its `ray.init`, or of the submitted job that it runs in.

    Meanwhile the job's is out of Ray's sight: with ours in `ray.init` it would find two, and refuse.
    """
    own = (given or {}).get(HOOK)
    before = os.environ.get(JOB)
    job = json.loads(before) if before and own is None else {}
    found = (job.get("runtime_env") or {}).pop(HOOK, None)
    if found is None or before is None:
        yield own
        return
    os.environ[JOB] = json.dumps(job)
    try:
        yield str(found)
    finally:
        os.environ[JOB] = before


@contextmanager
def inherited_hook() -> Iterator[None]:
    """A cluster that is started meanwhile has our hook in the environment of its workers: those that Ray starts beforehand
    have it too, and none needs a runtime environment, which makes each start of one longer."""
    before = os.environ.get(arriving.HOOK_VARIABLE)
    os.environ[arriving.HOOK_VARIABLE] = f"{arriving.__name__}.{arriving.inherited.__name__}"
    os.environ[arriving.KEY_VARIABLE] = KEY
    try:
        yield
    finally:
        del os.environ[arriving.HOOK_VARIABLE], os.environ[arriving.KEY_VARIABLE]
        if before is not None:
            os.environ[arriving.HOOK_VARIABLE] = before


def put_hook(own: Callable[[], Any] | str | None, key: str | None = None) -> None:
    """Have the hook in the cluster, where workers find it that get it by value; `key`: as of `arriving.hook_with`."""
    shape.put_hook(KEY, cloudpickle.dumps(hook(own, key)))


@cache
def sources() -> bytes:
    """The modules that workers import: (is it a package, its source) by name, as compressed JSON."""
    found: dict[str, tuple[bool, str]] = {}
    for room in ("", *_SENT):
        package = f"{arriving.PACKAGE}.{room}".rstrip(".")
        spec = find_spec(package)
        for folder in (spec.submodule_search_locations or ()) if spec is not None else ():
            for path in sorted(Path(folder).glob("**/*.py" if room else "*.py")):
                parts = (package, *path.relative_to(folder).with_suffix("").parts)
                is_package = path.stem == "__init__"
                found[".".join(parts[:-1] if is_package else parts)] = is_package, path.read_text()
    return zlib.compress(json.dumps(found).encode(), level=1)  # at every start: speed counts


def own_node() -> str:
    """The id of the node that this process runs on."""
    return str(ray.get_runtime_context().get_node_id())


def here_if_possible() -> NodeAffinitySchedulingStrategy:
    """Schedules an actor on this node if possible: the watcher belongs here, for the history is a folder of it."""
    return NodeAffinitySchedulingStrategy(node_id=own_node(), soft=True)


def living_nodes() -> dict[str, str]:
    """The addresses of the nodes that are alive, by id."""
    return {node["NodeID"]: node["NodeManagerAddress"] for node in ray.nodes() if node["Alive"]}


def probe(node: str, *, needs_hook: bool) -> Any:
    """A ref to (version, reason), answered by a worker on that node."""
    cloudpickle.register_pickle_by_value(arriving)
    pinned = NodeAffinitySchedulingStrategy(node_id=node, soft=False)
    options = {"num_cpus": 0, "max_retries": 0, "enable_task_events": False}
    return ray.remote(**options, scheduling_strategy=pinned)(arriving.version_here).remote(needs_hook)


def check_nodes(*, needs_hook: bool) -> list[str]:
    """Ask every node at once; returns the ids of those that are ready. Raises `NodeNotReadyError`.

    A node that has not answered within `node_probe_s` is not ready yet, and no error.
    """
    ready, nodes = [own_node()], living_nodes()
    asked = {probe(node, needs_hook=needs_hook): node for node in nodes if node not in ready}
    if asked:
        answered, _ = shape.original("wait")(list(asked), num_returns=len(asked), timeout=LIMITS.node_probe_s)
        for ref in answered:
            node = asked[ref]
            try:
                reason = fault(*shape.original("get")(ref))
            except RayError as error:
                reason = no_worker(error)
            if reason is not None:
                raise not_ready(node, nodes[node], reason)
            ready.append(node)
    return ready


def fault(version: str | None, reason: str) -> str | None:
    """What is wrong with a node, by its probe's answer; None if nothing is."""
    if version not in (None, __version__):
        return f"it has ray-snapshot {version}, and this program has {__version__}"
    return f"ray_snapshot cannot be imported there ({reason})" if reason else None


def no_worker(error: Exception) -> str:
    """What is wrong with a node on which no worker has answered."""
    return f"no worker starts there ({first_line(error)})"


def not_ready(node: str, address: str, reason: str) -> NodeNotReadyError:
    """The error that names a node and what to do."""
    return NodeNotReadyError(
        f"the actors on node {node} ({address}) cannot be watched: {reason}; install ray-snapshot=={__version__} there,"
        " or put it into the image of its workers",
        node=node,
        address=address,
    )


class Nodes:
    """The nodes of a cluster as the watcher knows them: those that join later are asked as well."""

    def __init__(self, ready: Iterable[str], *, needs_hook: bool) -> None:
        """`needs_hook`: whether workers are followed only where they begin with our hook."""
        self.needs_hook = needs_hook
        self.ready = set(ready)
        self.faults: dict[str, str] = {}
        """Why a node is not ready; a node that is being asked has none yet."""
        self.asked: set[asyncio.Task[None]] = set()

    def uncovered(self, nodes: dict[str, str]) -> list[str]:
        """What the coverage says of these nodes; a node that has never been asked is asked now."""
        found = []
        for node, address in nodes.items():
            if node not in self.ready:
                if node not in self.faults:
                    self._ask(node)
                found.append(f"actors on node {node} ({address}): {self.faults[node]}")
        return found

    def _ask(self, node: str) -> None:
        self.faults[node] = "it has joined since, and has not answered yet"
        task = asyncio.get_running_loop().create_task(self._hear(node))
        self.asked.add(task)
        task.add_done_callback(self.asked.discard)

    async def _hear(self, node: str) -> None:
        try:
            reason = fault(*await probe(node, needs_hook=self.needs_hook))
        except RayError as error:
            reason = no_worker(error)
        if reason is None:
            self.ready.add(node)
        else:
            self.faults[node] = reason
