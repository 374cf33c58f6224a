"""What simulated machines do: an action begins, carries out one output after the other, and ends or waits for a reply.

What that does to the world around its host is `Around`. Imports the standard library and `ray_snapshot`; read `world` next.
"""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

from ray_snapshot.protocol.coordinator import CompletedSnapshot
from ray_snapshot.protocol.host import Machine
from ray_snapshot.simulation.mail.hosts import SimHost, Step
from ray_snapshot.simulation.mail.oracle import Action, MessageId
from worlds.mail.machines import Ask, Behaviour, Call, Create, Input, Later, Output, Reply, Send, Tell
from worlds.mail.theorem import WorldLog


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
class ActingHost(SimHost):
    """A host whose machines act in several steps, between which other things happen."""

    running: Running | None = None

    def steps(self, callers: Iterable[str], places: Collection[str], window: int) -> list[Step]:
        """What it could do next; inside an action, nothing that another one would begin with."""
        steps = SimHost.steps(self, callers, places, window)
        if self.running is None:
            return steps
        return [("continue", self.core.host), *(step for step in steps if step[0] not in BETWEEN)]

    def can_act(self, name: str) -> bool:
        """Whether one of its machines may act unasked now."""
        machine = self.core.machines.get(name)
        if machine is None or machine.body is None or self.running is not None:
            return False
        return not (machine.is_suspended or machine.is_held)

    def send(self, machine: Machine, target: str, kind: str, method: str, args: Any) -> int:
        """One message; returns its number on its channel."""
        channel = self.core.send(machine, target, kind, method, isolated(args), 0.0)
        self.ask()
        return channel.sent

    def set_timer(self, machine: Machine, target: str, method: str, args: Any) -> int:
        """A message that will go its way in some later step; returns its number on its channel."""
        channel = self.core.set_timer(machine, target, method, isolated(args), 0.0, 0.0)
        self.ask()
        self.timers.append((channel, channel.sent))
        return channel.sent


BETWEEN = ("record", "birth", "accept", "resume")
"""Steps between two actions of a host."""


def isolated(args: Any) -> Any:
    """What is sent does not change when the sender's objects do (trap 8)."""
    return args if isinstance(args, int | str) else pickle.loads(pickle.dumps(args))


@dataclass(slots=True)
class Answered:
    """A reply on its way to its caller; it travels over no link."""

    message: MessageId
    args: Any
    colour: Any


@dataclass(slots=True)
class Waits:
    """Machines that wait for a reply inside an action, and the replies."""

    suspended: set[str] = field(default_factory=set)
    recorded: dict[int, set[str]] = field(default_factory=dict)
    """Per pending snapshot: those that were suspended when they recorded."""
    replies: dict[str, Answered] = field(default_factory=dict)
    """By caller."""
    reply_counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """By who answers, and to whom."""

    def record(self, number: int, machines: Iterable[str]) -> None:
        """These machines have turned red."""
        self.recorded.setdefault(number, set()).update(self.suspended.intersection(machines))

    def next_reply(self, source: str, target: str) -> MessageId:
        """What the next reply is called."""
        self.reply_counts[source, target] += 1
        return source, target, "reply", self.reply_counts[source, target]

    def copy(self) -> Waits:
        """Others that are the same."""
        recorded = {number: names.copy() for number, names in self.recorded.items()}
        return Waits(self.suspended.copy(), recorded, self.replies.copy(), self.reply_counts.copy())


class Abroad(Protocol):
    """The watched actors beside a world of hosts (`parties`), as far as a host has to do with them."""

    def called(self, host: ActingHost, machine: Machine, output: Tell | Ask) -> MessageId: ...

    def resumed(self, machine: Machine, reply: Answered) -> None: ...

    def replied(self, reply: Answered) -> bool: ...

    def ended(self, machine: Machine) -> None: ...

    def recorded(self, host: SimHost, numbers: tuple[int, ...]) -> None: ...

    def completed(self, snapshot: CompletedSnapshot) -> None: ...


class Around(Protocol):
    """What is around a host, as far as an action of one of its machines changes it."""

    log: WorldLog
    waits: Waits
    abroad: Abroad | None

    def make_room(self, host: ActingHost, child: str, place: str) -> None: ...


def react(
    around: Around,
    host: ActingHost,
    machine: Machine,
    accepted: list[MessageId],
    inputs: tuple[Input, ...],
    choice: int,
) -> Body:
    """An action begins: the machine says what it is now and what it sends, and has sent nothing yet."""
    body: Body = machine.body
    host.core.acting = machine
    action = around.log.begin(machine.name, accepted, choice)
    body.state, outputs = body.behaviour.react(machine.name, body.state, inputs, choice)
    action.after = body.state
    host.running = Running(machine, list(outputs), action)
    return body


def advance(around: Around, host: ActingHost) -> str:
    """Carry out the next output of the running action, or end it."""
    running = host.running
    assert running is not None
    if not running.outputs:
        host.running = None
        host.core.end_action(running.machine)
        if around.abroad is not None:
            around.abroad.ended(running.machine)
        return f"; {running.machine.name} is held back" if running.machine.is_held else ""
    output = running.outputs.pop(0)
    sent = _carry_out(around, host, running.machine, output)
    running.action.sent.append(sent)
    if isinstance(output, Call | Ask):
        host.running = None
        host.core.suspend(running.machine)
        around.waits.suspended.add(running.machine.name)
    return f"{sent[2]} {sent[3]} to {sent[1]}"


def _carry_out(around: Around, host: ActingHost, machine: Machine, output: Output) -> MessageId:
    source = machine.name
    match output:
        case Send(target, method, args):
            return source, target, "mail", host.send(machine, target, "mail", method, args)
        case Call(target, method, args):
            return source, target, "call", host.send(machine, target, "call", method, args)
        case Later(target, method, args):
            return source, target, "timer", host.set_timer(machine, target, method, args)
        case Create(child, place, behaviour, state):
            around.make_room(host, child, place)
            host.core.create(source, child, place, (behaviour, state), 0.0)
            return source, child, "creation", 1
        case Tell() | Ask():
            assert around.abroad is not None, "there are no watched actors here"
            return around.abroad.called(host, machine, output)
        case Reply(target, args):
            reply = Answered(around.waits.next_reply(source, target), args, host.core.colour_of(machine))
            if around.abroad is None or not around.abroad.replied(reply):
                around.waits.replies[target] = reply
            return reply.message
