"""What a host keeps and records: machines, the sending ends of channels, creations, and its part of a snapshot.

Plain records with no rules of their own; read `host` for what becomes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any

from ray_snapshot.protocol.colours import Colour
from ray_snapshot.protocol.links import OutLink
from ray_snapshot.protocol.mailbox import (
    COLOUR,
    NO_ENTRIES,
    NOTHING,
    End,
    Inbox,
    Mailbox,
    Message,
    end_of,
    hosts_behind,
    kind_of,
    name_of,
)

RESTING: Any = None
"""The `copied` of a machine at rest: no colour, so that whatever is about to touch it sees that it is to be woken."""


class OutChannel:
    """The sending end of a channel."""

    __slots__ = ("acknowledged", "end", "held", "index", "owner", "sent", "timers", "way")  # as few as a `Mailbox` has

    def __init__(self, owner: Machine, target: str, kind: str) -> None:
        self.owner = owner
        self.end = end_of(target, kind)
        self.sent = 0
        self.acknowledged = 0
        self.way: OutLink | Mailbox | None = None
        """The link to another host; or the receiving end, if it is on this one; None while it is not known which."""
        self.index = 0
        self.held: list[Message] = NOTHING
        """Sent, but the target's host is not known yet."""
        self.timers: dict[int, tuple[float, Message]] = NO_ENTRIES
        """Pending timers by message number: (when due, message)."""

    @property
    def target(self) -> str:
        """The machine that it leads to."""
        return name_of(self.end)

    @property
    def kind(self) -> str:
        """What is sent."""
        return kind_of(self.end)

    @property
    def link(self) -> OutLink | None:
        """The link to another host, if it leads there."""
        return self.way if isinstance(self.way, OutLink) else None

    @property
    def outstanding(self) -> int:
        """Messages sent and not known to be accepted."""
        return self.sent - self.acknowledged

    def hold(self, message: Message) -> None:
        """Keep a message until the target's host is known."""
        if self.held is NOTHING:
            self.held = []
        self.held.append(message)

    def waiting(self) -> list[Message]:
        """What waits at the sending end: not yet on a link nor in a mailbox."""
        if not self.held and not self.timers:
            return []
        return [*self.held, *(message for _, message in sorted(self.timers.values(), key=lambda timer: timer[1][1]))]


def hosts_ahead(channels: Iterable[OutChannel]) -> list[str | None]:
    """The hosts that channels lead to; None: this one, or it is not known yet."""
    return [way.target if type(way) is OutLink else None for way in map(_WAY, channels)]


class Machine:
    """A participant as its host knows it."""

    __slots__ = (
        "accepted",
        "body",
        "copied",
        "inbox",
        "is_held",
        "is_queued",
        "is_stopped",
        "is_suspended",
        "name",
        "outputs",
        "over",
        "sent",
    )

    def __init__(self, name: str, copied: Colour, inbox: type[Inbox] = Inbox) -> None:
        self.name = name
        self.body: Any = None
        """What the world hangs on the machine; None until it is constructed."""
        self.inbox = inbox(machine=self)
        self.outputs: dict[End, OutChannel] = NO_ENTRIES
        self.copied = copied
        """The colour up to which this machine has been copied, or `RESTING`."""
        self.accepted = 0
        self.sent = 0
        self.is_queued = False
        self.is_held = False
        """Held back between actions by a full mailbox."""
        self.is_suspended = False
        """Inside an action, at a tracked wait."""
        self.is_stopped = False
        self.over: list[OutChannel] = NOTHING
        """Channels that went over their bound in the current action."""


@dataclass(slots=True, eq=False)
class Creation:
    """The message that makes a machine: who creates whom, and from what."""

    creator: str
    child: str
    payload: Any
    sent_at: float
    colour: Colour
    source: str | None
    """The host it came from; None if from this one."""


class MachineCopy:
    """One machine as of the instant at which its host turned red."""

    __slots__ = (
        "accepted",
        "accepted_of",
        "alignment_s",
        "blocked_count",
        "boxes",
        "channels",
        "duplicates",
        "extra",
        "is_born",
        "machine",
        "queued",
        "sent",
        "sent_on",
        "waiting",
    )

    def __init__(self, machine: Machine, extra: Any) -> None:
        """All that does not depend on which messages are white."""
        self.machine = machine.name
        self.is_born = machine.body is not None
        self.accepted = machine.accepted
        self.sent = machine.sent
        boxes, channels = machine.inbox.mailboxes, machine.outputs
        self.boxes: Sequence[Mailbox] = [*boxes.values()] if boxes else NOTHING
        self.accepted_of: Sequence[int] = [box.accepted for box in self.boxes] if boxes else NOTHING
        """Of each mailbox: how many messages were accepted."""
        self.queued: dict[Mailbox, list[Message]] = NO_ENTRIES
        """The white messages in mailboxes that have some."""
        self.channels: Sequence[OutChannel] = [*channels.values()] if channels else NOTHING
        self.sent_on: Sequence[int] = [channel.sent for channel in self.channels] if channels else NOTHING
        """Of each channel: how many messages were sent."""
        self.waiting: dict[OutChannel, list[Message]] = NO_ENTRIES
        """The messages that wait at the sending end, of channels that have some."""
        self.extra = extra
        """What the world's `copy_body` returned: the state, and whatever else it wants to keep."""
        self.duplicates: dict[tuple[str, str], int] = NO_ENTRIES
        """Per channel (source, kind): accepted, though sent outside the cut (only where alignment is skipped)."""
        self.alignment_s: float | None = None
        """From the first barrier's arrival to the record; None if the machine aligned no inputs."""
        self.blocked_count = 0
        """Messages that waited then because their input was blocked."""

    @property
    def inputs(self) -> list[tuple[Mailbox, int, list[Message]]]:
        """(mailbox, accepted, white messages in it)."""
        ends = zip(self.boxes, self.accepted_of, strict=True)
        return [(box, accepted, self.queued.get(box, [])) for box, accepted in ends]

    @property
    def outputs(self) -> list[tuple[OutChannel, int, list[Message]]]:
        """(channel, sent, messages that wait at the sending end)."""
        ends = zip(self.channels, self.sent_on, strict=True)
        return [(channel, sent, self.waiting.get(channel, [])) for channel, sent in ends]


def white_of(queued: dict[Any, list[Message]], is_white: Callable[[Colour], bool]) -> dict[Any, list[Message]]:
    """The white ones of messages in mailboxes; there may be a million, and few colours."""
    colours = {*map(_COLOUR, chain.from_iterable(queued.values()))}
    white = {*filter(is_white, colours)}
    if len(white) == len(colours):
        return queued
    return {place: [message for message in queue if message[COLOUR] in white] for place, queue in queued.items()}


_COLOUR = itemgetter(COLOUR)
_NAME, _ACCEPTED, _SENT, _WAY = map(attrgetter, ("name", "accepted", "sent", "way"))
_KEPT, _HELD, _TIMERS = map(attrgetter, ("kept", "held", "timers"))


class GroupCopy:
    """Machines that were copied together, as of the instant at which their host turned red: columns, no object a machine.

    Says of each what a `MachineCopy` says; `each` makes these. Of machines that are born, and that aligned no inputs.
    """

    def __init__(self, machines: Sequence[Machine], extras: Any, is_white: Callable[[Colour], bool]) -> None:
        """`extras`: of all, what iterates over the `extra` of each; `is_white`: whether a message of that colour is."""
        self.found = machines
        self.machines = [*map(_NAME, machines)]
        self.accepted = [*map(_ACCEPTED, machines)]
        self.sent = [*map(_SENT, machines)]
        mailboxes = [machine.inbox.mailboxes for machine in machines]
        outputs = [machine.outputs for machine in machines]
        boxes = [*chain.from_iterable(map(dict.values, mailboxes))] if any(mailboxes) else NOTHING
        kept = [*map(_KEPT, boxes)]
        self.box_counts = [*map(len, mailboxes)]
        self.senders: list[End] = [*chain.from_iterable(mailboxes)]
        """Of the mailboxes of the first machine, then of those of the second, and so on: where they lead from."""
        self.behind = hosts_behind(boxes)
        """The hosts that these channels come from; None: this one."""
        self.accepted_of = [*map(_ACCEPTED, boxes)]
        self.queued: dict[int, list[Message]] = {}
        """The white messages in mailboxes that have some, by place in `senders`."""
        if any(kept):
            self.queued = white_of({row: [*boxes[row].queue] for row, some in enumerate(kept) if some}, is_white)
        channels = [*chain.from_iterable(map(dict.values, outputs))] if any(outputs) else NOTHING
        self.channel_counts = [*map(len, outputs)]
        self.receivers: list[End] = [*chain.from_iterable(outputs)]
        """Where the channels lead to that these machines send on."""
        self.ahead = hosts_ahead(channels)
        """The hosts of the same; None: this one, or it is not known yet."""
        self.sent_on = [*map(_SENT, channels)]
        self.waiting: dict[int, list[Message]] = {}
        """The messages that wait at the sending end, by place in `receivers`."""
        if any(map(_HELD, channels)) or any(map(_TIMERS, channels)):
            self.waiting = {row: one.waiting() for row, one in enumerate(channels) if one.held or one.timers}
        self.extras = extras

    def each(self) -> Iterator[MachineCopy]:
        """The machines one by one."""
        box, channel = 0, 0
        columns = (self.found, self.accepted, self.sent, self.box_counts, self.channel_counts, self.extras)
        for machine, accepted, sent, boxes, channels, extra in zip(*columns, strict=True):
            found = MachineCopy.__new__(MachineCopy)
            found.machine, found.is_born, found.extra = machine.name, True, extra
            found.accepted, found.sent = accepted, sent
            # Channels are only ever added, and stay in their order: the first so many were there.
            found.boxes = [*machine.inbox.mailboxes.values()][:boxes]
            found.accepted_of = self.accepted_of[box : box + boxes]
            found.queued = {one: self.queued[row] for row, one in enumerate(found.boxes, box) if row in self.queued}
            found.channels = [*machine.outputs.values()][:channels]
            found.sent_on = self.sent_on[channel : channel + channels]
            ahead = enumerate(found.channels, channel)
            found.waiting = {one: self.waiting[row] for row, one in ahead if row in self.waiting}
            found.duplicates, found.alignment_s, found.blocked_count = NO_ENTRIES, None, 0
            yield found
            box, channel = box + boxes, channel + channels


class Recording:
    """What one host records for one snapshot."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.copies: list[MachineCopy] = []
        self.groups: list[GroupCopy] = []
        """Of other machines than those that were copied by themselves."""
        self.creations: list[Creation] = []
        """White creations that had not been carried out at the instant, or arrived later."""
        self.created: dict[str, int] = {}
        """Creations sent inside the cut, per target host."""
        self.arrived: dict[str, int] = {}
        """Creations arrived inside the cut, per source host."""
        self.late: list[tuple[Mailbox, Machine, Message]] = []
        """White messages that arrived after their machine was copied."""
        self.late_creations: list[Creation] = []
        self.is_copied = False
        self.has_resting = True
        """Whether the machines at rest, of which there are no copies, belong to it."""
        self.has_markers = False
        """Whether every input of the host has delivered its marker."""
        self.late_reports = 0
        """How many late reports the world has made of it."""
        self.marker_count = 0
        """Markers (barriers) that this host has put on its links for it."""

    def each_copy(self) -> Iterator[MachineCopy]:
        """All machines, one by one."""
        for group in self.groups:
            yield from group.each()
        yield from self.copies

    @property
    def names(self) -> list[str]:
        """The names of all machines."""
        return [*chain.from_iterable(group.machines for group in self.groups), *(copy.machine for copy in self.copies)]


def nothing_of(number: int) -> Recording:
    recording = Recording(number)
    recording.is_copied, recording.has_resting = True, False
    return recording
