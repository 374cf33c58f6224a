"""What simulated hosts report, and how a completed snapshot is put together from it, in the oracle's words.

The runtime does the same with Arrow columns. Imports the standard library only.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ray_snapshot.protocol.collector import HostReport, LateReport
from ray_snapshot.protocol.host import Creation, Recording
from ray_snapshot.protocol.mailbox import Message as Carried
from ray_snapshot.simulation.oracle import ChannelId, Message, Recorded


@dataclass
class Part:
    """One host's part of one snapshot, or what it sent after it; `sequence` 0 is the first."""

    host: str
    sequence: int
    counts: HostReport | LateReport
    states: dict[str, Any] = field(default_factory=dict)
    channels: dict[ChannelId, list[Message]] = field(default_factory=lambda: defaultdict(list))
    creations: set[tuple[str, str]] = field(default_factory=set)
    sent: dict[ChannelId, int] = field(default_factory=dict)
    accepted: dict[ChannelId, int] = field(default_factory=dict)
    duplicates: dict[ChannelId, int] = field(default_factory=dict)
    blocked: dict[str, int] = field(default_factory=dict)
    payloads: dict[tuple[str, str], Any] = field(default_factory=dict, repr=False)
    """What the children of `creations` are made of."""

    @cached_property
    def text(self) -> str:
        """All that it says; nothing of it changes any more once it is sent."""
        return repr(self)


def part_of(host: str, recording: Recording) -> Part:
    """The part of a host whose machines have all been copied.

    What waits at its sender (a timer, or a message to a name whose host is not known) has not been put on a link, so on
    the link it counts as not sent. Under a barrier protocol the machines of a host record one after the other: between two
    of them messages and creations may come late that cross no link, and that no count would miss.
    """
    sent: dict[ChannelId, int] = {}
    accepted: dict[ChannelId, int] = {}
    in_flight: dict[ChannelId, int] = {}
    report = HostReport(host, sent, accepted, in_flight, dict(recording.created), dict(recording.arrived))
    part = Part(host, 0, report)
    for copy in recording.copies:
        if copy.is_born:
            part.states[copy.machine] = copy.extra
        if copy.alignment_s is not None:
            part.blocked[copy.machine] = copy.blocked_count
        for mailbox, count, messages in copy.inputs:
            key = mailbox.source, copy.machine, mailbox.kind
            part.accepted[key] = count
            if key[::2] in copy.duplicates:
                part.duplicates[key] = copy.duplicates[key[::2]]
            part.channels[key] += map(_plain, messages)
            if mailbox.link is not None:
                accepted[key] = count - copy.duplicates.get(key[::2], 0)
                in_flight[key] = len(messages)
        for channel, count, waiting in copy.outputs:
            key = copy.machine, channel.target, channel.kind
            part.sent[key] = count
            part.channels[key] += map(_plain, waiting)
            if channel.link is not None:
                sent[key] = count - len(waiting)
    for mailbox, machine, message in recording.late:
        if mailbox.link is None:
            part.channels[mailbox.source, machine.name, mailbox.kind].append(_plain(message))
    recording.late = [late for late in recording.late if late[0].link is not None]
    _add_creations(part, recording.creations)
    _add_creations(part, [birth for birth in recording.late_creations if birth.source is None])
    recording.late_creations = [birth for birth in recording.late_creations if birth.source is not None]
    return part


def late_part(host: str, sequence: int, recording: Recording) -> Part:
    """White messages and creations that arrived after the copy; taken out of the recording."""
    late = [found for found in recording.late if found[0].link is not None]
    recording.late = [found for found in recording.late if found[0].link is None]
    creations = [birth for birth in recording.late_creations if birth.source is not None]
    recording.late_creations = [birth for birth in recording.late_creations if birth.source is None]
    counts = Counter((mailbox.source, machine.name, mailbox.kind) for mailbox, machine, _ in late)
    arrived = Counter(creation.source for creation in creations if creation.source is not None)
    part = Part(host, sequence, LateReport(host, counts, arrived, sequence))
    for mailbox, machine, message in late:
        part.channels[mailbox.source, machine.name, mailbox.kind].append(_plain(message))
    _add_creations(part, creations)
    return part


def assembled(number: int, parts: Iterable[Part], is_fifo: bool = True) -> Recorded:
    """The snapshot of which these are all the parts; where channels have no order, messages come by their numbers."""
    recorded = Recorded(number)
    for part in sorted(parts, key=lambda one: one.sequence):
        recorded.states.update(part.states)
        recorded.creations |= part.creations
        recorded.payloads.update(part.payloads)
        recorded.sent.update(part.sent)
        recorded.accepted.update(part.accepted)
        recorded.duplicates.update(part.duplicates)
        recorded.blocked.update(part.blocked)
        for key, messages in part.channels.items():
            if messages:
                recorded.channels.setdefault(key, []).extend(messages)
    for key, messages in recorded.channels.items():
        if key[2] == "timer" or not is_fifo:  # timers have no order among themselves but that of their numbers
            messages.sort(key=lambda message: message[0])
    return recorded


def _add_creations(part: Part, creations: Iterable[Creation]) -> None:
    for creation in creations:
        part.creations.add((creation.creator, creation.child))
        part.payloads[creation.creator, creation.child] = creation.payload


def _plain(message: Carried) -> Message:
    return message[1], message[2], message[3]
