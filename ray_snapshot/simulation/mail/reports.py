"""What simulated hosts report, in the oracle's words, and how a completed snapshot is put together from it.

Counts and the walk are `parts.reporting`'s, as on Ray. Imports the standard library only.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from ray_snapshot.parts.reporting import late_report, report, taken
from ray_snapshot.protocol.call_messages import MachineReport
from ray_snapshot.protocol.collector import HostReport, LateReport
from ray_snapshot.protocol.host import Creation, Recording
from ray_snapshot.protocol.mailbox import Mailbox
from ray_snapshot.protocol.mailbox import Message as Carried
from ray_snapshot.protocol.parts import MachineCopy
from ray_snapshot.simulation.mail.oracle import ChannelId, Message, RecordedSnapshot


@dataclass
class Part:
    """One host's part of one snapshot, or what it sent after it; `sequence` 0 is the first.

    The recording is shown to it (`parts.reporting.Rows`).
    """

    host: str
    sequence: int
    counts: HostReport | LateReport = field(init=False)
    calls: tuple[MachineReport, ...] = ()
    """What machines recorded that call watched actors."""
    states: dict[str, Any] = field(default_factory=dict)
    channels: dict[ChannelId, list[Message]] = field(default_factory=lambda: defaultdict(list))
    creations: set[tuple[str, str]] = field(default_factory=set)
    sent: dict[ChannelId, int] = field(default_factory=dict)
    accepted: dict[ChannelId, int] = field(default_factory=dict)
    duplicates: dict[ChannelId, int] = field(default_factory=dict)
    blocked: dict[str, int] = field(default_factory=dict)
    payloads: dict[tuple[str, str], Any] = field(default_factory=dict, repr=False)
    """What the children of `creations` are made of."""

    def machine(self, copy: MachineCopy) -> None:
        if copy.is_born:
            self.states[copy.machine] = copy.extra
        if copy.alignment_s is not None:
            self.blocked[copy.machine] = copy.blocked_count

    def ends_of(self, copy: MachineCopy) -> None:
        for mailbox, accepted, _ in copy.inputs:
            key = mailbox.source, copy.machine, mailbox.kind
            self.accepted[key] = accepted
            if repeated := copy.duplicates.get((mailbox.source, mailbox.kind)):
                self.duplicates[key] = repeated
        for channel, sent, _ in copy.outputs:
            self.sent[copy.machine, channel.target, channel.kind] = sent

    def late(self, mailbox: Mailbox, machine: str) -> None:
        if not self.sequence:
            self.accepted.setdefault((mailbox.source, machine, mailbox.kind), 0)

    def message(self, source: str, target: str, kind: str, message: Carried) -> None:
        self.channels[source, target, kind].append((message[1], message[2], message[3]))

    def creation(self, creation: Creation) -> None:
        self.creations.add((creation.creator, creation.child))
        self.payloads[creation.creator, creation.child] = creation.payload

    @cached_property
    def text(self) -> str:
        """All that it says; nothing of it changes any more once it is sent."""
        return repr(self)


def part_of(host: str, recording: Recording) -> Part:
    """The part of a host whose machines have all been copied, with what has come late until now."""
    part = Part(host, 0)
    part.counts = report(host, recording, part, *taken(recording))
    return part


def late_part(host: str, sequence: int, recording: Recording) -> Part:
    """White messages and creations that came behind the part before."""
    part = Part(host, sequence)
    part.counts = late_report(host, part, *taken(recording), sequence)
    return part


def assembled(number: int, parts: Iterable[Part], is_fifo: bool = True) -> RecordedSnapshot:
    """The snapshot of which these are all the parts; where channels have no order, messages come by their numbers."""
    recorded = RecordedSnapshot(number)
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
