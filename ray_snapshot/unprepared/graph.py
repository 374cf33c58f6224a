"""Who waits for whom, as far as Ray's records tell: who could not move even if each helped who may. Pure.

Ray records who has started whom, and where an unfinished task is; not what a running one waits for. So every edge is the most
favourable guess: a running call may be set free by any unfinished task that it, or its actor, has started; a call in a queue
by any call that runs in that actor; a task that waits for room by each who holds it and may move. What nothing can set free is
*stuck*: a greatest fixpoint, as the deadlock detector's, but over guesses, so it is suspected and never known. V tasks with E
such edges take O(V + E), once more for each different demand that comes free.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

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

IDLE_HOLDER_S = 20.0
"""So long a demand must have lasted before an actor at rest counts as one that keeps its room: until then Ray itself may find
its last handle in garbage."""

MOST_OF_A_JOB = 100
"""So many stuck tasks of a job are named as those that one may wait for of which only the job is known."""

_ENOUGH = 1e-4
"""Ray counts resources in ten-thousandths."""


@dataclass(frozen=True, slots=True)
class Need:
    """A demand that waits for room: of a plain task, a constructor, or a group that is not made."""

    key: str
    job: str
    parts: tuple[Mapping[str, float], ...]
    """What must find room; of a group several."""
    group: str
    """The group in which it must be; "" for none."""


@dataclass(slots=True)
class Stuck:
    """What cannot move, and why."""

    keys: frozenset[str]
    helpers: Mapping[str, tuple[str, ...]]
    """By key: which others would set it free, if these moved; all of them stuck."""
    holders: Mapping[str, tuple[str, ...]]
    """By the key of a need: the actors, tasks and groups that hold what it needs and keep it."""
    needs: Mapping[str, Need]
    core: frozenset[str] = frozenset()
    """Those that wait only for one another."""
    rests_on_idle: bool = False
    """Whether actors at rest, which somebody could drop, hold something in the core."""


def moved(first: Look, second: Look) -> frozenset[str]:
    """What has moved between two looks: tasks of which anything changed, and who has started or lost one."""
    changed: set[str] = set()
    for key in first.tasks.keys() | second.tasks.keys():
        before, after = first.tasks.get(key), second.tasks.get(key)
        if before is None or after is None:
            changed |= {key, (before or after or _NOTHING).parent}
        elif (before.state, before.since_s, before.attempt) != (after.state, after.since_s, after.attempt):
            changed.add(key)
    for key in first.groups.keys() | second.groups.keys():
        if first.groups.get(key) != second.groups.get(key):
            changed.add(key)
    return frozenset(changed)


_NOTHING = Task("", 0, "", "task", "", "", "", 0, 0.0)


def driver_task(job: str) -> Task:
    """A driver of which there is no record."""
    return Task(driver_of(job), 0, job, "driver", "", "", "", min(RUNNING), 0.0)


FREE, ANY, ALONE = "free", "any", "alone"
"""What is taken of a running task that has started nothing unfinished: it may move; it waits for any task of its job (it may
have been given a ref); it is stuck by itself."""


def stuck(look: Look, acting: Iterable[str] = (), leaf: Callable[[Task], str] = lambda _: FREE) -> Stuck:
    """What cannot move if these act; `leaf` is asked of running tasks that have started nothing unfinished."""
    return _Fixpoint(look, frozenset(acting), leaf).result()


class _Fixpoint:
    """Everything is stuck until something that may move sets it free."""

    def __init__(self, look: Look, acting: frozenset[str], leaf: Callable[[Task], str]) -> None:
        self.look = look
        self.leaf = leaf
        self.parts = _Index(look)
        self.needs: dict[str, Need] = {}
        self.helpers: dict[Hashable, set[Hashable]] = {}
        self.members: dict[Hashable, tuple[str, ...]] = {}
        self.free: set[Hashable] = set()
        self.alone: set[Hashable] = set()
        self.freed_by: dict[Hashable, list[Hashable]] = defaultdict(list)
        for key, helpers in self._edges():
            self.helpers[key] = helpers
            for helper in helpers:
                self.freed_by[helper].append(key)
        self._spread([key for key in self.helpers if self._is_free_at_once(key, acting)])
        self._make_room()

    def _is_free_at_once(self, key: Hashable, acting: frozenset[str]) -> bool:
        has_none = not self.helpers[key] and not isinstance(key, tuple)
        return key in acting or (has_none and key not in self.needs and key not in self.alone)

    def _edges(self) -> Iterable[tuple[Hashable, set[Hashable]]]:
        """By key of a task, a group, or a common place (a tuple): any one of whom sets it free."""
        for task in self.look.tasks.values():
            yield task.key, self._task(task)
        for job in self.look.jobs.values():
            if job.driver not in self.look.tasks and not job.is_dead:
                yield job.driver, self._party(driver_task(job.key))
        for group in self.look.groups.values():
            if not group.is_created:
                self.needs[group.key] = Need(group.key, group.job, tuple(part for part, _ in group.bundles), "")
                yield group.key, set()
        yield from self.parts.places()

    def _task(self, task: Task) -> set[Hashable]:
        if task.kind == "driver" or task.state in RUNNING:
            return self._party(task)
        if task.state == WAITS_FOR_ARGUMENTS:
            return {("job", task.job)}
        if task.kind == "call":
            return self._call(task)
        if task.state == WAITS_FOR_NODE:
            self.needs[task.key] = Need(task.key, task.job, (task.needs,), task.group)
        return set()

    def _party(self, task: Task) -> set[Hashable]:
        """A running task may wait for all that it has started, and all that its actor has; groups count as started."""
        found: set[Hashable] = set()
        if self.parts.children.get(task.key):
            found.add(("children", task.key))
        if task.actor and self.parts.outside.get(task.actor):
            found.add(("made in", task.actor))
        found |= set(self.parts.groups_of.get(task.actor or task.key, ()))
        if not found:
            told = self.leaf(task)
            if told == ANY and any(key != task.key for key in self.parts.of_job.get(task.job, ())[:2]):
                return {("job", task.job)}
            if told == ALONE:
                self.alone.add(task.key)
        return found

    def _call(self, task: Task) -> set[Hashable]:
        actor = self.look.actors.get(task.actor)
        if actor is None:
            return set()
        if task.state == WAITS_FOR_NODE:
            creation = self.parts.creations.get(task.actor)
            if creation is not None:
                return {creation}
            before = self.parts.held_back.get((task.parent, task.actor), ())
            return set(before) if actor.state == ALIVE else set()
        if task.state in IN_QUEUE and self.parts.running.get(task.actor):
            return {("queue", task.actor)}
        return set()

    def _spread(self, begun: Iterable[Hashable]) -> None:
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
            room = _Room(self.look, self.parts, self.free)
            fits: dict[Hashable, bool] = {}
            begun = []
            for key, need in self.needs.items():
                if key not in self.free:
                    shape = (need.group, tuple(tuple(sorted(part.items())) for part in need.parts))
                    if shape not in fits:
                        fits[shape] = room.fits(need)
                    if fits[shape]:
                        begun.append(key)
            if not begun:
                self.room = room
                return
            self._spread(begun)

    def result(self) -> Stuck:
        """What is left, with its reasons."""
        known = [key for key in self.helpers if isinstance(key, str) and key not in self.free]
        keys = frozenset(known)
        holders = {key: self.room.holders(need) for key, need in self.needs.items() if key in keys}
        helpers = {key: self._reasons(key, keys, holders) for key in known}
        found = Stuck(keys, helpers, holders, {key: self.needs[key] for key in holders})
        found.core = _core(helpers)
        found.rests_on_idle = any(
            self.room.is_idle(holder) for key in found.core & holders.keys() for holder in holders[key]
        )
        return found

    def _reasons(self, key: str, keys: frozenset[str], holders: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
        if key in holders:
            parties = [self.parts.parties_of(holder, keys) for holder in holders[key]]
            return tuple(dict.fromkeys(party for some in parties for party in some))
        some = [self._stuck_members(helper, keys) for helper in self.helpers[key]]
        return some[0] if len(some) == 1 else tuple(dict.fromkeys(member for members in some for member in members))

    def _stuck_members(self, place: Hashable, keys: frozenset[str]) -> tuple[str, ...]:
        """Of a common place those that are stuck; of a whole job only those that run or need room, and not too many."""
        if not isinstance(place, tuple):
            return (str(place),)
        if place not in self.members:
            found = [str(member) for member in self.helpers[place] if member in keys]
            if place[0] == "job":
                found = [key for key in found if key in self.needs or self.look.tasks[key].state in RUNNING][
                    :MOST_OF_A_JOB
                ]
            self.members[place] = tuple(sorted(found))
        return self.members[place]


class _Index:
    """A look, by what is asked for."""

    def __init__(self, look: Look) -> None:
        self.look = look
        self.children: dict[str, list[str]] = defaultdict(list)
        self.outside: dict[str, list[str]] = defaultdict(list)
        """By actor: what it has started and does not run itself."""
        self.running: dict[str, list[str]] = defaultdict(list)
        self.inside: dict[str, list[str]] = defaultdict(list)
        """By group: the running tasks in it."""
        self.of_job: dict[str, list[str]] = defaultdict(list)
        self.held_back: dict[tuple[str, str], list[str]] = defaultdict(list)
        self.creations: dict[str, str] = {}
        self.groups_of: dict[str, list[str]] = defaultdict(list)
        for task in look.tasks.values():
            self._add(task)
        for group in look.groups.values():
            if not group.is_created:
                self.groups_of[group.made_in or driver_of(group.job)].append(group.key)

    def _add(self, task: Task) -> None:
        if task.kind == "driver":
            return
        self.children[task.parent].append(task.key)
        self.of_job[task.job].append(task.key)
        if task.made_in and not (task.made_in == task.actor and task.state in RUNNING):
            self.outside[task.made_in].append(task.key)
        if task.kind == "creation":
            self.creations[task.actor] = task.key
        if task.state in RUNNING:
            if task.actor:
                self.running[task.actor].append(task.key)
            if task.group:
                self.inside[task.group].append(task.key)
        elif task.state == WAITS_FOR_ARGUMENTS and task.actor:
            self.held_back[task.parent, task.actor].append(task.key)

    def places(self) -> Iterable[tuple[Hashable, set[Hashable]]]:
        """What several have in common, so that there are as many edges as tasks."""
        for name, members in (
            ("children", self.children),
            ("made in", self.outside),
            ("queue", self.running),
            ("job", self.of_job),
        ):
            for key, some in members.items():
                yield (name, key), set(some)

    def parties_of(self, holder: str, stuck: frozenset[str]) -> list[str]:
        """The stuck tasks because of which a holder keeps what it has."""
        if holder in self.look.tasks:
            return [holder]
        of = self.inside if holder in self.look.groups else self.running
        inside = [key for key in of.get(holder, ()) if key in stuck]
        if inside:
            return inside
        actor, group = self.look.actors.get(holder), self.look.groups.get(holder)
        job = actor.job if actor is not None else group.job if group is not None else ""
        driver = self.look.jobs[job].driver if job in self.look.jobs else ""
        return [driver] if driver in stuck else []


class _Room:
    """What each node could give if all who may move gave back what they have."""

    def __init__(self, look: Look, parts: _Index, free: set[Hashable]) -> None:
        self.look = look
        self.parts = parts
        self.free = free
        self.at_rest: dict[str, bool] = {}
        self.kept: dict[str, list[tuple[str, Mapping[str, float]]]] = defaultdict(list)
        """By node, or by group: who keeps how much."""
        for actor in look.actors.values():
            if actor.holds and actor.state == ALIVE and self._keeps(actor):
                self.kept[actor.group or actor.node].append((actor.key, actor.holds))
        for task in look.tasks.values():
            if task.state in RUNNING and task.key not in free and task.kind in ("task", "creation"):
                amounts = {name: part for name, part in task.needs.items() if name != "CPU" or task.kind == "creation"}
                if amounts and not (task.kind == "creation" and self._is_alive(task.actor)):
                    self.kept[task.group or task.node].append((task.key, amounts))
        for group in look.groups.values():
            if group.is_created and self._is_kept(group):
                for amounts, node in group.bundles:
                    self.kept[node].append((group.key, amounts))

    def _is_alive(self, actor: str) -> bool:
        found = self.look.actors.get(actor)
        return found is not None and found.state == ALIVE

    def _keeps(self, actor: Actor) -> bool:
        running = self.parts.running.get(actor.key, ())
        return any(key not in self.free for key in running) if running else self._is_job_stuck(actor.job)

    def _is_kept(self, group: Group) -> bool:
        return any(key not in self.free for key in self.parts.inside.get(group.key, ())) or self._is_job_stuck(
            group.job
        )

    def _is_job_stuck(self, job: str) -> bool:
        """Whether its driver and all that runs of it are stuck: then nobody drops or removes anything of it."""
        if job not in self.at_rest:
            told = self.look.jobs.get(job)
            running = (key for key in self.parts.of_job.get(job, ()) if self.look.tasks[key].state in RUNNING)
            self.at_rest[job] = (
                told is not None
                and not told.is_dead
                and told.driver not in self.free
                and all(key not in self.free for key in running)
            )
        return self.at_rest[job]

    def is_idle(self, holder: str) -> bool:
        """Whether it is an actor that runs nothing."""
        return holder in self.look.actors and not self.parts.running.get(holder)

    def fits(self, need: Need) -> bool:
        """Whether there is room for each part on some node, and for all together in all."""
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


def _core(helpers: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    """The members of strongly connected components that lead nowhere else (Tarjan 1972, without recursion; O(V + E))."""
    walk = _Walk(helpers)
    for key in helpers:
        if key not in walk.order:
            walk.start(key)
    core: set[str] = set()
    for component in walk.components:
        inside = set(component)
        if all(helper in inside for key in component for helper in helpers[key] if helper in helpers):
            core |= inside
    return frozenset(core)


@dataclass(slots=True)
class _Walk:
    """The state of Tarjan's search."""

    helpers: Mapping[str, tuple[str, ...]]
    order: dict[str, int] = field(default_factory=dict)
    low: dict[str, int] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    is_open: set[str] = field(default_factory=set)
    components: list[list[str]] = field(default_factory=list)

    def start(self, root: str) -> None:
        """Search from here."""
        path = [(root, iter(self._enter(root)))]
        while path:
            key, rest = path[-1]
            following = next((helper for helper in rest if helper in self.helpers), None)
            if following is None:
                path.pop()
                if path:
                    self.low[path[-1][0]] = min(self.low[path[-1][0]], self.low[key])
                if self.low[key] == self.order[key]:
                    self._close(key)
            elif following not in self.order:
                path.append((following, iter(self._enter(following))))
            elif following in self.is_open:
                self.low[key] = min(self.low[key], self.order[following])

    def _enter(self, key: str) -> tuple[str, ...]:
        self.order[key] = self.low[key] = len(self.order)
        self.open.append(key)
        self.is_open.add(key)
        return self.helpers[key]

    def _close(self, key: str) -> None:
        component: list[str] = []
        while True:
            member = self.open.pop()
            self.is_open.discard(member)
            component.append(member)
            if member == key:
                break
        self.components.append(component)
