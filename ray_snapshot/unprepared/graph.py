"""Who waits for whom, as far as Ray's records tell: who could not move even if each helped who may. Pure.

Ray records who has started whom, and where an unfinished task is; not what a running one waits for. So every edge is the most
favourable guess: a running call may be set free by any unfinished task that it, or its actor, has started; a call in a queue
by any call that runs in that actor; a task that waits for room by each who holds it and may move. What nothing can set free is
*stuck*: a greatest fixpoint, as the deadlock detector's, but over guesses, so it is suspected and never known.

What runs, and what is alike among the rest, is a node: N records with P running ones take O(N) once, and O(P) a question.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from ray_snapshot.detectors.reduction import knots
from ray_snapshot.unprepared.records import (
    ALIVE,
    IN_QUEUE,
    RUNNING,
    WAITS_FOR_ARGUMENTS,
    WAITS_FOR_NODE,
    Actor,
    Group,
    Look,
    Task,
    driver_of,
)

_ENOUGH = 1e-4
"""Ray counts resources in ten-thousandths."""

FREE, ANY, ALONE = "free", "any", "alone"
"""What is taken of a running task that has started nothing unfinished: it may move; it waits for any task of its job (it may
have been given a ref); it is stuck by itself."""

_MOVES = "moves"
"""The node of what may move by itself."""


@dataclass(slots=True)
class Need:
    """A demand that waits for room: of plain tasks or constructors that are alike, or of a group that is not made."""

    key: str
    job: str
    parts: tuple[Mapping[str, float], ...]
    """What must find room; of a group several."""
    group: str = ""
    """The group in which it must be; "" for none."""
    tasks: dict[str, None] = field(default_factory=dict)
    """The keys of the tasks; a group has none."""


@dataclass(slots=True)
class Stuck:
    """What cannot move, and why."""

    nodes: frozenset[str]
    """All of them; `keys` without the places that several have in common."""
    holders: Mapping[str, tuple[str, ...]]
    """By the key of a need: the actors, tasks and groups that hold what it needs and keep it."""
    core: frozenset[str] = frozenset()
    """Those that wait only for one another: keys of running tasks, and of needs."""
    rest_on_idle: frozenset[str] = frozenset()
    """Needs in the core of which actors at rest, which somebody could drop, hold something."""

    @property
    def keys(self) -> frozenset[str]:
        """Running tasks and needs that are stuck."""
        return frozenset(node for node in self.nodes if not _is_place(node))


def moved(first: Look, second: Look) -> frozenset[str]:
    """What has moved between two looks: tasks of which anything changed, and who has started or lost one."""
    changed: set[str] = set()
    for key, before in first.tasks.items():
        after = second.tasks.get(key)
        if after is None:
            changed |= {key, before.parent}
        elif (before.state, before.since_s, before.attempt) != (after.state, after.since_s, after.attempt):
            changed.add(key)
    for key in second.tasks.keys() - first.tasks.keys():
        changed |= {key, second.tasks[key].parent}
    for key in first.groups.keys() | second.groups.keys():
        if first.groups.get(key) != second.groups.get(key):
            changed.add(key)
    return frozenset(changed)


def driver_task(job: str) -> Task:
    """A driver of which there is no record."""
    return Task(driver_of(job), 0, job, "driver", "", "", "", min(RUNNING), 0.0)


def _is_place(node: str) -> bool:
    return " " in node


class Graph:
    """One look, as nodes: running tasks, needs, and places that several have in common (with a space in their name)."""

    def __init__(self, look: Look, changed: frozenset[str] = frozenset()) -> None:
        self.look = look
        self.changed = changed
        self.parties: dict[str, Task] = {}
        self.needs: dict[str, Need] = {}
        self.started: dict[str, list[str]] = defaultdict(list)
        """By task, and by actor: the keys of unfinished tasks that it has started."""
        self.running: dict[str, list[str]] = defaultdict(list)
        """By actor, and by group: the running tasks in it."""
        self.of_job: dict[str, list[str]] = defaultdict(list)
        """By job: what runs of it, but its driver."""
        self.places: dict[str, set[str]] = {}
        self.node: dict[str, str] = {}
        """Of each unfinished task: what must move so that it can."""
        self._creations = {task.actor: task for task in look.tasks.values() if task.kind == "creation"}
        self._alike: dict[tuple[object, ...], str] = {}
        self._held_back = {
            (task.parent, task.actor)
            for task in look.tasks.values()
            if task.state == WAITS_FOR_ARGUMENTS and task.kind == "call"
        }
        for job in look.jobs.values():
            if not job.is_dead:
                self.parties[job.driver] = driver_task(job.key)
        for task in look.tasks.values():
            self._add_running(task)
        for group in look.groups.values():
            if not group.is_created:
                self.needs[group.key] = Need(group.key, group.job, tuple(part for part, _ in group.bundles))
                self.places.setdefault("started " + (group.made_in or driver_of(group.job)), set()).add(group.key)
        for task in look.tasks.values():
            if task.kind != "driver":
                self._add(task)

    def _add_running(self, task: Task) -> None:
        if task.state in RUNNING and task.kind != "driver":
            self.parties[task.key] = task
            self.of_job[task.job].append(task.key)
            for place in (task.actor, task.group):
                if place:
                    self.running[place].append(task.key)

    def _add(self, task: Task) -> None:
        node = self.node[task.key] = _MOVES if task.key in self.changed else self._node_of(task)
        self.started[task.parent].append(task.key)
        self.places.setdefault("started " + task.parent, set()).add(node)
        maker = task.made_in
        if maker and not (maker == task.actor and task.state in RUNNING):
            self.started[maker].append(task.key)
            self.places.setdefault("started " + maker, set()).add(node)
        if not node.startswith("job "):
            self.places.setdefault("job " + task.job, set()).add(node)

    def _node_of(self, task: Task) -> str:
        if task.state in RUNNING:
            return task.key
        if task.state == WAITS_FOR_ARGUMENTS:
            return "job " + task.job
        if task.kind == "call":
            return self._node_of_call(task)
        return self._need(task) if task.state == WAITS_FOR_NODE else _MOVES

    def _node_of_call(self, task: Task) -> str:
        if task.state == WAITS_FOR_NODE:
            creation = self._creations.get(task.actor)
            if creation is not None:
                return self._node_of(creation)
            is_held_back = (task.parent, task.actor) in self._held_back
            return "job " + task.job if is_held_back else _MOVES
        if task.state in IN_QUEUE and task.actor in self.running:
            place = "queue " + task.actor
            if place not in self.places:
                self.places[place] = set(self.running[task.actor])
            return place
        return _MOVES

    def _need(self, task: Task) -> str:
        alike = (task.job, task.name, task.kind == "creation" and task.actor, task.group, *sorted(task.needs.items()))
        key = self._alike.setdefault(alike, task.key)
        self.needs.setdefault(key, Need(key, task.job, (task.needs,), task.group)).tasks[task.key] = None
        return key

    def stuck(self, acting: Iterable[str] = (), leaf: Callable[[Task], str] = lambda _: FREE, alone: str = "") -> Stuck:
        """What cannot move if these act; `leaf` is asked of running tasks that have started nothing unfinished.

        `alone`: a job; what all others hold they keep.
        """
        return _Fixpoint(self, frozenset(acting), leaf, alone).result()

    def stuck_children(self, key: str, stuck: Stuck) -> list[str]:
        """Of a stuck running task: what it, or its actor, has started and cannot move."""
        task = self.parties[key]
        found = dict.fromkeys([*self.started.get(key, ()), *self.started.get(task.actor or "-", ())])
        groups = [need for need in self.places.get("started " + (task.actor or key), ()) if need in self.look.groups]
        return [child for child in found if self.node[child] in stuck.nodes] + groups


class _Fixpoint:
    """Everything is stuck until something that may move sets it free."""

    def __init__(self, graph: Graph, acting: frozenset[str], leaf: Callable[[Task], str], alone: str = "") -> None:
        self.graph = graph
        self.leaf = leaf
        self.alone = alone
        self.free: set[str] = set()
        self.helpers: dict[str, Iterable[str]] = dict(graph.places)
        self.freed_by: dict[str, list[str]] = defaultdict(list)
        begun = [_MOVES, *acting]
        for key, task in graph.parties.items():
            found = self._party(task)
            if found is None:
                begun.append(key)
            self.helpers[key] = found or ()
        for key in graph.needs:
            self.helpers[key] = ()
        for key, helpers in self.helpers.items():
            for helper in helpers:
                self.freed_by[helper].append(key)
        self._spread(begun)
        self._make_room()

    def _party(self, task: Task) -> list[str] | None:
        """It may wait for all that it has started, and all that its actor has; None if it may move."""
        found = [
            place
            for place in ("started " + task.key, "started " + (task.actor or "-"))
            if place in self.graph.places and self.graph.places[place] != {task.key}
        ]
        if found:
            return found
        told = self.leaf(task)
        if told == ALONE:
            return []
        job = "job " + task.job
        has_others = bool(self.graph.places.get(job, set()) - {task.key})
        return [job] if told == ANY and has_others else None

    def _spread(self, begun: Iterable[str]) -> None:
        waiting = [key for key in begun if key not in self.free]
        self.free.update(waiting)
        while waiting:
            for key in self.freed_by.get(waiting.pop(), ()):
                if key not in self.free:
                    self.free.add(key)
                    waiting.append(key)

    def _make_room(self) -> None:
        """Set free what finds room in what those hold who may move, until nothing more does."""
        while True:
            self.room = _Room(self.graph, self.free, self.alone)
            left = [need for need in self.graph.needs.values() if need.key not in self.free]
            begun = [need.key for need in left if self.room.fits(need)]
            if not begun:
                return
            self._spread(begun)

    def result(self) -> Stuck:
        """What is left, with its reasons."""
        nodes = frozenset(key for key in self.helpers if key not in self.free)
        holders = {key: self.room.holders(need) for key, need in self.graph.needs.items() if key in nodes}
        helpers = {key: [one for one in self.helpers[key] if one in nodes] for key in nodes}
        for key, some in holders.items():
            helpers[key] = [party for holder in some for party in self.room.parties_of(holder, nodes)]
        core = frozenset(key for key in _core(helpers) if not _is_place(key))
        rests = frozenset(key for key in core & holders.keys() if any(map(self.room.is_idle, holders[key])))
        return Stuck(nodes, holders, core, rests)


class _Room:
    """What each node could give if all who may move gave back what they have."""

    def __init__(self, graph: Graph, free: set[str], alone: str = "") -> None:
        self.look = look = graph.look
        self.graph = graph
        self.free = free
        self.alone = alone
        self.known: dict[tuple[object, ...], bool] = {}
        self.at_rest: dict[str, bool] = {}
        self.kept: dict[str, list[tuple[str, Mapping[str, float]]]] = defaultdict(list)
        """By node, or by group: who keeps how much."""
        for actor in look.actors.values():
            if actor.holds and actor.state == ALIVE and self._keeps(actor):
                self.kept[actor.group or actor.node].append((actor.key, actor.holds))
        for task in graph.parties.values():
            if (task.key not in free or self._is_other(task.job)) and task.kind in ("task", "creation"):
                amounts = {name: part for name, part in task.needs.items() if name != "CPU" or task.kind != "task"}
                if amounts and not (task.kind == "creation" and self._is_alive(task.actor)):
                    self.kept[task.group or task.node].append((task.key, amounts))
        for group in look.groups.values():
            if group.is_created and self._is_kept(group):
                for bundle, node in group.bundles:
                    self.kept[node].append((group.key, bundle))

    def _is_alive(self, actor: str) -> bool:
        found = self.look.actors.get(actor)
        return found is not None and found.state == ALIVE

    def _is_other(self, job: str) -> bool:
        """Whether it is another job than the one that is looked at alone."""
        return self.alone not in ("", job)

    def _keeps(self, actor: Actor) -> bool:
        if self._is_other(actor.job):
            return True
        running = self.graph.running.get(actor.key, ())
        return any(key not in self.free for key in running) if running else self._is_job_stuck(actor.job)

    def _is_kept(self, group: Group) -> bool:
        is_inside = any(key not in self.free for key in self.graph.running.get(group.key, ()))
        return is_inside or self._is_other(group.job) or self._is_job_stuck(group.job)

    def _is_job_stuck(self, job: str) -> bool:
        """Whether its driver and all that runs of it are stuck: then nobody drops or removes anything of it."""
        if job not in self.at_rest:
            told = self.look.jobs.get(job)
            running = self.graph.of_job.get(job, ())
            self.at_rest[job] = (
                told is not None
                and not told.is_dead
                and told.driver not in self.free
                and all(key not in self.free for key in running)
            )
        return self.at_rest[job]

    def parties_of(self, holder: str, stuck: frozenset[str]) -> list[str]:
        """The stuck tasks because of which a holder keeps what it has."""
        if holder in self.graph.parties or holder in self.graph.needs:
            return [holder] if holder in stuck else []
        inside = [key for key in self.graph.running.get(holder, ()) if key in stuck]
        if inside:
            return inside
        actor, group = self.look.actors.get(holder), self.look.groups.get(holder)
        job = actor.job if actor is not None else group.job if group is not None else ""
        driver = self.look.jobs[job].driver if job in self.look.jobs else ""
        return [driver] if driver in stuck else []

    def is_idle(self, holder: str) -> bool:
        """Whether it is an actor that runs nothing."""
        return holder in self.look.actors and not self.graph.running.get(holder)

    def fits(self, need: Need) -> bool:
        """Whether there is room for each part on some node, and for all together in all."""
        alike = (need.group, *(tuple(sorted(part.items())) for part in need.parts))
        if alike not in self.known:
            self.known[alike] = self._fits(need)
        return self.known[alike]

    def _fits(self, need: Need) -> bool:
        if need.group:
            group = self.look.groups.get(need.group)
            if group is None or not group.is_created:
                return group is None or group.key in self.free
            rooms = [_less(_sum(part for part, _ in group.bundles), self.kept.get(need.group, ()))]
        else:
            rooms = [_less(node.has, self.kept.get(node.key, ())) for node in self.look.nodes.values()]
        whole, wanted = _sum(rooms), _sum(need.parts)
        return all(any(_covers(room, part) for room in rooms) for part in need.parts) and _covers(whole, wanted)

    def holders(self, need: Need) -> tuple[str, ...]:
        """Who keeps any of it."""
        if need.group and not self._is_made(need.group):
            return (need.group,)
        names = {name for part in need.parts for name in part}
        places = [need.group] if need.group else list(self.look.nodes)
        found = [
            holder
            for place in places
            for holder, amounts in self.kept.get(place, ())
            if any(amounts.get(name) for name in names)
        ]
        return tuple(dict.fromkeys(found))

    def _is_made(self, group: str) -> bool:
        found = self.look.groups.get(group)
        return found is not None and found.is_created


def _less(has: Mapping[str, float], kept: Iterable[tuple[str, Mapping[str, float]]]) -> dict[str, float]:
    left = dict(has)
    for _, amounts in kept:
        for name, amount in amounts.items():
            left[name] = left.get(name, 0.0) - amount
    return left


def _sum(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    found: dict[str, float] = defaultdict(float)
    for part in parts:
        for name, amount in part.items():
            found[name] += max(amount, 0.0)
    return found


def _covers(room: Mapping[str, float], part: Mapping[str, float]) -> bool:
    return all(room.get(name, 0.0) + _ENOUGH >= amount for name, amount in part.items())


def _core(helpers: Mapping[str, list[str]]) -> frozenset[str]:
    """Those that wait only for one another: the knots that no edge leaves."""
    if not helpers:
        return frozenset()
    number = {key: place for place, key in enumerate(helpers)}
    edges = [(number[key], number[helper]) for key, some in helpers.items() for helper in some]
    source, target = np.array(edges, np.int64).reshape(-1, 2).T
    in_core = knots(len(number), source, target).in_core.tolist()
    return frozenset(key for key, is_inside in zip(number, in_core, strict=True) if is_inside)
