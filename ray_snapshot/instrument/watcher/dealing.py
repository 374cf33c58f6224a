"""What is restored, and what each process and each host loads of it.

A process gets its actor's state, the calls that this had in flight, and its mail; a host gets, beside what the analyst has
planned for its machines, the calls that these had in flight, and handles of the actors.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from ray_snapshot.instrument.process.reloading import Share
from ray_snapshot.instrument.watcher.sections import Section
from ray_snapshot.names import DRIVER
from ray_snapshot.runtime.planning import Again, Plan

if TYPE_CHECKING:
    from ray_snapshot.instrument.watcher.processes import Processes
    from ray_snapshot.runtime.service.recovery import Target


@dataclass(slots=True)
class Way:
    """One way back: to what, why, and with whom."""

    target: str | None = None
    """The snapshot; None is the beginning."""
    hosts_target: Target | None = None
    """The same, as hosts know it."""
    section: Section = field(default_factory=Section)
    """What is restored; let go of when the way has ended."""
    is_same_run: bool = True
    """Whether what is restored is of this run; else all that the program makes belongs to it."""
    is_recovery: bool = False
    """Whether a death is the reason, so that the program's calls since are made again."""
    who: dict[str, str] = field(default_factory=dict)
    """The machines that take part, by the names in the snapshot."""
    anew: set[str] = field(default_factory=set)
    """Machines that begin anew from where their constructors ended."""
    unneeded: set[str] = field(default_factory=set)
    """Actors that were made since, and are to end when all have stopped."""
    busy: dict[str, str] = field(default_factory=dict)
    """By machine that has not stopped yet: its call site."""
    plan: Plan | None = None
    """What becomes of machines of hosts; None until that is planned, or if there are none."""
    post: bytes | None = None
    """What the program's part among these machines loads."""
    released: set[str] = field(default_factory=set)
    """Machines that have heard that all go on as they were."""
    done: asyncio.Future[None] | None = None
    """When all go on; None before it begins."""

    def names_of(self, shown: str) -> list[str]:
        """What the actor that people know by this name was called between processes in the snapshot."""
        return [name for name, known in self.section.names.items() if known == shown]


class Dealing:
    """Deals out what is restored, in one generation: in that each process is another incarnation of its machine."""

    def __init__(self, processes: Processes, way: Way, handles: Mapping[str, Any], generation: int) -> None:
        """`handles`: of the actors, by machine. From here on each process is red for all numbers so far."""
        self.processes = processes
        self.way = way
        self.handles = handles
        self.generation = generation
        facts, coordinator = processes.roster.facts, processes.coordinator
        for machine in list(coordinator.calls.machines):
            facts[machine]["incarnation"] += 1
            coordinator.join(machine, facts[machine]["incarnation"], coordinator.last)

    def to_process(self, machine: str) -> Share:
        """What a process is to load."""
        way, section, living = self.way, self.way.section, self.way.who
        shown = next((name for name, one in living.items() if one == machine), "")  # "": it came up meanwhile
        state, names = section.states.get(shown, (None, ()))
        calls = sorted((call for call in section.calls if call[0] == shown), key=lambda call: call[2])
        if machine in way.anew:
            state, names, calls = None, (), []
        if way.is_recovery and machine == DRIVER:  # its journal has them
            calls = []
        needed = {name: section.names[name] for saved in (names, *(call[-1][1] for call in calls)) for name in saved}
        needed |= {call[1]: call[1] for call in calls}
        share = Share(
            int(self.processes.roster.facts[machine]["incarnation"]),
            self.processes.coordinator.last,
            self._incarnations() | self._of_machines(),
            state,
            machine in way.anew,
            way.is_recovery,
            [(target, method, group, blob) for _, target, _, method, group, (blob, _) in calls],
            {name: self._actor(living.get(known, name)) for name, known in needed.items()},
        )
        joined, plan = self.processes.joined(), way.plan
        if plan is not None and joined is not None:
            share.joined, share.aliases = replace(joined, stopped=plan.stopped), plan.aliases
            share.post = way.post if machine == DRIVER else None
            share.mail = [one for name in way.names_of(shown) for one in plan.mail.get(name, ())]
            if share.mail:
                self.processes.senders.known.add(machine)
        return share

    def to_host(self, host: str, plan: Plan) -> Again:
        """What a host is to load beside its machines."""
        way, section = self.way, self.way.section
        here = sorted((call for call in section.calls if plan.places.get(call[0]) == host), key=lambda call: call[2])
        calls = [(source, target, method, group, blob) for source, target, _, method, group, (blob, _) in here]
        actors = {name: self._actor(way.who.get(known, name)) for name, known in section.names.items()}
        actors |= {shown: self._actor(machine) for shown, machine in way.who.items()}
        return Again(calls, actors, self._incarnations())

    def _incarnations(self) -> dict[str, int]:
        """Of the processes that go on; calls of earlier ones are of the past."""
        facts = self.processes.roster.facts
        return {name: int(facts[name]["incarnation"]) for name in self.processes.parties.machines}

    def _of_machines(self) -> dict[str, int]:
        """The same of machines, as callers of actors."""
        places = () if self.way.plan is None else self.way.plan.places
        return dict.fromkeys(places, self.processes.life() + self.generation)

    def _actor(self, machine: str) -> tuple[str, list[Any]]:
        """(machine, its handle in a list) for a name in the snapshot; all its actors are there, but those that had
        died."""
        return machine, [self.handles.get(machine)]
