"""What a snapshot of calls is put together from, as the watcher hands it over; see `joined`.

Imports neither Arrow nor numpy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ray_snapshot.instrument.here import class_in
from ray_snapshot.instrument.process.reports import ProcessReport
from ray_snapshot.protocol.call_collector import CallsOf, CompletedCallSnapshot, ResolvedWait
from ray_snapshot.protocol.tasks import function_of, is_task, is_worker
from ray_snapshot.runtime.collected import MachineCalls, SnapshotHeader

if TYPE_CHECKING:
    from ray_snapshot.instrument.watcher.resources import Looks
    from ray_snapshot.snapshot import Snapshot


ENDED_TASKS = "ended tasks"
"""Who has sent what plain tasks had sent that have ended."""


@dataclass(frozen=True, slots=True)
class CollectedCalls:
    """All that a snapshot of calls is put together from."""

    header: SnapshotHeader
    completed: CompletedCallSnapshot
    recorded: Mapping[str, ProcessReport]
    facts: Mapping[str, Mapping[str, Any]]
    """Per machine: what its process said of it when it was registered, and `shown`, its name for people."""
    apart: tuple[str, ...] = ()
    """What may go on and can reach no machine."""
    happened: tuple[Mapping[str, Any], ...] = ()
    """Deaths, restarts, and errors that nobody has read; see `happened`."""
    groups: tuple[Mapping[str, Any], ...] = ()
    """Groups of ranks of which some stand in a collective; see `rank_groups`."""
    delayed_replies: tuple[tuple[ResolvedWait, float], ...] = ()
    """Waits whose calls have ended for long, and since when; see `delayed_calls`."""
    delayed_calls: tuple[tuple[CallsOf, int, float], ...] = ()
    """Calls that nothing known keeps from beginning for long: channel, number, and since when."""
    just_answered: frozenset[str] = frozenset()
    """Machines that a reply may be about to reach; see `delayed_calls`."""
    still_since: float = 0.0
    """Since then nothing has moved."""
    traces: tuple[bytes, ...] = ()
    """Apps that we did not write are not traced."""
    reserved: Mapping[str, str] = field(default_factory=dict)
    """Names for people of machines that have not registered: their constructors have not begun, or they are not watched."""
    parts: list[bytes] = field(default_factory=list)
    """Pickled `HostPart`s, if machines of hosts are of the same system."""
    hosted: tuple[MachineCalls, ...] = ()
    """What those machines have to do with the actors."""
    sections: tuple[bytes, ...] = ()
    """What a restore needs of those machines (`checkpointing.Section`)."""
    life: int = 0
    """Which of the systems that have joined the watch they are."""
    tells_callers: bool = False
    """Whether the coverage says who may end the machines that are blocked."""
    looks: Looks | None = None
    """What Ray told of nodes, if something waits for room on one."""
    sections_of_actors: int = 1
    """How many of `checkpoints`, the first, are not of hosts."""
    kept: None = None
    """No rows have stayed anywhere."""

    def shown(self, machine: str) -> str:
        """What people call a machine."""
        found = self.facts.get(machine)
        if found is not None:
            return str(found["shown"])
        if is_worker(machine):
            return ENDED_TASKS
        if is_task(machine) and machine not in self.reserved:  # no worker has begun it
            return f"{function_of(machine)}()"
        return self.reserved.get(machine, class_in(machine))

    def snapshot(self) -> Snapshot:
        """The snapshot of the collection; O(machines + channels + calls)."""
        if self.parts:
            from ray_snapshot.instrument.watcher.joint import joint

            return joint(self)
        from ray_snapshot.instrument.watcher.joined import Tables

        return Tables(self).snapshot()

    @property
    def checkpoints(self) -> tuple[bytes, ...]:
        """What a restore needs of it; ask only if there are no obstacles."""
        from ray_snapshot.instrument.watcher.sections import section_of

        return (section_of(self).dumps(), *self.sections)
