"""Apps by chance in which actors and plain tasks have too little room, and whole snapshots of them, with looks at the nodes.

An app has one or two nodes, and one more may join. Its driver makes actors, some of which make others; tasks and methods start
tasks, call actors and wait. Actors of their own are dropped by who has made them. What a snapshot concludes is the detectors'
business: `Cut` has all that they need. Imports the standard library only; read `nodes` first.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass, field

from ray_snapshot.protocol.call_collector import CompletedCallSnapshot, PendingCallSnapshot
from ray_snapshot.protocol.call_messages import MachineReport
from ray_snapshot.protocol.demands import NOTHING, Demand, demand
from ray_snapshot.simulation.mail.oracle import OracleError
from worlds import replay
from worlds.calls.central import Step
from worlds.calls.nodes import CPU, Amounts, Nodes
from worlds.calls.programs import Call, Create, Drop, Fail, Get, Kind, Program, Start, Work
from worlds.calls.programs import Step as ProgramStep
from worlds.calls.schedules import check_end
from worlds.calls.world import APP, CallWorld
from worlds.mail.every_order import calm

LEVELS = 3
"""Functions `f0` to `f2`, methods `m0` to `m2`; each starts and calls only lower ones, so that an app ends if it can."""

SEAT = "seat"
"""A custom resource."""

DEMANDS = (
    NOTHING,
    *(3 * [demand({CPU: 1})]),
    demand({CPU: 0.5}),
    demand({CPU: 2}),
    demand({SEAT: 1}),
    demand({CPU: 1, SEAT: 1}),
    demand({CPU: 1}, node="n1"),
)

SOME = DEMANDS[1:]
"""Those that demand anything."""

Look = Mapping[str, Amounts]
"""What each node has, at one moment."""


@dataclass
class Cut:
    """A snapshot that is complete, or will be, as a watcher gets it."""

    number: int
    before: Look
    """The nodes before anything was asked to record."""
    pending: PendingCallSnapshot
    was_still: bool
    """Whether nothing could happen in the app when it was begun."""
    after: Look | None = None
    """And when the last report had come; None: it is not complete."""
    joined: int = 0
    """How many nodes had joined by then."""

    @property
    def reports(self) -> Mapping[str, MachineReport]:
        """What each process has told, of those that have left their final counts."""
        return {**self.pending.final, **self.pending.reports}

    @property
    def completed(self) -> CompletedCallSnapshot:
        """The join of the reports."""
        return self.pending.completed()


@dataclass
class Crowd:
    """A run, and its snapshots."""

    world: CallWorld
    cuts: list[Cut] = field(default_factory=list)
    joins: list[int] = field(default_factory=list)
    """At which events nodes joined."""

    def perform(self, step: Step) -> None:
        """Take one step of the world, and look at its nodes if that begins or ends a snapshot."""
        coordinator = self.world.central.coordinator
        before, was_still = self.world.nodes.look(), step == ("snapshot",) and self.is_still
        if step[0] == "join":
            self.joins.append(len(self.world.log.events))
        self.world.perform(step)
        if step == ("snapshot",):
            self._begin(before, was_still=was_still)
        for cut in self.cuts:
            if cut.after is None and cut.number not in coordinator.pending:
                cut.after, cut.joined = self.world.nodes.look(), len(self.joins)

    def _begin(self, before: Look, *, was_still: bool) -> None:
        """Nothing is begun while too many are open; and where no process is left, it is over at once."""
        coordinator = self.world.central.coordinator
        pending = coordinator.calls.pending.get(coordinator.last)
        if pending is not None and all(cut.pending is not pending for cut in self.cuts):
            self.cuts.append(Cut(coordinator.last, before, pending, was_still))

    def enabled(self) -> list[Step]:
        """Every step that something waits for."""
        return self.world.enabled()

    @property
    def is_still(self) -> bool:
        """Whether nothing can happen in the app, unless a node joins."""
        return not any(step[0] in APP for step in self.world.enabled())


# ---- apps by chance -------------------------------------------------------------------------------------------------


def crowd_by_chance(chance: random.Random, trace: list[str] | None = None) -> Crowd:
    """Up to three actors, three functions, and nodes that are small for them."""
    actors = ["a", "b", "c"][: chance.randrange(1, 4)]
    called = actors if chance.random() < 0.3 else []
    functions = {f"f{level}": _program(level, called, chance) for level in range(LEVELS)}
    demands = {name: chance.choice(DEMANDS) for name in functions}
    kinds = {"Leaf": Kind({"m0": (Work(),)})}
    for name in actors:
        methods = {f"m{level}": _program(level, actors, chance) for level in range(LEVELS)}
        if chance.random() < 0.2:
            methods["__init__"] = _with_a_child(f"{name}kid", chance) or _program(1, [], chance)
        kinds[name.upper()] = Kind(methods, chance.choice((1, 2, 2)))
    whole = {name: _demanding(kind, demands) for name, kind in kinds.items()}
    driver = _demanding(Kind({"main": _driver(actors, chance)}), demands).methods["main"]
    tasks = _demanding(Kind(functions), demands).methods
    nodes = Nodes({name: _node(chance) for name in ("n1", "n2")[: chance.randrange(1, 3)]})
    if chance.random() < 0.4:
        nodes.coming["n3"] = _node(chance)
    return Crowd(CallWorld(whole, {}, driver, functions=tasks, nodes=nodes, trace=trace))


def _node(chance: random.Random) -> Amounts:
    return {CPU: chance.choice((1.0, 1.0, 2.0, 3.0)), SEAT: chance.choice((0.0, 1.0, 1.0, 2.0))}


def _demanding(kind: Kind, demands: Mapping[str, Demand]) -> Kind:
    """The same, each task with the demand of its function."""
    methods = {name: tuple(_with_demand(step, demands) for step in steps) for name, steps in kind.methods.items()}
    return Kind(methods, kind.slots)


def _with_demand(step: ProgramStep, demands: Mapping[str, Demand]) -> ProgramStep:
    if not isinstance(step, Start):
        return step
    return Start(step.function, step.needs, step.gives, step.is_retried, demands[step.function])


def _program(level: int, actors: list[str], chance: random.Random) -> Program:
    steps: list[ProgramStep] = []
    unread = list[int]()
    refs = 1  # one ref comes with each call
    for _ in range(chance.randrange(1, 5)):
        dice = chance.random()
        if level and dice < 0.6:
            steps.append(_call(level, actors, unread, chance))
            unread.append(refs)
            refs += 1
        elif unread and dice < 0.9:
            steps.append(_get(unread, chance))
        else:
            steps.append(Fail() if dice > 0.98 else Work())
    if unread and chance.random() < 0.6:
        steps.append(Get(tuple(unread)))
    return tuple(steps)


def _get(unread: list[int], chance: random.Random) -> Get:
    chosen = sorted(chance.sample(unread, chance.randrange(1, len(unread) + 1)))
    return Get(tuple(chosen), chance.choice((0, 0, 1)), has_timeout=chance.random() < 0.05)


def _call(level: int, actors: list[str], unread: list[int], chance: random.Random) -> Call | Start:
    needs = tuple(chance.sample(unread, 1)) if unread and chance.random() < 0.35 else ()
    if not actors or chance.random() < 0.6:
        return Start(f"f{chance.randrange(level)}", needs, (0,))
    return Call(chance.choice(actors), f"m{chance.randrange(level)}", needs, (0,))


def _with_a_child(child: str, chance: random.Random) -> Program:
    """An actor of one's own, made, called, and perhaps dropped; `gives` nothing, so nobody else has a handle."""
    steps: tuple[ProgramStep, ...] = (Create(child, "Leaf", (), chance.choice(SOME)), Call(child, "m0"))
    steps += ((Get((2,)),) if chance.random() < 0.6 else ()) + ((Drop(child),) if chance.random() < 0.7 else ())
    return steps if chance.random() < 0.7 else ()


def _driver(actors: list[str], chance: random.Random) -> Program:
    steps: list[ProgramStep] = [Start("f0", (), ())]
    steps += [Create(name, name.upper(), (0,), chance.choice(DEMANDS)) for name in actors]
    refs = len(steps)
    if chance.random() < 0.5:
        steps += [Create("own", "Leaf", (), chance.choice(SOME)), Call("own", "m0")]
        steps += [Get((refs + 1,))] if chance.random() < 0.7 else []
        refs += 2
    own = range(refs - 2, refs) if Call("own", "m0") in steps else range(0)
    for _ in range(chance.randrange(2, 6)):
        level = chance.choice((1, 2, 2))
        is_task = chance.random() < 0.4
        steps.append(Start(f"f{level}", (), (0,)) if is_task else Call(chance.choice(actors), f"m{level}", (), (0,)))
        refs += 1
        if chance.random() < 0.2:
            steps.append(Get((chance.randrange(refs),)))
    if own and chance.random() < 0.8:
        steps += [*chance.choice(((), (Work(), Work()))), Drop("own")]
    return (*steps, Get(tuple(ref for ref in range(refs) if ref not in own)))


# ---- seeds ----------------------------------------------------------------------------------------------------------


def run_crowd(seed: int, trace: list[str] | None = None, steps: int = 150) -> Crowd:
    """A run with snapshots at any moment, then in quiet, and one snapshot more of what stands still.

    The theorem is checked; raises `OracleError` with what replays it.
    """
    try:
        chance = random.Random(seed)
        crowd = crowd_by_chance(chance, trace)
        for _ in range(steps):
            crowd.perform(_chosen(crowd, chance))
        calm(crowd)
        crowd.perform(("snapshot",))
        calm(crowd)
        check_end(crowd.world, is_roomy=False)
    except Exception as error:
        raise OracleError(f"{type(error).__name__}: {error}\n{replay('crowd', seed)}") from error
    return crowd


def _chosen(crowd: Crowd, chance: random.Random) -> Step:
    coming, steps = sorted(crowd.world.nodes.coming), crowd.world.enabled()
    dice = chance.random()
    if dice < 0.05 or not steps:
        return ("snapshot",)
    if coming and dice < (0.07 if crowd.world.central.coordinator.pending else 0.052):
        return ("join", coming[0])
    sooner = [step for step in steps if step[0] != "end"]  # that takes Ray some time
    if not sooner and dice < 0.5:
        return ("snapshot",)
    return chance.choice(sooner if sooner and dice < 0.97 else steps)
