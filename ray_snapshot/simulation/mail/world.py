"""A deterministic world around the protocol: hosts, a network, a coordinator, and machines that are pure functions.

`World` runs the very `HostCore`, `Coordinator` and `PendingSnapshot` that the Ray runtime runs. What Ray, threads and
clocks do out there is here a list of *steps*: `enabled()` lists them, `perform(step)` takes one, and who chooses is the
caller's business (`tests/worlds/mail/schedules`: by seed, by script, or every order). Between two steps nothing happens. The
network may deliver batches in any order and twice, and so may the control messages come; an action is begun in one step and
ended in another, so that anything can happen in between.

Everything is logged for the oracle, which shares no code with the protocol. Imports the standard library only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ray_snapshot.protocol.barrier_host import BarrierCore
from ray_snapshot.protocol.collector import Answer
from ray_snapshot.protocol.coordinator import AbortedSnapshot, CompletedSnapshot, Coordinator
from ray_snapshot.protocol.host import Machine
from ray_snapshot.protocol.mailbox import MAIL
from ray_snapshot.protocol.rollback import Asked
from ray_snapshot.protocol.rollback import Step as RollbackStep
from ray_snapshot.simulation.mail.actions import Abroad, Waits, advance, react
from ray_snapshot.simulation.mail.central import Central
from ray_snapshot.simulation.mail.generations import Lineage
from ray_snapshot.simulation.mail.hosts import Body, SimHost, Step
from ray_snapshot.simulation.mail.machines import Behaviour, Input
from ray_snapshot.simulation.mail.network import Carried, Network, listed
from ray_snapshot.simulation.mail.oracle import Log, MessageId
from ray_snapshot.simulation.mail.reports import Part
from ray_snapshot.simulation.mail.rules import Declared, Rules


class World:
    """Hosts with machines, between which steps are taken one at a time.

    `machines` maps names to (host, behaviour, state); `rules` are the fields of `Rules`. With `trace`, each step appends a line
    to it. A world of a later `generation` is what was restored (`restoring`): `last` is the last snapshot number of those
    before it, for which everything in it is born red.
    """

    def __init__(
        self,
        machines: Mapping[str, tuple[str, Behaviour, Any]],
        *,
        trace: list[str] | None = None,
        generation: int = 0,
        last: int = 0,
        **rules: Any,
    ) -> None:
        self.rules = Rules(**rules)
        self.generation = generation
        self.lineage = Lineage()
        """What the generations of one system share, beside the network."""
        self.trace = trace
        self.taken = 0
        """Steps taken."""
        self.hosts: dict[str, SimHost] = {}
        self.places: dict[str, str] = {}
        self.programs: dict[str, Behaviour] = {}
        """Of every machine that has ever been born."""
        self.declared = Declared()
        self.network = Network()
        self.control: list[Step] = []
        """Control messages on their way."""
        self.waits = Waits()
        self.central = Central(Coordinator(most_open=self.rules.most_open, last=last))
        self.abroad: Abroad | None = None
        self.log = Log(is_fifo=self.rules.is_fifo)
        for host in dict.fromkeys(place for place, _, _ in machines.values()):
            self._add_host(host, self.rules.red_for(last), ())
            self.central.coordinator.register(host)
        for name, (host, behaviour, state) in machines.items():
            self._add_machine(name, host, behaviour, state)
        if self.rules.knows_places:
            self._tell_places()

    def _add_machine(self, name: str, host: str, behaviour: Behaviour, state: Any) -> None:
        self.programs[name] = behaviour
        core = self.hosts[host].core
        core.end_action(core.born(name, Body(behaviour, state), behaviour.joins))
        self.places[name] = host
        self.log.start[name] = (behaviour, state)
        self.log.lengths[name] = 0

    def add_process(self, name: str, host: str, behaviour: Behaviour, colour: int) -> None:
        """A machine comes up in a process of its own, red for all numbers up to its colour."""
        self._add_host(host, self.rules.red_for(colour), ())
        self._add_machine(name, host, behaviour, None)

    def _add_host(self, host: str, born: Any, open_at_birth: Iterable[int]) -> None:
        barriers = {"on_record": self._recorded, "clock": self._clock}
        self.hosts[host] = SimHost(self.rules.core(host, born, open_at_birth, barriers))

    def make_room(self, host: SimHost, child: str, place: str) -> None:
        """The child that this host creates will live there."""
        if place not in self.hosts:  # born with its creator's colour, and with what is open there
            self._add_host(place, host.core.colour, tuple(host.core.open))
            self.lineage.bear(place, self.generation)
            self.control.append(("register", place))
        self.places[child] = place

    def runs(self, name: str) -> bool:
        """Whether the host is there, and in this generation."""
        return self.lineage.runs(name, self.generation) and not self.hosts[name].is_down

    def stop(self, name: str) -> None:
        """The host has left this generation; what it had of replies is as if it were still on its way."""
        for caller in self._callers(name):
            self.control.append(("reply", caller, self.waits.replies.pop(caller)))

    def _callers(self, name: str) -> list[str]:
        """Machines of this host for which a reply is there."""
        return [caller for caller in self.waits.replies if self.places[caller] == name]

    def _recorded(self, machine: Machine, numbers: tuple[int, ...]) -> None:
        """Under a barrier protocol each machine records by itself."""
        self.record(numbers, [machine.name])

    def record(self, numbers: Iterable[int], machines: Iterable[str]) -> None:
        """These machines have turned red for these numbers."""
        for number in numbers:
            self.log.record(number, machines)
            self.waits.record(number, machines)

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

    def connect(self, source: str, target: str) -> None:
        """Declare a channel that closes no cycle: barriers align on it."""
        self.declared.channels.append((source, target))
        sender, receiver = self.hosts[self.places[source]].core, self.hosts[self.places[target]].core
        if isinstance(receiver, BarrierCore):
            receiver.await_input(target, source)
        sender.channel(sender.machines[source], target, MAIL)
        self.hosts[sender.host].ask()  # else no barrier ever finds its way

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
        steps += [("deliver", index) for index in range(len(self.network.batches))]
        steps += [("resend", index) for index in range(len(self.network.lost))]
        steps += [("control", index) for index in range(len(self.control))]
        return steps

    def enabled_on(self, name: str) -> list[Step]:
        """The steps of one host."""
        if not self.runs(name):
            return []
        return self.hosts[name].steps(self._callers(name), self.places, self.rules.window)

    def can_act(self, machine: str) -> bool:
        """Whether `("act", machine)` may be performed now."""
        name = self.places.get(machine, "")
        return name in self.hosts and self.runs(name) and self.hosts[name].can_act(machine)

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
        reply = self.waits.replies.pop(name)
        host.core.note(reply.colour, machine)
        recorded = self._boundary(host)
        host.core.resume(machine)
        self.waits.suspended.discard(name)
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
        body = react(self, host, machine, accepted, inputs, choice)
        told = "" if self.trace is None else f", and is {body.state}"
        while self.rules.is_atomic and host.running is not None:
            told += f"; {advance(self, host)}" if host.running.outputs else advance(self, host)
        return told

    def _continue(self, name: str) -> str:
        return advance(self, self.hosts[name]) or "the action ends"

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
        return f"records {listed(numbers)}; " if numbers else ""

    def _record(self, name: str) -> str:
        return self._boundary(self.hosts[name])

    def _copy(self, name: str) -> str:
        return self.hosts[name].copy_next()

    def _flush(self, name: str) -> str:
        batches = self.hosts[name].core.take_batches(self.rules.window)
        carried = [Carried(name, target, batch, generation=self.generation) for target, batch in batches]
        self.network.batches += carried
        if self.trace is None:
            return ""
        return "; ".join(str(one).removeprefix(f"{name} ") for one in carried)

    def _deliver(self, index: int) -> str:
        return self._arrive(self.network.batches.pop(index))

    def _repeat(self, index: int) -> str:
        """A fault: a batch is delivered, and will be delivered again."""
        return self._arrive(self.network.batches[index])

    def _drop(self, index: int) -> str:
        """A fault: the network loses a batch."""
        return str(self.network.drop(index))

    def _resend(self, index: int) -> str:
        return str(self.network.resend(index))

    def _arrive(self, carried: Carried) -> str:
        sender = self.lineage.generations.get(carried.generation, self)
        if not carried.was_delivered:
            carried.was_delivered = True
            sender.hosts[carried.source].core.outputs[carried.target].in_flight -= 1
        return self._take(carried)

    def _take(self, carried: Carried) -> str:
        target = carried.target
        world, told = self.lineage.judge(target, self, carried.generation, lambda: self._take(carried))
        if world is None:
            return told
        if target not in world.hosts or world.hosts[target].is_down:
            return f"{target} is down: lost"
        world.hosts[target].core.arrive(carried.batch)
        return "" if self.trace is None else str(carried)

    def _fire(self, name: str, index: int) -> str:
        return self.hosts[name].fire(index)

    def _resolve(self, name: str, asked: str) -> str:
        return self.hosts[name].resolve(asked, self.places[asked])

    # ---- snapshots -------------------------------------------------------------------------------------------------

    def _crash(self, name: str) -> str:
        """A fault: the host is gone, with all that it kept; snapshots that need it are given up."""
        self.hosts[name].is_down = True
        aborted = self.central.coordinator.leave(name)
        self._give_up(*aborted)
        return f"is gone, and with it snapshots {listed(one.number for one in aborted) or 'none'}"

    def _snapshot(self, *initiators: str, timeout: int = 10_000) -> str:
        """Start a snapshot, at the given hosts (all, if none is given)."""
        if any(host.is_down for host in self.hosts.values()) or self.lineage.is_past(self.generation):
            return "refused: a host is down, and the system has not been rolled back"
        number = self.central.start(timeout)
        if number is None:
            return "refused: too many are open"
        self.control += [("request", host, number) for host in initiators or self.central.coordinator.hosts]
        return f"snapshot {number} is asked for"

    def _tick(self, seconds: int) -> str:
        """Logical time passes; what is past its deadline is given up."""
        self.central.now += seconds
        self._give_up(*self.central.coordinator.expire(self.central.now))
        return f"it is {self.central.now}"

    def _abort(self, number: int) -> str:
        self._give_up(self.central.coordinator.abort(number, "somebody asked for it"))
        return f"snapshot {number} is given up"

    def _give_up(self, *aborted: AbortedSnapshot) -> None:
        for one in aborted:
            self.control += self.central.give_up(one)

    def _die(self, name: str) -> str:
        """A fault that the system does not recover from: a host is gone, with all that it has not sent."""
        return f"{self._halt(name)}; {self._notice(name)}"

    def _halt(self, name: str) -> str:
        """The host is gone; the coordinator has not noticed."""
        self.hosts[name].is_down = True
        self.hosts[name].running = None
        return f"{name} dies"

    def _notice(self, name: str) -> str:
        """The coordinator hears that the host is gone: what is pending is given up."""
        self._give_up(*self.central.lose(name))
        return f"{name} is missed"

    def _force(self, name: str, number: int) -> str:
        """Patience is over: what has not aligned by now does without."""
        core = self.hosts[name].core
        if isinstance(core, BarrierCore) and number in core.open:
            core.force(number)
        return f"patience with {number} is over"

    def _report(self, name: str, number: int) -> str:
        self.control.append(("part", number, self.hosts[name].report(number)))
        return f"reports {number}"

    def _late(self, name: str, number: int) -> str:
        part = self.hosts[name].late(number)
        self.control.append(("part", number, part))
        return f"reports late for {number}: {sum(map(len, part.channels.values()))} messages"

    def _control(self, index: int) -> str:
        return self.hear(self.control.pop(index))

    def _echo(self, index: int) -> str:
        """A fault: a control message comes, and will come again."""
        return self.hear(self.control[index])

    def hear(self, message: Step) -> str:
        """A control message arrives; returns what comes of it."""
        kind, where, *rest = message
        if kind in ("part", "register"):
            is_past = self.lineage.is_past(self.generation)
            return f"of generation {self.generation}: refused" if is_past else self._hear_centrally(message)
        if kind == "start":  # all have loaded
            self.lineage.gates[where].step(Asked(RollbackStep.START, self.generation))
            self.lineage.started(where)
            return f"{where} starts"
        host = self.places[where] if kind == "reply" else where
        world, told = self.lineage.judge(host, self, self.generation, lambda: self.hear(message))
        if world is None:
            return told
        if host not in world.hosts or world.hosts[host].is_down:
            return f"{host} is down: lost"
        if kind == "reply":
            world.waits.replies[where] = rest[0]
        else:
            getattr(world.hosts[host].core, kind)(*rest)
        return f"{kind} {' '.join(map(str, rest)) if kind != 'reply' else ''} to {where}"

    def _hear_centrally(self, message: Step) -> str:
        kind, where, *rest = message
        if kind == "part":
            return self._part(where, rest[0])
        self.control.append(self.central.welcome(where))
        return f"{where} registers"

    def _part(self, number: int, part: Part) -> str:
        answer = self.central.report(number, part)
        if answer is Answer.SUCCESS:
            snapshot = self.central.coordinator.completed(number)
            if snapshot is not None:
                (self.complete if self.abroad is None else self.abroad.completed)(snapshot)
        elif answer is Answer.DISCARDED:  # the number is over
            self.control.append(("abort", part.host, number))
        return f"report of {part.host} for {number}: {answer.value}"

    def complete(self, snapshot: CompletedSnapshot) -> None:
        """All parts are there."""
        waiting = self.waits.recorded.pop(snapshot.number, set())
        self.control += self.central.complete(snapshot, waiting, is_fifo=self.rules.is_fifo)


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
