"""Storms: random systems, every fault there is, then quiet, then everything must be complete and right.

The faults: batches come in any order, twice, or are lost and sent again below the numbering; control messages come twice;
snapshots are given up; hosts crash, again while the system recovers, and the whole system is rolled back to its last
completed snapshot, on the same hosts or on others, and goes on (`rolling_back`: in two phases, whose messages are lost and
doubled, among those of the generation before). Every *generation* is a run of its own for the oracle.

- `storm-PROTOCOL`: `Wanderer`s that conserve tokens. What is in a generation at its end is what it began with.
- `flow-PROTOCOL`: a dataflow (`flows`). However often it was rolled back, it ends in the result that it would have had; under
  `at-least-once-barrier` with exactly the duplicates that were foretold.
- `mixed-PROTOCOL`: as `storm`, and half of the hosts stop last, as hosts do beside processes that could still go on.
- `restore-PROTOCOL`: a dataflow is run undisturbed, then with snapshots; each of these is restored, and run to its end.

Every run is a seed: `python -m worlds NAME SEED` replays it. Imports the standard library only.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from ray_snapshot.protocol.choosing import ALIGNED, AT_LEAST_ONCE, BARRIERS, OBSERVER, PROTOCOLS
from ray_snapshot.simulation.mail.hosts import Step
from ray_snapshot.simulation.mail.oracle import ChannelId, Message, OracleError, RecordedSnapshot
from worlds import replay
from worlds.mail.behaviours import Purse, Wanderer
from worlds.mail.every_order import calm
from worlds.mail.machines import Create
from worlds.mail.schedules import RARE, check_all, check_quiet
from worlds.mail.theorem import Replay, replayed
from worlds.mail.world import World
from worlds.rollback.flows import Flow, Source, effects, random_flow, sums_of
from worlds.rollback.restoring import latest, obstacles, prepared, repeated
from worlds.rollback.rolling_back import Rollback, check_that_generations_do_not_overlap

STORMS = (
    *(f"{kind}-{protocol}" for kind in ("storm", "flow", "restore") for protocol in PROTOCOLS),
    *(f"mixed-{protocol}" for protocol in PROTOCOLS if protocol not in BARRIERS),
)
"""The names of all kinds of runs."""

ALIGNING = (ALIGNED, AT_LEAST_ONCE)
"""Protocols under which a machine waits for barriers; all others must complete without anybody's patience ending."""

HABITS = ("timer", "call", "join")


@dataclass(slots=True)
class Run:
    """One system through all its generations."""

    protocol: str
    chance: random.Random
    world: World
    flow: Flow | None = None
    """None: the machines are wanderers."""
    has_crashes: bool = True
    passed: list[World] = field(default_factory=list)
    """The generations that have been rolled back."""
    surplus: Counter[tuple[str, int]] = field(default_factory=Counter)
    """What the rollbacks so far repeat: in the sums of a flow, or ("tokens", 0)."""
    seen: Counter[str] = field(default_factory=Counter)
    """What the run met."""
    wanted: RecordedSnapshot | None = None
    """What the next rollback goes back to; None: the last that can be restored."""
    rollback: Rollback = field(init=False)

    def __post_init__(self) -> None:
        self.rollback = Rollback(self.world, lambda: _next_generation(self))

    @property
    def worlds(self) -> list[World]:
        """All generations, for each of them may still have something under way."""
        return [*self.world.lineage.generations.values()]


def run_storm(name: str, seed: int, trace: list[str] | None = None) -> Run:
    """One seeded run, checked; raises `OracleError` with the command that replays it."""
    kind, protocol = name.split("-", 1)
    chance = random.Random(seed)
    try:
        if kind == "restore":
            return _restore_each(protocol, chance, trace)
        run = _flow(protocol, chance, trace) if kind == "flow" else _wanderers(protocol, chance, trace)
        if kind == "mixed":
            run.rollback.coordinator.last_to_stop.update([*run.world.hosts][::2])
        weather(run, 400)
        settle(run)
        check(run)
    except Exception as error:
        raise OracleError(f"seed {seed} of {name}: {type(error).__name__}: {error}\n{replay(name, seed)}") from error
    return run


# ---- systems ------------------------------------------------------------------------------------------------------------


def _wanderers(protocol: str, chance: random.Random, trace: list[str] | None) -> Run:
    """A random graph of machines with ten tokens each, several to a host."""
    names = [f"m{index}" for index in range(chance.randint(3, 7))]
    hosts = [f"h{index}" for index in range(chance.randint(2, 4))]
    habits = frozenset(habit for habit in HABITS if chance.random() < 0.4)
    births = () if chance.random() < 0.5 else tuple(chance.sample(hosts, chance.randint(1, len(hosts))))
    machines = {}
    for name in names:
        others = [peer for peer in names if peer != name]
        peers = chance.sample(others, chance.randint(1, len(others)))
        peers += [f"{peer}.0" for peer in peers if births and chance.random() < 0.3]
        machines[name] = chance.choice(hosts), Wanderer(tuple(peers), births, habits), Purse(10)
    bound = chance.choice((2, 4, 10_000, 10_000))
    knows_places = chance.random() < 0.6
    world = _world(machines, protocol, chance, trace, bound=bound, knows_places=knows_places)
    for index, target in enumerate(names if protocol in BARRIERS else ()):
        for source in names[:index]:
            if target in machines[source][1].peers and chance.random() < 0.8:
                world.connect(source, target)
    return Run(protocol, chance, world)


def _flow(protocol: str, chance: random.Random, trace: list[str] | None, flow: Flow | None = None) -> Run:
    flow = flow or random_flow(chance)
    hosts = [f"h{index}" for index in range(chance.randint(1, 4))]
    machines = {name: (chance.choice(hosts), *made) for name, made in flow.machines.items()}
    bound = 10_000 if flow.has_loops else chance.choice((2, 10_000))  # full mailboxes in a loop are a deadlock
    world = _world(machines, protocol, chance, trace, bound=bound)
    for source, target in flow.edges:
        world.connect(source, target)
    return Run(protocol, chance, world, flow)


def _world(
    machines: Mapping[str, Any], protocol: str, chance: random.Random, trace: list[str] | None, **options: Any
) -> World:
    is_fifo = protocol != OBSERVER or chance.random() < 0.2
    return World(machines, protocol=protocol, is_fifo=is_fifo, trace=trace, **options)


# ---- faults, then quiet ---------------------------------------------------------------------------------------------------


def weather(run: Run, steps: int, *, has_snapshots: bool = True) -> None:
    """Chance and faults, for so many steps."""
    for _ in range(steps):
        _disturb(run, has_snapshots)
        world, step = _proposed(run)
        if step is not None and run.chance.random() < RARE.get(step[0], 1.0):
            _perform(run, world, _faulty(step, run.chance))


def _perform(run: Run, world: World, step: Step) -> None:
    actions = len(world.log.actions)
    world.perform(step, run.chance.randrange(1, 1 << 30))
    if len(world.log.actions) > actions:
        check_that_generations_do_not_overlap(world)


def _disturb(run: Run, has_snapshots: bool) -> None:
    """What no step asks for."""
    world, chance = run.world, run.chance
    dice = chance.random()
    run.rollback.register()
    if dice < 0.03:
        if has_snapshots and run.rollback.is_over:
            world.perform(("snapshot",))
    elif dice < 0.032 and world.central.coordinator.pending:
        world.perform(("abort", chance.choice(sorted(world.central.coordinator.pending))))
    elif dice < 0.034 and world.central.coordinator.pending and run.protocol in BARRIERS:
        world.perform(
            ("force", chance.choice([*world.hosts]), chance.choice(sorted(world.central.coordinator.pending)))
        )
    elif dice < (0.0365 if run.rollback.is_over else 0.039) and run.has_crashes and run.rollback.alive:
        run.rollback.perform(("crash", chance.choice(sorted(run.rollback.alive))))
        run.seen["crashes"] += 1
    elif dice < 0.15:
        _act(run)
    elif dice < 0.7 and not (run.rollback.is_over and not run.rollback.mail):
        _roll_on(run)


def _roll_on(run: Run) -> None:
    """A step of the rollback, or a fault of its mail."""
    steps, dice = run.rollback.enabled(), run.chance.random()
    step = run.chance.choice(steps) if steps and dice < 0.9 else ("again",)
    if step[0] == "told" and dice < 0.3:
        step = ("doubled" if dice < 0.2 else "lost", step[1])
    run.rollback.perform(step, run.chance.randrange(2))


def _act(run: Run) -> None:
    world, chance = run.chance.choice(run.worlds), run.chance
    eager = _eager(world)
    names = eager or [name for name in sorted(world.log.lengths) if isinstance(world.programs[name], Wanderer)]
    able = [name for name in names if world.can_act(name)]
    if able:
        _perform(run, world, ("act", chance.choice(able)))


def _eager(world: World) -> list[str]:
    """Sources that have more to emit, and can."""
    found = []
    for name, state in sorted(world.states().items()):
        program = world.programs[name]
        if isinstance(program, Source) and program.has_more(state) and world.can_act(name):
            found.append(name)
    return found


def _proposed(run: Run) -> tuple[World, Step | None]:
    world, chance = run.world, run.chance
    dice = chance.random()
    if dice < 0.25:
        return world, ("deliver", chance.randrange(len(world.network.batches))) if world.network.batches else None
    if dice < 0.4:
        world = chance.choice([one for one in run.worlds if one.control] or [world])
        return world, ("control", chance.randrange(len(world.control))) if world.control else None
    if dice < 0.43:
        return world, ("resend", chance.randrange(len(world.network.lost))) if world.network.lost else None
    name = chance.choice([*world.lineage.gates])
    world = world.lineage.generations.get(world.lineage.gates[name].generation, world)
    steps = world.enabled_on(name) if name in world.hosts else []
    return world, chance.choice(steps) if steps else None


def _faulty(step: Step, chance: random.Random) -> Step:
    """Sometimes the network doubles or loses a batch, and control messages double."""
    dice = chance.random()
    if step[0] == "deliver" and dice < 0.25:
        return ("repeat" if dice < 0.13 else "drop", step[1])
    return ("echo", step[1]) if step[0] == "control" and dice < 0.15 else step


def roll_back(run: Run, recorded: RecordedSnapshot | None = None) -> None:
    """Begin to take the whole system back to a snapshot (the last one that can be)."""
    run.wanted = recorded
    run.rollback.perform(("ask", "somebody wants it"))


def _next_generation(run: Run) -> World:
    """The world to roll back to, on a number of hosts that chance draws."""
    recorded, run.wanted = run.wanted or latest(run.world), None
    again = repeated(run.world.log, recorded) if recorded.number else []
    for (_, target, _, _), (_, _, args) in again:
        run.surplus.update({("tokens", 0): args} if run.flow is None else effects(run.flow, target, args))
    hosts = [f"h{index}" for index in range(run.chance.randint(1, 4))]
    run.chance.shuffle(hosts)
    run.seen["rollbacks"] += 1
    run.seen["rollbacks during a rollback"] += not all(map(run.world.runs, run.rollback.alive & run.world.hosts.keys()))
    run.seen["rollbacks to a snapshot"] += bool(recorded.number)
    run.seen["messages refilled"] += sum(map(len, recorded.channels.values()))
    run.seen["timers set again"] += sum(len(found) for key, found in recorded.channels.items() if key[2] == "timer")
    run.seen["creations carried out again"] += len(recorded.creations)
    run.seen["messages repeated"] += len(again)
    run.seen["stragglers"] += len(run.world.network.batches) + len(run.world.control)
    run.passed.append(run.world)
    if run.world.trace is not None:
        back = f"snapshot {recorded.number}" if recorded.number else "its beginning"
        run.world.trace.append(f"      generation {run.world.generation + 1}: back to {back}, on {', '.join(hosts)}")
    run.world = prepared(recorded, run.world, hosts)
    return run.world


def settle(run: Run) -> None:
    """The faults are over: what is down is rolled back, and everything happens that is enabled.

    Where barriers are aligned, patience ends too: who waits for ever inside an action never comes to its barriers; and a
    machine that is held at a full mailbox, whose input is blocked, may be the one whose barrier is awaited there, if a path
    between the two was not declared.
    """
    run.rollback.finish()
    _run_dry(run)
    while (pending := sorted(run.world.central.coordinator.pending)) and run.protocol in ALIGNING:
        run.seen["patience was over"] += 1
        for number in pending:
            for host in [*run.world.hosts]:
                run.world.perform(("force", host, number))
        _run_dry(run)
        if sorted(run.world.central.coordinator.pending) == pending:
            return


def _run_dry(run: Run) -> None:
    _calm(run)
    while eager := _eager(run.world):
        run.world.perform(("act", eager[0]))
        _calm(run)


def _calm(run: Run) -> None:
    while True:
        for world in run.worlds:  # what is late comes last of all
            calm(world)
        if not run.rollback.register():
            return
        run.rollback.finish()


# ---- what must be right -----------------------------------------------------------------------------------------------------


def check(run: Run) -> None:
    """Every snapshot of every generation, tokens or results, and that nothing is left open. Raises `OracleError`."""
    for world in [*run.passed, run.world]:
        check_all(world)
        run.seen["completed"] += len(world.central.completed)
        run.seen["aborted"] += len(world.central.aborted)
        if run.flow is None:
            check_tokens(world)
        for recorded in world.central.completed:
            repeated(world.log, recorded)
    numbers = [recorded.number for world in [*run.passed, run.world] for recorded in world.central.completed]
    if len(set(numbers)) < len(numbers):
        raise OracleError(f"a snapshot number was given out twice: {numbers}")
    check_quiet(run.world)
    if run.world.lineage.held:
        raise OracleError(f"all is quiet, but {sorted(run.world.lineage.held)} hold what has arrived")
    if run.world.network.lost or run.world.network.batches:
        raise OracleError(f"all is quiet, but {len(run.world.network.lost)} lost batches were not sent again")
    if run.flow is None:
        first, last = (_beginning([*run.passed, run.world][which]) for which in (0, -1))
        if last != first + run.surplus["tokens", 0]:
            raise OracleError(f"{first} tokens in the first generation, and {last} in the last")
    else:
        check_result(run)


def check_result(run: Run) -> None:
    """The sums at the end are the flow's result, and what was foretold to be repeated."""
    assert run.flow is not None
    expected = run.flow.result() + run.surplus
    found = sums_of(run.world.states())
    if found != expected:
        raise OracleError(
            f"the flow ends with {dict(found - expected)} too much and {dict(expected - found)} too little"
        )


def check_tokens(world: World) -> None:
    """A generation ends with the tokens that it began with, and so does each of its snapshots."""
    total = _beginning(world)
    end = replayed(world.log)
    held = tokens(end.states, end.channels) + _about_to_be_sent(world)
    if held != total:
        raise OracleError(f"{total} tokens at the beginning, {held} at the end")
    if waiting := _inside_actions(state for _, state in world.log.start.values()):
        raise OracleError(f"{waiting} machines were restored that wait inside an action")
    for recorded in world.central.completed:
        if len(recorded.waiting) != _inside_actions(recorded.states.values()):
            raise OracleError(f"snapshot {recorded.number} says that {recorded.waiting} wait inside an action")
        if obstacles(recorded):
            continue  # a reply in flight is no part of a snapshot, and may carry tokens
        more = sum(message[2] for _, message in repeated(world.log, recorded))
        children = sum(payload[1].tokens for payload in recorded.payloads.values())
        found = tokens(recorded.states, recorded.channels) + children
        if found != total + more:
            raise OracleError(
                f"snapshot {recorded.number} holds {found} tokens; there are {total}, and {more} repeated"
            )


def _inside_actions(purses: Iterable[Purse]) -> int:
    return sum(purse.waits_for is not None for purse in purses)


def _beginning(world: World) -> int:
    start = Replay(world.log)
    return tokens(start.states, start.channels)


def _about_to_be_sent(world: World) -> int:
    """Tokens in actions that a rollback has cut off."""
    found = 0
    for output in (output for host in world.hosts.values() if host.running for output in host.running.outputs):
        found += output.state.tokens if isinstance(output, Create) else output.args
    return found


def tokens(states: Mapping[str, Purse], channels: Mapping[ChannelId, Iterable[Message]]) -> int:
    """All tokens in purses and in channels, in creations too."""
    found = sum(purse.tokens for purse in states.values())
    for key, messages in channels.items():
        for _, _, args in messages:
            found += args[1].tokens if key[2] == "creation" else args
    return found


# ---- restore, each of them ---------------------------------------------------------------------------------------------


def _restore_each(protocol: str, chance: random.Random, trace: list[str] | None) -> Run:
    """One flow undisturbed; again, with snapshots; then each of them restored, one of a restored run restored again."""
    undisturbed = _flow(protocol, chance, trace)
    weather(_without_crashes(undisturbed), 200, has_snapshots=False)
    settle(undisturbed)
    check(undisturbed)
    run = _without_crashes(_flow(protocol, chance, trace, undisturbed.flow))
    weather(run, 200)
    settle(run)
    check(run)
    for recorded in run.world.central.completed:
        again = _restored_and_run(run, run.world, recorded, Counter())
        for later in again.world.central.completed[-1:]:
            _restored_and_run(run, again.world, later, again.surplus)
    return run


def _restored_and_run(run: Run, world: World, recorded: RecordedSnapshot, surplus: Counter[tuple[str, int]]) -> Run:
    again = Run(run.protocol, run.chance, world, run.flow, has_crashes=False, surplus=surplus.copy())
    roll_back(again, recorded)
    again.passed.clear()
    weather(again, 60)
    settle(again)
    check(again)
    run.seen.update(again.seen)
    return again


def _without_crashes(run: Run) -> Run:
    run.has_crashes = False
    return run
