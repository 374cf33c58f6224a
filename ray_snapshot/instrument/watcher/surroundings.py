"""What a cluster holds beside the processes that report: nodes, other actors of the job, plain tasks; for the coverage."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ray_snapshot.instrument import capacity, shape, task_shape
from ray_snapshot.instrument.deaths import Life
from ray_snapshot.instrument.delivery import Nodes, living_nodes
from ray_snapshot.instrument.process.unfollowed import Loose
from ray_snapshot.limits import LIMITS


@dataclass(frozen=True, slots=True)
class Seen:
    """What Ray listed before a snapshot began."""

    actors: Mapping[str, str] | None
    """The job's actors that lived, or were to: classes by key; None if Ray did not list them in time."""
    cluster: capacity.Cluster | None
    """None: not asked, for nothing waited for room when the snapshot before was taken."""
    lives: Mapping[str, Life] = field(default_factory=dict)
    """Actors of the job that have died, or were started again, by key."""


class Surroundings:
    """Those of one watched app."""

    def __init__(self, ready: Iterable[str], *, has_hook: bool) -> None:
        """`ready`: nodes that have been looked at."""
        self.uncovered: list[str] = ["nodes that have not been looked at"]
        """Nodes of which nothing is seen; this one item until Ray has listed them."""
        self.nodes = Nodes(ready, needs_hook=has_hook)
        self.node_count = 0
        self.has_hook = has_hook
        """Whether our functions are in every worker of the job."""
        self.is_room_wanted = True
        """Whether something waited for room on a node, the last time anybody looked."""

    async def look(self) -> Seen:
        """Compare the cluster's nodes with those that are ready, and list the job's actors."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(LIMITS.ray_lists_s):
                nodes = await loop.run_in_executor(None, living_nodes)
                actors, lives = await loop.run_in_executor(None, shape.actors_of_job)
        except Exception:  # whatever Ray raises: the coverage of the snapshot says what is missing
            return Seen(None, None)
        self.node_count = len(nodes)
        self.uncovered = self.nodes.uncovered(nodes)
        return Seen(actors, await self.room() if self.is_room_wanted else None, lives)

    async def room(self) -> capacity.Cluster | None:
        """Nodes and placement groups, as they are now; None if Ray does not tell in time."""
        try:
            async with asyncio.timeout(LIMITS.ray_lists_s):
                return await asyncio.get_running_loop().run_in_executor(None, capacity.cluster)
        except Exception:  # whatever Ray raises
            return None

    def apart(self, loose: Iterable[Loose], *, is_followed: bool = False) -> tuple[str, ...]:
        """Plain tasks that may still run, or what they have begun; those with handles come elsewhere.

        `is_followed`: tasks have run that are machines; only an object that is lost with its node makes Ray run one again.
        """
        every = list(loose)
        again = ("plain tasks that Ray runs again if a node is lost",) if self.node_count != 1 else ()
        if not any(one.started for one in every):
            if is_followed and task_shape.tasks_begin_more():
                return ("what plain tasks have begun",)
            return again if is_followed else ()
        if any(one.pending for one in every):
            return ("plain tasks",)
        if not self.has_hook or task_shape.tasks_begin_more():
            return ("what plain tasks have begun",)
        return again


def strangers(actors: Mapping[str, str] | None, known: Iterable[str | None]) -> list[str]:
    """Those of the job's `actors` (classes by key) whose keys are not `known`: nothing is seen of them."""
    if actors is None:
        return ["actors and nodes that Ray did not list"]
    seen = {*known}
    return [f"actor {kind} ({key[:8]})" for key, kind in actors.items() if key not in seen]
