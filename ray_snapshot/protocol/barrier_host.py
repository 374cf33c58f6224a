"""One host under a barrier protocol: its machines turn red one by one, each by its own `Alignment`.

Everything else is `HostCore`'s: channels, links, creations, counts. What differs:

- A colour is a machine's, not the host's. The host only keeps what it has *heard of* (`_Heard`): at that instant it opens
  a recording, lists the machines that must record, and injects the number into them. Who records when is `Alignment`'s.
- Barriers are items of the channels (`BARRIER`, number 0), and links have no colour. A red message on a channel whose
  barrier has not come (a channel that was opened by a red machine) stands for it.
- Creations keep to the host's instant: what is white and not carried out then, or comes later, is in flight; whoever is born
  after it is born red.

A host has recorded when each of its machines has. The clock is an input; it only measures how long machines align.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import partial
from typing import Any, cast

from ray_snapshot.protocol.barriers import (
    Alignment,
    BarrierArrived,
    BarrierQueued,
    ChannelOpened,
    Effect,
    Forced,
    Injected,
    Mode,
    SendBarriers,
    Unblock,
)
from ray_snapshot.protocol.chandy_lamport import (
    AskForBoundary,
    BoundaryReached,
    MarkerArrived,
    NumberSeen,
    Record,
    SnapshotRequested,
)
from ray_snapshot.protocol.colours import Colour, Colours
from ray_snapshot.protocol.host import HostCore
from ray_snapshot.protocol.ledgers import NoLedgers
from ray_snapshot.protocol.links import InLink, OutLink
from ray_snapshot.protocol.mailbox import (
    CALL,
    COLOUR,
    MAIL,
    METHOD,
    NUMBER,
    Inbox,
    Mailbox,
    Message,
    added,
    end_of,
    without_first,
)
from ray_snapshot.protocol.parts import Machine, MachineCopy, OutChannel
from ray_snapshot.protocol.turning import Turning

BARRIER = "(barrier)"
"""The method of a barrier among the messages of a channel; no Python method has such a name."""


def _always(_machine: str, _source: str, _number: int) -> bool:
    return True


def _no_time() -> float:
    return 0.0


def _nobody_listens(_machine: Machine, _numbers: tuple[int, ...]) -> None:
    """Without a listener; a function of the module, so that a core can be pickled by a world that tries every order."""


def _nothing_to_bound(_number: int) -> None:
    """Without a bound on patience."""


class _Heard:
    """What the host has heard of; stands where a `HostProtocol` of hosts that turn red as a whole would."""

    has_markers = False

    def __init__(self, colours: Colours | None, born: Colour | None) -> None:
        self.turning = Turning(colours, born)
        """Never due: what the host hears of it has heard of, and its machines turn one by one."""

    @property
    def link_colour(self) -> Colour:
        """Links have no colour here."""
        return self.turning.colours.white

    def heard_over(self, source: str, colour: Colour) -> NumberSeen:  # noqa: ARG002 - does not happen
        return NumberSeen(colour)

    def step(self, event: Any) -> tuple[Any, ...]:  # noqa: ARG002 - `BarrierCore.hear` sees to it
        return ()

    def fingerprint(self) -> Hashable:
        return self.turning.fingerprint()


class StreamInbox(Inbox):
    """Mailboxes with barriers among their messages; one that is blocked takes no part in the choice."""

    __slots__ = ("alignment", "heard", "on_due", "owed", "repeated")

    def __init__(self, machine: Any, alignment: Alignment, on_due: Callable[[Machine], None]) -> None:
        super().__init__(machine=machine)
        self.alignment = alignment
        self.on_due = on_due
        self.heard: dict[tuple[str, str], Colour] = {}
        """Per channel: the colour of the reddest item that has arrived."""
        self.owed: dict[int, set[tuple[str, str]]] = {}
        """Per number recorded here: the inputs whose barrier had not arrived."""
        self.repeated: Counter[tuple[tuple[str, str], int]] = Counter()
        """Accepted behind the barrier for a number, and before that was recorded: (channel, number) to messages."""

    def mailbox(self, source: str, kind: str, link: str | None = None, index: int = 0) -> Mailbox:
        """The mailbox of the channel from `source`, made if there is none yet."""
        key = source, kind
        if key not in self.heard:
            self.heard[key] = self.alignment.colours.white
            self.alignment.step(ChannelOpened(key))
        return super().mailbox(source, kind, link, index)

    def put_barrier(self, mailbox: Mailbox, message: Message) -> None:
        """A barrier has arrived: it takes its place behind what is there, or, unaligned, overtakes it."""
        if self.alignment.mode is Mode.UNALIGNED or self._is_parked(mailbox):
            self._meet(mailbox, message[COLOUR])
            return
        mailbox.queue = added(mailbox.queue, message)
        self.step(BarrierQueued((mailbox.source, mailbox.kind), message[COLOUR]))
        if len(mailbox.queue) == 1:
            self.offer(mailbox)

    def park(self, mailbox: Mailbox) -> None:
        """The head waits for the rest of its join, which may be blocked: the barriers behind it do not wait for that."""
        super().park(mailbox)
        barriers = [message for message in mailbox.queue if message[NUMBER] == 0]
        for barrier in barriers:
            cast("deque[Message]", mailbox.queue).remove(barrier)  # behind a head
            self._meet(mailbox, barrier[COLOUR])

    def _is_parked(self, mailbox: Mailbox) -> bool:
        return bool(mailbox.queue) and mailbox in self.parked.get(str(mailbox.queue[0][METHOD]), ())

    def offer(self, mailbox: Mailbox) -> None:
        """The mailbox has a new head: barriers are met, and what is behind them waits if they block."""
        key = mailbox.source, mailbox.kind
        while mailbox.queue and mailbox.queue[0][NUMBER] == 0 and not self.alignment.is_blocked(key):
            barrier = mailbox.queue[0]
            mailbox.queue = without_first(mailbox.queue)
            self._meet(mailbox, barrier[COLOUR])
        if not mailbox.queue:
            self.spare(mailbox)
        elif not self.alignment.is_blocked(key):
            super().offer(mailbox)

    def offer_again(self, mailbox: Mailbox) -> None:
        """The mailbox is blocked no more: a join that had to leave what is behind its head looks again."""
        if self._is_parked(mailbox):
            self.parked[str(mailbox.queue[0][METHOD])].remove(mailbox)
            super().offer(mailbox)
        elif not (self.ports and mailbox in self.ready):
            self.offer(mailbox)

    def _may_take(self, message: Message, ports: Sequence[str]) -> bool:
        """What is behind a barrier that overtook the head of a join waits for the record like everything else."""
        if self.alignment.mode is Mode.ALIGNED and self.alignment.is_red(message[COLOUR]):
            return False
        return super()._may_take(message, ports)

    def _meet(self, mailbox: Mailbox, colour: Colour) -> None:
        self.step(BarrierArrived((mailbox.source, mailbox.kind), colour))

    def step(self, event: Any) -> tuple[Effect, ...]:
        """Give the alignment an event, and see to it that the machine records when it must."""
        effects = self.alignment.step(event)
        if any(isinstance(effect, AskForBoundary) for effect in effects):
            self.on_due(self.machine)
        return effects

    def forget_repeated(self, numbers: Iterable[int]) -> None:
        """The machine has recorded these: nothing more is repeated for them, and who waited for that knows it."""
        for key in [key for key in self.repeated if key[1] in numbers]:
            del self.repeated[key]

    def blocked_count(self) -> int:
        """Messages that wait because their input is blocked."""
        is_blocked = self.alignment.is_blocked
        blocked = [box for box in self.mailboxes.values() if box.queue and is_blocked((box.source, box.kind))]
        return sum(bool(message[NUMBER]) for box in blocked for message in box.queue)


class BarrierCore(HostCore):
    """A host whose machines record one by one.

    `is_awaited(machine, source, number)` may take declared inputs out for single snapshots.

    `on_open(number)`: the host has heard of it; `on_record(machine, numbers)`: a machine has turned red.
    """

    def __init__(
        self,
        host: str,
        mode: Mode,
        *,
        colours: Colours | None = None,
        born: Colour | None = None,
        is_awaited: Callable[[str, str, int], bool] = _always,
        on_record: Callable[[Machine, tuple[int, ...]], None] = _nobody_listens,
        on_open: Callable[[int], None] = _nothing_to_bound,
        clock: Callable[[], float] = _no_time,
        in_link: type[InLink] = InLink,
        **options: Any,
    ) -> None:
        self.mode = mode
        self.is_awaited = is_awaited
        self.on_record = on_record
        self.on_open = on_open
        self.clock = clock
        self.waiting_for: dict[int, set[str]] = {}
        """Per open number: machines that have not recorded it."""
        self.owed_count: Counter[int] = Counter()
        """Per open number: inputs of machines that have recorded it whose barrier has not arrived."""
        self.aligning_since: dict[tuple[str, int], float] = {}
        """Per machine and number: when the first of its barriers had arrived."""
        self.is_due = False
        """The machine that is inside an action must record behind it."""
        super().__init__(host, protocol=_Heard(colours, born), in_link=in_link, **options)
        self.ledgers = NoLedgers(host, self.turning)

    @property
    def must_record(self) -> bool:
        """Whether the machine that is inside an action must record behind it."""
        return self.is_due

    # ---- machines and channels ------------------------------------------------------------------------------------

    def _new_machine(self, name: str) -> Machine:
        machine = Machine(name, self.colour)
        colours = self.turning.colours
        alignment = Alignment(self.mode, colours, self.colour, partial(self._awaits, name))
        machine.inbox = StreamInbox(machine, alignment, self._fall_due)
        return machine

    def _awaits(self, name: str, channel: tuple[str, str], number: int) -> bool:
        return self.is_awaited(name, channel[0], number)

    def colour_of(self, machine: Machine) -> Colour:
        """The colour of what the machine sends now: what it has recorded."""
        return machine.copied

    def await_input(self, target: str, source: str) -> None:
        """The mail from `source` to `target` (of this host) is an input that closes no cycle: barriers align on it."""
        _inbox(self.machine(target)).alignment.step(ChannelOpened((source, MAIL), is_awaited=True))

    def born(self, name: str, body: Any, joins: Iterable[tuple[str, ...]] = ()) -> Machine:
        """The machine has been constructed: it has the colour that it was announced with, and acts."""
        machine = self.machine(name)
        self._copy_if_due(machine)
        if self.birth is not None and self.birth.child == name:
            self.birth = None
        machine.body = body
        machine.inbox.set_joins(tuple(joins))
        self.acting = machine
        self._queue(machine)
        return machine

    def create(self, creator: str, child: str, host: str, payload: Any, now: float) -> None:
        """Send the creation of `child`; from a machine that is white for an open number it belongs to that cut."""
        super().create(creator, child, host, payload, now)
        colour = self.colour_of(self.machines[creator])
        for number, recording in self.open.items():
            if self.turning.is_white(colour, number):
                if host == self.host:
                    recording.late_creations.append(self.births[-1])
                else:
                    recording.created[host] = recording.created.get(host, 0) + 1

    def _route(self, channel: OutChannel) -> None:
        super()._route(channel)
        if channel.owner.copied != self.turning.colours.white:
            self._put_barrier(channel, channel.owner.copied)

    def _put_barrier(self, channel: OutChannel, colour: Colour) -> bool:
        barrier = (channel.index, 0, BARRIER, None, 0.0, colour)
        way = channel.way
        if isinstance(way, OutLink):
            way.messages.append(barrier)
        elif way is not None:
            self._put(way, way.owner.machine, barrier)
        else:
            return False  # it is not known where it leads; its first message will say the colour
        return True

    # ---- arrival --------------------------------------------------------------------------------------------------

    def _put(self, mailbox: Mailbox, machine: Machine, message: Message) -> None:
        inbox = _inbox(machine)
        key = mailbox.source, mailbox.kind
        if message[COLOUR] != inbox.heard[key] and not self._is_known(inbox.heard[key], message[COLOUR]):
            self._redder(inbox, mailbox, message)
        elif message[NUMBER] == 0:
            return  # said already
        if message[NUMBER]:
            super()._put(mailbox, machine, message)
            if mailbox.kind == CALL and self.mode is not Mode.AT_LEAST_ONCE and inbox.alignment.is_red(message[COLOUR]):
                inbox.step(Forced(message[COLOUR]))  # its caller waits inside an action (trap 13)

    def _is_known(self, heard: Colour, colour: Colour) -> bool:
        return bool(self.turning.colours.joined(heard, colour) == heard)

    def _redder(self, inbox: StreamInbox, mailbox: Mailbox, message: Message) -> None:
        """The first item of a colour on its channel: its barrier, or a message that stands for it."""
        key, colour = (mailbox.source, mailbox.kind), message[COLOUR]
        inbox.heard[key] = self.turning.colours.joined(inbox.heard[key], colour)
        self.hear(NumberSeen(colour))
        self._owe_no_more(inbox, key)
        if self.mode is not Mode.UNALIGNED:
            for number in inbox.alignment.aligning():  # it aligns from the first barrier on, be it the last one, too
                self.aligning_since.setdefault((inbox.machine.name, number), self.clock())
        inbox.put_barrier(mailbox, (message[0], 0, BARRIER, None, 0.0, colour))

    def _owe_no_more(self, inbox: StreamInbox, key: tuple[str, str]) -> None:
        for number, owed in inbox.owed.items():
            if key in owed and self.turning.colours.is_red(inbox.heard[key], number):
                owed.discard(key)
                self.owed_count[number] -= 1
                self._look_whether_all_have_delivered(number)

    def _creation_arrived(self, link: InLink, message: Message) -> None:
        self.hear(NumberSeen(message[COLOUR]))
        super()._creation_arrived(link, message)

    # ---- turning red ----------------------------------------------------------------------------------------------

    def note(self, colour: Colour, machine: Machine | None = None) -> tuple[Any, ...]:
        """Something of this colour came over no channel: `machine` (or, if none is named, each) must not align for it.

        Also where alignment is skipped: no channel would count what is let in so, and the cut would pass for consistent.
        """
        self.hear(NumberSeen(colour))
        for found in [machine] if machine is not None else [*self.machines.values()]:
            _inbox(found).step(Forced(colour))
        return ()

    def force(self, number: int) -> None:
        """Patience is over: machines that have not recorded `number` do so without waiting for its inputs."""
        colour = self.turning.colours.recorded(self.turning.colours.white, (number,))
        self.hear(NumberSeen(colour))
        for machine in [*self.machines.values()]:
            _inbox(machine).step(Forced(colour))

    def hear(self, event: SnapshotRequested | MarkerArrived | NumberSeen) -> tuple[Any, ...]:
        """The host hears of a number: from this instant on it keeps a recording, and its sources record."""
        if isinstance(event, SnapshotRequested):
            self.turning.request(event.number)
        else:
            self.turning.hear(event.colour)
        fresh = self.turning.turn()
        for number in fresh:
            if number not in self.closed:
                self.open[number] = recording = self._begin(number)
                self.waiting_for[number] = set(self.machines)
                recording.is_copied = recording.has_markers = not self.machines
                self.on_open(number)
        for machine in [*self.machines.values()] if fresh else ():
            self._inject(machine, fresh)
        return ()

    def _inject(self, machine: Machine, numbers: tuple[int, ...]) -> None:
        is_idle = machine.body is None or machine.is_stopped
        for number in numbers:
            if is_idle or number in self.closed:
                _inbox(machine).step(Forced(self.turning.colours.recorded(machine.copied, (number,))))
            else:
                _inbox(machine).step(Injected(number))

    def _fall_due(self, machine: Machine) -> None:
        """The machine must record: at once, or, if it is inside an action, behind it."""
        if machine is self.acting:
            self.is_due = True
        self.copying.uncopied.append(machine)

    def boundary(self) -> tuple[int, ...]:
        """No machine is inside an action; each records when it is its turn."""
        self.acting, self.is_due = None, False
        return ()

    def copy_next(self, most: int = 1) -> bool:  # noqa: ARG002 - each sends its barriers before the next one records
        """Let one machine record that must; False if there is none (but one that is inside an action)."""
        for _ in range(len(self.copying.uncopied)):
            machine = self.copying.uncopied.popleft()
            if machine is self.acting:
                self.copying.uncopied.append(machine)
            elif _inbox(machine).alignment.must_record:
                self._copy_if_due(machine)
                break
        return any(machine is not self.acting for machine in self.copying.uncopied)

    def _copy_if_due(self, machine: Machine) -> None:
        inbox = _inbox(machine)
        if machine is self.acting or not inbox.alignment.must_record:
            return
        blocked_count = inbox.blocked_count()  # before the record unblocks them
        numbers: tuple[int, ...] = ()
        for effect in inbox.step(BoundaryReached()):
            match effect:
                case Record(numbers, colour):
                    self._record(machine, numbers, colour, blocked_count)
                case SendBarriers(colour):
                    self._send_barriers(machine, numbers, colour)
                case Unblock(channels):
                    for channel in channels:
                        inbox.offer_again(inbox.mailboxes[end_of(*channel)])
        self._queue(machine)

    def _record(self, machine: Machine, numbers: tuple[int, ...], colour: Colour, blocked_count: int) -> None:
        inbox = _inbox(machine)
        due = [number for number in numbers if machine.name in self.waiting_for.get(number, ())]
        since = {number: self.aligning_since.pop((machine.name, number), None) for number in numbers}
        extra = self.copying.copy_body(machine) if due and machine.body is not None else None
        for number in due:
            found = self._copy(machine, number, extra)
            began = since[number]
            found.alignment_s = None if began is None else self.clock() - began
            found.blocked_count = blocked_count
            self.open[number].copies.append(found)
        inbox.forget_repeated(numbers)
        machine.copied = colour
        self.on_record(machine, numbers)
        for number in due:
            is_red = self.turning.colours.is_red
            inbox.owed[number] = {key for key, heard in inbox.heard.items() if not is_red(heard, number)}
            self.owed_count[number] += len(inbox.owed[number])
            self.waiting_for[number].discard(machine.name)
            self.open[number].is_copied = not self.waiting_for[number]
            self._look_whether_all_have_delivered(number)

    def _copy(self, machine: Machine, number: int, extra: Any) -> MachineCopy:
        found = self.copying.copy_of(machine, number, extra)
        found.queued = {
            box: [message for message in messages if message[NUMBER]] for box, messages in found.queued.items()
        }
        repeated = _inbox(machine).repeated
        found.duplicates = {key: count for (key, of), count in repeated.items() if of == number}
        return found

    def _send_barriers(self, machine: Machine, numbers: tuple[int, ...], colour: Colour) -> None:
        sent = sum([self._put_barrier(channel, colour) for channel in [*machine.outputs.values()]])
        for number in numbers:
            if number in self.open:
                self.open[number].marker_count += sent
        self.must_flush = True

    def _look_whether_all_have_delivered(self, number: int) -> None:
        recording = self.open.get(number)
        if recording is not None:
            recording.has_markers = recording.is_copied and not self.owed_count[number]

    def is_recorded(self, number: int) -> bool:
        """Whether every machine of this host that must has recorded `number`."""
        return not self.waiting_for.get(number)

    # ---- actions --------------------------------------------------------------------------------------------------

    def next_action(self) -> tuple[Machine, list[tuple[Mailbox, Message]]] | None:
        """Accept the messages of the next enabled action, fairly; None if nothing is enabled."""
        self.acting = None
        found = super().next_action()
        if found is not None:
            self.acting = machine = found[0]
            # Taking may have uncovered the last barrier: then the machine is due from within its action on.
            self.is_due = self.is_due or _inbox(machine).alignment.must_record
        return found

    def begin_action(self, machine: Machine) -> None:
        """The machine acts without accepting anything."""
        self.acting = None
        self._copy_if_due(machine)
        self.acting = machine

    def end_action(self, machine: Machine) -> None:
        """The action is over."""
        self.acting = None
        super().end_action(machine)

    def suspend(self, machine: Machine) -> None:
        """The machine waits inside its action, where it can record."""
        super().suspend(machine)
        self.acting = None

    def stop(self, machine: Machine) -> None:
        """The machine accepts nothing any more, and so would wait for barriers in vain."""
        _inbox(machine).step(Forced(self.colour))
        super().stop(machine)

    def _check_white(self, machine: Machine, mailbox: Mailbox, message: Message) -> None:
        """A red message is about to be accepted in a white action: an error, or counted if alignment is skipped."""
        if self.mode is not Mode.AT_LEAST_ONCE:
            super()._check_white(machine, mailbox, message)
            return
        for number in self.turning.colours.newly_red(machine.copied, message[COLOUR]):
            _inbox(machine).repeated[(mailbox.source, mailbox.kind), number] += 1

    # ---- the end of a snapshot ------------------------------------------------------------------------------------

    def close(self, number: int) -> None:
        """The coordinator has everything of `number`."""
        super().close(number)
        self._forget(number)

    def abort(self, number: int) -> None:
        """`number` was given up: its barriers are not waited for any more, and machines that have recorded it stay red."""
        super().abort(number)
        if not self.turning.is_white(self.colour, number):
            for machine in [*self.machines.values()]:
                _inbox(machine).step(Forced(self.turning.colours.recorded(machine.copied, (number,))))
        self._forget(number)

    def _forget(self, number: int) -> None:
        self.waiting_for.pop(number, None)
        self.owed_count.pop(number, None)
        for machine in self.machines.values():
            _inbox(machine).owed.pop(number, None)

    def fingerprint(self) -> Hashable:
        """What the future depends on beside what `HostCore` keeps."""
        inboxes = tuple(
            (
                name,
                _inbox(machine).alignment.fingerprint(),
                tuple(sorted((number, tuple(sorted(owed))) for number, owed in _inbox(machine).owed.items())),
                tuple(sorted(_inbox(machine).repeated.items())),
            )
            for name, machine in sorted(self.machines.items())
        )
        waiting = tuple(sorted((number, tuple(sorted(names))) for number, names in self.waiting_for.items()))
        return inboxes, waiting, self.acting and self.acting.name


def _inbox(machine: Machine) -> StreamInbox:
    inbox = machine.inbox
    assert isinstance(inbox, StreamInbox)
    return inbox
