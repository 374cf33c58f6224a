"""Hosts with machines and processes with watched actors in one system: machines call actors, and actors send to machines.

`PartyWorld` puts a `World` and a `CallWorld` side by side, under one coordinator. A machine that calls an actor has a ledger
in its host's core, and turns red with the host; an actor that sends to machines has a core in its process, and that turns red
with the actor's ledger. Steps are those of both worlds. What crosses from one to the other stands in both logs, so either
oracle would see it if a message, a call or a reply that was sent outside the cut were accepted inside it.

Not here: processes that die, machines that are born, and timers; barriers, under which a host has no one colour.
Imports the standard library only.
"""

from __future__ import annotations

import pickle
import random
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ray_snapshot.errors import SettingError
from ray_snapshot.protocol.call_collector import CallsOf, CompletedCallSnapshot, ResolvedWait
from ray_snapshot.protocol.call_messages import MachineReport, RunningCall, Sent, call_id_of, parsed
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.protocol.choosing import BARRIERS, CHANDY_LAMPORT, OBSERVER
from ray_snapshot.protocol.coordinator import CompletedSnapshot
from ray_snapshot.protocol.host import Machine
from ray_snapshot.simulation.calls import schedules as calls_schedules
from ray_snapshot.simulation.calls.oracle import Waiting, check_calls
from ray_snapshot.simulation.calls.programs import Call as ActorCall
from ray_snapshot.simulation.calls.programs import Get, Kind, Post, Program, Work
from ray_snapshot.simulation.calls.programs import Step as ProgramStep
from ray_snapshot.simulation.calls.reports import name_of
from ray_snapshot.simulation.calls.world import CallWorld, Travelling
from ray_snapshot.simulation.mail import fingerprints, rows
from ray_snapshot.simulation.mail.machines import Ask, Behaviour, Call, Input, Output, Reply, Send, Tell
from ray_snapshot.simulation.mail.oracle import MessageId, OracleError, Recorded
from ray_snapshot.simulation.mail.orders import heads
from ray_snapshot.simulation.mail.schedules import Explored, check_all, check_quiet
from ray_snapshot.simulation.mail.world import Answered, Carried, SimHost, World

Step = tuple[Any, ...]
"""(`mail` or `calls`, and a step of that world)."""

Row = dict[str, Any]

ON_ITS_OWN = ("flush", "copy", "report", "late", "resolve")
"""What the core in an actor's process does by itself; the rest is its ledger's to begin."""


@dataclass
class Scribe:
    """An actor in the eyes of the machines: whatever it sends is a choice of its own."""

    outputs: list[Output] = field(default_factory=list)
    joins: tuple[tuple[str, ...], ...] = ()

    def react(
        self, _name: str, _state: Any, _inputs: tuple[Input, ...], choice: int, /
    ) -> tuple[Any, tuple[Output, ...]]:
        """What it sent, by when."""
        return None, tuple(self.outputs[choice - 1 : choice]) if choice else ()


@dataclass
class Turn:
    """What turns the ledger of an actor red: the boundary of the core beside it."""

    world: World
    host: str

    def __call__(self) -> tuple[int, ...]:
        core = self.world.hosts[self.host].core
        numbers = core.boundary()
        self.world.record(numbers, core.machines)
        return numbers


@dataclass(slots=True)
class Asking:
    """A machine that waits for an actor."""

    wait_id: int
    call_id: str
    waiting: Waiting


class PartyWorld:
    """A system of both; `machines` as of `World`, `kinds`, `actors` and `driver` as of `CallWorld`."""

    def __init__(
        self,
        machines: Mapping[str, tuple[str, Behaviour, Any]],
        kinds: Mapping[str, Kind],
        actors: Mapping[str, str],
        driver: Program = (),
        *,
        protocol: str = CHANDY_LAMPORT,
        is_atomic: bool = False,
        trace: list[str] | None = None,
    ) -> None:
        if protocol in BARRIERS:
            raise SettingError(
                f"machines and watched actors in one system cannot be under {protocol}: a process has one colour there"
            )
        scribes = {name: (process_of(name), Scribe(), None) for name in actors}
        is_fifo = protocol != OBSERVER  # which assumes nothing of the channels
        everyone = {**machines, **scribes}
        self.mail = World(everyone, protocol=protocol, is_fifo=is_fifo, is_atomic=is_atomic, trace=trace)
        self.calls = CallWorld(kinds, actors, driver, trace=trace)
        self.calls.coordinator = self.mail.coordinator = _joined(self.mail, self.calls)
        self.mail.abroad = self.calls.abroad = self
        self.machines = tuple(machines)
        self.processes = frozenset(process_of(name) for name in actors)
        self.running: dict[str, str] = {}
        """By machine: its action, as its ledger knows it."""
        self.asking: dict[str, Asking] = {}
        self.asked: Counter[tuple[str, str]] = Counter()
        """Calls by machine and actor."""
        self.messages: dict[str, MessageId] = {}
        """By call of a machine: what the log of the hosts calls it."""
        self.joined: dict[int, dict[str, Any]] = {}
        """By number: the rows of a completed snapshot, of both together."""
        self.behind: dict[int, tuple[int, int]] = {}
        """By number: how many actions and events there were when it was complete."""
        for name in actors:
            ledger = self.calls.alive[name].ledger
            ledger.turning = self.mail.hosts[process_of(name)].core.turning
            ledger.turn = Turn(self.mail, process_of(name))

    # ---- steps ------------------------------------------------------------------------------------------------------

    def enabled(self) -> list[Step]:
        """Every step that something waits for."""
        mail = [step for step in self.mail.enabled() if not self._is_ledgers(step)]
        return [("mail", *step) for step in mail] + [("calls", *step) for step in self.calls.enabled()]

    def _is_ledgers(self, step: Step) -> bool:
        if step[0] == "resume":
            return step[1] in self.calls.alive
        return len(step) > 1 and step[1] in self.processes and step[0] not in ON_ITS_OWN

    def can_act(self, machine: str) -> bool:
        """Whether `("mail", "act", machine)` may be performed now."""
        return self.mail.can_act(machine)

    def perform(self, step: Step, choice: int = 0) -> None:
        """Take one step; a snapshot is begun, and given up, in both worlds."""
        match step:
            case ("snapshot",):
                last = self.mail.coordinator.last
                self.mail.perform(step)
                if self.mail.coordinator.last > last:
                    self.calls.begin_snapshot(last + 1, was_quiet=False)
            case ("abort", int()):
                self.mail.perform(step)
                self.calls.give_up(self.mail.aborted[-1])
            case ("mail", *rest):
                self.mail.perform(tuple(rest), choice)
            case ("calls", *rest):
                self.calls.perform(tuple(rest))

    # ---- what crosses ---------------------------------------------------------------------------------------------------

    def called(self, host: SimHost, machine: Machine, output: Tell | Ask) -> MessageId:
        """A machine calls an actor."""
        name, ledger, log = machine.name, host.core.ledger(machine.name), self.calls.log
        run = self.running.get(name)
        if run is None:
            run = self.running[name] = ledger.accept_unknown("action", 0.0)
            log.add(name, "begin", name_of(run))
        header = ledger.submit(output.target, output.method, None, 0.0)
        call = Travelling(tuple(header), output.target, output.method, (), ())
        log.add(name, "submit", name_of(call.call_id))
        self.calls.network.append(call)
        if isinstance(output, Ask):
            waiting = Waiting(name_of(run), (name_of(call.call_id),), 1)
            self.asking[name] = Asking(ledger.wait(run, [call.call_id], 1, 0.0), call.call_id, waiting)
            log.add(name, "wait", waiting=waiting)
        self.asked[name, output.target] += 1
        message = self.messages[call.call_id] = name, output.target, "actor-call", self.asked[name, output.target]
        return message

    def accepted(self, call: Travelling) -> None:
        """An actor accepts a call."""
        if call.call_id in self.messages:
            self.mail.log.begin(call.target, [self.messages[call.call_id]], 0)

    def answered(self, call_id: str, colour: int) -> None:
        """A call of an actor has ended."""
        source, _, actor, _ = name_of(call_id)
        if call_id not in self.messages:
            return
        self.mail.reply_counts[actor, source] += 1
        message = actor, source, "reply", self.mail.reply_counts[actor, source]
        self._scribble(actor, Reply(source, None), message)
        asking = self.asking.get(source)
        if asking is not None and asking.call_id == call_id:
            self.mail.replies[source] = Answered(message, None, colour)

    def resumed(self, machine: Machine, reply: Answered) -> None:
        """A machine that waited inside an action goes on; its host has recorded what the reply is red for."""
        asking = self.asking.pop(machine.name, None)
        if asking is not None:
            ledger = self._host_of(machine.name).core.ledger(machine.name)
            ledger.wake(asking.wait_id, reply.colour)
            self.calls.log.add(machine.name, "wake", waiting=asking.waiting)
            _, _, target, number = name_of(asking.call_id)
            if number % 2:  # it has read the reply, or hears of the acceptance alone
                ledger.answered(target, number)

    def ended(self, machine: Machine) -> None:
        """A machine's action is over."""
        run = self.running.pop(machine.name, None)
        if run is not None:
            self._host_of(machine.name).core.ledger(machine.name).finish(run)
            self.calls.log.add(machine.name, "finish", name_of(run))

    def recorded(self, host: SimHost, numbers: tuple[int, ...]) -> None:
        """A host has turned red, and the ledgers of its machines with it."""
        for name in host.core.ledgers:
            self.calls.log.record(numbers, name)

    def posted(self, name: str, step: Post) -> str:
        """An actor sends to a machine; returns what the call is called, if it is one."""
        host = self._host_of(name)
        kind = "call" if step.waits else "mail"
        channel = host.core.send(host.core.machines[name], step.target, kind, step.method, None, 0.0)
        host.asked += host.core.take_unresolved()
        output = Call(step.target, step.method, None) if step.waits else Send(step.target, step.method, None)
        self._scribble(name, output, (name, step.target, kind, channel.sent))
        return owed_id(name, step.target, channel.sent)

    def reply_to(self, name: str) -> int | None:
        """The colour of the reply that an actor waits for; None if it has not come."""
        reply = self.mail.replies.get(name)
        return None if reply is None else int(reply.colour)

    def read_by(self, name: str) -> None:
        """The actor goes on with the reply."""
        self.mail.log.begin(name, [self.mail.replies.pop(name).message], 0)

    def ledger_of(self, name: str) -> CallLedger | None:
        """Of a machine."""
        host = self.mail.hosts.get(self.mail.places.get(name, ""))
        return None if host is None else host.core.ledgers.get(name)

    def completed(self, snapshot: CompletedSnapshot) -> None:
        """Every party has reported, and nothing is missing."""
        self.mail.completed_snapshot(snapshot)
        self.calls.completed_snapshot(snapshot)
        self.joined[snapshot.number] = rows_of(self, self.mail.completed[-1], snapshot.calls)
        self.behind[snapshot.number] = len(self.mail.log.actions), len(self.calls.log.events)

    def _host_of(self, name: str) -> SimHost:
        return self.mail.hosts[self.mail.places[name]]

    def _scribble(self, actor: str, output: Output, message: MessageId) -> None:
        scribe = self.mail.programs[actor]
        assert isinstance(scribe, Scribe)
        scribe.outputs.append(output)
        self.mail.log.begin(actor, [], len(scribe.outputs)).sent.append(message)


def owed_id(source: str, target: str, number: int) -> str:
    """What the call of a machine is called in rows."""
    return f"{source}>{target}/{number}"


def rows_of(world: PartyWorld, recorded: Recorded, calls: CompletedCallSnapshot) -> dict[str, Any]:
    """One snapshot of both as rows, so that detectors can judge it: `Snapshot.from_rows(**rows_of(...))`.

    Machines of hosts have rows of `machines` and `messages`; actors have those, and of `calls`; all have rows of `waits`. A
    wait for a call is satisfied where that neither runs nor is in flight; one for a machine, where its message is accepted,
    or the machine is in no action and will.
    """
    mail = rows.rows_of(world.mail, recorded)
    actors = [report for report in calls.machines.values() if report.machine not in world.machines]
    running = [_call_row(report.machine, call) for report in actors for call in report.calls]
    flying = [_flying_row(one, number, sent) for one in calls.channels for number, sent in one.in_flight.items()]
    for row in mail["messages"]:
        if row.get("kind") == "call":
            row["call_id"] = owed_id(row["source"], row["target"], row["number"])
    unfinished = {row["call_id"] for row in mail["messages"] if row["target"] in recorded.waiting and "call_id" in row}
    waits = [{**row, "satisfied": not _is_held_up(row, recorded)} for row in mail["waits"]]
    return {
        "machines": [_machine_row(row, recorded) for row in mail["machines"] if row["machine"] in world.machines]
        + [_actor_row(report, world.calls.slots()) for report in actors],
        "waits": waits + [row for one in calls.waits for row in _wait_rows(world.machines, one, unfinished)],
        "channels": mail["channels"] + [_channel_row(one) for one in calls.channels],
        "messages": mail["messages"] + flying,
        "calls": running,
    }


def _machine_row(row: Row, recorded: Recorded) -> Row:
    return {**row, "status": "blocked"} if row["machine"] in recorded.waiting else row


def _actor_row(report: MachineReport, slots: Mapping[str, int]) -> Row:
    return {"machine": report.machine, "status": report.status, "max_concurrency": slots.get(report.machine, 1)}


def _call_row(machine: str, call: RunningCall) -> Row:
    return {"machine": machine, "call_id": call.call_id, "caller": call.caller, "method": call.method}


def _channel_row(one: CallsOf) -> Row:
    counts = {name: getattr(one, name) for name in ("sent_count", "accepted_count", "settled_count", "in_flight_count")}
    return {"source": one.source, "target": one.target, "kind": "call", **counts}


def _flying_row(one: CallsOf, number: int, sent: Sent) -> Row:
    call_id = call_id_of(one.source, one.incarnation, one.target, number)
    ends = {"source": one.source, "target": one.target, "kind": "call"}
    return {**ends, "number": number, "call_id": call_id, "method": sent.method}


def _wait_rows(machines: Collection[str], resolved: ResolvedWait, unfinished: Collection[str]) -> Iterator[Row]:
    """A machine of a host takes one action at a time: the machine itself waits."""
    wait = resolved.wait
    common = {
        "machine": resolved.machine,
        "call_id": None if resolved.machine in machines else wait.call_id,
        "k": wait.k,
    }
    for call, answer in zip(wait.on, resolved.answers, strict=True):
        on = {"on_machine": None if call is None else parsed(call).target, "on_call_id": call}
        yield {**common, **on, "satisfied": bool(answer) or wait.is_ready}
    for machine, call in wait.owed:
        yield {**common, "on_machine": machine, "on_call_id": call, "satisfied": call not in unfinished}


def _is_held_up(row: Row, recorded: Recorded) -> bool:
    """Whether a machine's call of another one is in flight to one that waits inside an action."""
    return (
        bool(recorded.channels.get((row["machine"], row["on_machine"], "call")))
        and row["on_machine"] in recorded.waiting
    )


def process_of(actor: str) -> str:
    """The host that an actor's process is to the machines."""
    return f"process-of-{actor}"


def _joined(mail: World, calls: CallWorld) -> Any:
    """One coordinator of the parties of both."""
    coordinator = mail.coordinator
    coordinator.calls = calls.coordinator.calls
    return coordinator


# ---- who chooses ----------------------------------------------------------------------------------------------------


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


def by_chance(chance: random.Random, protocol: str = CHANDY_LAMPORT, trace: list[str] | None = None) -> PartyWorld:
    """Two or three machines on two hosts, and two actors; who calls whom is chance."""
    machines, actors = ("m", "n", "o")[: chance.randrange(2, 4)], ("a", "b")
    rover = Rover(machines, actors)
    low: tuple[ProgramStep, ...] = (Work(), Post(chance.choice(machines), "mail"))
    methods = {
        "low": low[: chance.randrange(3)],
        "high": (Post(chance.choice(machines), "mail"), *_high(machines, chance), Work()),
    }
    kinds = {"One": Kind(methods), "Two": Kind(methods, slots=2)}
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
    seed: int, protocol: str = CHANDY_LAMPORT, steps: int = 250, trace: list[str] | None = None
) -> PartyWorld:
    """A system by chance under a schedule by chance, with snapshots all along; checked. Raises `OracleError`."""
    try:
        return _run(random.Random(seed), protocol, steps, trace)
    except Exception as error:
        raise OracleError(f"seed {seed} under {protocol}: {type(error).__name__}: {error}") from error


def _run(chance: random.Random, protocol: str, steps: int, trace: list[str] | None) -> PartyWorld:
    world = by_chance(chance, protocol, trace)
    for _ in range(steps):
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
    dice, pending = chance.random(), sorted(world.mail.coordinator.pending)
    if dice < 0.04:
        return ("snapshot",)
    if dice < 0.045 and pending:
        return "abort", chance.choice(pending)
    ready, steps = _ready(world), world.enabled()
    if ready and (dice < 0.1 or not steps):
        return "mail", "act", chance.choice(ready)
    return chance.choice(steps) if steps else ("snapshot",)


def calm(world: PartyWorld, most: int = 20_000) -> None:
    """Let everything happen that is enabled, in turn. Raises `OracleError` if that never ends."""
    for turn in range(most):
        steps = world.enabled()
        if not steps:
            return
        world.perform(steps[turn % len(steps)])
    raise OracleError(f"{most} steps of quiet, and still {len(world.enabled())} are enabled")


def check(world: PartyWorld) -> None:
    """Nothing is left to happen: nothing may be open, and every snapshot must be right on both sides. Raises `OracleError`."""
    check_quiet(world.mail)
    check_all(world.mail)
    for name, machine in world.calls.alive.items():
        _check_ledger(name, machine.ledger)
    for host in world.mail.hosts.values():
        for name, ledger in host.core.ledgers.items():
            _check_ledger(name, ledger)
    if world.calls.coordinator.calls.pending:
        raise OracleError("no snapshot is pending, but reports of calls are waited for")
    for seen in world.calls.completed:
        white = {name for name, length in world.calls.log.cuts[seen.number].items() if length}
        if missing := white - seen.machines.keys() - seen.gone:
            raise OracleError(f"snapshot {seen.number} lacks what {sorted(missing)} did inside the cut")
        seen.active.add("hosts")  # what wakes a machine is no call: that all is done, calls alone cannot say
    check_calls(world.calls.log, world.calls.completed, world.calls.slots())


def _check_ledger(name: str, ledger: CallLedger) -> None:
    if ledger.open or ledger.kept_back:
        raise OracleError(f"no snapshot is pending, but {name} keeps {sorted(ledger.open)} and {ledger.kept_back}")


def explore(world: PartyWorld, acts: Iterable[str] = (), *, snapshots: int = 1, most: int = 100_000) -> Explored:
    """Every order of what is enabled, of one action of each machine of `acts`, and of so many snapshots at any moment.

    Raises `OracleError` on the first order that is wrong, or when there are more than `most` states.
    """
    found, distinct = Explored(), set[str]()
    wanted = tuple(acts)
    _settle(world)
    stack, seen = [world], {hash(fingerprint(world))}
    while stack:
        now = stack.pop()
        found.states += 1
        if found.states > most:
            raise OracleError(f"more than {most} states: make the system smaller")
        steps = _worth_trying(now)
        steps += [("mail", "act", name) for name in wanted if not now.mail.log.lengths[name] and now.can_act(name)]
        steps += [("snapshot",)] if now.mail.coordinator.last < snapshots else []
        for after in _after(now, steps):
            mark = hash(fingerprint(after))
            if mark not in seen:
                seen.add(mark)
                stack.append(after)
        if not steps:
            found.ends += 1
            check(now)
            distinct.update(
                repr((one.text, calls.content()))
                for one, calls in zip(now.mail.completed, now.calls.completed, strict=True)
            )
    found.snapshots = len(distinct)
    return found


def fingerprint(world: PartyWorld) -> Any:
    """Equal for worlds that will behave alike, and whose past the oracles judge alike."""
    inside = sorted(world.running.items()), sorted((name, one.call_id) for name, one in world.asking.items())
    return fingerprints.fingerprint(world.mail), calls_schedules.fingerprint(world.calls), repr(inside)


def _worth_trying(world: PartyWorld) -> list[Step]:
    """What is enabled; of a FIFO link the first batch only, for a later one would be kept until that has come."""
    first = set(heads(world.mail))
    return [step for step in world.enabled() if step[:2] != ("mail", "deliver") or step[2] in first]


def _after(world: PartyWorld, steps: list[Step]) -> Iterator[PartyWorld]:
    saved = pickle.dumps(world, pickle.HIGHEST_PROTOCOL)
    for step in steps:
        after: PartyWorld = pickle.loads(saved)
        after.perform(step, 1)
        _settle(after)
        yield after


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
        return _carries_nothing(world, world.mail.network[where[0]])
    return kind in ("flush", "report", "late", "copy", "record")


def _is_no_news(world: PartyWorld, message: Step) -> bool:
    if message[0] != "request":
        return message[0] in ("part", "close", "left")
    name, number = message[1:]
    if name in world.mail.hosts:
        return bool(world.mail.hosts[name].core.turning.due >= number)
    return name not in world.calls.alive or bool(world.calls.alive[name].ledger.turning.due >= number)


def _carries_nothing(world: PartyWorld, carried: Carried) -> bool:
    """A batch without messages, and of no colour that its target does not have."""
    turning = world.mail.hosts[carried.target].core.turning
    return all(colour <= turning.due and not messages for colour, messages in carried.batch[3])
