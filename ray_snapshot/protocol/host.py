"""One host: its machines, their mailboxes and channels, its links, and the snapshot protocol around them.

The world (the simulator, or a Ray actor) brings batches in (`arrive`), carries batches out (`take_batches`), and
alternates two things: `boundary()` and `next_action()`, the latter only after the former, never while a machine is inside
an action. Nothing here waits, locks or tells the time; the world holds one lock around every call.

Turning red is one instant (`boundary`): the host's colour changes, markers go onto the links, and that is all. How machines
are copied after it without stopping the host, and which are not looked at: read on in `copying`.

A machine that calls watched actors has a ledger for that (`calls`), which turns red with the host: what it records is of the
same instant. In the process of a watched actor that sends to machines it is the other way round: there the actor's ledger
says when to turn, and its `turn` is the `boundary` of a host without machines of its own.

Creations are messages from creator to child: they travel on the links, in front of or behind the markers, and a white one
that arrives at a red host is in flight (design rule: born during the snapshot). What a machine sends to a name whose host
is not known yet, and timers that are not due, are held at the sender and recorded by it; they go out later with the
colour of that moment.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Iterable
from typing import Any

from ray_snapshot.errors import MachineStoppedError, ProtocolError
from ray_snapshot.names import one_of
from ray_snapshot.protocol.addresses import Addresses
from ray_snapshot.protocol.chandy_lamport import (
    AttachNumber,
    BoundaryReached,
    ChandyLamport,
    Effect,
    HostProtocol,
    InputOpened,
    InputsComplete,
    MarkerArrived,
    NumberSeen,
    OutputOpened,
    Record,
    SendMarker,
    SnapshotAborted,
    SnapshotClosed,
    SnapshotRequested,
)
from ray_snapshot.protocol.colours import Colour
from ray_snapshot.protocol.copying import Copying
from ray_snapshot.protocol.ledgers import Ledgers
from ray_snapshot.protocol.links import CREATION, Batch, InLink, OutLink
from ray_snapshot.protocol.mailbox import MAIL, NOTHING, TIMER, Inbox, Mailbox, Message, end_of
from ray_snapshot.protocol.parts import Creation, Machine, OutChannel, Recording, nothing_of

BOUND = 10_000
"""How many messages a channel may have sent and not seen accepted before its sender is held back."""


class HostCore:
    """A host without its world.

    `life`: of the ledgers of its machines; `bodies`: how theirs are copied, as `Copying` takes it (`copy_body` and so on).
    """

    def __init__(
        self,
        host: str,
        *,
        protocol: HostProtocol | None = None,
        bound: int = BOUND,
        polled: Iterable[str] = (),
        open_at_birth: Iterable[int] = (),
        inbox: type[Inbox] = Inbox,
        in_link: type[InLink] = InLink,
        life: int = 0,
        **bodies: Any,
    ) -> None:
        self.host = host
        self.protocol: HostProtocol = protocol or ChandyLamport()
        self.turning = self.protocol.turning
        self.inbox_class = inbox
        self.in_link_class = in_link
        self.bound = bound
        self.acknowledge_every = max(1, bound // 4)
        self.machines: dict[str, Machine] = {}
        self.outputs: dict[str, OutLink] = {}
        self.inputs: dict[str, InLink] = {}
        self.addresses = Addresses()
        self.births: deque[Creation] = deque()
        self.birth: Creation | None = None
        """The creation that is being carried out: taken by `next_birth`, and not yet `born`."""
        self.runnable: deque[Machine] = deque()
        self.open: dict[int, Recording] = {number: nothing_of(number) for number in open_at_birth}
        """Recorded and not closed; a host born red has nothing to record, but may meet white messages from its birth on."""
        self.closed: deque[int] = deque(maxlen=1_000)
        self.copying = Copying(self.machines, self.turning, self.open, **bodies)
        self.acting: Machine | None = None
        """The machine that is inside an action, as far as the core must know."""
        self.ledgers = Ledgers(host, self.turning, life)
        """Of those machines that have called watched actors."""
        self.must_flush = False
        """Whether acknowledgements wait to be carried, with or without messages."""
        self.polled_acknowledgements: dict[str, dict[int, int]] = {source: {} for source in polled}
        """Acknowledgements for hosts that must ask for them (a driver is no actor: it cannot be called)."""

    @property
    def must_record(self) -> bool:
        """Whether `boundary` has something to do before anything may be accepted."""
        return self.turning.must_turn

    # ---- machines -------------------------------------------------------------------------------------------------

    @property
    def colour(self) -> Colour:
        """Which snapshots this host has recorded."""
        return self.turning.colour

    def machine(self, name: str) -> Machine:
        """The machine `name` of this host; made, without a body, if messages come before its creation."""
        found = self.machines.get(name)
        if found is None:
            name = one_of(name)
            found = self.machines[name] = self.copying.awake[name] = self._new_machine(name)
        return found

    def _new_machine(self, name: str) -> Machine:
        return Machine(name, self.colour, self.inbox_class)

    def colour_of(self, machine: Machine) -> Colour:  # noqa: ARG002 - where hosts turn red as a whole
        """The colour of what the machine sends now."""
        return self.turning.colour

    def create(self, creator: str, child: str, host: str, payload: Any, now: float) -> None:
        """Send the creation of `child` to `host` (this one or another)."""
        colour = self.colour_of(self.machines[creator])
        creation = Creation(creator, child, payload, now, colour, None)
        if host == self.host:
            self.machine(child)
            self.resolve(child, host)
            self.births.append(creation)
            return
        self.resolve(child, host)
        link = self.output(host)
        link.created += 1
        link.messages.append((CREATION, link.created, child, (creator, payload), now, colour))

    def next_birth(self) -> Creation | None:
        """The next creation to carry out; the world constructs the body and calls `born`. Only behind `boundary()`."""
        if not self.births:
            return None
        if self.turning.must_turn:
            raise ProtocolError(
                f"host {self.host} was about to carry out a creation before it recorded", host=self.host
            )
        self.birth = self.births.popleft()
        return self.birth

    def born(self, name: str, body: Any, joins: Iterable[tuple[str, ...]] = ()) -> Machine:
        """The machine has been constructed: from now on it acts."""
        machine = self.machine(name)
        self._copy_if_due(machine)
        if self.birth is not None and self.birth.child == name:
            self.birth = None
        machine.body = body
        machine.copied = self.colour
        machine.inbox.set_joins(tuple(joins))
        self._queue(machine)
        return machine

    def stop(self, machine: Machine) -> None:
        """The machine accepts nothing any more; what is in its mailboxes stays there."""
        self._copy_if_due(machine)
        machine.is_stopped = True
        self.learn_stopped((machine.name,))

    def learn_stopped(self, names: Iterable[str]) -> None:
        """These machines have stopped: sending to them is an error, and no sender is held at their mailboxes any more."""
        stopped = self.addresses.stopped
        stopped.update(names)
        for machine in self.machines.values():
            if machine.over:
                machine.over = [channel for channel in machine.over if channel.target not in stopped]
                self._let_go(machine)

    # ---- sending --------------------------------------------------------------------------------------------------

    def send(self, machine: Machine, target: str, kind: str, method: str, args: Any, now: float) -> OutChannel:
        """Number, colour and dispatch one message: one step. Raises `MachineStoppedError`, and then nothing was sent."""
        channel = machine.outputs.get(end_of(target, kind)) or self.channel(machine, target, kind)
        self.send_on(channel, method, args, now)
        return channel

    def send_on(self, channel: OutChannel, method: str, args: Any, now: float) -> None:
        """`send` on a channel that is known; the one step that every message takes."""
        stopped = self.addresses.stopped
        if stopped and channel.target in stopped:
            raise MachineStoppedError(
                f"{channel.owner.name} sent {method} to {channel.target}, which has stopped", machine=channel.target
            )
        machine = channel.owner
        if machine.copied != self.turning.colour:
            self._copy_if_due(machine)
        colour = machine.copied
        channel.sent = number = channel.sent + 1
        machine.sent += 1
        way = channel.way
        if type(way) is OutLink:
            way.messages.append((channel.index, number, method, args, now, colour))
        elif type(way) is Mailbox:
            self._put(way, way.owner.machine, (0, number, method, args, now, colour))
        else:
            channel.hold((0, number, method, args, now, colour))
        if (
            number - channel.acknowledged > self.bound
            and channel not in machine.over
            and channel.target != machine.name
        ):
            # A machine is not held at its own mailbox, which only it could empty. There are few such channels.
            machine.over = [*machine.over, channel]

    def channel(self, machine: Machine, target: str, kind: str) -> OutChannel:
        """The channel from `machine` to `target`, opened if there is none yet; raises `MachineStoppedError`."""
        end = end_of(target, kind)
        found = machine.outputs.get(end)
        if found is None:
            if target in self.addresses.stopped:
                raise MachineStoppedError(f"{machine.name} cannot send to {target}: it has stopped", machine=target)
            self.copying.wake(machine)
            if not machine.outputs:
                machine.outputs = {}
            found = machine.outputs[end] = OutChannel(machine, target, kind)
            self._route(found)
        return found

    def set_timer(self, machine: Machine, target: str, method: str, args: Any, now: float, due: float) -> OutChannel:
        """A message that will be dispatched when the world says `fire`; pending, it is recorded as in flight."""
        channel = self.channel(machine, target, TIMER)
        self._copy_if_due(machine)
        channel.sent += 1
        machine.sent += 1
        if not channel.timers:
            channel.timers = {}
        channel.timers[channel.sent] = (due, (channel.index, channel.sent, method, args, now, self.colour_of(machine)))
        return channel

    def fire(self, channel: OutChannel, number: int) -> None:
        """A timer is due: its message goes its way, with the colour of this moment."""
        self._copy_if_due(channel.owner)
        due_and_message = channel.timers.pop(number, None) if channel.timers else None
        if due_and_message is not None:
            self._dispatch(channel, due_and_message[1])

    def resolve(self, name: str, host: str) -> None:
        """`name` lives on `host`: what was held for it goes out."""
        if host != self.host:
            self.addresses.places[one_of(name)] = one_of(host)
        else:
            self.machine(name)
        for channel in self.addresses.found(name):
            self._copy_if_due(channel.owner)
            self._route(channel)
            held, channel.held = channel.held, NOTHING
            for message in held:
                self._dispatch(channel, message)

    def output(self, host: str) -> OutLink:
        """The link to `host`, opened if there is none yet."""
        found = self.outputs.get(host)
        if found is None:
            found = self.outputs[host] = OutLink(self.host, host, self.protocol.link_colour)
            self.protocol.step(OutputOpened(host))
        return found

    def take_batches(self, window: int = 2) -> list[tuple[str, Batch]]:
        """What may be carried now: one batch per link that has something to say and fewer than `window` on their way."""
        found = []
        self.must_flush = False
        for target, link in self.outputs.items():
            if link.in_flight < window and (batch := link.take()) is not None:
                link.in_flight += 1
                found.append((target, batch))
        return found

    def _route(self, channel: OutChannel) -> None:
        target = channel.target
        if target in self.machines:
            self.copying.wake(self.machines[target])
            channel.way = mailbox = self.machines[target].inbox.mailbox(channel.owner.name, channel.kind)
            mailbox.behind = channel
        elif (place := self.addresses.places.get(target)) is not None:
            channel.way = link = self.output(place)
            channel.index = link.declare(channel, channel.owner.name, target, channel.kind)
        else:
            self.addresses.await_place(channel)

    def _dispatch(self, channel: OutChannel, message: Message) -> None:
        _, number, method, args, sent_at, _ = message
        message = (channel.index, number, method, args, sent_at, self.colour_of(channel.owner))
        way = channel.way
        if isinstance(way, OutLink):
            way.messages.append(message)
        elif way is not None:
            self._put(way, way.owner.machine, message)
        else:
            channel.hold(message)

    # ---- arrival --------------------------------------------------------------------------------------------------

    def arrive(self, batch: Batch) -> tuple[Effect, ...]:
        """A batch has come: its messages go into the mailboxes, its markers to the protocol."""
        link = self.input(batch[0])
        effects: list[Effect] = []
        for one in link.in_order(batch):
            effects += self._unpack(link, one)
        return tuple(effects)

    def input(self, source: str) -> InLink:
        """The link from `source`, opened if there is none yet."""
        found = self.inputs.get(source)
        if found is None:
            found = self.inputs[source] = self.in_link_class(source, self.turning.colours.white)
            self.protocol.step(InputOpened(source))
        return found

    def _unpack(self, link: InLink, batch: Batch) -> list[Effect]:
        effects: list[Effect] = []
        for index, source, target, kind in batch[2]:
            self._connect(link, index, source, target, kind)
        for index, accepted in batch[4]:
            self.acknowledge(link.source, index, accepted)
        for colour, messages in batch[3]:
            if colour != link.colour:
                link.colour = colour
                effects += self.hear(self.protocol.heard_over(link.source, colour))
            if messages:
                self._deliver(link, messages)
        return effects

    def _connect(self, link: InLink, index: int, source: str, target: str, kind: str) -> None:
        if index != len(link.mailboxes):
            raise ProtocolError(
                f"channel {index} of the link from {link.source} was declared out of turn", host=self.host
            )
        machine = self.machine(target)
        self.copying.wake(machine)
        link.mailboxes.append(machine.inbox.mailbox(one_of(source), kind, link.source, index))

    def _deliver(self, link: InLink, messages: list[Message]) -> None:
        mailboxes = link.mailboxes
        for message in messages:
            mailbox = mailboxes[message[0]]
            if mailbox is None:
                self._creation_arrived(link, message)
            else:
                self._put(mailbox, mailbox.owner.machine, message)

    def _put(self, mailbox: Mailbox, machine: Machine, message: Message) -> None:
        mailbox.owner.put(mailbox, message)
        if not machine.is_queued:
            self._queue(machine)
        if message[5] != machine.copied:
            self.copying.wake(machine)
            if self.open:
                self._report_if_late(mailbox, machine, message)

    def _report_if_late(self, mailbox: Mailbox, machine: Machine, message: Message) -> None:
        for number, recording in self.open.items():
            if self.turning.is_white(message[5], number) and not self.turning.is_white(machine.copied, number):
                recording.late.append((mailbox, machine, message))

    def _creation_arrived(self, link: InLink, message: Message) -> None:
        _, _, child, (creator, payload), sent_at, colour = message
        link.created += 1
        creation = Creation(creator, child, payload, sent_at, colour, link.source)
        self.resolve(child, self.host)
        self.births.append(creation)
        for number, recording in self.open.items():
            if self.turning.is_white(colour, number):
                recording.late_creations.append(creation)

    # ---- actions --------------------------------------------------------------------------------------------------

    def next_action(self) -> tuple[Machine, list[tuple[Mailbox, Message]]] | None:
        """Accept the messages of the next enabled action, fairly; None if nothing is enabled. Only behind `boundary()`."""
        while self.runnable:
            machine = self.runnable.popleft()
            machine.is_queued = False
            if machine.is_held or machine.is_suspended or machine.is_stopped:
                continue
            if machine.copied != self.turning.colour:
                self._copy_if_due(machine)
            colour = machine.copied
            inbox = machine.inbox
            taken = inbox.take()
            if taken is None:
                continue
            for mailbox, message in taken:
                if message[5] != colour:
                    self._check_white(machine, mailbox, message)
                machine.accepted += 1
                if mailbox.accepted - mailbox.acknowledged >= self.acknowledge_every:
                    self._acknowledge_sender(mailbox)
            if inbox.ready:
                machine.is_queued = True
                self.runnable.append(machine)
            return machine, taken
        return None

    def begin_action(self, machine: Machine) -> None:
        """The machine acts without accepting anything (a driver, an internal event). Only behind `boundary()`."""
        if self.turning.must_turn:
            raise ProtocolError(f"{machine.name} was about to act before its host recorded", machine=machine.name)
        self._copy_if_due(machine)

    def _check_white(self, machine: Machine, mailbox: Mailbox, message: Message) -> None:  # noqa: ARG002
        """EWD864a: no red message is accepted in a white action."""
        if self.turning.colours.joined(machine.copied, message[5]) != machine.copied:
            raise ProtocolError(
                f"{machine.name} was about to accept a red message in a white action", machine=machine.name
            )

    def _acknowledge_sender(self, mailbox: Mailbox) -> None:
        mailbox.acknowledged = mailbox.accepted
        behind = mailbox.behind
        if isinstance(behind, OutChannel):
            behind.acknowledged = mailbox.accepted
            self._release(behind.owner)
        elif behind in self.polled_acknowledgements:
            self.polled_acknowledgements[behind][mailbox.index] = mailbox.accepted
        elif behind is not None:
            self.output(behind).acknowledgements[mailbox.index] = mailbox.accepted
            self.must_flush = True

    def end_action(self, machine: Machine) -> None:
        """The action is over; a machine whose channels are over their bound is held back until they are not."""
        if machine.over:
            machine.over = [channel for channel in machine.over if channel.outstanding > self.bound]
            machine.is_held = bool(machine.over)

    def suspend(self, machine: Machine) -> None:
        """The machine waits inside its action (a tracked wait).

        It accepts nothing for a while: those it waits for may be held until they hear what was accepted so far.
        """
        for mailbox in machine.inbox.mailboxes.values():
            if mailbox.accepted > mailbox.acknowledged:
                self._acknowledge_sender(mailbox)
        machine.is_suspended = True

    def resume(self, machine: Machine) -> None:
        """The tracked wait is over; call it at a boundary, so that what was red has been recorded."""
        machine.is_suspended = False
        self._copy_if_due(machine)
        self._queue(machine)

    def acknowledge(self, source: str, index: int, accepted: int) -> None:
        """`source` has accepted that many messages of channel `index` of our link to it."""
        channel = self.outputs[source].channels[index]
        channel.acknowledged = max(channel.acknowledged, accepted)
        self._release(channel.owner)

    def _release(self, machine: Machine) -> None:
        if not machine.over:
            return
        machine.over = [channel for channel in machine.over if channel.outstanding > self.bound]
        self._let_go(machine)

    def _let_go(self, machine: Machine) -> None:
        if not machine.over and machine.is_held:
            machine.is_held = False
            self._queue(machine)

    def _queue(self, machine: Machine) -> None:
        idle = machine.is_queued or machine.is_held or machine.is_suspended or machine.is_stopped
        if machine.body is not None and machine.inbox.ready and not idle:
            machine.is_queued = True
            self.runnable.append(machine)

    # ---- snapshots ------------------------------------------------------------------------------------------------

    def request(self, number: int) -> tuple[Effect, ...]:
        """The coordinator asks for `number`; a host born red for it answers with an empty recording."""
        if number in self.closed or number in self.open:
            return ()
        if not self.turning.is_white(self.colour, number):
            self.open[number] = nothing_of(number)
            return ()
        return self.hear(SnapshotRequested(number))

    def note(self, colour: Colour, machine: Machine | None = None) -> tuple[Effect, ...]:  # noqa: ARG002
        """Something of this colour came over no link, and is about to be accepted (by `machine`, or by any)."""
        return self.hear(NumberSeen(colour))

    def is_recorded(self, number: int) -> bool:
        """Whether every machine of this host is red for `number`."""
        return not self.turning.is_white(self.colour, number)

    def hear(self, event: SnapshotRequested | MarkerArrived | NumberSeen) -> tuple[Effect, ...]:
        """Give the protocol an event that may ask for a boundary; carries out what is not."""
        effects = self.protocol.step(event)
        self._carry_out(effects)
        return effects

    def boundary(self) -> tuple[int, ...]:
        """No machine is inside an action: turn red if due; returns the numbers recorded."""
        if not self.must_record:
            return ()
        seen = self.ledgers.seen()
        effects = self.protocol.step(BoundaryReached())
        self._carry_out(effects)
        numbers = effects[0].numbers if effects and isinstance(effects[0], Record) else ()
        self.ledgers.turned([number for number in numbers if number in self.open], seen)
        return numbers

    def _carry_out(self, effects: Iterable[Effect]) -> None:
        for effect in effects:
            match effect:
                case Record(numbers):
                    self._begin_recordings(numbers)
                case SendMarker(target, colour):
                    self.outputs[target].mark(colour)
                case AttachNumber(target, colour):
                    self.outputs[target].attach(colour)
                case InputsComplete(number):
                    if number in self.open:
                        self.open[number].has_markers = True

    def _begin_recordings(self, numbers: Iterable[int]) -> None:
        for number in numbers:
            if number in self.closed:  # given up before this host heard of it: red for it, but its parts are not wanted
                self.protocol.step(SnapshotAborted(number))
            else:
                self.open[number] = self._begin(number)
        self.copying.begin()

    def _begin(self, number: int) -> Recording:
        recording = Recording(number)
        recording.marker_count = len(self.outputs) if self.protocol.has_markers else 0
        recording.created = {target: link.created for target, link in self.outputs.items() if link.created}
        arrived = {source: link.created for source, link in self.inputs.items() if link.created}
        births = [*self.births, self.birth] if self.birth is not None else self.births
        for birth in births:
            if self.turning.is_white(birth.colour, number):
                recording.creations.append(birth)
            elif birth.source is not None:  # it came behind the marker: outside the cut
                arrived[birth.source] -= 1
        recording.arrived = {source: count for source, count in arrived.items() if count}
        return recording

    def copy_next(self, most: int = 1) -> bool:
        """`Copying.copy_next`, where the host turned red as a whole."""
        return self.copying.copy_next(most)

    def _copy_if_due(self, machine: Machine) -> None:
        """Before anything touches the machine: it is copied, or woken, if its turn has not come yet."""
        if machine.copied != self.turning.colour:
            self.copying.copy_now(machine)

    def welcome(self, pending: Iterable[int], last: int) -> tuple[Effect, ...]:
        """The coordinator knows this host now: record what is `pending`; of the numbers up to `last`, no other is wanted."""
        wanted = set(pending)
        for number in [number for number in self.open if number <= last and number not in wanted]:
            self.abort(number)  # not `close`: under barriers its machines may still be waiting to record it
        return tuple(effect for number in sorted(wanted) for effect in self.request(number))

    def close(self, number: int) -> None:
        """The coordinator has everything of `number`."""
        if self.open.pop(number, None) is not None:
            self.protocol.step(SnapshotClosed(number))
        self._note_closed(number)

    def abort(self, number: int) -> None:
        """`number` was given up."""
        self.open.pop(number, None)
        self.protocol.step(SnapshotAborted(number))
        self._note_closed(number)

    def _note_closed(self, number: int) -> None:
        self.closed.append(number)
        self.ledgers.close(number)

    def fingerprint(self) -> Hashable:
        """What the future depends on beside the attributes that all cores have."""
        return self.ledgers.fingerprint()


__all__ = [
    "BOUND",
    "MAIL",
    "TIMER",
    "Creation",
    "HostCore",
    "Machine",
    "OutChannel",
    "Recording",
]
