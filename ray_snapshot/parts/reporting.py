"""A recording, walked once: the counts by which the snapshot is complete, and what is shown to the rows made of it.

On a link, as on each of its channels, what was sent inside the cut and not accepted inside it is in flight. A report gives the
sums of each link. Channels within the host, and what waits at its sender (a timer, or a message to a name whose host is not
known yet), balance by themselves and are not counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from ray_snapshot.protocol.collector import ChannelKey, HostReport, LateReport
from ray_snapshot.protocol.host import Creation, Machine, MachineCopy, OutChannel, Recording
from ray_snapshot.protocol.mailbox import Mailbox, Message

LINK = "link"
"""The kind under which the sums of a link are reported."""

Late = tuple[Mailbox, Machine, Message]
"""A white message that arrived after its machine was copied."""


class Rows(Protocol):
    """What becomes of a recording."""

    def machine(self, copy: MachineCopy) -> None:
        """A machine; one that is only being born has no state yet."""

    def receiver(self, mailbox: Mailbox, machine: str, accepted: int, in_flight: int, duplicates: int) -> None:
        """A channel as its receiver counts it; `duplicates` are among the accepted, and were sent outside the cut."""

    def sender(self, channel: OutChannel, machine: str, sent: int, held: int) -> None:
        """A channel as its sender counts it; `held` wait at the sender."""

    def message(self, source: str, target: str, kind: str, message: Message) -> None:
        """A message in flight."""

    def creation(self, creation: Creation) -> None:
        """A creation in flight."""


class LinkCounts:
    """The sums of each link of one host."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.sent: dict[ChannelKey, int] = {}
        self.accepted: dict[ChannelKey, int] = {}
        self.in_flight: dict[ChannelKey, int] = {}
        self.arrived: dict[str, int] = {}
        """Creations, by the host that they come from."""

    def receiver(self, mailbox: Mailbox, accepted: int, in_flight: int, duplicates: int = 0) -> None:
        """A channel as its receiver counts it."""
        if mailbox.link is not None:
            link = mailbox.link, self.host, LINK
            self.accepted[link] = self.accepted.get(link, 0) + accepted - duplicates
            if in_flight:
                self.in_flight[link] = self.in_flight.get(link, 0) + in_flight

    def sender(self, channel: OutChannel, sent: int, held: int) -> None:
        """A channel as its sender counts it."""
        if channel.link is not None:
            link = self.host, channel.link.target, LINK
            self.sent[link] = self.sent.get(link, 0) + sent - held

    def came(self, creation: Creation) -> None:
        """A creation that arrived behind the copy."""
        if creation.source is not None:
            self.arrived[creation.source] = self.arrived.get(creation.source, 0) + 1


def report(
    host: str,
    recording: Recording,
    rows: Rows,
    late: Iterable[Late] = (),
    creations: Iterable[Creation] = (),
    resting: LinkCounts | None = None,
) -> HostReport:
    """The counts of a host whose machines have all been copied; O(machines + channels + messages in flight).

    `late` and `creations` are white and came after the copy: they go with this report. `resting`: the sums of the machines of
    which there are no copies, for they were at rest.
    """
    counts = LinkCounts(host)
    if resting is not None:
        counts.sent.update(resting.sent)
        counts.accepted.update(resting.accepted)
    counts.arrived.update(recording.arrived)
    show(recording, rows, counts)
    _behind(late, creations, rows, counts)
    return HostReport(host, counts.sent, counts.accepted, counts.in_flight, dict(recording.created), counts.arrived)


def late_report(
    host: str, rows: Rows, late: Iterable[Late], creations: Iterable[Creation], sequence: int | None = None
) -> LateReport:
    """The counts of what came after a host's report; `sequence`: which of those it is, where reports may be doubled."""
    counts = LinkCounts(host)
    _behind(late, creations, rows, counts)
    return LateReport(host, counts.in_flight, counts.arrived, sequence)


def show(recording: Recording, rows: Rows, counts: LinkCounts | None = None) -> None:
    """Show a recording to rows, and count it."""
    for copy in recording.copies:
        rows.machine(copy)
        for mailbox, accepted, messages in copy.inputs:
            duplicates = copy.duplicates.get((mailbox.source, mailbox.kind), 0) if copy.duplicates else 0
            if counts is not None:
                counts.receiver(mailbox, accepted, len(messages), duplicates)
            rows.receiver(mailbox, copy.machine, accepted, len(messages), duplicates)
            for message in messages:
                rows.message(mailbox.source, copy.machine, mailbox.kind, message)
        for channel, sent, waiting in copy.outputs:
            if counts is not None:
                counts.sender(channel, sent, len(waiting))
            rows.sender(channel, copy.machine, sent, len(waiting))
            for message in waiting:
                rows.message(copy.machine, channel.target, channel.kind, message)
    for creation in recording.creations:
        rows.creation(creation)


def _behind(late: Iterable[Late], creations: Iterable[Creation], rows: Rows, counts: LinkCounts) -> None:
    for mailbox, machine, message in late:
        counts.receiver(mailbox, 0, 1)
        rows.receiver(mailbox, machine.name, 0, 1, 0)
        rows.message(mailbox.source, machine.name, mailbox.kind, message)
    for creation in creations:
        counts.came(creation)
        rows.creation(creation)


def taken(recording: Recording) -> tuple[Sequence[Late], Sequence[Creation]]:
    """The white messages and creations that have come since the last report; taken out of the recording."""
    late, recording.late = recording.late, []
    creations, recording.late_creations = recording.late_creations, []
    return late, creations
