"""When a host turns red in the observer variant: every message carries the number, and no marker is needed.

Sources: T. H. Lai and T. H. Yang, "On Distributed Snapshots" (1987); the token variant in which an observer asks and
collects. The observer is one of the processes: it records itself, then asks all others, over control messages of its own.
A host that has recorded attaches the snapshot number to everything it sends from then on; who is white and is about to accept
something that bears it records first. A message without it that reaches a red process was in flight: it is reported.
That everything is in is known by counts per channel (`collector`), never by time.

Nothing is assumed of the channels: they may reorder (`LooseInbox`, `LooseInLink`). What remains of a link's colour here is
the number that its next messages carry.

    event                effect, by what the host knows of the number
                         stale (recorded or closed)   pending   new
    SnapshotRequested    none                         none      AskForBoundary
    NumberSeen           none                         none      AskForBoundary
    BoundaryReached      -                            Record, then AttachNumber to every output
    SnapshotClosed       none                         an error  an error
    SnapshotAborted      none                         stays pending

Not in the table: markers, for there are none, and so no input is ever known to be complete.
"""

from __future__ import annotations

from collections.abc import Hashable

from ray_snapshot.errors import ProtocolError
from ray_snapshot.protocol.acceptance import Numbers
from ray_snapshot.protocol.chandy_lamport import (
    AttachNumber,
    BoundaryReached,
    Effect,
    Event,
    InputOpened,
    MarkerArrived,
    NumberSeen,
    OutputOpened,
    Record,
    SnapshotAborted,
    SnapshotClosed,
    SnapshotRequested,
    asked_for,
)
from ray_snapshot.protocol.colours import Colour, Colours
from ray_snapshot.protocol.links import Batch, InLink
from ray_snapshot.protocol.mailbox import Inbox, Mailbox, Message
from ray_snapshot.protocol.turning import Turning


class Observer:
    """One host's side of the observer variant; `born` is the colour of the host's creator.

    `turning`: that of the ledger in this process, if there is one.
    """

    has_markers = False

    def __init__(
        self, colours: Colours | None = None, born: Colour | None = None, turning: Turning | None = None
    ) -> None:
        self.turning = turning or Turning(colours, born)
        self.outputs: list[str] = []

    @property
    def link_colour(self) -> Colour:
        """What the first messages on a new link carry."""
        return self.turning.colour

    def heard_over(self, source: str, colour: Colour) -> NumberSeen:  # noqa: ARG002 - links say nothing by themselves
        """What it means that messages on a link bear another number than those before."""
        return NumberSeen(colour)

    def step(self, event: Event) -> tuple[Effect, ...]:
        """Take one event; returns the effects, in the order in which the world must carry them out."""
        match event:
            case BoundaryReached():
                return self._record() if self.turning.must_turn else ()
            case NumberSeen(colour):
                return asked_for(self.turning.hear(colour))
            case SnapshotRequested(number):
                return asked_for(self.turning.request(number))
            case OutputOpened(target):
                if target not in self.outputs:
                    self.outputs.append(target)
            case SnapshotClosed(number):
                if self.turning.is_white(self.turning.colour, number):
                    raise ProtocolError(f"snapshot {number} was closed before this host recorded it", number=number)
            case MarkerArrived(source):
                raise ProtocolError(f"a marker came from {source}: the observer variant has none", source=source)
            case InputOpened() | SnapshotAborted():
                pass
        return ()

    def _record(self) -> tuple[Effect, ...]:
        numbers, colour = self.turning.turn(), self.turning.colour
        return (Record(numbers, colour), *(AttachNumber(target, colour) for target in self.outputs))

    def fingerprint(self) -> Hashable:
        """A value that is equal exactly for states that behave alike."""
        return self.turning.fingerprint(), tuple(self.outputs)


class LooseInLink(InLink):
    """The receiving end of a link that reorders: a batch is taken as it comes, once its channels have been declared."""

    __slots__ = ("seen",)

    def __init__(self, source: str, colour: Colour) -> None:
        super().__init__(source, colour)
        self.seen = Numbers()

    def in_order(self, batch: Batch) -> list[Batch]:
        """The batches that can be taken now, this one or those that waited for its declarations; none for a double."""
        if not self.seen.add(batch[1]):
            return []
        self.early[batch[1]] = batch
        found = []
        known = len(self.mailboxes)
        while (ready := self._ready(known)) is not None:
            found.append(self.early.pop(ready))
            known += len(found[-1][2])
        return found

    def _ready(self, known: int) -> int | None:
        for sequence, (_, _, declared, segments, _) in self.early.items():
            needed = max((message[0] for _, messages in segments for message in messages), default=0)
            begins_here = not declared or declared[0][0] == known
            if begins_here and needed < known + len(declared):
                return sequence
        return None


class LooseInbox(Inbox):
    """Mailboxes of channels that reorder: messages are accepted in the order of their arrival."""

    __slots__ = ()

    def put(self, mailbox: Mailbox, message: Message) -> None:
        """A message has arrived, whatever its number."""
        mailbox.arrived = message[1] - 1
        super().put(mailbox, message)
