"""Who chooses the steps of a world of calls: a seed, a script, or everyone in turn (every order).

A seeded run is an app made by chance, run with faults first, then in quiet: by the end every open snapshot must be complete,
however many calls are blocked for good. Imports the standard library only.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator
from dataclasses import dataclass

from ray_snapshot.simulation.mail.oracle import OracleError
from worlds import replay
from worlds.calls.central import Step
from worlds.calls.oracle import check_calls
from worlds.calls.programs import Call, Create, Fail, Get, Kind, Notify, Park, Program, Start, Work
from worlds.calls.programs import Step as ProgramStep
from worlds.calls.world import CallWorld
from worlds.mail.every_order import Explored, calm, explored

LEVELS = 3
"""Methods `m0` to `m2`; each calls only lower ones, so that an app ends if it does not deadlock."""

SLOTS = {"Sync": 1, "Pair": 2, "Many": 4}


@dataclass(frozen=True, slots=True)
class CallProfile:
    """What kind of app a seed is tried on."""

    machines: int = 4
    steps: int = 220
    raises: bool = False
    """Submitting raises now and then."""
    loses: float = 0.0
    """How often, a step, a call is lost or cancelled."""
    repeats: float = 0.0
    retries: bool = False
    """Calls may be executed again, and machines start again when they die."""
    dies: float = 0.0
    births: bool = False
    parks: bool = False
    fails: bool = False
    """Methods raise now and then."""
    tasks: bool = False
    """Some calls are plain tasks."""
    aborts: bool = False
    acks_get_lost: bool = False


CALL_PROFILES = {
    "plain": CallProfile(),
    "pairs": CallProfile(machines=2),
    "births": CallProfile(machines=2, births=True),
    "parked": CallProfile(machines=3, parks=True),
    "failing": CallProfile(fails=True),
    "lost": CallProfile(loses=0.03, raises=True),
    "repeated": CallProfile(repeats=0.05, retries=True),
    "deaths": CallProfile(dies=0.01),
    "restarts": CallProfile(dies=0.015, retries=True, births=True),
    "tasks": CallProfile(machines=3, tasks=True),
    "tasks alone": CallProfile(machines=1, tasks=True, aborts=True),
    "tasks and parked": CallProfile(machines=2, tasks=True, parks=True),
    "tasks that fail": CallProfile(machines=1, tasks=True, fails=True, retries=True, loses=0.03),
    "workers that die": CallProfile(machines=2, tasks=True, retries=True, dies=0.01, births=True),
    "everything": CallProfile(
        raises=True,
        loses=0.01,
        repeats=0.02,
        retries=True,
        dies=0.005,
        births=True,
        parks=True,
        fails=True,
        tasks=True,
        aborts=True,
        acks_get_lost=True,
    ),
}


# ---- apps by chance -------------------------------------------------------------------------------------------------


def build(profile: CallProfile, chance: random.Random, trace: list[str] | None = None) -> CallWorld:
    """An app by chance: a few classes with methods that call each other's, and a driver that calls them."""
    names = [f"a{index}" for index in range(profile.machines)]
    everyone = [*names, *(["kid0", "kid1"] if profile.births else [])]
    kinds = {}
    for name, slots in SLOTS.items():
        methods: dict[str, Program] = {"start": (Work(),)}
        methods |= {f"m{level}": _method(profile, level, everyone, chance) for level in range(LEVELS)}
        if profile.births and chance.random() < 0.4:
            methods["__init__"] = _method(profile, 1, names, chance)
        kinds[name] = Kind(methods, slots, can_restart=profile.retries)
    machines = {name: chance.choice([*SLOTS]) for name in names}
    functions = {f"f{level}": _function(profile, level, everyone, chance) for level in range(LEVELS * profile.tasks)}
    return CallWorld(kinds, machines, _driver(profile, everyone, chance), functions=functions, trace=trace)


def _function(profile: CallProfile, level: int, names: list[str], chance: random.Random) -> Program:
    """A plain task does what methods do, but for parking: nothing calls it."""
    program = _method(profile, level, names, chance)
    return tuple(step for step in program if not isinstance(step, (Park, Notify))) or (Work(),)


def _method(profile: CallProfile, level: int, names: list[str], chance: random.Random, most: int = 4) -> Program:
    steps: list[ProgramStep] = []
    refs = 1  # one ref comes with each call
    unread = [0]
    for _ in range(chance.randrange(1, most + 1)):
        dice = chance.random()
        if level and dice < 0.55:
            steps.append(_call(profile, level, names, unread, chance))
            unread.append(refs)
            refs += 1
        elif unread and dice < 0.85:
            chosen = sorted(chance.sample(unread, chance.randrange(1, len(unread) + 1)))
            steps.append(Get(tuple(chosen), chance.choice([0, 0, 1]), has_timeout=chance.random() < 0.1))
        elif profile.parks and dice < 0.93:
            steps.append(Park() if chance.random() < 0.35 else Notify())
        elif profile.fails and dice > 0.95:
            steps.append(Fail())
        else:
            steps.append(Work())
    return tuple(steps)


def _call(profile: CallProfile, level: int, names: list[str], unread: list[int], chance: random.Random) -> Call | Start:
    needs = tuple(chance.sample(unread, 1)) if unread and chance.random() < 0.25 else ()
    gives = (chance.choice(unread) if unread and chance.random() < 0.5 else 0,)
    if profile.tasks and chance.random() < 0.5:
        return Start(f"f{chance.randrange(level)}", needs, gives, profile.retries and chance.random() < 0.6)
    method = f"m{chance.randrange(level)}"
    return Call(chance.choice(names), method, needs, gives, profile.retries and chance.random() < 0.6)


def _driver(profile: CallProfile, names: list[str], chance: random.Random) -> Program:
    steps: list[ProgramStep] = [Work(), Call(names[0], "start", (), (), profile.retries)]
    if profile.births:
        steps += [Create(child, chance.choice([*SLOTS]), (0,)) for child in ("kid0", "kid1")]
    refs = len(steps) - 1
    for _ in range(chance.randrange(3, 8)):
        give = chance.randrange(refs)
        target, level = chance.choice(names), chance.choice([1, 2, 2])
        is_retried = profile.retries and chance.random() < 0.6
        is_task = profile.tasks and chance.random() < 0.5
        start = Start(f"f{level}", (), (give,), is_retried)
        steps.append(start if is_task else Call(target, f"m{level}", (), (give,), is_retried))
        refs += 1
        if chance.random() < 0.4:
            steps.append(Get((chance.randrange(refs),)))
    return tuple(steps)


# ---- seeds ----------------------------------------------------------------------------------------------------------


def run_calls(name: str, seed: int, trace: list[str] | None = None) -> CallWorld:
    """One run of the profile `name`, checked; raises `OracleError` with what replays it."""
    try:
        world = _run(CALL_PROFILES[name], random.Random(seed), trace)
        check_end(world)
    except Exception as error:
        raise OracleError(
            f"seed {seed} of profile {name}: {type(error).__name__}: {error}\n{replay(f'calls/{name}', seed)}"
        ) from error
    return world


def _run(profile: CallProfile, chance: random.Random, trace: list[str] | None) -> CallWorld:
    world = build(profile, chance, trace)
    for _ in range(profile.steps):
        _disturb(world, profile, chance)
        steps = world.enabled()
        if steps:
            step = _faulty(chance.choice(steps), profile, chance)
            world.perform(step, chance.randrange(1, 1 << 20) if profile.raises else 0)
    calm(world)
    world.perform(("snapshot",))
    calm(world)
    return world


def _disturb(world: CallWorld, profile: CallProfile, chance: random.Random) -> None:
    """What no step asks for: snapshots, and what goes wrong."""
    dice = chance.random()
    if dice < 0.03:
        world.perform(("snapshot",))
    elif dice < 0.035 and profile.aborts and world.central.coordinator.pending:
        world.perform(("abort", chance.choice(sorted(world.central.coordinator.pending))))
    if chance.random() < profile.loses:
        _lose(world, chance)
    if chance.random() < profile.repeats:
        again = [
            index for index, call in enumerate(world.ray.network) if call.header[5] and call.header[2]
        ]  # tasks have 0
        if again:
            world.perform(("repeat", chance.choice(again)))
    if len(world.alive) > 1 and chance.random() < profile.dies:
        world.perform(("die", chance.choice(sorted(world.alive))))


def _lose(world: CallWorld, chance: random.Random) -> None:
    """A call is lost on its way, or cancelled while it waits; constructors are neither."""
    flying = [("lose", at) for at, call in enumerate(world.ray.network) if call.header[2] or world.pool.can_lose(call)]
    waiting = [
        ("cancel", name, key)
        for name, machine in world.alive.items()
        for key, run in machine.runs.items()
        if key is not None and run.wait_id is not None and _runs_once(key, machine.runs)
    ]
    if flying or waiting:
        world.perform(chance.choice([*flying, *waiting]))


def _runs_once(key: str, runs: Collection[str | None]) -> bool:
    same = [one for one in runs if one is not None and one.partition("#")[0] == key]
    return same == [key] and not key.endswith("/0")


def _faulty(step: Step, profile: CallProfile, chance: random.Random) -> Step:
    """Sometimes a control message comes twice, and an acknowledgement not at all."""
    if step[0] != "control":
        return step
    if chance.random() < 0.1:
        return ("echo", *step[1:])
    return ("mislay", *step[1:]) if profile.acks_get_lost and chance.random() < 0.2 else step


def check_end(world: CallWorld, *, is_roomy: bool = True) -> None:
    """Nothing is left to happen: then nothing may be open, and every snapshot must be right. Raises `OracleError`."""
    for number, pending in world.central.coordinator.pending.items():
        raise OracleError(f"all is quiet, but snapshot {number} waits for {pending.waits_for()}")
    for name, machine in world.alive.items():
        if machine.ledger.open:
            raise OracleError(f"no snapshot is pending, but {name} still keeps {sorted(machine.ledger.open)} open")
        if machine.ledger.kept_back:
            raise OracleError(f"{name} still keeps back {machine.ledger.kept_back}")
    check_calls(world.log, world.central.completed, world.slots(), is_roomy=is_roomy)


# ---- every order ----------------------------------------------------------------------------------------------------

EAGER = ("report",)


def fingerprint(world: CallWorld) -> Hashable:
    """Equal for worlds that will behave alike, and whose past the oracle judges alike."""
    machines = tuple(
        (
            name,
            one.ledger.fingerprint(),
            repr(sorted(one.runs.items(), key=repr)),
            one.steps,
            one.is_built,
            sorted(one.reported),
        )
        for name, one in sorted(world.alive.items())
    )
    events = sorted(world.log.events, key=lambda event: (event.machine, event.index))
    return repr(
        (
            machines,
            sorted(map(repr, world.ray.network)),
            sorted(map(repr, world.control)),
            sorted(world.ray.replies.items()),
            sorted(world.ray.failures),
            sorted(world.ray.notices),
            sorted(world.ray.restarting.items()),
            sorted(world.central.coordinator.pending),
            sorted(repr(sorted(one.calls.reports)) for one in world.central.coordinator.pending.values()),
            [(one.content(), one.began, one.ended, one.was_quiet) for one in world.central.completed],
            sorted((number, sorted(cut.items())) for number, cut in world.log.cuts.items()),
            events,
        )
    )


def explore(
    world: CallWorld,
    extra: Callable[[CallWorld], Iterable[Step]] = lambda _: (),
    *,
    snapshots: int = 1,
    eager: tuple[str, ...] = EAGER,
    never: tuple[str, ...] = (),
    most: int = 60_000,
) -> Explored:
    """Every order of the enabled steps, and of those that `extra` offers, with so many snapshots started at any moment.

    `eager` kinds of steps are taken at once, and `never` ones not before all snapshots are complete.
    Once all of them are complete, the rest of the run is one order; every end is checked by the oracle. Raises
    `OracleError` on the first order that is wrong, or when there are more than `most` states.
    """

    def steps_of(now: CallWorld) -> list[Step]:
        if len(now.central.completed) + len(now.central.aborted) == snapshots:
            return []
        start: list[Step] = [("snapshot",)] if now.central.coordinator.last < snapshots else []
        steps = [*(step for step in now.enabled() if step[0] not in never), *start, *extra(now)]
        if not steps:
            check_end(now)
            raise OracleError("nothing is enabled, and no snapshot is open or complete")
        return steps

    def take(after: CallWorld, step: Step) -> None:
        after.perform(step)
        _settle(after, eager)

    return explored(world, steps_of, take, _check_calm, fingerprint, most)


def _check_calm(world: CallWorld) -> Iterator[str]:
    calm(world)
    check_end(world)
    return (one.content() for one in world.central.completed)


def _settle(world: CallWorld, eager: tuple[str, ...]) -> None:
    """Take the eager steps at once, and carry reports and closings with them: when they happen changes nothing."""
    while True:
        steps: list[Step] = [step for name in world.alive for step in world.enabled_on(name) if step[0] in eager]
        at_once = ("part", "close", "left", *(() if world.pool.functions else ("complete",)))
        steps += [("control", index) for index, one in enumerate(world.control) if one[0] in at_once]
        if not steps:
            return
        world.perform(steps[0])
