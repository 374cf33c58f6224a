"""A rollback step by step: `protocol/rollback.py` between the worlds of two generations, and every fault of its messages.

What is asked and acknowledged is late, lost, doubled and in any order. Hosts die at any moment, the second time while the
system is still recovering from the first; their death is noticed later; loading takes a while. Meanwhile hosts that have not
been told to stop go on in the generation before, and what they send is still under way long after. Who chooses among the
steps is the caller (`storms`). Imports the standard library only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ray_snapshot.protocol.rollback import (
    NO_GENERATION,
    Acknowledge,
    Acknowledged,
    Ask,
    AskAgain,
    Asked,
    BeginGeneration,
    CoordinatorEffect,
    CoordinatorEvent,
    HostExpected,
    HostFailed,
    HostJoined,
    LoadFinished,
    LoadStates,
    Phase,
    RollbackAsked,
    RollbackCoordinator,
    RollbackHost,
    StartAccepting,
    Step,
    StopAccepting,
)
from ray_snapshot.simulation.mail.hosts import Step as WorldStep
from ray_snapshot.simulation.mail.oracle import OracleError
from worlds.mail.world import World
from worlds.rollback.restoring import begin_lineage

COORDINATOR = ""
"""Where a message to the coordinator goes."""


@dataclass(slots=True)
class Rollback:
    """The coordinator of one system, and what it and the hosts have told each other.

    `begin` makes the next world, when a generation has begun.
    """

    world: World
    begin: Callable[[], World]
    coordinator: RollbackCoordinator = field(default_factory=RollbackCoordinator)
    mail: list[tuple[str, Any]] = field(default_factory=list)
    """(to whom, event), on its way."""
    loading: list[tuple[str, int]] = field(default_factory=list)
    """(host, generation) that load."""
    unnoticed: list[tuple[str, int]] = field(default_factory=list)
    """(host, incarnation) that have died, and nobody has noticed."""
    absent: list[str] = field(default_factory=list)
    """Hosts that are to be started."""
    lives: dict[str, int] = field(default_factory=dict)
    """By host: its incarnation."""
    alive: set[str] = field(default_factory=set)
    stopped: set[tuple[str, int]] = field(default_factory=set)
    """(host, generation) of those that have stopped for it, in one life or another."""
    known: set[str] = field(default_factory=set)
    """Hosts that took part when the generation began."""

    def __post_init__(self) -> None:
        world = self.world
        begin_lineage(world)
        self.coordinator.generation = world.generation
        for name in world.hosts:
            self._live(name, world.generation)
        while self.mail:
            self.perform(("told", 0))

    @property
    def is_over(self) -> bool:
        """Whether every host runs in the generation that was begun last, as far as anybody knows."""
        return self.coordinator.is_running and not self.unnoticed

    # ---- steps ----------------------------------------------------------------------------------------------------

    def enabled(self) -> list[WorldStep]:
        """What may happen next."""
        steps: list[WorldStep] = [("told", index) for index in range(len(self.mail))]
        steps += [("loaded", index) for index in range(len(self.loading))]
        steps += [("noticed", index) for index in range(len(self.unnoticed))]
        steps += [("back", index) for index in range(len(self.absent))]
        return steps

    def perform(self, step: WorldStep, choice: int = 0) -> None:
        """One of `enabled`; or `again` (what was asked may be lost), `crash NAME`, `ask REASON`; or a fault of the mail."""
        kind, *where = step
        match kind:
            case "told":
                self._tell(*self.mail.pop(where[0]))
            case "doubled":
                self._tell(*self.mail[where[0]])
            case "lost":
                if not isinstance(self.mail[where[0]][1], HostJoined):  # who joins says so until it is heard
                    del self.mail[where[0]]
            case "loaded":
                name, generation = self.loading.pop(where[0])
                self._host(name, LoadFinished(generation))
            case "noticed":
                self._notice(*self.unnoticed.pop(where[0]), bool(choice % 2))
            case "back":
                self._live(self.absent.pop(where[0]), NO_GENERATION)
            case "again":
                self._coordinate(AskAgain())
            case "ask":
                self._coordinate(RollbackAsked(where[0]))
            case "crash":
                self._crash(where[0])

    def _tell(self, name: str, event: Any) -> None:
        if name == COORDINATOR:
            self._coordinate(event)
        elif name in self.alive:
            self._host(name, event)

    # ---- hosts ----------------------------------------------------------------------------------------------------

    def _host(self, name: str, event: Asked | LoadFinished) -> None:
        gates = self.world.lineage.gates
        before = gates[name].generation
        for effect in gates[name].step(event):
            match effect:
                case StopAccepting():
                    self._check_order(name, effect.generation)
                    self._trace(f"{name} stops, for generation {effect.generation}")
                    if name in (old := self.world.lineage.generations.get(before, self.world)).hosts:
                        old.stop(name)
                case LoadStates(generation):
                    self.loading.append((name, generation))
                case StartAccepting(generation):
                    self._trace(f"{name} starts in generation {generation}")
                    self.world.lineage.started(name)
                case Acknowledge(step, generation):
                    self.mail.append((COORDINATOR, Acknowledged(name, step, generation)))

    def _check_order(self, name: str, generation: int) -> None:
        """Of those that stop last none stops before one of the others that ran when it began. Raises `OracleError`."""
        coordinator, gates = self.coordinator, self.world.lineage.gates
        self.stopped.add((name, generation))
        others = (self.known & coordinator.done.keys() & self.alive) - coordinator.last_to_stop
        early = [
            one for one in others if (one, generation) not in self.stopped and gates[one].generation != NO_GENERATION
        ]
        if name in coordinator.last_to_stop and generation == coordinator.generation and early:
            raise OracleError(f"{name} stops last, and has stopped before {', '.join(early)}")

    def _live(self, name: str, generation: int) -> None:
        """A host has come up, and says so."""
        self.alive.add(name)
        self.lives[name] = self.world.lineage.gates[name].incarnation = self.lives.get(name, -1) + 1
        self.mail.append((COORDINATOR, HostJoined(name, self.lives[name], generation)))

    def register(self) -> bool:
        """Hosts that machines have made say so, too; returns whether there were any."""
        newborn = self.world.lineage.newborn
        are_there = bool(newborn)
        while newborn:
            self._live(*newborn.pop())
        return are_there

    def _crash(self, name: str) -> None:
        """The host is gone, with all that it kept; if it has not entered the next generation, another of its name may."""
        for world in self.world.lineage.generations.values():
            if name in world.hosts and world.runs(name):
                world.perform(("crash", name))
        self.alive.discard(name)
        self.world.lineage.gates[name] = RollbackHost(NO_GENERATION, Phase.STOPPED)
        self.world.lineage.held.pop(name, None)
        self.loading = [one for one in self.loading if one[0] != name]
        self.unnoticed.append((name, self.lives[name]))

    def _notice(self, name: str, incarnation: int, is_replaced: bool) -> None:
        self._coordinate(HostFailed(name, incarnation, 0.0, is_replaced))
        if is_replaced:
            self.absent.append(name)
        elif name not in self.absent:
            del self.world.lineage.gates[name]
            self.world.lineage.held.pop(name, None)

    # ---- the coordinator --------------------------------------------------------------------------------------------

    def _coordinate(self, event: CoordinatorEvent) -> None:
        for effect in self.coordinator.step(event):
            self._carry_out(effect)

    def _carry_out(self, effect: CoordinatorEffect) -> None:
        match effect:
            case BeginGeneration(generation):
                self.known = {*self.coordinator.done}
                for number in sorted(self.world.central.coordinator.pending):
                    self.world.perform(("abort", number))
                self.world = self.begin()
                assert self.world.generation == generation
                for name in self.world.hosts:
                    if name not in self.coordinator.done:
                        self._coordinate(HostExpected(name))
                        self.absent.append(name)
            case Ask(host, step, generation, incarnation):
                self.mail.append((host, Asked(step, generation, incarnation)))

    def _trace(self, told: str) -> None:
        if self.world.trace is not None:
            self.world.trace.append(f"      rollback: {told}")

    def finish(self) -> None:
        """No more faults: everything is told, everybody loads and is asked again until all run. Raises `OracleError`."""
        self.register()
        for _ in range(200):
            while steps := self.enabled():
                self.perform(steps[0], 1)
            if self.is_over and self.coordinator.reached == Step.START:
                return
            self.perform(("again",))
        raise OracleError(
            f"the rollback to generation {self.coordinator.generation} does not end: {self.coordinator.done}"
        )


def check_that_generations_do_not_overlap(acting: World) -> None:
    """Nobody acts in a generation before all have loaded it, nor once somebody acts in a later one. Raises `OracleError`."""
    lineage, generation = acting.lineage, acting.generation
    if any(world.log.actions for number, world in lineage.generations.items() if number > generation):
        raise OracleError(f"somebody acts in generation {generation}, and somebody has acted in a later one")
    for name in {acting.places[machine] for machine in acting.log.start} & lineage.gates.keys():
        gate = lineage.gates[name]
        if gate.generation == generation and gate.phase in (Phase.STOPPED, Phase.LOADING):
            raise OracleError(f"somebody acts in generation {generation}, which {name} has not loaded")
