"""What is true of a simulated system at each moment, told from the simulator's own state, slowly and obviously.

`Clerk`s are played by `Run`: they hand tokens about, wait for one another in every way (all of, any of, k of n, replies,
joins), come to phases, lose a token now and then, and grow tired, so that every run ends: done, or stuck. Truth is read off
a replay of what was done (states and strings of messages); it shares no code with the protocol, the joins or the detectors.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from worlds.mail.machines import Call, Input, Output, Reply, Send
from worlds.mail.rows import rows_of
from worlds.mail.theorem import Replay
from worlds.mail.world import World

from ray_snapshot import Snapshot, Verdict, Wait
from ray_snapshot.detectors import Deadlock, Reached, Termination, TokenConservation
from ray_snapshot.simulation.mail.oracle import RecordedSnapshot
from ray_snapshot.waits import Alternative

Needs = tuple[tuple[int, tuple[str, ...]], ...]
"""Alternatives, any one of which is enough: (how many, of whom)."""

GROUP, SENDERS = ("m0", "m1"), ("m2",)
TOKENS, PHASE = 10, 2


@dataclass(frozen=True)
class Desk:
    """The state of a clerk."""

    tokens: int = TOKENS
    energy: int = 6
    phase: int = 0
    active: bool = True
    needs: Needs = ()
    called: str | None = None

    @property
    def is_stuck_inside(self) -> bool:
        return self.called is not None or bool(self.needs)


@dataclass(frozen=True)
class Clerk:
    """Sends on `lines` only: (target, method); `loses`: it sometimes drops a token."""

    lines: tuple[tuple[str, str], ...]
    callable_peers: tuple[str, ...] = ()
    peers: tuple[str, ...] = ()
    joins: tuple[tuple[str, ...], ...] = ()
    loses: bool = False
    waits: float = 0.0
    """How often it comes to need others, of all its actions."""

    def is_active(self, state: Desk) -> bool:
        """It may act unasked."""
        return state.active

    def call_of(self, state: Desk) -> str | None:
        """Whose reply it waits for."""
        return state.called

    def wait_of(self, state: Desk) -> Wait | None:
        """Whose messages it waits for."""
        return Wait(tuple(Alternative(k, on) for k, on in state.needs)) if state.needs else None

    def react(
        self, name: str, state: Desk, inputs: tuple[Input, ...], choice: int, /
    ) -> tuple[Desk, tuple[Output, ...]]:
        """Take what has come; if nothing is waited for any more, act as `choice` has it."""
        replies = tuple(Reply(one.source, 0) for one in inputs if one.kind == "call")
        state = replace(state, tokens=state.tokens + sum(one.args for one in inputs))
        if any(one.kind == "reply" for one in inputs):
            state = replace(state, called=None)
        state = replace(state, needs=_left(state.needs, [one.source for one in inputs if one.kind == "mail"]))
        if state.needs or choice == 0 or not state.energy:
            return (state if state.needs else replace(state, active=False)), replies
        state, outputs = self._act(replace(state, energy=state.energy - 1), random.Random(choice))
        return state, replies + outputs

    def _act(self, state: Desk, chance: random.Random) -> tuple[Desk, tuple[Output, ...]]:
        outputs: list[Output] = []
        tokens = state.tokens - (self.loses and state.tokens > 0 and chance.random() < 0.04)
        for target, method in chance.choices(self.lines, k=chance.choice((0, 1, 1, 2))) if self.lines else ():
            amount = chance.randint(0, min(3, tokens))
            tokens -= amount
            outputs.append(Send(target, method, amount))
        state = replace(
            state,
            tokens=tokens,
            phase=state.phase + chance.choice((0, 0, 1, 2)),
            active=bool(state.energy) and chance.random() < 0.5,
        )
        dice = chance.random()
        if dice < 0.12 and self.callable_peers:
            target = chance.choice(self.callable_peers)
            return replace(state, called=target, active=False), (*outputs, Call(target, "ask", 0))
        if dice < 0.12 + self.waits and self.peers:
            return replace(state, needs=tuple(self._needs(chance)), active=False), tuple(outputs)
        return state, tuple(outputs)

    def _needs(self, chance: random.Random) -> Iterator[tuple[int, tuple[str, ...]]]:
        for _ in range(chance.choice((1, 1, 2))):
            on = tuple(chance.sample(self.peers, chance.randint(1, min(3, len(self.peers)))))
            yield chance.randint(1, len(on)), on


def _left(needs: Needs, heard: list[str]) -> Needs:
    """What is still needed; nothing as soon as one alternative is met."""
    found = []
    for k, on in needs:
        rest = tuple(name for name in on if name not in heard)
        if k <= len(on) - len(rest):
            return ()
        found.append((k - (len(on) - len(rest)), rest))
    return tuple(found)


def build(chance: random.Random) -> tuple[World, bool]:
    """Four to six clerks on as many hosts or fewer; some take messages at joins only, from declared sources.

    And whether nobody but `SENDERS` sends to `GROUP` from outside.
    """
    is_closed = chance.random() < 0.5
    names = [f"m{number}" for number in range(chance.randint(4, 6))]
    joiners = set(chance.sample(names, chance.choice((0, 0, 1, 2, 3))))
    declared = joiners | ({"m0", "m1"} if chance.random() < 0.3 else set())
    lines: dict[str, list[tuple[str, str]]] = {name: [] for name in names}
    connections = []
    for target in names:
        for port in ("left", "right") if target in joiners else ("tokens",):
            inner = (*GROUP, *SENDERS) if is_closed and target in GROUP else names
            others = [name for name in inner if name != target]
            chosen = chance.sample(others, chance.randint(1, 2)) if target in declared else others
            connections += [(source, target, port) for source in chosen if target in declared]
            for source in chosen:
                lines[source].append((target, port))
    free = [name for name in names if name not in declared]
    loses, calls, waits = chance.random() < 0.3, chance.random() < 0.3, chance.choice((0.0, 0.0, 0.1, 0.3))
    machines = {}
    for at, name in enumerate(names):
        clerk = Clerk(
            tuple(lines[name]),
            tuple(other for other in free if other != name and not (is_closed and other in GROUP))
            if calls and name not in joiners
            else (),
            tuple(other for other in names if other != name and name not in joiners),
            (("left", "right"),) if name in joiners else (),
            loses,
            waits,
        )
        machines[name] = (f"h{at % chance.randint(2, 6)}", clerk, Desk(energy=chance.randint(0, 9)))
    world = World(machines, is_atomic=True)
    for connection in connections:
        world.declared.declare(*connection)
    return world, is_closed


# ---- the truth of one moment -------------------------------------------------------------------------------------------


@dataclass
class Truth:
    """What is true of a moment: a world with its declared sources, and a replay that has come as far."""

    world: World
    states: dict[str, Desk]
    strings: dict[tuple[str, str, str], list[Any]]

    def coming(self, target: str) -> list[tuple[str, str]]:
        return [(source, kind) for source, to, kind in self.strings if to == target]

    @property
    def is_terminated(self) -> bool:
        idle = all(not state.active and not state.is_stuck_inside for state in self.states.values())
        return idle and not self.strings

    @property
    def lost(self) -> int:
        carried: int = sum(message[2] for messages in self.strings.values() for message in messages)
        return TOKENS * len(self.states) - sum(state.tokens for state in self.states.values()) - carried

    def is_blocked(self, name: str) -> bool:
        half = bool(self._joins(name) and name in self.world.declared.sources and self.coming(name))
        return self.states[name].is_stuck_inside or (
            half and not self.states[name].active and not self._can_join(name, ())
        )

    def movers(self, unwoken: tuple[str, ...] = (), senders: tuple[str, ...] = ()) -> set[str]:
        """Who may ever act again, whatever everybody does; `unwoken`: only woken by these `senders` and each other."""
        awake: set[str] = set()
        while more := {
            name for name in self.states if name not in awake and self._wakes(name, awake, unwoken, senders)
        }:
            awake |= more
        return awake

    def _wakes(self, name: str, awake: set[str], unwoken: tuple[str, ...], senders: tuple[str, ...]) -> bool:
        state = self.states[name]
        if state.called is not None:
            accepted = (name, state.called, "call") not in self.strings
            return accepted or self.states[state.called].called is None or state.called in awake
        if state.needs:
            heard = {source for source, kind in self.coming(name) if kind == "mail"} | awake
            return any(len(heard.intersection(on)) >= k for k, on in state.needs)
        if state.active:
            return True
        if self._joins(name):
            return self._can_join(name, awake)
        if self.coming(name):
            return True
        declared = [source for sources in self.world.declared.sources.get(name, {}).values() for source in sources]
        if declared:
            return bool(awake.intersection(declared))
        return bool(awake.intersection(senders)) if name in unwoken else bool(awake)

    def _joins(self, name: str) -> tuple[tuple[str, ...], ...]:
        joins: tuple[tuple[str, ...], ...] = self.world.log.start[name][0].joins
        return joins

    def _can_join(self, name: str, awake: Any) -> bool:
        """Whether some front parts of its channels, and one message from each awake source, make up a join."""
        queues = [[message[1] for message in one] for key, one in self.strings.items() if key[1] == name]
        for port, sources in self.world.declared.sources[name].items():
            queues += [[port]] * len(set(sources) & set(awake))
        for ports in self._joins(name):
            for sizes in product(*(range(min(len(queue), len(ports)) + 1) for queue in queues)):
                taken = [port for queue, size in zip(queues, sizes, strict=True) for port in queue[:size]]
                if sorted(taken) == sorted(ports):
                    return True
        return False

    @property
    def stuck(self) -> set[str]:
        """Blocked machines that can never act again."""
        movers = self.movers()
        return {name for name in self.states if name not in movers and self.is_blocked(name)}

    def is_group_done(self, senders: tuple[str, ...] | None) -> bool:
        """Whether no machine of `GROUP` will ever act again, or be sent anything; `senders`: if nobody else sends to it."""
        members = [self.states[name] for name in GROUP]
        if any(one.active or one.is_stuck_inside for one in members) or any(map(self.coming, GROUP)):
            return False
        movers = self.movers() if senders is None else self.movers(GROUP, senders)
        declared = {
            source
            for name in GROUP
            for sources in self.world.declared.sources.get(name, {}).values()
            for source in sources
        }
        return not movers.intersection(GROUP) and not movers.intersection(declared)

    @property
    def all_there(self) -> bool:
        return all(state.phase >= PHASE for state in self.states.values())


# ---- the detectors, each with its truth -----------------------------------------------------------------------------------


def _conservation(total: int) -> TokenConservation:
    return TokenConservation(total, state="$.tokens", messages=dict.fromkeys(("tokens", "left", "right"), "$[0]"))


DETECTORS: dict[str, Any] = {
    "termination": Termination(),
    "deadlock": Deadlock(),
    "conservation": _conservation(0),
    "part": Termination(machines=list(GROUP), name="part"),
    "part with senders": Termination(machines=list(GROUP), senders=list(SENDERS), name="part with senders"),
    "reached": Reached("$.phase", PHASE),
}


def truth_of(name: str, truth: Truth) -> Any:
    """What is so now, in a form in which more is later: an answer, a number, or a set."""
    match name:
        case "termination":
            return truth.is_terminated
        case "deadlock":
            return frozenset(truth.stuck)
        case "conservation":
            return truth.lost
        case "part":
            return truth.is_group_done(None)
        case "part with senders":
            return truth.is_group_done(SENDERS)
    return truth.all_there


def reported(name: str, verdict: Verdict, snapshot: Snapshot) -> Any:
    """What a verdict says, in the same form."""
    if name == "deadlock":
        records = [*verdict.evidence["members"], *verdict.evidence["stuck_behind"]]
        blocked = {row["machine"] for row in records if snapshot.machines[row["machine"]].status == "blocked"}
        assert (verdict.holds is True) == bool(blocked), verdict.sentence
        return frozenset(blocked)
    if name == "conservation":
        return verdict.evidence["expected"] - verdict.evidence["found"]
    return verdict.holds is True


def _is_within(less: Any, more: Any) -> bool:
    """Whether `less` may become `more` as time goes by."""
    found: bool = less <= more
    return found


# ---- a run ------------------------------------------------------------------------------------------------------------------


@dataclass
class Run:
    """A run of one seed, step by step, each snapshot held against the truth."""

    seed: int
    names: tuple[str, ...] = tuple(DETECTORS)
    states: int = 0
    seen: dict[str, list[int]] = field(default_factory=dict)
    """Per detector: how many snapshots were judged, and on how many it reported something."""

    def play(self, steps: int = 260) -> Run:
        """Raises AssertionError where a detector is wrong."""
        chance = random.Random(self.seed)
        self.world, is_closed = build(chance)
        world = self.world
        self.eagerness = chance.choice((0.25, 0.02))
        self.names = tuple(name for name in self.names if is_closed or name != "part with senders")
        self.replay, self.done = Replay(world.log), 0
        self.started: dict[int, dict[str, Any]] = {}
        self.last: dict[str, Any] = {}
        for step in range(steps):
            self._step(world, chance, step)
            self.states += 1
            for recorded in world.central.completed:
                self._judge(recorded)
            world.central.completed.clear()
        return self

    def _step(self, world: World, chance: random.Random, step: int) -> None:
        if step % 22 == 21:
            world.perform(("snapshot",))
            self.started.setdefault(
                world.central.coordinator.last, self._truth()
            )  # too many may be open: then it is not started
            return
        active = [name for name, state in world.states().items() if state.active and world.can_act(name)]
        enabled = world.enabled()
        if active and (not enabled or chance.random() < self.eagerness):
            world.perform(("act", chance.choice(active)), chance.randrange(1, 1 << 30))
        elif enabled:
            world.perform(chance.choice(enabled), chance.randrange(1, 1 << 30))

    def _truth(self) -> dict[str, Any]:
        """The truth of this moment; it must never be less than what it was before."""
        for action in self.world.log.actions[self.done :]:
            self.replay.perform(action)
        self.done = len(self.world.log.actions)
        truth = Truth(self.world, self.replay.states, self.replay.strings())
        now = {name: truth_of(name, truth) for name in self.names}
        for name, before in self.last.items():
            assert _is_within(before, now[name]), f"seed {self.seed}: {name} is not stable: {before}, then {now[name]}"
        self.last = now
        return now

    def _judge(self, recorded: RecordedSnapshot) -> None:
        snapshot = Snapshot.from_rows(**rows_of(self.world, recorded))
        start, end = self.started[recorded.number], self._truth()
        for name in self.names:
            detector = DETECTORS[name]
            if isinstance(detector, TokenConservation):
                detector = _conservation(TOKENS * len(recorded.states))
            verdict = detector.evaluate(snapshot)
            said = reported(name, verdict, snapshot)
            where = f"seed {self.seed}, snapshot {recorded.number}: {name}: {verdict.sentence}"
            assert _is_within(said, end[name]), f"false alarm: {where} It said {said}, true was {end[name]}"
            assert _is_within(start[name], said), f"missed: {where} It said {said}, true was {start[name]}"
            judged = self.seen.setdefault(name, [0, 0])
            judged[0] += 1
            judged[1] += bool(said)
