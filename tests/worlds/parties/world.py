"""`PartyWorld` puts a `World` and a `CallWorld` side by side, under one coordinator.

A machine that calls an actor has a ledger in its host's core, and turns red with the host; an actor that sends to machines has
a core in its process, and that turns red with the actor's ledger. Steps are those of both worlds. What crosses from one to the
other stands in both logs, so either oracle would see it if a message, a call or a reply that was sent outside the cut were
accepted inside it. Imports the standard library only.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ray_snapshot.errors import SettingError
from ray_snapshot.names import sender_name
from ray_snapshot.protocol.call_collector import CompletedCallSnapshot
from ray_snapshot.protocol.calls import CallLedger
from ray_snapshot.protocol.choosing import BARRIERS, CHANDY_LAMPORT, OBSERVER
from ray_snapshot.protocol.coordinator import CompletedSnapshot
from ray_snapshot.protocol.host import Machine
from ray_snapshot.protocol.senders import Senders
from ray_snapshot.protocol.turning import Turning
from ray_snapshot.simulation.mail.hosts import SimHost
from ray_snapshot.simulation.mail.oracle import MessageId, RecordedSnapshot
from worlds.calls.actors import Travelling
from worlds.calls.oracle import Waiting
from worlds.calls.programs import Kind, Post, Program
from worlds.calls.reports import name_of
from worlds.calls.world import CallWorld
from worlds.mail.actions import Answered
from worlds.mail.machines import Ask, Behaviour, Call, Input, Output, Reply, Send, Tell
from worlds.mail.world import World
from worlds.parties.rows import owed_id

Step = tuple[Any, ...]
"""(`mail` or `calls`, and a step of that world)."""

ERRORS = "errors"
"""In the log of the hosts: who tells a machine that an actor which it has called is gone."""

MANY = 1 << 60

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

    @property
    def turning(self) -> Turning:
        """Of the whole process."""
        return self.world.hosts[self.host].core.turning

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
        turns = {name: Turn(self.mail, process_of(name)) for name in actors}
        self.calls = CallWorld(
            kinds, actors, driver, coordinator=self.mail.central.coordinator, turns=turns, trace=trace
        )
        self.mail.abroad = self.calls.abroad = self
        log = self.mail.log
        log.start[ERRORS], log.lengths[ERRORS], log.ended[ERRORS] = (Scribe(), None), 0, MANY
        self.mail.programs[ERRORS] = log.start[ERRORS][0]
        log.passing |= {ERRORS, *actors}
        self.senders = Senders(self.mail.central.coordinator)
        self.machines = tuple(machines)
        self.processes = {process_of(name) for name in actors}
        self.over: dict[str, tuple[str, str]] = {}
        """By process that is gone: the first one of its actor, and what the actor was called among the machines."""
        self.running: dict[str, str] = {}
        """By machine: its action, as its ledger knows it."""
        self.asking: dict[str, Asking] = {}
        self.owed: dict[tuple[str, str], list[str]] = {}
        """By actor and machine: the calls that the machine has not answered, the oldest first."""
        self.replies: dict[str, Answered] = {}
        """By call of an actor: what a machine has answered, and the actor has not read."""
        self.asked: Counter[tuple[str, str]] = Counter()
        """Calls by machine and actor."""
        self.messages: dict[str, MessageId] = {}
        """By call of a machine: what the log of the hosts calls it."""
        self.snapshots: dict[int, tuple[RecordedSnapshot, CompletedCallSnapshot]] = {}
        """By number: the two halves of a completed snapshot."""
        self.behind: dict[int, tuple[int, int]] = {}
        """By number: how many actions and events there were when it was complete."""

    # ---- steps ------------------------------------------------------------------------------------------------------

    def enabled(self) -> list[Step]:
        """Every step that something waits for."""
        mail = [step for step in self.mail.enabled() if not self._is_ledgers(step)]
        return [("mail", *step) for step in mail] + [("calls", *step) for step in self.calls.enabled()]

    def _is_ledgers(self, step: Step) -> bool:
        return len(step) > 1 and step[1] in self.processes and step[0] not in ON_ITS_OWN

    def can_act(self, machine: str) -> bool:
        """Whether `("mail", "act", machine)` may be performed now."""
        return self.mail.can_act(machine)

    def perform(self, step: Step, choice: int = 0) -> None:
        """Take one step; a snapshot is begun, and given up, in both worlds."""
        match step:
            case ("snapshot",):
                self._lose_old_mail()
                last = self.mail.central.coordinator.last
                self.mail.perform(step)
                if self.mail.central.coordinator.last > last:
                    self.calls.begin_snapshot(last + 1, was_quiet=False)
            case ("abort", int()):
                self.mail.perform(step)
                self.calls.give_up(self.mail.central.aborted[-1])
            case ("mail", *rest):
                self.mail.perform(tuple(rest), choice)
            case ("calls", *rest):
                self.calls.perform(tuple(rest))

    # ---- what crosses ---------------------------------------------------------------------------------------------------

    def called(self, host: SimHost, machine: Machine, output: Tell | Ask) -> MessageId:
        """A machine calls an actor."""
        name, ledger, log = machine.name, host.core.ledgers.of(machine.name), self.calls.log
        run = self.running.get(name)
        if run is None:
            run = self.running[name] = ledger.accept_unknown("action", 0.0)
            log.add(name, "begin", name_of(run))
        header = ledger.submit(output.target, output.method, None, 0.0)
        call = Travelling(tuple(header), output.target, output.method, (), ())
        log.add(name, "submit", name_of(call.call_id))
        self.calls.ray.submit(call)
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
            self.mail.log.begin(self.sender_of(call.target), [self.messages[call.call_id]], 0)

    def answered(self, call_id: str, colour: int) -> None:
        """A call of an actor has ended."""
        if call_id in self.messages:
            self._reply(self.sender_of(name_of(call_id)[2]), call_id, colour)

    def failed(self, call_id: str) -> None:
        """Ray says that a call has failed: its actor is gone."""
        if call_id in self.messages:
            self._reply(ERRORS, call_id, 0)

    def _reply(self, actor: str, call_id: str, colour: int) -> None:
        source = name_of(call_id)[0]
        message = self.mail.waits.next_reply(actor, source)
        self._scribble(actor, Reply(source, None), message)
        asking = self.asking.get(source)
        if asking is not None and asking.call_id == call_id:
            self.mail.waits.replies[source] = Answered(message, None, colour)

    def resumed(self, machine: Machine, reply: Answered) -> None:
        """A machine that waited inside an action goes on; its host has recorded what the reply is red for."""
        asking = self.asking.pop(machine.name, None)
        if asking is not None:
            ledger = self._host_of(machine.name).core.ledgers.of(machine.name)
            ledger.wake(asking.wait_id, reply.colour)
            self.calls.log.add(machine.name, "wake", waiting=asking.waiting)
            _, _, target, number = name_of(asking.call_id)
            if number % 2 and reply.message[0] != ERRORS:  # it has read the reply, or hears of the acceptance alone
                ledger.answered(target, number)

    def ended(self, machine: Machine) -> None:
        """A machine's action is over."""
        run = self.running.pop(machine.name, None)
        if run is not None:
            self._host_of(machine.name).core.ledgers.of(machine.name).finish(run)
            self.calls.log.add(machine.name, "finish", name_of(run))

    def recorded(self, host: SimHost, numbers: tuple[int, ...]) -> None:
        """A host has turned red, and the ledgers of its machines with it."""
        for name in host.core.ledgers.known:
            self.calls.log.record(numbers, name)

    def posted(self, name: str, step: Post) -> str:
        """An actor sends to a machine; returns what the call is called, if it is one."""
        me = self.sender_of(name)
        self.senders.known.add(process_of(name))
        host = self._host_of(me)
        kind = "call" if step.waits else "mail"
        channel = host.core.send(host.core.machines[me], step.target, kind, step.method, None, 0.0)
        host.ask()
        output = Call(step.target, step.method, None) if step.waits else Send(step.target, step.method, None)
        self._scribble(me, output, (me, step.target, kind, channel.sent))
        call_id = owed_id(me, step.target, channel.sent)
        if step.waits:
            self.owed.setdefault((me, step.target), []).append(call_id)
        return call_id

    def replied(self, reply: Answered) -> bool:
        """A machine answers; of an actor, the oldest of its calls that the machine has not answered. Whether it was one."""
        machine, actor, *_ = reply.message
        if actor not in self.mail.log.passing:
            return False
        if actor not in self.mail.log.ended:
            self.replies[self.owed[actor, machine].pop(0)] = reply
        return True

    def reply_to(self, call_id: str) -> int | None:
        """The colour of the reply to a call of an actor; None if it has not come."""
        reply = self.replies.get(call_id)
        return None if reply is None else int(reply.colour)

    def read_by(self, name: str, call_id: str) -> None:
        """The actor goes on with the reply."""
        self.mail.log.begin(self.sender_of(name), [self.replies.pop(call_id).message], 0)

    def ledgers(self) -> dict[str, CallLedger]:
        """Of the machines that have called actors."""
        return {name: one for host in self.mail.hosts.values() for name, one in host.core.ledgers.known.items()}

    def sender_of(self, actor: str) -> str:
        """What an actor that lives is called among the machines."""
        return sender_name(actor, self.calls.alive[actor].ledger.incarnation)

    # ---- processes that come and go -------------------------------------------------------------------------------------

    def died(self, name: str, incarnation: int) -> None:
        """An actor's process is gone: what it had not sent is lost, and what it has sent may come."""
        me = sender_name(name, incarnation)
        process = process_of(me)
        self.over[process] = process_of(name), me
        coordinator = self.mail.central.coordinator
        coordinator.hosts.remove(process)
        for pending in coordinator.pending.values():
            pending.counts.awaited.discard(process)
        self.senders.gone(process_of(name), incarnation + 1)
        del self.mail.hosts[process]
        for carried in self.mail.network.batches:
            carried.was_delivered |= carried.source == process  # nobody counts what is on its way
        self.mail.log.ended[me] = self.mail.log.lengths[me]
        for key in [key for key in self.owed if key[0] == me]:
            for call_id in self.owed.pop(key):
                self.replies.pop(call_id, None)

    def born_again(self, name: str, incarnation: int, colour: int) -> Turn:
        """Another process is there for an actor: its core is born red for all numbers so far, as its ledger is."""
        me = sender_name(name, incarnation)
        process = process_of(me)
        self.mail.add_process(me, process, Scribe(), colour)
        self.mail.record(range(1, colour + 1), [me])
        self.mail.central.coordinator.hosts.append(process)
        self.mail.log.passing.add(me)
        self.processes.add(process)
        return Turn(self.mail, process)

    def _lose_old_mail(self) -> None:
        """What comes of the dead comes before the second snapshot behind the death."""
        network, last = self.mail.network, self.mail.central.coordinator.last
        late = {process for process, (first, _) in self.over.items() if self.senders.lost.get(first, -1) < last}
        network.batches = [one for one in network.batches if one.source not in late]

    def lost(self) -> set[MessageId]:
        """What those that are gone had sent, and never arrived; asked for when nothing is on its way."""
        log = self.mail.log
        sent = {message for action in log.actions if action.machine in log.ended for message in action.sent}
        came = {message for action in log.actions for message in action.accepted}
        for host in self.mail.hosts.values():
            for machine in host.core.machines.values():
                for box in machine.inbox.mailboxes.values():
                    came |= {(box.source, machine.name, box.kind, message[1]) for message in box.queue}
        return sent - came

    def completed(self, snapshot: CompletedSnapshot) -> None:
        """Every party has reported, and nothing is missing."""
        self.mail.complete(snapshot)
        self.calls.complete(snapshot)
        uncertain = self.senders.uncertain(snapshot.number)
        found = frozenset(sender for first, sender in self.over.values() if first in uncertain)
        self.mail.central.completed[-1].uncertain = found
        self.snapshots[snapshot.number] = self.mail.central.completed[-1], snapshot.calls
        self.behind[snapshot.number] = len(self.mail.log.actions), len(self.calls.log.events)

    def _host_of(self, name: str) -> SimHost:
        return self.mail.hosts[self.mail.places[name]]

    def _scribble(self, actor: str, output: Output, message: MessageId) -> None:
        scribe = self.mail.programs[actor]
        assert isinstance(scribe, Scribe)
        scribe.outputs.append(output)
        self.mail.log.begin(actor, [], len(scribe.outputs)).sent.append(message)


def process_of(actor: str) -> str:
    """The host that an actor's process is to the machines."""
    return f"process-of-{actor}"
