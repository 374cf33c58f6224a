"""What waits for room on a node, and who has it: the `resources` of a snapshot's coverage, which `detectors.rooms` reads.

Demands and holdings are of the cut. Nodes and placement groups are not: Ray's control store is asked before anything records
and once more behind the last report, and where the two differ nothing is concluded.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ray_snapshot.instrument.capacity import Cluster, Group
from ray_snapshot.limits import LIMITS
from ray_snapshot.protocol.call_collector import CallsOf, CompletedCallSnapshot
from ray_snapshot.protocol.callers import EVERY
from ray_snapshot.protocol.calls import CONSTRUCTOR, Sent
from ray_snapshot.protocol.demands import IMPLICIT, NOTHING, Demand, Held, in_group
from ray_snapshot.protocol.tasks import call_of_task, is_task, is_worker

if TYPE_CHECKING:
    from ray_snapshot.instrument.watcher.joined import Tables


@dataclass(frozen=True, slots=True)
class Looks:
    """The cluster before and behind the cut; None: Ray did not tell, or was not asked."""

    before: Cluster | None
    after: Cluster | None

    def unsure(self) -> list[str]:
        """Why room may come all the same."""
        if self.after is None:
            return ["nodes and placement groups, which Ray did not list"]
        if self.before is None:
            return ["nodes and placement groups as they were before the snapshot"]
        if (self.before.nodes, self.before.groups) != (self.after.nodes, self.after.groups):
            return ["nodes or placement groups that came or went while the snapshot was taken"]
        if self.after.grows:
            return ["the cluster's autoscaler, which may add a node"]
        return [] if self.after.grows is False else ["whether an autoscaler may add a node, which Ray has not told yet"]


def waiting(completed: CompletedCallSnapshot, now: float) -> Iterator[tuple[CallsOf, int, Sent]]:
    """The calls that were sent `scheduling_s` before `now`, have not begun, and need room on a node."""
    for channel in completed.channels:
        for number, sent in channel.in_flight.items():
            if sent.demand not in (None, NOTHING) and sent.sent_at < now - LIMITS.scheduling_s:
                yield channel, number, sent


def resources(tables: Tables, looks: Looks) -> dict[str, Any]:
    """The item of the coverage; empty if nothing waits."""
    collected = tables.collected
    found = list(waiting(collected.completed, collected.header.started_at))
    pending = [key for key, one in looks.after.groups.items() if not one.is_created] if looks.after is not None else []
    if not found and not pending:
        return {}
    cluster, holders = looks.after or Cluster({}, {}, None), list(_holders(tables))
    nodes = _nodes(cluster, found)
    outside = _unwatched_actors(tables, cluster)
    return {
        "demands": _demands(tables, found, cluster),
        "nodes": nodes,
        "groups": [_group(key, one, tables) for key, one in cluster.groups.items()],
        "holders": holders,
        "outside": [*outside, *_of_other_jobs(cluster, nodes, [*holders, *outside])],
        "unsure": looks.unsure(),
    }


def garbage(completed: CompletedCallSnapshot, now: float) -> Iterator[str]:
    """Processes whose garbage may matter: a generator that another one waits for, or, where nothing acts and something needs
    room, a handle of an actor at rest."""
    reports = completed.machines
    yield from completed.unclean
    if any(one.status == "active" for one in reports.values()):
        return
    if min((sent.sent_at for _, _, sent in waiting(completed, now)), default=now) > now - LIMITS.garbage_look_s:
        return
    at_rest = {name for name in completed.callers if not reports[name].calls}
    for name, one in reports.items():
        is_unclean = one.held is not None and not one.held.is_clean
        if is_unclean and not is_task(name) and at_rest.intersection(one.holds) - {name}:
            yield name


def concerns(completed: CompletedCallSnapshot, now: float) -> bool:
    """Whether Ray is to be asked for nodes and groups: something waits, or placement groups were made."""
    has_groups = any(one.held is not None and one.held.groups for one in completed.machines.values())
    return has_groups or next(waiting(completed, now), None) is not None


# ---- demands -----------------------------------------------------------------------------------------------------------


def _demands(tables: Tables, found: Iterable[tuple[CallsOf, int, Sent]], cluster: Cluster) -> list[dict[str, Any]]:
    """One row for each demand of a channel; of a constructor: for all that is sent to the actor."""
    rows = dict[tuple[str | None, str, Demand], list[tuple[int, float]]]()
    for channel, number, sent in found:
        assert sent.demand is not None
        is_born_by_it = number == CONSTRUCTOR and number not in channel.tasks
        source = None if is_born_by_it else tables.shown(channel.source)
        rows.setdefault((source, tables.shown(channel.target), sent.demand), []).append((number, sent.sent_at))
    return [
        {
            "source": source,
            "target": target,
            "numbers": None if source is None else _ranges(sorted(number for number, _ in told)),
            "needs": dict(one.needs),
            "group": one.group,
            "bundle": one.bundle,
            "nodes": _allowed(one, cluster),
            "since": min(at for _, at in told),
        }
        for (source, target, one), told in rows.items()
    ]


def _ranges(numbers: list[int]) -> list[list[int]]:
    found: list[list[int]] = []
    for number in numbers:
        if found and number == found[-1][1] + 1:
            found[-1][1] = number
        else:
            found.append([number, number])
    return found


def _allowed(one: Demand, cluster: Cluster) -> list[str] | None:
    """The nodes on which it may begin; None: any. A node that is gone, and labels that say more than a value, rule out none."""
    if one.node is not None:
        return [one.node] if one.node in cluster.nodes else None
    plain = [(key, value) for key, value in one.labels if value.replace("-", "").replace("_", "").isalnum()]
    if not plain:
        return None
    return [name for name, node in cluster.nodes.items() if all(node.labels.get(key) == value for key, value in plain)]


# ---- what there is -----------------------------------------------------------------------------------------------------


def _nodes(cluster: Cluster, found: Iterable[tuple[CallsOf, int, Sent]]) -> dict[str, dict[str, float]]:
    """All that each node has, of what anything here needs; with the bundles of groups under Ray's names for them."""
    wanted = {name for _, _, sent in found if sent.demand is not None for name, _ in sent.demand.needs}
    wanted |= {name for group in cluster.groups.values() for bundle in group.bundles for name in bundle}
    unlisted = {name: 1.0 for name in wanted if name.startswith(IMPLICIT)}
    nodes = {
        name: unlisted | {resource: amount for resource, amount in node.amounts.items() if resource in wanted}
        for name, node in cluster.nodes.items()
    }
    for key, group in cluster.groups.items():
        for index, (node, bundle) in enumerate(zip(group.nodes, group.bundles, strict=True)):
            for resource, amount in bundle.items():
                for name in (in_group(resource, key), in_group(resource, key, index)):
                    if node in nodes:
                        nodes[node][name] = nodes[node].get(name, 0.0) + amount
    return nodes


def _group(key: str, one: Group, tables: Tables) -> dict[str, Any]:
    return {
        "group": key,
        "name": one.name,
        "created": one.is_created,
        "bundles": [dict(bundle) for bundle in one.bundles],
        "nodes": list(one.nodes),
        "strategy": one.strategy,
        "owners": tables.owners_of(key),
    }


# ---- who holds it ------------------------------------------------------------------------------------------------------


def _holders(tables: Tables) -> Iterator[dict[str, Any]]:
    for name, report in tables.own.items():
        held = report.held
        if held is None or not held.amounts or is_worker(name):
            continue
        yield {
            "machine": tables.shown(name),
            "node": held.node,
            "amounts": dict(held.amounts),
            "devices": {name: [list(part) for part in parts] for name, parts in held.devices.items()},
            "task": is_task(name),
            "keeps_cpu": any(wait.keeps_cpu for wait in report.waits),
            "by": by(tables, name),
            "checked": _is_checked(tables, name),
        }


def _unwatched_actors(tables: Tables, cluster: Cluster) -> list[dict[str, Any]]:
    """Actors that have a part of a node, and are no machines: of other programs, also of some that have ended."""
    collected = tables.collected
    births = [one.births for one in collected.recorded.values()] + [one.births for one in collected.hosted]
    known = {birth["key"] for some in births for birth in some.values()}
    known |= {facts.get("key") for facts in collected.facts.values()}
    return [
        {
            "name": one.name,
            "kind": one.kind,
            "key": one.key,
            "namespace": one.namespace,
            "job": one.job,
            "detached": one.is_detached,
            "node": one.node,
            "amounts": dict(one.amounts),
        }
        for one in sorted(cluster.actors, key=lambda one: (one.name, one.kind, one.key))
        if one.key not in known
    ]


def _of_other_jobs(
    cluster: Cluster, nodes: Mapping[str, Mapping[str, float]], holders: Iterable[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """What is not free on a node and none of these holds, if other programs run: they do, or their plain tasks."""
    held = [(one["node"], one["amounts"]) for one in holders]
    for group in cluster.groups.values():
        held += zip(group.nodes, group.bundles, strict=True) if group.is_created else []
    for node, free in cluster.free.items():
        there = cluster.nodes[node].amounts if node in cluster.nodes else {}
        rest = {name: there[name] - free.get(name, 0.0) for name in nodes.get(node, {}) if name in there}
        for at, amounts in held:
            rest |= {name: rest[name] - amount for name, amount in amounts.items() if at == node and name in rest}
        amounts = {name: amount for name, amount in rest.items() if amount >= 1e-4}
        if amounts and cluster.other_jobs:
            yield {"job": ", ".join(cluster.other_jobs), "node": node, "amounts": amounts}


def in_a_group(held: Held) -> bool:
    """Whether a machine lives in a placement group."""
    return any("_group_" in name for name in held.amounts)


def by(tables: Tables, machine: str) -> list[str] | None:
    """Who could call an actor, or drop its handle (`CompletedCallSnapshot.callers`); None: anything that acts."""
    completed = tables.completed
    callers = completed.callers.get(machine)
    if callers is None or EVERY in completed.idle_holds or tables.may_be_reached(machine):
        return None
    return [
        tables.call_id(call_of_task(one)) if is_task(one) and one not in completed.machines else tables.shown(one)
        for one in callers
        if one != machine
    ]


def _is_checked(tables: Tables, machine: str) -> bool:
    """Whether each handle of an actor is in use, and nothing outside of the program may have one."""
    reports: Mapping[str, Any] = tables.completed.machines
    if machine in tables.completed.idle_holds or tables.is_known_elsewhere(machine):
        return False
    having = [one for name, one in reports.items() if machine in one.holds and name != machine]
    if any(is_worker(one.machine) for one in having):
        return False  # Ray may end a worker that idles, and its handles with it
    return bool(having) and all(one.held is not None and one.held.is_clean for one in having)
