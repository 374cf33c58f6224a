"""Looks at Ray's records, made up: a job whose actors, calls and tasks stand where a test says."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ray_snapshot.unprepared.judging import Finding, judge
from ray_snapshot.unprepared.records import ALIVE, Actor, Group, Job, Look, Node, Task, driver_of

JOB = "01000000"
NODE = "ab" * 28
QUEUED, RUNS, LACKS_ARGUMENTS, LACKS_ROOM = 5, 8, 1, 2

IN_GET = ["get_objects", "/x/site-packages/ray/_private/worker.py", 1, "", "None"]
IN_GET_FOR_A_WHILE = [*IN_GET[:4], "60"]
LOOP = ["main_loop", "/x/site-packages/ray/_private/worker.py", 9, "", None]


def user(method: str, text: str = "x = 1") -> list[Any]:
    return [method, "/home/u/app.py", 7, text, None]


@dataclass
class Made:
    """A cluster with one job, as one look shows it; and what its processes are seen to do."""

    tasks: dict[str, Task] = field(default_factory=dict)
    actors: dict[str, Actor] = field(default_factory=dict)
    groups: dict[str, Group] = field(default_factory=dict)
    has: dict[str, float] = field(default_factory=lambda: {"CPU": 2.0})
    told: dict[int, dict[str, Any]] = field(default_factory=dict)
    is_recorded: bool = True
    more: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.process(1, user("main"), IN_GET)

    @property
    def driver(self) -> str:
        return driver_of(JOB)

    def process(self, pid: int, *frames: list[Any], **more: Any) -> None:
        """What a process is seen to do: nothing for three seconds, in these frames (the outermost first)."""
        stack = [{"name": "MainThread", "is_active": False, "frames": [*reversed(frames), LOOP]}]
        self.told[pid] = {"seconds": 3.0, "cpu_s": 0.0, "switches": [], "threads": stack} | more

    def actor(self, kind: str = "A", state: int = ALIVE, **more: Any) -> str:
        number = len(self.actors) + 1
        key = f"{number:024x}{JOB}"
        self.actors[key] = Actor(key, JOB, kind, "", "", state, 100 + number, NODE, began_ms=number, **more)
        return key

    def call(self, actor: str, parent: str, state: int = RUNS, method: str = "A.go", **more: Any) -> str:
        """A call of an actor; one that runs is seen in `ray.get` without a time-out."""
        pid = self.actors[actor].pid
        key = self.task(parent, state, method, kind="call", actor=actor, pid=pid if state == RUNS else 0, **more)
        if state == RUNS:
            self.process(pid, user(method.rpartition(".")[2]), IN_GET)
        return key

    def task(self, parent: str, state: int = RUNS, name: str = "f", **more: Any) -> str:
        number = len(self.tasks) + 1
        actor = more.get("actor", "")
        key = f"{number:016x}" + (actor or "f" * 24 + JOB)
        given = {"kind": "task", "pid": 500 + number if state == RUNS else 0, "node": NODE} | more
        self.tasks[key] = Task(
            key, 0, JOB, given.pop("kind"), name, parent, given.pop("actor", ""), state, 10.0, **given
        )
        if state == RUNS and not actor:
            self.process(500 + number, user(name), IN_GET)
        return key

    def group(self, is_created: bool, *bundles: Mapping[str, float]) -> str:
        key = f"{len(self.groups) + 1:036x}"
        parts = tuple((bundle, NODE if is_created else "") for bundle in bundles)
        self.groups[key] = Group(key, "", JOB, "", is_created, parts)
        return key

    def look(self, at_s: float = 100.0) -> Look:
        recorded = frozenset([*self.actors, JOB]) if self.is_recorded else frozenset()
        jobs = {JOB: Job(JOB, False, 1, NODE, "python app.py", "")}
        look = Look(
            at_s, dict(self.tasks), dict(self.actors), jobs, dict(self.groups), {NODE: Node(NODE, "", self.has)}
        )
        return replace(look, **({"recorded": recorded} | self.more))

    def judged(self, before: Look | None = None) -> Finding:
        """The verdict on two looks between which nothing moved, or on one before and this."""
        (found,) = judge(before or self.look(97.0), self.look(), {NODE: self.told}, [JOB])
        return found
