"""A recording, walked once: the counts by which the snapshot is complete, and what is shown to the rows made of it.

On a link, as on each of its channels, what was sent inside the cut and not accepted inside it is in flight. A report gives the
sums of each link. Channels within the host, and what waits at its sender (a timer, or a message to a name whose host is not
known yet), balance by themselves and are not counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from functools import partial
from itertools import groupby, repeat
from operator import itemgetter
from typing import Protocol, TypeGuard

from ray_snapshot.protocol.collector import ChannelKey, HostReport, LateReport
from ray_snapshot.protocol.host import Creation, Machine, Recording
from ray_snapshot.protocol.mailbox import Mailbox, Message, hosts_behind
from ray_snapshot.protocol.parts import GroupCopy, MachineCopy, hosts_ahead

LINK = "link"
"""The kind under which the sums of a link are reported."""

Late = tuple[Mailbox, Machine, Message]
"""A white message that arrived after its machine was copied."""

LateRun = tuple[Mailbox, str, list[Message]]
"""Some that came one after the other on one channel, to the machine of this name."""


class Rows(Protocol):
    """What becomes of a recording."""

    def machine(self, copy: MachineCopy) -> None:
        """A machine; one that is only being born has no state yet."""

    def ends_of(self, copy: MachineCopy) -> None:
        """A machine's channels, as it counts them."""

    def late(self, mailbox: Mailbox, machine: str) -> None:
        """One message more is in flight on this channel."""

    def message(self, source: str, target: str, kind: str, message: Message) -> None:
        """A message in flight."""

    def creation(self, creation: Creation) -> None:
        """A creation in flight."""


class GroupRows(Rows, Protocol):
    """Rows that take machines that were copied together as they are; others are shown them one by one."""

    def group(self, copy: GroupCopy) -> None:
        """Machines, their channels, and the messages in flight to them or waiting at them."""

    def in_flight(self, source: str, target: str, kind: str, messages: Sequence[Message]) -> None:
        """Messages in flight on one channel."""

    def behind(self, late: Sequence[LateRun]) -> None:
        """White messages that arrived after their machine was copied: each is one more in flight on its channel."""


def _takes_groups(rows: Rows) -> TypeGuard[GroupRows]:
    """(`isinstance` of a protocol takes 40 us, more than a report of machines at rest.)"""
    return hasattr(rows, "group")


class LinkCounts:
    """The sums of each link of one host."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.sent_to: dict[str, int] = {}
        self.accepted_from: dict[str, int] = {}
        self.in_flight_from: dict[str, int] = {}
        """All three by the host at the other end."""
        self.arrived: dict[str, int] = {}
        """Creations, by the host that they come from."""

    @property
    def sent(self) -> dict[ChannelKey, int]:
        return {(self.host, target, LINK): count for target, count in self.sent_to.items()}

    @property
    def accepted(self) -> dict[ChannelKey, int]:
        return {(source, self.host, LINK): count for source, count in self.accepted_from.items()}

    @property
    def in_flight(self) -> dict[ChannelKey, int]:
        return {(source, self.host, LINK): count for source, count in self.in_flight_from.items()}

    def ends_of(self, copy: MachineCopy) -> None:
        """A machine's channels, as it counts them.

        Where they lead is read once, for a host may become known meanwhile: what waits for it must be taken from the same sum
        as it was added to.
        """
        behind, ahead = hosts_behind(copy.boxes), hosts_ahead(copy.channels)
        _add(self.accepted_from, behind, copy.accepted_of)
        _add(self.sent_to, ahead, copy.sent_on)
        for box, messages in copy.queued.items():
            if messages:
                _add(self.in_flight_from, [box.link], [len(messages)])
        if copy.waiting:
            _add(self.sent_to, ahead, [-len(copy.waiting.get(one, ())) for one in copy.channels])
        if copy.duplicates:
            repeated = [-copy.duplicates.get((box.source, box.kind), 0) for box in copy.boxes]
            _add(self.accepted_from, behind, repeated)

    def group(self, copy: GroupCopy) -> None:
        """The channels of machines that were copied together."""
        behind, ahead = copy.behind, copy.ahead
        _add(self.accepted_from, behind, copy.accepted_of)
        _add(self.sent_to, ahead, copy.sent_on)
        _add(self.in_flight_from, [behind[row] for row in copy.queued], map(len, copy.queued.values()))
        _add(self.sent_to, [ahead[row] for row in copy.waiting], [-len(waiting) for waiting in copy.waiting.values()])

    def late(self, late: Sequence[LateRun]) -> None:
        """These are in flight, too."""
        links = [mailbox.link for mailbox, _, _ in late]
        _add(self.accepted_from, links, repeat(0, len(links)))
        _add(self.in_flight_from, links, [len(messages) for _, _, messages in late])

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
        counts.sent_to.update(resting.sent_to)
        counts.accepted_from.update(resting.accepted_from)
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
    together = rows if _takes_groups(rows) else None
    in_flight = partial(_one_by_one, rows) if together is None else together.in_flight
    if together is not None:
        for group in recording.groups:
            together.group(group)
            if counts is not None:
                counts.group(group)
    for copy in recording.each_copy() if together is None else recording.copies:
        rows.machine(copy)
        if copy.boxes or copy.channels:
            rows.ends_of(copy)
            if counts is not None:
                counts.ends_of(copy)
        for mailbox, messages in copy.queued.items():
            in_flight(mailbox.source, copy.machine, mailbox.kind, messages)
        for channel, waiting in copy.waiting.items():
            in_flight(copy.machine, channel.target, channel.kind, waiting)
    for creation in recording.creations:
        rows.creation(creation)


def _one_by_one(rows: Rows, source: str, target: str, kind: str, messages: Sequence[Message]) -> None:
    for message in messages:
        rows.message(source, target, kind, message)


def _behind(late: Iterable[Late], creations: Iterable[Creation], rows: Rows, counts: LinkCounts) -> None:
    runs = _runs(late)
    counts.late(runs)
    if _takes_groups(rows):
        rows.behind(runs)
    else:
        for mailbox, machine, messages in runs:
            for message in messages:
                rows.late(mailbox, machine)
                rows.message(mailbox.source, machine, mailbox.kind, message)
    for creation in creations:
        counts.came(creation)
        rows.creation(creation)


def _runs(late: Iterable[Late]) -> list[LateRun]:
    found = list[LateRun]()
    for mailbox, some in groupby(late, itemgetter(0)):
        of_one = [*some]
        found.append((mailbox, of_one[0][1].name, [*map(itemgetter(2), of_one)]))
    return found


def _add(sums: dict[str, int], hosts: Iterable[str | None], counts: Iterable[int]) -> None:
    """Add counts to the sums of the hosts at the other end; None: this one, whose channels balance by themselves."""
    found = defaultdict[str | None, int](int)
    for host, count in zip(hosts, counts, strict=True):
        found[host] += count
    for name, total in found.items():
        if name is not None:
            sums[name] = sums.get(name, 0) + total


def taken(recording: Recording) -> tuple[Sequence[Late], Sequence[Creation]]:
    """The white messages and creations that have come since the last report; taken out of the recording."""
    late, recording.late = recording.late, []
    creations, recording.late_creations = recording.late_creations, []
    return late, creations
