"""A simulated host: a `HostCore`, and what Ray, its clock and its threads keep for one out there.

Everything here depends on the host alone, and on what is handed to it: `steps` lists what it could do next. Imports
the standard library only; read `simulated` next.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

from ray_snapshot.protocol.host import HostCore, Machine, OutChannel
from ray_snapshot.simulation.mail.reports import Part, late_part, part_of

Step = tuple[Any, ...]
"""(kind, where, ...); see `SimHost.steps`."""


@dataclass(slots=True)
class Body:
    """What the world hangs on a machine."""

    state: Any


@dataclass(slots=True)
class SimHost:
    """A host and what the world keeps for it."""

    core: HostCore
    timers: list[tuple[OutChannel, int]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """Names that it wants to know the place of."""
    reported: set[int] = field(default_factory=set)
    late_count: int = 0
    is_down: bool = False
    """It has crashed: it does nothing, and what reaches it is lost."""

    # ---- which steps there are ------------------------------------------------------------------------------------

    def steps(self, callers: Iterable[str], places: Collection[str], window: int) -> list[Step]:
        """What it could do next; there are replies to its `callers`, and `places` of names that it may have asked for."""
        core = self.core
        name = core.host
        steps: list[Step] = []
        if core.must_record:
            steps.append(("record", name))
        if core.births:
            steps.append(("birth", name))
        if core.runnable:
            steps.append(("accept", name))
        for caller in callers:
            steps.append(("resume", caller))
        if core.copying.uncopied:
            steps.append(("copy", name))
        for link in core.outputs.values():
            if link.in_flight < window and (link.messages or link.dirty or link.acknowledgements):
                steps.append(("flush", name))
                break
        if self.timers:
            steps += [("fire", name, index) for index in range(len(self.timers))]
        if self.asked:
            steps += [("resolve", name, asked) for asked in self.asked if asked in places]
        if core.open:
            self._reports(steps)
        return steps

    def _reports(self, steps: list[Step]) -> None:
        name, core = self.core.host, self.core
        for number, recording in core.open.items():
            if recording.is_copied and number not in self.reported:
                steps.append(("report", name, number))
            elif recording.is_copied and (recording.late or recording.late_creations):
                steps.append(("late", name, number))

    # ---- what it does ---------------------------------------------------------------------------------------------

    def ask(self) -> None:
        """It wants to know the places of the names that it has sent to."""
        self.asked += self.core.addresses.take_unresolved()

    def fire(self, index: int) -> str:
        """A timer is due."""
        channel, number = self.timers.pop(index)
        self.core.fire(channel, number)
        return f"timer {number} of {channel.owner.name} to {channel.target}"

    def resolve(self, asked: str, place: str) -> str:
        """It hears where a machine lives."""
        self.asked.remove(asked)
        self.core.resolve(asked, place)
        return f"{asked} lives on {place}"

    def copy_next(self) -> str:
        """The next machine is copied."""
        waiting = len(self.core.copying.uncopied)
        self.core.copy_next()
        return f"{waiting} to {len(self.core.copying.uncopied)} machines to copy"

    def report(self, number: int) -> Part:
        """Its part of a snapshot."""
        self.reported.add(number)
        part = part_of(self.core.host, self.core.open[number])
        part.calls = self.core.ledgers.reports(number)
        return part

    def late(self, number: int) -> Part:
        """What has come late for a snapshot since it has reported."""
        self.late_count += 1
        return late_part(self.core.host, self.late_count, self.core.open[number])


def state_of(machine: Machine) -> Any:
    """What the snapshot holds of a machine's body."""
    return machine.body.state
