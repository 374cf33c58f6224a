"""Who chooses the next step of a `PartyWorld`: a seed, or everyone at once (every order).

Imports the standard library only; `random` only with a seed from the caller.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.protocol.choosing import CHANDY_LAMPORT
from ray_snapshot.simulation.mail.network import Carried
from ray_snapshot.simulation.mail.oracle import OracleError
from worlds.calls import schedules as calls_schedules
from worlds.calls.oracle import check_calls
from worlds.calls.programs import Call as ActorCall
from worlds.calls.programs import Get, Kind, Post, Work
from worlds.calls.programs import Step as ProgramStep
from worlds.mail import fingerprints
from worlds.mail.every_order import Explored, calm, explored
from worlds.mail.machines import Ask, Call, Input, Output, Reply, Send, Tell
from worlds.mail.orders import heads
from worlds.mail.schedules import check_all, check_quiet
from worlds.parties.world import PartyWorld, Step


@dataclass(frozen=True)
class Roving:
    """The state of a `Rover`."""

    left: int
    """How often it may still act of its own accord, or send."""
    waits_for: str | None = None
    """The machine whose reply it waits for."""


@dataclass(frozen=True)
class Rover:
    """A machine that sends to machines, and calls machines and actors, as `choice` has it."""

    machines: tuple[str, ...]
    actors: tuple[str, ...]
    joins: tuple[tuple[str, ...], ...] = ()

    def is_active(self, state: Roving) -> bool:
        """Whether it may act unasked."""
        return state.left > 0

    def call_of(self, state: Roving) -> str | None:
        """The machine whose reply it waits for."""
        return state.waits_for

    def react(self, name: str, state: Any, inputs: tuple[Input, ...], choice: int, /) -> tuple[Any, tuple[Output, ...]]:
        """Answer what is to be answered; then, if it has something left, send some, and perhaps wait for a reply."""
        outputs: list[Output] = [Reply(one.source, None) for one in inputs if one.kind == "call"]
        if not (choice and state.left):
            return Roving(state.left), tuple(outputs)
        chance = random.Random(choice)
        for _ in range(chance.choice((0, 0, 1, 2))):
            is_mail = chance.random() < 0.6
            outputs.append(
                Send(chance.choice(self.machines), "mail", None) if is_mail else Tell(chance.choice(self.actors), "low")
            )
        if chance.random() < 0.6:
            return Roving(state.left - 1), tuple(outputs)
        others = [other for other in self.machines if other != name]
        if others and chance.random() < 0.3:
            target = chance.choice(others)
            return Roving(state.left - 1, target), (*outputs, Call(target, "call", None))
        return Roving(state.left - 1), (*outputs, Ask(chance.choice(self.actors), chance.choice(("low", "high"))))


def by_chance(
    chance: random.Random, protocol: str = CHANDY_LAMPORT, trace: list[str] | None = None, *, dies: float = 0.0
) -> PartyWorld:
    """Two or three machines on two hosts, and two actors; who calls whom is chance. `dies`: some start again when they do."""
    machines, actors = ("m", "n", "o")[: chance.randrange(2, 4)], ("a", "b")
    rover = Rover(machines, actors)
    low: tuple[ProgramStep, ...] = (Work(), Post(chance.choice(machines), "mail"))
    methods = {
        "low": low[: chance.randrange(3)],
        "high": (Post(chance.choice(machines), "mail"), *_high(machines, chance), Work()),
    }
    again = dies > 0 and chance.random() < 0.7
    kinds = {"One": Kind(methods, can_restart=again), "Two": Kind(methods, slots=2, can_restart=again)}
    driver = (ActorCall("a", "high"), ActorCall("b", "low"), Get((0,)), ActorCall("b", "high"))
    return PartyWorld(
        {name: (chance.choice("HG"), rover, Roving(chance.randrange(3, 12))) for name in machines},
        kinds,
        {name: chance.choice(("One", "Two")) for name in actors},
        driver,
        protocol=protocol,
        trace=trace,
    )


def _high(machines: tuple[str, ...], chance: random.Random) -> tuple[ProgramStep, ...]:
    """Wait for a machine, or for the other actor, or for neither."""
    asks = (Post(chance.choice(machines), "call", waits=True),)
    calls = (ActorCall("b", "low"), Get((0,)))
    return chance.choice(((), asks, calls, asks + calls))


def run_parties(
    seed: int, protocol: str = CHANDY_LAMPORT, steps: int = 250, trace: list[str] | None = None, *, dies: float = 0.0
) -> PartyWorld:
    """A system by chance under a schedule by chance, with snapshots all along; checked. Raises `OracleError`.

    `dies`: how often, a step, the process of an actor ends.
    """
    try:
        return _run(random.Random(seed), protocol, steps, trace, dies)
    except Exception as error:
        raise OracleError(f"seed {seed} under {protocol}: {type(error).__name__}: {error}") from error


def _run(chance: random.Random, protocol: str, steps: int, trace: list[str] | None, dies: float) -> PartyWorld:
    world = by_chance(chance, protocol, trace, dies=dies)
    for _ in range(steps):
        actors = sorted(world.calls.alive.keys() - {DRIVER})
        if dies and actors and chance.random() < dies:
            world.perform(("calls", "die", chance.choice(actors)))
        world.perform(_chosen(world, chance), chance.randrange(1, 1 << 20))
    calm(world)
    while ready := _ready(world):
        world.perform(("mail", "act", chance.choice(ready)), chance.randrange(1, 1 << 20))
        calm(world)
    world.perform(("snapshot",))
    calm(world)
    check(world)
    return world


def _ready(world: PartyWorld) -> list[str]:
    """Machines that may act of their own accord."""
    states = world.mail.states()
    return [name for name in world.machines if states[name].left and world.can_act(name)]


def _chosen(world: PartyWorld, chance: random.Random) -> Step:
    dice, pending = chance.random(), sorted(world.mail.central.coordinator.pending)
    if dice < 0.04:
        return ("snapshot",)
    if dice < 0.045 and pending:
        return "abort", chance.choice(pending)
    ready, steps = _ready(world), world.enabled()
    if ready and (dice < 0.1 or not steps):
        return "mail", "act", chance.choice(ready)
    return chance.choice(steps) if steps else ("snapshot",)


def check(world: PartyWorld) -> None:
    """Nothing is left to happen: nothing may be open, and every snapshot must be right on both sides. Raises `OracleError`."""
    world.mail.log.lost = world.lost()
    check_quiet(world.mail)
    check_all(world.mail)
    for name, machine in world.calls.alive.items():
        _check_ledger(name, machine.ledger)
    for host in world.mail.hosts.values():
        for name, ledger in host.core.ledgers.known.items():
            _check_ledger(name, ledger)
    if world.calls.central.coordinator.calls.pending:
        raise OracleError("no snapshot is pending, but reports of calls are waited for")
    for seen in world.calls.central.completed:
        white = {name for name, length in world.calls.log.cuts.get(seen.number, {}).items() if length}
        if missing := white - seen.machines.keys() - seen.gone:
            raise OracleError(f"snapshot {seen.number} lacks what {sorted(missing)} did inside the cut")
        seen.active.add("hosts")  # what wakes a machine is no call: that all is done, calls alone cannot say
    check_calls(world.calls.log, world.calls.central.completed, world.calls.slots())


def _check_ledger(name: str, ledger: CallLedger) -> None:
    if ledger.open or ledger.kept_back:
        raise OracleError(f"no snapshot is pending, but {name} keeps {sorted(ledger.open)} and {ledger.kept_back}")


def explore(
    world: PartyWorld, acts: Iterable[str] = (), *, snapshots: int = 1, dies: str | None = None, most: int = 100_000
) -> Explored:
    """Every order of what is enabled, of one action of each machine of `acts`, and of so many snapshots at any moment.

    With `dies`, the process of that actor is gone at any moment, once.
    Raises `OracleError` on the first order that is wrong, or when there are more than `most` states.
    """
    wanted = tuple(acts)

    def steps_of(now: PartyWorld) -> list[Step]:
        steps = _worth_trying(now)
        steps += [("mail", "act", name) for name in wanted if not now.mail.log.lengths[name] and now.can_act(name)]
        if dies in now.calls.alive and not now.over:
            steps.append(("calls", "die", dies))
        return steps + ([("snapshot",)] if now.mail.central.coordinator.last < snapshots else [])

    def take(after: PartyWorld, step: Step) -> None:
        after.perform(step, 1)
        _settle(after)

    _settle(world)
    return explored(world, steps_of, take, _check_end, fingerprint, most)


def _check_end(world: PartyWorld) -> Iterator[str]:
    check(world)
    both = zip(world.mail.central.completed, world.calls.central.completed, strict=True)
    return (repr((one.text, calls.content())) for one, calls in both)


def fingerprint(world: PartyWorld) -> Any:
    """Equal for worlds that will behave alike, and whose past the oracles judge alike."""
    inside = (
        sorted(world.running.items()),
        sorted((name, one.call_id) for name, one in world.asking.items()),
        sorted(world.owed.items()),
        sorted(world.replies.items()),
        sorted(world.over),
        sorted(world.senders.lost.items()),
        sorted(world.mail.log.ended.items()),
    )
    return fingerprints.fingerprint(world.mail), calls_schedules.fingerprint(world.calls), repr(inside)


def _worth_trying(world: PartyWorld) -> list[Step]:
    """What is enabled; of a FIFO link the first batch only, for a later one would be kept until that has come."""
    first = set(heads(world.mail))
    return [step for step in world.enabled() if step[:2] != ("mail", "deliver") or step[2] in first]


def _settle(world: PartyWorld) -> None:
    """What only moves parts and batches on is done at once; so is turning red between actions, for nothing may come before it.

    Copies are of the instant whenever they are made; and what is asked for a second time, or heard of, is no news.
    """
    while True:
        steps = [step for step in world.enabled() if _is_eager(world, step)]
        if not steps:
            return
        world.perform(steps[0])


def _is_eager(world: PartyWorld, step: Step) -> bool:
    side, kind, *where = step
    if kind == "control":
        return _is_no_news(world, (world.mail if side == "mail" else world.calls).control[where[0]])
    if kind == "deliver":
        return _carries_nothing(world, world.mail.network.batches[where[0]])
    return kind in ("flush", "report", "late", "copy", "record")


def _is_no_news(world: PartyWorld, message: Step) -> bool:
    if message[0] != "request":
        return message[0] in ("part", "close", "complete", "left")
    name, number = message[1:]
    if name in world.mail.hosts:
        return bool(world.mail.hosts[name].core.turning.due >= number)
    return name not in world.calls.alive or bool(world.calls.alive[name].ledger.turning.due >= number)


def _carries_nothing(world: PartyWorld, carried: Carried) -> bool:
    """A batch without messages, and of no colour that its target does not have."""
    turning = world.mail.hosts[carried.target].core.turning
    return all(colour <= turning.due and not messages for colour, messages in carried.batch[3])
