"""From two looks, and what the processes did meanwhile, to a verdict on each program. Pure.

Suspected: a core of which every running member stands in a wait of Ray's without a time-out. Unknown: what is missing to say
so, or to say no. A doubt is never a suspicion.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ray_snapshot.limits import LIMITS
from ray_snapshot.names import LONG_S, NAMESPACE
from ray_snapshot.unprepared.graph import ALONE, ANY, FREE, Graph, Stuck, moved
from ray_snapshot.unprepared.records import ALIVE, RUNNING, Actor, Job, Look, Task
from ray_snapshot.unprepared.stacks import ACTS, PARKED, UNSEEN, WAITS, Reading, reading

SUSPECTED, NONE, UNKNOWN = "suspected", "none", "unknown"


_POLLS, _TICKS = 3.5, 0.3
"""Context switches a second of a thread: in a wait of Ray's it looks for signals once a second."""


_LONGEST_NAME = 15
"""Of a thread's name Linux keeps so much."""

Told = Mapping[str, Mapping[int, Mapping[str, Any]] | str]
"""By node: by process what `evidence.examine` found, or why it could not be asked."""


@dataclass(slots=True)
class Finding:
    """What can be said of one program."""

    job: Job
    verdict: str
    graph: Graph
    stuck: Stuck
    readings: Mapping[str, Reading]
    reasons: list[str] = field(default_factory=list)
    """Why it is unknown; with a suspicion: what else should be known."""
    core: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()


def place_of(task: Task, look: Look) -> tuple[str, int]:
    """The node and the process id of what runs."""
    if task.kind == "driver":
        job = look.jobs[task.job]
        return job.node, job.pid
    actor = look.actors.get(task.actor)
    if actor is None:
        return task.node, task.pid
    return task.node or actor.node, task.pid or actor.pid  # of a constructor that runs, Ray records the process alone


def first_suspects(look: Look) -> list[Task]:
    """What runs, those first of which the records alone do not say that they can move: the first look's."""
    graph = Graph(look)
    found = graph.stuck()
    return sorted(graph.parties.values(), key=lambda task: (task.key not in found.core, task.key not in found.nodes))


def judge(first: Look, second: Look, told: Told, jobs: Iterable[str]) -> list[Finding]:
    """A finding for each of these programs, the busy ones first."""
    changed = moved(first, second)
    graph = Graph(second, changed)
    read = {key: _reading(task, second, told) for key, task in graph.parties.items()}
    sure = graph.stuck(changed | _those(read, ACTS, PARKED, UNSEEN), lambda _: ANY)
    acting, leaf = changed | _those(read, ACTS, PARKED), _leaf(read, {WAITS: ANY}, FREE)
    doubtful = graph.stuck(acting, leaf)
    still = graph.stuck(changed | _those(read, ACTS), _leaf(read, {WAITS: ANY}, ALONE))
    judged = [
        _Judging(graph, read, sure, doubtful, still, second.jobs[job], graph.stuck(acting, leaf, job), first).finding()
        for job in jobs
    ]
    counts = Counter(task.job for task in second.tasks.values())
    return sorted(judged, key=lambda one: -counts[one.job.key])


def _those(read: Mapping[str, Reading], *states: str) -> frozenset[str]:
    return frozenset(key for key, one in read.items() if one.state in states)


def _leaf(read: Mapping[str, Reading], by_state: Mapping[str, str], otherwise: str) -> Any:
    return lambda task: by_state.get(read[task.key].state, otherwise)


def _reading(task: Task, look: Look, told: Told) -> Reading:
    """What a running task does, as far as its process shows."""
    node, pid = place_of(task, look)
    of_node = told.get(node, "its node was not asked")
    if isinstance(of_node, str):
        return Reading(UNSEEN, of_node)
    seen = of_node.get(pid)
    if seen is None:
        return Reading(UNSEEN, "its process could not be looked at")
    method = None if task.kind == "driver" else task.name
    shown = reading(seen["threads"], method) if "threads" in seen else None
    frames = shown.frames if shown else ()
    if seen["cpu_s"] > LIMITS.standing_core_share * seen["seconds"]:
        return Reading(ACTS, "computes", frames)
    threads = _threads(task, look, seen["switches"])
    rates = [count / seen["seconds"] for count, _ in threads]
    if rates and max(rates) > _POLLS:
        return Reading(ACTS, "wakes again and again", frames)
    if shown is not None:
        return shown
    if any(sleeps for _, sleeps in threads):
        return Reading(ACTS, "sleeps")
    if not rates:
        return Reading(UNSEEN, "its thread could not be told from others")
    if max(rates) >= _TICKS:
        return Reading(WAITS, "stands still as a wait of Ray's does")
    return Reading(PARKED, "stands still, and not in a wait of Ray's")


def _threads(task: Task, look: Look, seen: Iterable[tuple[str, int, bool, bool]]) -> list[tuple[int, bool]]:
    """Of the threads in which it may run, the context switches, and whether it was seen to sleep; none if not to be told."""
    if task.kind == "driver":
        return [(count, sleeps) for _, count, is_first, sleeps in seen if is_first]
    name = f"ray::{task.name}"[:_LONGEST_NAME]
    found = [(count, sleeps) for other, count, _, sleeps in seen if other == name]
    actor = look.actors.get(task.actor)
    if actor is not None and f"ray::{actor.kind}"[:_LONGEST_NAME] == name and len(found) > 1:
        return []
    return found


@dataclass(slots=True)
class _Judging:
    """One program, with what is stuck under three assumptions about what could not be seen."""

    graph: Graph
    read: Mapping[str, Reading]
    sure: Stuck
    doubtful: Stuck
    """If those wait in Ray that could not be seen."""
    still: Stuck
    """If also nothing sets those free that stand still outside of Ray."""
    job: Job
    alone: Stuck
    """If other programs keep the room that they hold."""
    before: Look
    """The first look."""

    @property
    def look(self) -> Look:
        return self.graph.look

    def finding(self) -> Finding:
        if self._has_waiting(self.sure):
            doubts = self._doubts(self.sure)
            verdict = UNKNOWN if doubts else SUSPECTED
            return self._made(verdict, self.sure, [*doubts, *self._without_stacks(), *self._gaps()])
        if self._has_waiting(self.doubtful):
            return self._made(UNKNOWN, self.doubtful, [*self._unseen(self.doubtful, (UNSEEN,)), *self._gaps()])
        if any(key in self.still.nodes and self.read[key].state == WAITS for key in self._own_parties()):
            return self._made(UNKNOWN, self.still, [*self._unseen(self.still, (PARKED, UNSEEN)), *self._gaps()])
        gaps = [*self._held_by_others(), *self._gaps()]
        return self._made(UNKNOWN if gaps else NONE, self.sure, gaps)

    def _restarting(self) -> list[str]:
        """Actors that are started again and again while something of theirs is unfinished."""
        unfinished: dict[str, list[Task]] = defaultdict(list)
        for task in self.look.tasks.values():
            if task.job == self.job.key and task.actor:
                unfinished[task.actor].append(task)
        found = []
        for key, tasks in unfinished.items():
            actor = self.look.actors.get(key)
            if (
                actor is not None
                and actor.restarts >= LIMITS.looping_restarts
                and self._age(actor.changed_ms) <= LIMITS.looping_s
            ):
                period = f" in {self._age(actor.began_ms):.0f} s" if actor.began_ms else ""
                text = f"{{{key}}} has been restarted {actor.restarts} times{period}, {self._died_in(actor, tasks)}"
                pid = self.before.actors[key].pid if key in self.before.actors else 0
                found.append(", ".join(filter(None, (text, self.look.exits.get(pid)))))
        return found

    def _died_in(self, actor: Actor, tasks: Iterable[Task]) -> str:
        """In which call it was when it died: of those that were begun as often, the one that runs, or the only one."""
        often = [task for task in tasks if task.attempt >= actor.restarts - 1]
        often = [task for task in often if task.state in RUNNING] or often
        if len(often) != 1:
            return f"and has still to do {', '.join(sorted({task.name for task in tasks}))}"
        read = self.read.get(often[0].key)
        place = f" ({read.frames[0].file}:{read.frames[0].line})" if read and read.frames else ""
        return f"each time inside {often[0].name}{place}"

    def _age(self, ms: int) -> float:
        return self.look.at_s - ms / 1_000

    def _held_by_others(self) -> list[str]:
        """What has waited for room for long that only other programs, or actors that have outlived theirs, could make."""
        if not any(key in self.alone.nodes for key in self._own_parties()):
            return []
        needs = [key for key in self._of_job(self.alone.nodes & self.graph.needs.keys()) if self._waited(key) >= LONG_S]
        return [f"whether other programs give back the room that {{{key}}} waits for" for key in needs[:1]]

    def _has_waiting(self, of: Stuck) -> bool:
        """Whether there is a core with more than drivers, and it is no demand for which nobody waits."""
        more = [key for key in self._of_job(of.core) if key != self.job.driver]
        return bool(more) and any(key in of.nodes for key in self._own_parties())

    def _made(self, verdict: str, of: Stuck, reasons: list[str]) -> Finding:
        core, behind = self._of_job(of.core), self._of_job(of.keys - of.core)
        return Finding(
            self.job, verdict, self.graph, of, self.read, reasons, tuple(sorted(core)), tuple(sorted(behind))
        )

    def _of_job(self, keys: Iterable[str]) -> list[str]:
        return [key for key in keys if self._job_of(key) == self.job.key]

    def _job_of(self, key: str) -> str:
        party = self.graph.parties.get(key)
        return party.job if party is not None else self.graph.needs[key].job

    def _own_parties(self) -> list[str]:
        return [key for key in self.read if self._job_of(key) == self.job.key]

    def _doubts(self, of: Stuck) -> list[str]:
        """What could still make room for a core that waits for room."""
        wanting = [key for key in self._of_job(of.core) if key in self.graph.needs]
        if not wanting:
            return []
        if self.look.grows is not False:
            return ["it waits for room, and an autoscaler may add a node"]
        if resting := of.rest_on_idle & set(wanting):
            waited = max(map(self._waited, resting))
            if waited < LIMITS.idle_holder_s:
                return [
                    f"it has waited for room for {waited:.0f} s, and actors at rest hold it: Ray may still free one of which no"
                    f" handle is left; ask again in {LIMITS.idle_holder_s - waited + 1:.0f} s"
                ]
        return []

    def _waited(self, key: str) -> float:
        tasks = self.graph.needs[key].tasks
        return self.look.at_s - min((self.look.tasks[task].since_s for task in tasks), default=0.0)

    def _unseen(self, of: Stuck, states: tuple[str, ...]) -> list[str]:
        """Why it is not known of the members of a core what they do."""
        keys = [key for key in of.keys if key in self.read and self.read[key].state in states]
        keys = [key for key in keys if key in of.core] or keys
        whys = {self.read[key].why: key for key in reversed(keys) if self._job_of(key) == self.job.key}
        return [f"{{{key}}}: {why}" for why, key in whys.items()] or ["what it waits for is not recorded"]

    def _without_stacks(self) -> list[str]:
        """What the core rests on where no stack shows its waits."""
        dark = [key for key in self._of_job(self.sure.core) if key in self.read and not self.read[key].frames]
        return ["without stacks: waits in Ray that have a time-out look the same"] if dark else []

    def _gaps(self) -> list[str]:
        """What Ray does not tell, or what begins again and again, so that nothing can be ruled out."""
        found = self._restarting()
        if self.job.is_dead:
            found.append("driver gone: Ray ends its actors, but those that are detached, by itself")
        if self.job.key not in self.look.recorded and not self.job.is_dead:
            found.append(
                "Ray's control store has no record of it: task events are switched off, or go to the dashboard"
                " (RAY_enable_task_events_to_dashboard_head)"
            )
        elif silent := self._silent():
            found.append(
                f"{len(silent)} living actors have no record at all ({', '.join(silent[:3])}): task events are switched off for"
                " them, as Ray Serve does for its own"
                if len(silent) > 1
                else f"a living actor has no record at all ({silent[0]}): task events are switched off for it"
            )
        if self.look.may_be_incomplete:
            found.append(
                f"records may be incomplete: the control store has {self.look.count:,} and drops some from"
                f" {self.look.maximum:,} on"
            )
        return found

    def _silent(self) -> list[str]:
        return sorted(
            actor.name or actor.kind
            for actor in self.look.actors.values()
            if actor.job == self.job.key
            and actor.state == ALIVE
            and actor.namespace != NAMESPACE
            and actor.key not in self.look.recorded
        )
