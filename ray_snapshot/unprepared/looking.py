"""`ray-snapshot diagnose` without a name: two looks at a cluster where nothing of ours runs, and at its processes in between.

Processes of this machine are looked at from here. Those of other nodes are looked at by a small task of a job of our own,
pinned to the node and bounded in time. It needs nothing of ours there; where it cannot run, that evidence is missing.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import ray
from ray import cloudpickle
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from ray_snapshot.errors import ClusterError
from ray_snapshot.instrument import clusters
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import NAMESPACE, PREFIX
from ray_snapshot.unprepared import evidence, report
from ray_snapshot.unprepared.judging import SUSPECTED, UNKNOWN, Finding, first_suspects, judge, place_of
from ray_snapshot.unprepared.records import Look, Records


@dataclass(frozen=True, slots=True)
class Looked:
    """What was seen on one cluster."""

    address: str
    rows: list[dict[str, Any]]
    """One for each program; see `report.row`."""
    refusals: Mapping[str, str | None]
    """By job: why stacks could not be read, if they could not."""

    def texts(self) -> list[str]:
        """What each program does, for a person."""
        return ["\n".join(report.lines(row, self.refusals[row["job"]])) for row in self.rows]


def look_twice(
    address: str, only: str | None, watched: Collection[str], visit: Callable[[str], AbstractContextManager[None]]
) -> Looked:
    """Look at the programs of one cluster, or at one job. `watched`: the systems of ours there, whose jobs are left out.

    `visit` connects to the cluster; it is used only where processes of other nodes are concerned.
    """
    with clusters.authorized(address) as store:
        records = Records(address, store)
        first = records.look()
        jobs = programs(first, only, watched)
        if not jobs:
            return Looked(address, [], {})
        began = time.monotonic()
        told = _examined(first, jobs, address, visit)
        time.sleep(max(0.0, LIMITS.apart_s - (time.monotonic() - began)))
        if not clusters.is_alive(address):  # Ray would wait for it for a minute, and then end this process
            raise has_ended(address)
        second = records.look()
    jobs = [job for job in jobs if job in second.jobs]
    found = judge(first, second, told, jobs)
    apart_s = second.at_s - first.at_s
    rows = [report.row(finding, second, address, apart_s) for finding in found]
    return Looked(address, rows, {finding.job.key: _refusal(finding, second, told) for finding in found})


def has_ended(address: str) -> ClusterError:
    """The error that says so of a cluster."""
    return ClusterError(f"the Ray cluster at {address} has ended while it was looked at")


def programs(look: Look, only: str | None, watched: Collection[str]) -> list[str]:
    """The jobs to look at: alive, or with actors that have outlived them; not Ray's own, not ours, not the watched ones."""
    services = {PREFIX + name for name in watched}
    ours = {actor.job for actor in look.actors.values() if actor.namespace == NAMESPACE and actor.name in services}
    busy = {actor.job for actor in look.actors.values()}
    return [
        job.key
        for job in look.jobs.values()
        if (not job.is_dead or job.key in busy)
        and job.key not in ours
        and job.namespace != NAMESPACE
        and not job.is_internal
        and only in (None, job.key)
    ]


def _examined(
    look: Look, jobs: Collection[str], address: str, visit: Callable[[str], AbstractContextManager[None]]
) -> dict[str, dict[int, dict[str, Any]] | str]:
    """What the processes of each node do for a few seconds; of other nodes, by a task there."""
    by_node: dict[str, list[int]] = defaultdict(list)
    for task in first_suspects(look):
        node, pid = place_of(task, look)
        if task.job in jobs and node in look.nodes and pid and pid not in by_node[node]:
            by_node[node].append(pid)
    here = [node for node in by_node if look.nodes[node].is_here]
    away = [node for node in by_node if not look.nodes[node].is_here]
    told: dict[str, dict[int, dict[str, Any]] | str] = {}
    if away:
        told |= _from_afar({node: by_node[node] for node in away}, address, visit)
    for node, pids in {node: by_node[node][: LIMITS.node_processes] for node in here}.items():
        told[node] = evidence.examine(pids, LIMITS.apart_s, pids[: LIMITS.node_stacks])
    return told


def _from_afar(
    by_node: Mapping[str, list[int]], address: str, visit: Callable[[str], AbstractContextManager[None]]
) -> dict[str, dict[int, dict[str, Any]] | str]:
    cloudpickle.register_pickle_by_value(evidence)
    try:
        with visit(address):
            refs = {
                node: ray.remote(evidence.examine)
                .options(
                    num_cpus=0, max_retries=0, scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False)
                )
                .remote(pids[: LIMITS.node_processes], LIMITS.apart_s, pids[: LIMITS.node_stacks])
                for node, pids in by_node.items()
            }
            ray.wait(list(refs.values()), num_returns=len(refs), timeout=LIMITS.apart_s + LIMITS.node_answer_s)
            return {node: _answer(node, ref) for node, ref in refs.items()}
    finally:
        cloudpickle.unregister_pickle_by_value(evidence)


def _answer(node: str, ref: Any) -> dict[int, dict[str, Any]] | str:
    try:
        found: dict[int, dict[str, Any]] = ray.get(ref, timeout=0)
    except RayError as error:
        return f"its node {node[:8]} could not be asked ({type(error).__name__})"
    return found


def _refusal(finding: Finding, look: Look, told: Mapping[str, Any]) -> str | None:
    """Why stacks could not be read, of any process of a program."""
    whys = [
        told[node][pid]["why"]
        for node, pid in _places(finding, look)
        if isinstance(told.get(node), dict) and "why" in told[node].get(pid, {})
    ]
    return next((why for why in whys if why in ("not installed", "refused")), whys[0] if whys else None)


def _places(finding: Finding, look: Look) -> Iterable[tuple[str, int]]:
    for key in (*finding.core, *finding.behind):
        if key in finding.readings and key in look.tasks:
            yield place_of(look.tasks[key], look)
    yield finding.job.node, finding.job.pid


def exit_code(rows: Iterable[Mapping[str, Any]]) -> int:
    """3 if anything is suspected, or no node can ever run it, else 4 if anything is not known, else 0."""
    verdicts = {"infeasible" if any(one["is_infeasible"] for one in row["pending"]) else row["verdict"] for row in rows}
    return 3 if {SUSPECTED, "infeasible"} & verdicts else 4 if UNKNOWN in verdicts else 0
