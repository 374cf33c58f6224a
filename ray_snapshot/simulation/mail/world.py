"""A deterministic world around the protocol: hosts, a network, a coordinator, and machines that are pure functions.

`World` runs the very `HostCore`, `Coordinator` and `PendingSnapshot` that the Ray runtime runs. What Ray, threads and
clocks do out there is here a list of *steps*: `enabled()` lists them, `perform(step)` takes one, and who chooses is the
caller's business (see `schedules`: by seed, by script, or every order). Between two steps nothing happens. The network
may deliver batches in any order and twice, and so may the control messages come; an action is begun in one step and
ended in another, so that anything can happen in between.

Everything is logged for the oracle, which shares no code with the protocol. Imports the standard library only.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ray_snapshot.protocol.barrier_host import BarrierCore
from ray_snapshot.protocol.choosing import BARRIERS, CHANDY_LAMPORT, core_for
from ray_snapshot.protocol.collector import Answer
from ray_snapshot.protocol.colours import Colours, Numbered
from ray_snapshot.protocol.coordinator import AbortedSnapshot, CompletedSnapshot, Coordinator
from ray_snapshot.protocol.host import BOUND, HostCore, Machine, OutChannel
from ray_snapshot.protocol.links import Batch, InLink
from ray_snapshot.protocol.mailbox import MAIL, Inbox
from ray_snapshot.protocol.observer import LooseInbox, LooseInLink
from ray_snapshot.protocol.rollback import Asked, Judgement, Phase, RollbackHost
from ray_snapshot.protocol.rollback import Step as RollbackStep
from ray_snapshot.simulation.mail.machines import Ask, Behaviour, Call, Create, Input, Later, Output, Reply, Send, Tell
from ray_snapshot.simulation.mail.oracle import Action, Log, MessageId, Recorded
from ray_snapshot.simulation.mail.reports import Part, assembled, late_part, part_of

Step = tuple[Any, ...]
"""(kind, where, ...); see `World.enabled`."""


@dataclass(slots=True)
class Body:
    """What the world hangs on a machine."""

    behaviour: Behaviour
    state: Any


@dataclass(slots=True)
class Running:
    """The action that a host is inside of."""

    machine: Machine
    outputs: list[Output]
    action: Action


@dataclass(slots=True)
class Carried:
    """A batch on its way."""

    source: str
    target: str
    batch: Batch
    was_delivered: bool = False
    generation: int = 0


@dataclass(slots=True)
class Answered:
    """A reply on its way to its caller; it travels over no link."""

    message: MessageId
    args: Any
    colour: Any


@dataclass(slots=True)
class SimHost:
    """A host and what the world keeps for it."""

    core: HostCore
    running: Running | None = None
    timers: list[tuple[OutChannel, int]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    """Names that it wants to know the place of."""
    reported: set[int] = field(default_factory=set)
    late_count: int = 0
    is_down: bool = False
    """It has crashed: it does nothing, and what reaches it is lost."""


@dataclass(slots=True)
class Lineage:
    """The generations of one system; empty if it is never rolled back."""

    generations: dict[int, World] = field(default_factory=dict)
    gates: dict[str, RollbackHost] = field(default_factory=dict)
    """By host: in which generation it is."""
    held: dict[str, list[Callable[[], str]]] = field(default_factory=dict)
    """By host: what has arrived before its time."""
    newborn: list[tuple[str, int]] = field(default_factory=list)
    """(host, generation): made by machines, and nobody who rolls back has heard of them."""


def state_of(machine: Machine) -> Any:
    """What the snapshot holds of a machine's body."""
    return machine.body.state


class Abroad(Protocol):
    """The watched actors beside a world of hosts (`parties`), as far as a host has to do with them."""

    def called(self, host: SimHost, machine: Machine, output: Tell | Ask) -> MessageId: ...

    def resumed(self, machine: Machine, reply: Answered) -> None: ...

    def replied(self, reply: Answered) -> bool: ...

    def ended(self, machine: Machine) -> None: ...

    def recorded(self, host: SimHost, numbers: tuple[int, ...]) -> None: ...

    def completed(self, snapshot: CompletedSnapshot) -> None: ...


class World:
    """Hosts with machines, between which steps are taken one at a time.

    `machines` maps names to (host, behaviour, state). With `knows_places`, every host knows from the start where each
    machine lives, else it asks. With `is_atomic`, an action is one step. With `trace`, each step appends a line to it.
    Unless `is_fifo`, channels and links reorder. A world of a later `generation` is what was restored (`restoring`): `last`
    is the last snapshot number of those before it, for which everything in it is born red. While the system is rolled back,
    two generations are there at once, over the same hosts and the same network: a host acts in the one that it is in.
    """

    def __init__(
        self,
        machines: Mapping[str, tuple[str, Behaviour, Any]],
        *,
        protocol: str = CHANDY_LAMPORT,
        is_fifo: bool = True,
        colours: Callable[[], Colours] = Numbered,
        bound: int = BOUND,
        window: int = 2,
        most_open: int = 4,
        knows_places: bool = True,
        is_atomic: bool = False,
        trace: list[str] | None = None,
        generation: int = 0,
        last: int = 0,
    ) -> None:
        self.options: dict[str, Any] = {
            "protocol": protocol,
            "is_fifo": is_fifo,
            "colours": colours,
            "bound": bound,
            "window": window,
            "most_open": most_open,
            "knows_places": knows_places,
            "is_atomic": is_atomic,
            "trace": trace,
        }
        """What a world that is restored from this one has in common with it."""
        self.generation = generation
        self.lineage = Lineage()
        """What the generations of one system share, beside the network."""
        self.protocol = protocol
        self.is_fifo = is_fifo
        self.colours = colours
        self.bound = bound
        self.window = window
        self.is_atomic = is_atomic
        self.trace = trace
        self.now = 0
        self.taken = 0
        """Steps taken."""
        self.hosts: dict[str, SimHost] = {}
        self.places: dict[str, str] = {}
        self.programs: dict[str, Behaviour] = {}
        """Of every machine that has ever been born."""
        self.declared: list[tuple[str, str]] = []
        """Channels that were declared by `connect`."""
        self.network: list[Carried] = []
        self.lost: list[Carried] = []
        """Batches that the network has lost; the transport has kept them, and will send them again."""
        self.control: list[Step] = []
        """Control messages on their way."""
        self.replies: dict[str, Answered] = {}
        """By caller."""
        self.reply_counts: Counter[tuple[str, str]] = Counter()
        self.suspended: set[str] = set()
        """Machines inside an action, at a wait for a reply."""
        self.waiting: dict[int, set[str]] = {}
        """Per pending snapshot: those of them that were so when they recorded."""
        self.coordinator = Coordinator(most_open=most_open, last=last)
        self.abroad: Abroad | None = None
        self.parts: dict[int, list[Part]] = {}
        self.completed: list[Recorded] = []
        self.surplus: dict[int, Any] = {}
        """Completed snapshots that have more in their cut than was sent: none, if all is right."""
        self.aborted: list[AbortedSnapshot] = []
        self.answers: Counter[Answer] = Counter()
        self.log = Log(is_fifo=is_fifo)
        self.sources: dict[str, dict[str, tuple[str, ...]]] = {}
        """By machine and port: who is declared to send to it."""
        born = self.colours().recorded(self.colours().white, (last,)) if last else None
        for host in dict.fromkeys(place for place, _, _ in machines.values()):
            self._add_host(host, born, ())
            self.coordinator.register(host)
        for name, (host, behaviour, state) in machines.items():
            self._add_machine(name, host, behaviour, state)
        if knows_places:
            self._tell_places()

    def _add_machine(self, name: str, host: str, behaviour: Behaviour, state: Any) -> None:
        self.programs[name] = behaviour
        core = self.hosts[host].core
        core.end_action(core.born(name, Body(behaviour, state), behaviour.joins))
        self.places[name] = host
        self.log.start[name] = (behaviour, state)
        self.log.lengths[name] = 0

    def _add_host(self, host: str, born: Any, open_at_birth: Iterable[int]) -> None:
        core = core_for(
            self.protocol,
            host,
            colours=self.colours(),
            born=born,
            barriers={"on_record": self._recorded, "clock": self._clock},
            copy_body=state_of,
            bound=self.bound,
            open_at_birth=open_at_birth,
            in_link=InLink if self.is_fifo else LooseInLink,
            turning=None,
            life=0,
            **({} if self.protocol in BARRIERS else {"inbox": Inbox if self.is_fifo else LooseInbox}),
        )
        self.hosts[host] = SimHost(core)

    def runs(self, name: str) -> bool:
        """Whether the host is there, and in this generation."""
        gate = self.lineage.gates.get(name)
        if gate is None:
            return not (self.lineage.generations or self.hosts[name].is_down)
        is_here = gate.generation == self.generation and gate.phase is Phase.RUNNING
        return is_here and not self.hosts[name].is_down

    def stop(self, name: str) -> None:
        """The host has left this generation; what it had of replies is as if it were still on its way."""
        for caller in [caller for caller in self.replies if self.places[caller] == name]:
            self.control.append(("reply", caller, self.replies.pop(caller)))

    def started(self, name: str) -> None:
        """The host has entered this generation: what it held is looked at again."""
        for again in self.lineage.held.pop(name, ()):
            again()

    def _recorded(self, machine: Machine, numbers: tuple[int, ...]) -> None:
        """Under a barrier protocol each machine records by itself."""
        self.record(numbers, [machine.name])

    def record(self, numbers: Iterable[int], machines: Iterable[str]) -> None:
        """These machines have turned red for these numbers."""
        for number in numbers:
            self.log.record(number, machines)
            self.waiting.setdefault(number, set()).update(self.suspended.intersection(machines))

    def _clock(self) -> float:
        return float(self.taken)

    def _tell_places(self) -> None:
        for host in self.hosts.values():
            for name, place in self.places.items():
                host.core.resolve(name, place)

    def connect_all(self) -> None:
        """Open a link from every host to every other; both ends know of it."""
        for source in self.hosts.values():
            for target in self.hosts.values():
                if source is not target:
                    source.core.output(target.core.host)
                    target.core.input(source.core.host)

    def declare(self, source: str, target: str, port: str) -> None:
        """`source` sends to that port; what is declared is all that the target is ever sent."""
        ports = self.sources.setdefault(target, {})
        ports[port] = tuple(dict.fromkeys((*ports.get(port, ()), source)))

    def connect(self, source: str, target: str) -> None:
        """Declare a channel that closes no cycle: barriers align on it."""
        self.declared.append((source, target))
        sender, receiver = self.hosts[self.places[source]].core, self.hosts[self.places[target]].core
        if isinstance(receiver, BarrierCore):
            receiver.await_input(target, source)
        sender.channel(sender.machines[source], target, MAIL)
        self.hosts[sender.host].asked += sender.take_unresolved()  # else no barrier ever finds its way

    def states(self) -> dict[str, Any]:
        """The state of every machine that has been born."""
        return {
            machine.name: machine.body.state
            for host in self.hosts.values()
            for machine in host.core.machines.values()
            if machine.body is not None
        }

    # ---- which steps there are ------------------------------------------------------------------------------------

    def enabled(self) -> list[Step]:
        """Every step that something waits for; not listed: what the schedule starts (`snapshot`, `act`, `abort`)."""
        steps = [step for name in self.hosts for step in self.enabled_on(name)]
        steps += [("deliver", index) for index in range(len(self.network))]
        steps += [("resend", index) for index in range(len(self.lost))]
        steps += [("control", index) for index in range(len(self.control))]
        return steps

    def enabled_on(self, name: str) -> list[Step]:
        """The steps of one host."""
        steps: list[Step] = []
        if not self.runs(name):
            return steps
        self._add_actions(name, self.hosts[name], steps)
        self._add_duties(name, self.hosts[name], steps)
        return steps

    def _add_actions(self, name: str, host: SimHost, steps: list[Step]) -> None:
        if host.running is not None:
            steps.append(("continue", name))
            return
        if host.core.must_record:
            steps.append(("record", name))
        if host.core.births:
            steps.append(("birth", name))
        if host.core.runnable:
            steps.append(("accept", name))
        steps += [("resume", caller) for caller in self.replies if self.places[caller] == name]

    def _add_duties(self, name: str, host: SimHost, steps: list[Step]) -> None:
        core = host.core
        if core.uncopied:
            steps.append(("copy", name))
        for link in core.outputs.values():
            if link.in_flight < self.window and (link.messages or link.dirty or link.acknowledgements):
                steps.append(("flush", name))
                break
        if host.timers:
            steps += [("fire", name, index) for index in range(len(host.timers))]
        if host.asked:
            steps += [("resolve", name, asked) for asked in host.asked if asked in self.places]
        for number, recording in core.open.items():
            if recording.is_copied and number not in host.reported:
                steps.append(("report", name, number))
            elif recording.is_copied and (recording.late or recording.late_creations):
                steps.append(("late", name, number))

    def can_act(self, machine: str) -> bool:
        """Whether `("act", machine)` may be performed now."""
        name = self.places.get(machine, "")
        host = self.hosts.get(name)
        if host is None or not self.runs(name):
            return False
        found = host.core.machines.get(machine)
        if found is None or found.body is None or host.running is not None:
            return False
        return not (found.is_suspended or found.is_held)

    def perform(self, step: Step, choice: int = 0) -> None:
        """Take one step; what a machine does in it depends on `choice`."""
        kind, *where = step
        self.taken += 1
        detail = _STEPS[kind](self, *where, choice) if kind in _ACTIONS else _STEPS[kind](self, *where)
        if self.trace is not None:
            place = where[0] if where and isinstance(where[0], str) else "-"
            self.trace.append(f"{self.taken:>4}  {kind:<9} {place:<8} {detail}".rstrip(" ;"))

    # ---- actions --------------------------------------------------------------------------------------------------

    def _accept(self, name: str, choice: int) -> str:
        host = self.hosts[name]
        recorded = self._boundary(host)
        found = host.core.next_action()
        if found is None:
            return recorded + "nothing is enabled"
        machine, taken = found
        accepted = [(box.source, machine.name, box.kind, message[1]) for box, message in taken]
        inputs = tuple(Input(box.source, box.kind, message[2], message[3]) for box, message in taken)
        texts = [f"{box.kind} {message[1]} from {box.source}: {message[2]} {message[3]}" for box, message in taken]
        return f"{recorded}{machine.name} accepts {' and '.join(texts)}" + self._react(
            host, machine, accepted, inputs, choice
        )

    def _act(self, name: str, choice: int) -> str:
        host = self.hosts[self.places[name]]
        machine = host.core.machines[name]
        recorded = self._boundary(host)
        host.core.begin_action(machine)
        return f"{recorded}{name} acts unasked" + self._react(host, machine, [], (), choice)

    def _resume(self, name: str, choice: int) -> str:
        host = self.hosts[self.places[name]]
        machine = host.core.machines[name]
        reply = self.replies.pop(name)
        host.core.note(reply.colour, machine)
        recorded = self._boundary(host)
        host.core.resume(machine)
        self.suspended.discard(name)
        if self.abroad is not None:
            self.abroad.resumed(machine, reply)
        inputs = (Input(reply.message[0], "reply", "reply", reply.args),)
        told = f"{recorded}{name} goes on with the reply of {reply.message[0]}: {reply.args}"
        return told + self._react(host, machine, [reply.message], inputs, choice)

    def _react(
        self,
        host: SimHost,
        machine: Machine,
        accepted: list[MessageId],
        inputs: tuple[Input, ...],
        choice: int,
    ) -> str:
        body: Body = machine.body
        host.core.acting = machine
        action = self.log.begin(machine.name, accepted, choice)
        body.state, outputs = body.behaviour.react(machine.name, body.state, inputs, choice)
        action.after = body.state
        host.running = Running(machine, list(outputs), action)
        told = "" if self.trace is None else f", and is {body.state}"
        while self.is_atomic and host.running is not None:
            told += f"; {self._advance(host)}" if host.running.outputs else self._advance(host)
        return told

    def _continue(self, name: str) -> str:
        return self._advance(self.hosts[name]) or "the action ends"

    def _advance(self, host: SimHost) -> str:
        """Carry out the next output of the running action, or end it."""
        running = host.running
        assert running is not None
        if not running.outputs:
            host.running = None
            host.core.end_action(running.machine)
            if self.abroad is not None:
                self.abroad.ended(running.machine)
            return f"; {running.machine.name} is held back" if running.machine.is_held else ""
        output = running.outputs.pop(0)
        sent = self._carry_out(host, running.machine, output)
        running.action.sent.append(sent)
        if isinstance(output, Call | Ask):
            host.running = None
            host.core.suspend(running.machine)
            self.suspended.add(running.machine.name)
        return f"{sent[2]} {sent[3]} to {sent[1]}"

    def _carry_out(self, host: SimHost, machine: Machine, output: Output) -> MessageId:
        source = machine.name
        match output:
            case Send(target, method, args):
                return source, target, "mail", self._send(host, machine, target, "mail", method, args)
            case Call(target, method, args):
                return source, target, "call", self._send(host, machine, target, "call", method, args)
            case Later(target, method, args):
                return source, target, "timer", self._set_timer(host, machine, target, method, args)
            case Create(child, place, behaviour, state):
                self._create(host, source, child, place, (behaviour, state))
                return source, child, "creation", 1
            case Tell() | Ask():
                assert self.abroad is not None, "there are no watched actors here"
                return self.abroad.called(host, machine, output)
            case Reply(target, args):
                self.reply_counts[source, target] += 1
                message = source, target, "reply", self.reply_counts[source, target]
                reply = Answered(message, args, host.core.colour_of(machine))
                if self.abroad is None or not self.abroad.replied(reply):
                    self.replies[target] = reply
                return message

    def _send(self, host: SimHost, machine: Machine, target: str, kind: str, method: str, args: Any) -> int:
        channel = host.core.send(machine, target, kind, method, isolated(args), 0.0)
        host.asked += host.core.take_unresolved()
        return channel.sent

    def _set_timer(self, host: SimHost, machine: Machine, target: str, method: str, args: Any) -> int:
        channel = host.core.set_timer(machine, target, method, isolated(args), 0.0, 0.0)
        host.asked += host.core.take_unresolved()
        host.timers.append((channel, channel.sent))
        return channel.sent

    def _create(self, host: SimHost, creator: str, child: str, place: str, payload: Any) -> None:
        self.make_room(host, child, place)
        host.core.create(creator, child, place, payload, 0.0)

    def make_room(self, host: SimHost, child: str, place: str) -> None:
        """The child that this host creates will live there."""
        if place not in self.hosts:  # born with its creator's colour, and with what is open there
            self._add_host(place, host.core.colour, tuple(host.core.open))
            if self.lineage.generations and place not in self.lineage.gates:
                self.lineage.gates[place] = RollbackHost(self.generation, Phase.LOADED)
                self.lineage.newborn.append((place, self.generation))
            self.control.append(("register", place))
        self.places[child] = place

    def _birth(self, name: str) -> str:
        host = self.hosts[name]
        recorded = self._boundary(host)
        creation = host.core.next_birth()
        assert creation is not None
        behaviour, state = creation.payload
        self.programs[creation.child] = behaviour
        machine = host.core.born(creation.child, Body(behaviour, state), behaviour.joins)
        host.core.end_action(machine)
        message = creation.creator, creation.child, "creation", 1
        self.log.begin(creation.child, [message], 0).after = state
        return f"{recorded}{creation.child} is born, made by {creation.creator}"

    # ---- what goes on beside the actions ---------------------------------------------------------------------------

    def _boundary(self, host: SimHost) -> str:
        numbers = host.core.boundary()
        self.record(numbers, host.core.machines)
        if self.abroad is not None:
            self.abroad.recorded(host, numbers)
        return f"records {_listed(numbers)}; " if numbers else ""

    def _record(self, name: str) -> str:
        return self._boundary(self.hosts[name])

    def _copy(self, name: str) -> str:
        host = self.hosts[name].core
        waiting = len(host.uncopied)
        host.copy_next()
        return f"{waiting} to {len(host.uncopied)} machines to copy"

    def _flush(self, name: str) -> str:
        batches = self.hosts[name].core.take_batches(self.window)
        self.network += [Carried(name, target, batch, generation=self.generation) for target, batch in batches]
        return "; ".join(f"to {target} {_contents(batch)}" for target, batch in batches)

    def _deliver(self, index: int) -> str:
        carried = self.network.pop(index)
        return self._arrive(carried)

    def _repeat(self, index: int) -> str:
        """A fault: a batch is delivered, and will be delivered again."""
        return self._arrive(self.network[index])

    def _drop(self, index: int) -> str:
        """A fault: the network loses a batch. The transport below the numbering has kept it if it was never delivered."""
        carried = self.network.pop(index)
        if not carried.was_delivered:
            self.lost.append(carried)
        return f"{carried.source} to {carried.target} {_contents(carried.batch)}"

    def _resend(self, index: int) -> str:
        carried = self.lost.pop(index)
        self.network.append(carried)
        return f"{carried.source} to {carried.target} {_contents(carried.batch)}"

    def _judge(self, name: str, generation: int, again: Callable[[], str]) -> tuple[World | None, str]:
        """In which world something of this generation is accepted by the host; none, and why, if it is not (now)."""
        gate = self.lineage.gates.get(name)
        if gate is None:
            return (None, f"{name} is no more: lost") if self.lineage.generations else (self, "")
        match gate.judge(generation):
            case Judgement.REFUSE:
                return None, f"of generation {generation}: refused"
            case Judgement.HOLD:
                self.lineage.held.setdefault(name, []).append(again)
                return None, f"of generation {generation}: held"
        return self.lineage.generations[gate.generation], ""

    def _arrive(self, carried: Carried) -> str:
        sender = self.lineage.generations.get(carried.generation, self)
        if not carried.was_delivered:
            carried.was_delivered = True
            sender.hosts[carried.source].core.outputs[carried.target].in_flight -= 1
        return self._take(carried)

    def _take(self, carried: Carried) -> str:
        target = carried.target
        world, told = self._judge(target, carried.generation, lambda: self._take(carried))
        if world is None:
            return told
        if target not in world.hosts or world.hosts[target].is_down:
            return f"{target} is down: lost"
        world.hosts[target].core.arrive(carried.batch)
        return f"{carried.source} to {target} {_contents(carried.batch)}"

    def _fire(self, name: str, index: int) -> str:
        host = self.hosts[name]
        channel, number = host.timers.pop(index)
        host.core.fire(channel, number)
        return f"timer {number} of {channel.owner.name} to {channel.target}"

    def _resolve(self, name: str, asked: str) -> str:
        self.hosts[name].asked.remove(asked)
        self.hosts[name].core.resolve(asked, self.places[asked])
        return f"{asked} lives on {self.places[asked]}"

    # ---- snapshots -------------------------------------------------------------------------------------------------

    def _crash(self, name: str) -> str:
        """A fault: the host is gone, with all that it kept; snapshots that need it are given up."""
        self.hosts[name].is_down = True
        aborted = self.coordinator.leave(name)
        for one in aborted:
            self._give_up(one)
        return f"is gone, and with it snapshots {_listed(one.number for one in aborted) or 'none'}"

    def _snapshot(self, *initiators: str, timeout: int = 10_000) -> str:
        """Start a snapshot, at the given hosts (all, if none is given)."""
        if any(host.is_down for host in self.hosts.values()) or self.is_past:
            return "refused: a host is down, and the system has not been rolled back"
        number = self.coordinator.start(self.now, timeout)
        if number is None:
            return "refused: too many are open"
        self.parts[number] = []
        self.control += [("request", host, number) for host in initiators or self.coordinator.hosts]
        return f"snapshot {number} is asked for"

    def _tick(self, seconds: int) -> str:
        """Logical time passes; what is past its deadline is given up."""
        self.now += seconds
        for aborted in self.coordinator.expire(self.now):
            self._give_up(aborted)
        return f"it is {self.now}"

    def _abort(self, number: int) -> str:
        self._give_up(self.coordinator.abort(number, "somebody asked for it"))
        return f"snapshot {number} is given up"

    def _give_up(self, aborted: AbortedSnapshot) -> None:
        self.aborted.append(aborted)
        del self.parts[aborted.number]
        self.control += [("abort", host, aborted.number) for host in self.coordinator.hosts]

    def _die(self, name: str) -> str:
        """A fault that nobody recovers from: a host is gone, with all that it has not sent; what was pending is given up."""
        return f"{self._halt(name)}; {self._notice(name)}"

    def _halt(self, name: str) -> str:
        """The host is gone; nobody has noticed."""
        self.hosts[name].is_down = True
        self.hosts[name].running = None
        return f"{name} dies"

    def _notice(self, name: str) -> str:
        """The coordinator hears that the host is gone: what is pending is given up."""
        aborted = self.coordinator.leave(name)
        for number in sorted(self.coordinator.pending):  # its report is there, but not what it would have found late
            aborted.append(self.coordinator.abort(number, f"host {name} has crashed"))
        for one in aborted:
            self._give_up(one)
        return f"{name} is missed"

    def _force(self, name: str, number: int) -> str:
        """Patience is over: what has not aligned by now does without."""
        core = self.hosts[name].core
        if isinstance(core, BarrierCore) and number in core.open:
            core.force(number)
        return f"patience with {number} is over"

    def _report(self, name: str, number: int) -> str:
        host = self.hosts[name]
        host.reported.add(number)
        part = part_of(name, host.core.open[number])
        part.calls = host.core.ledgers.reports(number)
        self.control.append(("part", number, part))
        return f"reports {number}"

    def _late(self, name: str, number: int) -> str:
        host = self.hosts[name]
        host.late_count += 1
        part = late_part(name, host.late_count, host.core.open[number])
        self.control.append(("part", number, part))
        return f"reports late for {number}: {sum(map(len, part.channels.values()))} messages"

    def _control(self, index: int) -> str:
        return self._tell(self.control.pop(index))

    def _echo(self, index: int) -> str:
        """A fault: a control message comes, and will come again."""
        return self._tell(self.control[index])

    @property
    def is_past(self) -> bool:
        """Whether a later generation has begun: the coordinator of snapshots listens to this one no more."""
        return bool(self.lineage.generations) and self.generation < max(self.lineage.generations)

    def _tell(self, message: Step) -> str:
        kind, where, *rest = message
        if kind in ("part", "register"):
            return f"of generation {self.generation}: refused" if self.is_past else self._tell_coordinator(message)
        if kind == "start":  # all have loaded
            self.lineage.gates[where].step(Asked(RollbackStep.START, self.generation))
            self.started(where)
            return f"{where} starts"
        host = self.places[where] if kind == "reply" else where
        world, told = self._judge(host, self.generation, lambda: self._tell(message))
        if world is None:
            return told
        if host not in world.hosts or world.hosts[host].is_down:
            return f"{host} is down: lost"
        if kind == "reply":
            world.replies[where] = rest[0]
        else:
            getattr(world.hosts[host].core, kind)(*rest)
        return f"{kind} {' '.join(map(str, rest)) if kind != 'reply' else ''} to {where}"

    def _tell_coordinator(self, message: Step) -> str:
        kind, where, *rest = message
        if kind == "part":
            return self._part(where, rest[0])
        pending = self.coordinator.register(where)
        self.control.append(("welcome", where, pending, self.coordinator.last))
        return f"{where} registers"

    def _part(self, number: int, part: Part) -> str:
        answer = self.coordinator.report(number, part.counts, part.calls)
        self.answers[answer] += 1
        if answer is Answer.SUCCESS:
            self.parts[number].append(part)
            self._complete(number)
        elif answer is Answer.DISCARDED:  # nobody wants the number any more
            self.control.append(("abort", part.host, number))
        return f"report of {part.host} for {number}: {answer.value}"

    def _complete(self, number: int) -> None:
        snapshot = self.coordinator.completed(number)
        if snapshot is not None:
            (self.completed_snapshot if self.abroad is None else self.abroad.completed)(snapshot)

    def completed_snapshot(self, snapshot: CompletedSnapshot) -> None:
        """All parts are there: what they say of the hosts is put together."""
        number = snapshot.number
        if snapshot.surplus:
            self.surplus[number] = dict(snapshot.surplus)
        recorded = assembled(number, self.parts.pop(number), self.is_fifo)
        recorded.waiting = self.waiting.pop(number, set())
        self.completed.append(recorded)
        self.control += [("close", host, number) for host in self.coordinator.hosts]


_STEPS: dict[str, Callable[..., str]] = {
    "accept": World._accept,
    "act": World._act,
    "resume": World._resume,
    "continue": World._continue,
    "birth": World._birth,
    "record": World._record,
    "copy": World._copy,
    "flush": World._flush,
    "deliver": World._deliver,
    "repeat": World._repeat,
    "drop": World._drop,
    "resend": World._resend,
    "crash": World._crash,
    "fire": World._fire,
    "resolve": World._resolve,
    "snapshot": World._snapshot,
    "tick": World._tick,
    "abort": World._abort,
    "force": World._force,
    "die": World._die,
    "halt": World._halt,
    "notice": World._notice,
    "report": World._report,
    "late": World._late,
    "control": World._control,
    "echo": World._echo,
}

_ACTIONS = ("accept", "act", "resume")
"""Steps in which a machine acts, and therefore chooses."""


def isolated(args: Any) -> Any:
    """What is sent does not change when the sender's objects do (trap 8)."""
    return args if isinstance(args, int | str) else pickle.loads(pickle.dumps(args))


def _contents(batch: Batch) -> str:
    """What a batch carries, for a person: a change of colour is a marker."""
    _, sequence, _, segments, acknowledgements = batch
    parts = []
    for place, (colour, messages) in enumerate(segments):
        if place or (colour and not sequence):
            parts.append(f"marker {_listed(sorted(colour)) if isinstance(colour, frozenset) else colour}")
        if messages:
            parts.append(f"{len(messages)} message{'s'[: len(messages) - 1]}")
    if acknowledgements:
        parts.append("acknowledgements")
    return f"batch {sequence}: {', '.join(parts) or 'the link is open'}"


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))
