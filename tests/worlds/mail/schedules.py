"""Who chooses the next step of a `World`: a seed, or everyone at once.

- `run_seeded`: chance, with faults (disorder, doubles, aborts), then quiet. In the quiet half nobody acts unasked, the
  faults stop and everything that is enabled happens: then every open snapshot must complete. A failure is a seed.
- `run_script`: the steps that a script names, one a line, and no others.
- `explore`: every order of every enabled step, by depth first search over distinct states.

Imports the standard library only; `random` only with a seed from the caller.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass

from ray_snapshot.protocol.choosing import ALIGNED, AT_LEAST_ONCE, BARRIERS, CHANDY_LAMPORT, OBSERVER, UNALIGNED
from ray_snapshot.protocol.colours import Independent, Numbered
from ray_snapshot.simulation.mail.hosts import Step
from ray_snapshot.simulation.mail.oracle import OracleError
from worlds import replay
from worlds.mail.behaviours import Purse, Wanderer
from worlds.mail.every_order import Explored, calm, explored
from worlds.mail.theorem import check_run
from worlds.mail.world import World

RARE = {"resolve": 0.3, "fire": 0.3, "copy": 0.5, "late": 0.6, "report": 0.6}
"""How willingly a step is taken when chance proposes it; 1.0 if not named."""


@dataclass(frozen=True, slots=True)
class Profile:
    """What kind of world a seed is tried on."""

    machines: int = 6
    hosts: int = 3
    steps: int = 350
    habits: frozenset[str] = frozenset()
    """`timer`, `call`, `join`: see `Wanderer`."""
    birthplaces: int = 0
    """How many of the hosts are offered for new machines, beside a new host each time; 0: none are created."""
    names_come_late: bool = False
    bound: int = 10_000
    initiators: int = 0
    """How many hosts are asked for a snapshot; 0: all of them."""
    aborts: bool = False
    is_independent: bool = False
    """Each snapshot spreads by its own markers alone."""
    protocol: str = CHANDY_LAMPORT
    is_fifo: bool = True
    patience: float = 1.0
    """How often, of 1, a machine that aligns goes on doing so when it is looked at."""


PROFILES = {
    "plain": Profile(),
    "initiators": Profile(initiators=1),
    "independent": Profile(initiators=1, is_independent=True, aborts=True),
    "pairs": Profile(machines=4, hosts=2, steps=250),
    "births": Profile(machines=4, birthplaces=3, names_come_late=True, steps=450),
    "newcomers": Profile(machines=3, birthplaces=1, names_come_late=True, steps=450),
    "names": Profile(names_come_late=True, habits=frozenset({"timer"})),
    "calls": Profile(habits=frozenset({"call"}), aborts=True),
    "bounded": Profile(bound=2, habits=frozenset({"join"})),
    "observer": Profile(protocol=OBSERVER, is_fifo=False, habits=frozenset({"timer", "call"}), aborts=True),
    "aligned": Profile(protocol=ALIGNED, aborts=True),
    "impatient": Profile(protocol=ALIGNED, aborts=True, habits=frozenset({"call", "timer"}), patience=0.5),
    "aligned-births": Profile(protocol=ALIGNED, machines=4, birthplaces=3, names_come_late=True, steps=450),
    "aligned-bounded": Profile(protocol=ALIGNED, bound=2, habits=frozenset({"join"}), patience=0.9),
    "at-least-once": Profile(protocol=AT_LEAST_ONCE, aborts=True),
    "at-least-once-everything": Profile(
        protocol=AT_LEAST_ONCE, bound=4, aborts=True, habits=frozenset({"timer", "call", "join"}), patience=0.9
    ),
    "unaligned": Profile(protocol=UNALIGNED, aborts=True, habits=frozenset({"call", "timer"})),
    "unaligned-everything": Profile(
        protocol=UNALIGNED,
        machines=5,
        steps=450,
        birthplaces=3,
        names_come_late=True,
        habits=frozenset({"timer", "call", "join"}),
        bound=4,
        aborts=True,
    ),
    "observer-everything": Profile(
        protocol=OBSERVER,
        is_fifo=False,
        machines=5,
        steps=450,
        birthplaces=3,
        names_come_late=True,
        habits=frozenset({"timer", "call", "join"}),
        aborts=True,
    ),
    "everything": Profile(
        machines=5,
        steps=450,
        birthplaces=3,
        names_come_late=True,
        habits=frozenset({"timer", "call", "join"}),
        bound=4,
        aborts=True,
    ),
}


def build(profile: Profile, trace: list[str] | None = None) -> World:
    """The world of a profile: machines of 10 tokens each, dealt out to its hosts."""
    hosts = tuple(f"h{index}" for index in range(profile.hosts))
    names = [f"m{index}" for index in range(profile.machines)]
    peers = (*names, *(f"{name}.0" for name in names)) if profile.names_come_late and profile.birthplaces else (*names,)
    wanderer = Wanderer(peers, hosts[: profile.birthplaces], profile.habits)
    world = World(
        {name: (hosts[index % len(hosts)], wanderer, Purse(10)) for index, name in enumerate(names)},
        protocol=profile.protocol,
        is_fifo=profile.is_fifo,
        colours=Independent if profile.is_independent else Numbered,
        bound=profile.bound,
        knows_places=not profile.names_come_late,
        trace=trace,
    )
    if profile.initiators:
        world.connect_all()
    if profile.protocol in BARRIERS and not profile.names_come_late:
        for index, target in enumerate(names):  # all edges that go forward; the other half are back edges
            for source in names[:index]:
                world.connect(source, target)
    return world


def run_seeded(name: str, seed: int, trace: list[str] | None = None) -> World:
    """One run of the profile `name`, checked; raises `OracleError` with the command that replays it."""
    try:
        world = _run(PROFILES[name], random.Random(seed), trace)
        check_all(world)
        check_quiet(world)
    except Exception as error:
        raise OracleError(
            f"seed {seed} of profile {name}: {type(error).__name__}: {error}\n{replay(name, seed)}"
        ) from error
    return world


def _run(profile: Profile, chance: random.Random, trace: list[str] | None) -> World:
    world = build(profile, trace)
    for _ in range(profile.steps):
        _disturb(world, profile, chance)
        step = _proposed(world, chance)
        if step is not None and chance.random() < RARE.get(step[0], 1.0):
            world.perform(_faulty(step, chance), chance.randrange(1, 1 << 30))
    calm(world)
    if profile.patience < 1:  # who waits for ever inside an action never comes to its barriers
        for number in sorted(world.central.coordinator.pending):
            for host in [*world.hosts]:
                world.perform(("force", host, number))
        calm(world)
    return world


def _proposed(world: World, chance: random.Random) -> Step | None:
    dice = chance.random()
    if dice < 0.25:
        return ("deliver", chance.randrange(len(world.network.batches))) if world.network.batches else None
    if dice < 0.4:
        return ("control", chance.randrange(len(world.control))) if world.control else None
    steps = world.enabled_on(chance.choice([*world.hosts]))
    return chance.choice(steps) if steps else None


def _disturb(world: World, profile: Profile, chance: random.Random) -> None:
    """What no step asks for: snapshots are started and given up, machines act unasked."""
    dice = chance.random()
    if dice < 0.015:
        hosts = chance.sample(sorted(world.central.coordinator.hosts), profile.initiators)
        world.perform(("snapshot", *hosts))
    elif dice < 0.018 and profile.aborts and world.central.coordinator.pending:
        world.perform(("abort", chance.choice(sorted(world.central.coordinator.pending))))
    elif (
        dice < 0.02
        and profile.patience < 1
        and world.central.coordinator.pending
        and chance.random() > profile.patience
    ):
        world.perform(
            ("force", chance.choice([*world.hosts]), chance.choice(sorted(world.central.coordinator.pending)))
        )
    elif dice < 0.12:
        machine = chance.choice(sorted(world.log.start))
        if world.can_act(machine):
            world.perform(("act", machine), chance.randrange(1, 1 << 30))


def _faulty(step: Step, chance: random.Random) -> Step:
    """Sometimes the network and the control messages double."""
    doubled = {"deliver": "repeat", "control": "echo"}.get(step[0])
    return (doubled, *step[1:]) if doubled and chance.random() < 0.15 else step


def run_script(world: World, lines: Iterable[str]) -> None:
    """The steps of a script, one a line: `act MACHINE CHOICE`, `accept HOST`, `record HOST`, `snapshot HOST...`, ...

    As `World.perform` has them, but for the network and the control messages, which are named by what they are:
    `deliver SOURCE TARGET` is the oldest batch between two hosts, `tell KIND HOST` the oldest control message; and
    `calm` lets everything happen that is enabled. Raises `LookupError` if there is no such batch or control message.
    """
    for line in lines:
        kind, *where = line.split()
        match kind:
            case "calm":
                calm(world)
            case "act":
                world.perform(("act", where[0]), int(where[1]))
            case "deliver":
                carried = [(one.source, one.target) for one in world.network.batches]
                world.perform(("deliver", _oldest(carried, (where[0], where[1]), line)))
            case "tell":
                control = [(one[0], str(one[1])) for one in world.control]
                world.perform(("control", _oldest(control, (where[0], where[1]), line)))
            case _:
                world.perform((kind, *(int(word) if word.isdigit() else word for word in where)))


def _oldest(found: list[tuple[str, str]], wanted: tuple[str, str], line: str) -> int:
    if wanted not in found:
        raise LookupError(f"{line}: there is none; there are {found}")
    return found.index(wanted)


def check_all(world: World) -> None:
    """The oracle's opinion of every completed snapshot; raises `OracleError`."""
    check_run(world.log, world.central.completed, world.states(), is_consistent=world.rules.protocol != AT_LEAST_ONCE)


def check_quiet(world: World) -> None:
    """Nothing is left to happen: then nothing may be open, and what is complete adds up. Raises `OracleError`."""
    for number, pending in world.central.coordinator.pending.items():
        raise OracleError(f"all is quiet, but snapshot {number} waits for {pending.waits_for()}")
    for name, host in world.hosts.items():
        if host.core.open and not host.is_down:
            raise OracleError(f"no snapshot is pending, but {name} still keeps {sorted(host.core.open)} open")
    for number, surplus in world.central.surplus.items():
        raise OracleError(f"snapshot {number} has more in its cut than was sent: {surplus}")


EAGER = ("flush", "report", "late")
"""Steps that `explore` takes as soon as it can, and reports and closings with them: they bring parts to the central
point or batches onto the network, where the order matters; when they themselves happen does not."""


def explore(
    world: World,
    fingerprint: Callable[[World], Hashable],
    extra: Callable[[World], list[Step]] = lambda _: [],
    *,
    eager: tuple[str, ...] = EAGER,
    most: int = 100_000,
) -> Explored:
    """Every order of the enabled steps, and of those that `extra` offers; every end is checked by the oracle.

    Raises `OracleError` on the first order that is wrong, or when there are more than `most` states.
    """

    def take(after: World, step: Step) -> None:
        after.perform(step, 1)
        if eager:
            _settle(after, eager)

    def steps_of(now: World) -> list[Step]:
        return [*now.enabled(), *extra(now)]

    return explored(world, steps_of, take, _check_end, fingerprint, most)


def _settle(world: World, eager: tuple[str, ...]) -> None:
    """Take the eager steps, and carry reports and closings at once."""
    while True:
        steps = [step for name in world.hosts for step in world.enabled_on(name) if step[0] in eager]
        steps += [("control", index) for index, one in enumerate(world.control) if one[0] in ("part", "close")]
        if not steps:
            return
        world.perform(steps[0])


def _check_end(world: World) -> Iterator[str]:
    check_all(world)
    check_quiet(world)
    return map(repr, world.central.completed)
