"""Hosts with machines that are pure functions, in a world with every fault of a network.

Beside the steps that are listed by `enabled()`, the network may deliver batches in any order and twice, and so may the control
messages come; an action is begun in one step and ended in another, so that anything can happen in between. Who chooses is the
caller's business (`schedules`: by seed, by script, or every order). Imports the standard library and `ray_snapshot`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ray_snapshot.protocol.barrier_host import BarrierCore
from ray_snapshot.protocol.coordinator import CompletedSnapshot
from ray_snapshot.protocol.host import Machine
from ray_snapshot.protocol.rollback import Asked
from ray_snapshot.protocol.rollback import Step as RollbackStep
from ray_snapshot.simulation.mail.hosts import SimHost, Step
from ray_snapshot.simulation.mail.network import Carried
from ray_snapshot.simulation.mail.oracle import MessageId
from ray_snapshot.simulation.mail.simulated import STEPS, SimulatedHosts
from worlds.mail.actions import Abroad, ActingHost, Body, Waits, advance, react
from worlds.mail.generations import Lineage
from worlds.mail.machines import Behaviour, Input
from worlds.mail.network import LossyNetwork, listed, told_of
from worlds.mail.rules import Declared, WorldRules
from worlds.mail.theorem import WorldLog


class World(SimulatedHosts):
    """Hosts with machines, between which steps are taken one at a time.

    `machines` maps names to (host, behaviour, state); `rules` are the fields of `WorldRules`. With `trace`, each step appends a
    line to it. A world of a later `generation` is what was restored (`restoring`): `last` is the last snapshot number of those
    before it, for which everything in it is born red.
    """

    kind = ActingHost
    hosts: dict[str, ActingHost]  # type: ignore[assignment]
    rules: WorldRules
    log: WorldLog
    network: LossyNetwork

    def __init__(
        self,
        machines: Mapping[str, tuple[str, Behaviour, Any]],
        *,
        trace: list[str] | None = None,
        generation: int = 0,
        last: int = 0,
        **rules: Any,
    ) -> None:
        super().__init__(WorldRules(**rules), last)
        self.declared = Declared()
        self.log = WorldLog(is_fifo=self.rules.is_fifo)
        self.generation = generation
        self.lineage = Lineage()
        """What the generations of one system share, beside the network."""
        self.trace = trace
        self.programs: dict[str, Behaviour] = {}
        """Of every machine that has ever been born."""
        self.network = LossyNetwork()
        self.waits = Waits()
        self.abroad: Abroad | None = None
        for host in dict.fromkeys(place for place, _, _ in machines.values()):
            self.add_host(host, self.rules.red_for(last))
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
        self.add_host(host, self.rules.red_for(colour))
        self._add_machine(name, host, behaviour, None)

    def make_room(self, host: SimHost, child: str, place: str) -> None:
        """The child that this host creates will live there."""
        if place not in self.hosts:
            self.lineage.bear(place, self.generation)
        super().make_room(host, child, place)

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

    def record(self, numbers: Iterable[int], machines: Iterable[str]) -> None:
        """These machines have turned red for these numbers."""
        super().record(numbers, machines)
        for number in numbers:
            self.waits.record(number, machines)

    def connect(self, source: str, target: str) -> None:
        """Declare a channel that closes no cycle: barriers align on it."""
        self.declared.channels.append((source, target))
        super().connect(source, target)

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
        detail = _ALL[kind](self, *where, choice) if kind in _ACTIONS else _ALL[kind](self, *where)
        if self.trace is not None:
            place = where[0] if where and isinstance(where[0], str) else "-"
            self.trace.append(f"{self.taken:>4}  {kind:<9} {place:<8} {detail}".rstrip(" ;"))

    # ---- actions --------------------------------------------------------------------------------------------------

    def _accept(self, name: str, choice: int) -> str:
        host = self.hosts[name]
        recorded = self._records(host)
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
        recorded = self._records(host)
        host.core.begin_action(machine)
        return f"{recorded}{name} acts unasked" + self._react(host, machine, [], (), choice)

    def _resume(self, name: str, choice: int) -> str:
        host = self.hosts[self.places[name]]
        machine = host.core.machines[name]
        reply = self.waits.replies.pop(name)
        host.core.note(reply.colour, machine)
        recorded = self._records(host)
        host.core.resume(machine)
        self.waits.suspended.discard(name)
        if self.abroad is not None:
            self.abroad.resumed(machine, reply)
        inputs = (Input(reply.message[0], "reply", "reply", reply.args),)
        told = f"{recorded}{name} goes on with the reply of {reply.message[0]}: {reply.args}"
        return told + self._react(host, machine, [reply.message], inputs, choice)

    def _react(
        self,
        host: ActingHost,
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
        recorded = self._records(host)
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

    def boundary(self, host: SimHost) -> tuple[int, ...]:
        numbers = super().boundary(host)
        if self.abroad is not None:
            self.abroad.recorded(host, numbers)
        return numbers

    def _records(self, host: SimHost) -> str:
        numbers = self.boundary(host)
        return f"records {listed(numbers)}; " if numbers else ""

    def record_at(self, name: str) -> str:
        return self._records(self.hosts[name])

    def flush(self, name: str) -> str:
        batches = self.hosts[name].core.take_batches(self.rules.window)
        carried = [Carried(name, target, batch, generation=self.generation) for target, batch in batches]
        self.network.batches += carried
        if self.trace is None:
            return ""
        return "; ".join(told_of(one).removeprefix(f"{name} ") for one in carried)

    def deliver(self, index: int) -> str:
        return self._arrive(self.network.batches.pop(index))

    def _repeat(self, index: int) -> str:
        """A fault: a batch is delivered, and will be delivered again."""
        return self._arrive(self.network.batches[index])

    def _drop(self, index: int) -> str:
        """A fault: the network loses a batch."""
        return told_of(self.network.drop(index))

    def _resend(self, index: int) -> str:
        return told_of(self.network.resend(index))

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
        return "" if self.trace is None else told_of(carried)

    # ---- snapshots -------------------------------------------------------------------------------------------------

    def snapshot(self, *initiators: str) -> str:
        if self.lineage.is_past(self.generation):
            return "refused: the system has gone back, and this generation is over"
        return super().snapshot(*initiators)

    def _tick(self, seconds: int) -> str:
        """Logical time passes; what is past its deadline is given up."""
        self.central.now += seconds
        self._give_up(*self.central.coordinator.expire(self.central.now))
        return f"it is {self.central.now}"

    def _abort(self, number: int) -> str:
        self._give_up(self.central.coordinator.abort(number, "somebody asked for it"))
        return f"snapshot {number} is given up"

    def _die(self, name: str) -> str:
        """A fault that the system does not recover from: a host is gone, with all that it has not sent."""
        return f"{self._halt(name)}; {self._notice(name)}"

    def _halt(self, name: str) -> str:
        """The host is gone; the coordinator has not noticed."""
        self.hosts[name].is_down = True
        self.hosts[name].running = None
        return f"{name} dies"

    def _notice(self, name: str) -> str:
        """The host is missed: what is pending is given up, for its report may be there, but not what it would find late."""
        aborted = self.central.coordinator.leave(name)
        for number in sorted(self.central.coordinator.pending):
            aborted.append(self.central.coordinator.abort(number, f"host {name} has crashed"))
        self._give_up(*aborted)
        return f"{name} is missed"

    def _force(self, name: str, number: int) -> str:
        """Patience is over: what has not aligned by now does without."""
        core = self.hosts[name].core
        if isinstance(core, BarrierCore) and number in core.open:
            core.force(number)
        return f"patience with {number} is over"

    def _echo(self, index: int) -> str:
        """A fault: a control message comes, and will come again."""
        return self.hear(self.control[index])

    def hear(self, message: Step) -> str:
        """A control message arrives; returns what comes of it."""
        kind, where, *rest = message
        if kind in ("part", "register"):
            is_past = self.lineage.is_past(self.generation)
            return f"of generation {self.generation}: refused" if is_past else super().hear(message)
        if kind == "start":  # all have loaded
            self.lineage.gates[where].step(Asked(RollbackStep.START, self.generation))
            self.lineage.started(where)
            return f"{where} starts"
        host = self.places[where] if kind == "reply" else where
        world, told = self.lineage.judge(host, self, self.generation, lambda: self.hear(message))
        if world is None:
            return told
        if kind != "reply":
            return SimulatedHosts.hear(world, message)
        if host not in world.hosts or world.hosts[host].is_down:
            return f"{host} is down: lost"
        world.waits.replies[where] = rest[0]
        return f"{kind}  to {where}"

    def close(self, snapshot: CompletedSnapshot) -> None:
        (self.complete if self.abroad is None else self.abroad.completed)(snapshot)

    def complete(self, snapshot: CompletedSnapshot) -> None:
        """All parts are there, also those of watched actors."""
        waiting = self.waits.recorded.pop(snapshot.number, set())
        super().close(snapshot)
        self.central.completed[-1].waiting = waiting


_OWN = "accept act resume continue birth repeat drop resend tick abort force die halt notice echo"
_ALL: dict[str, Callable[..., Any]] = {
    **STEPS,
    **{name: getattr(World, f"_{name}") for name in _OWN.split()},
    "record": World.record_at,
    "flush": World.flush,
    "deliver": World.deliver,
    "snapshot": World.snapshot,
}

_ACTIONS = ("accept", "act", "resume")
"""Steps in which a machine acts, and therefore chooses."""
