"""When what hosts report of a snapshot is complete: by counts, never by markers or by time.

Each host reports what it recorded: per channel that crosses hosts, how many messages its machines had sent and accepted
at the instant, and how many it found in flight. White messages that arrive after that are reported late. On a channel

    sent inside the cut - accepted inside the cut = messages in flight at the cut,

so the snapshot is complete when every host of the system (those born meanwhile too) has reported and no channel lacks a
message. Creations are counted the same way, per pair of hosts. Markers are what makes the cut consistent; that they have
all arrived is never the test of completeness (a link that was never used carries none).

A report for a snapshot that is not pending is answered by rule: DUPLICATE (this host has reported), DISCARDED (completed
or aborted), UNKNOWN (never started). Read `coordinator` next.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from ray_snapshot.names import life_of

ChannelKey = tuple[str, str, str]
"""(source machine, target machine, kind)."""


class Answer(Enum):
    """What became of a report."""

    SUCCESS = "success"
    DUPLICATE = "duplicate"
    DISCARDED = "discarded"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class HostReport:
    """What one host recorded at its instant, in counts; channels within the host are left out, they balance by themselves."""

    host: str
    sent: Mapping[ChannelKey, int] = field(default_factory=dict)
    accepted: Mapping[ChannelKey, int] = field(default_factory=dict)
    in_flight: Mapping[ChannelKey, int] = field(default_factory=dict)
    created: Mapping[str, int] = field(default_factory=dict)
    """Creations sent, per target host."""
    arrived: Mapping[str, int] = field(default_factory=dict)
    """Creations arrived, per source host."""


@dataclass(frozen=True, slots=True)
class LateReport:
    """White messages and creations that reached a host after it had reported."""

    host: str
    in_flight: Mapping[ChannelKey, int] = field(default_factory=dict)
    arrived: Mapping[str, int] = field(default_factory=dict)
    sequence: int | None = None
    """Which late report of its host this is: by it a double is known. None if the transport never doubles."""


AnyReport = HostReport | LateReport


class PendingCounts:
    """What the hosts of one snapshot have reported, and what is missing."""

    def __init__(self, number: int, hosts: Iterable[str], closed: Mapping[str, int] | None = None) -> None:
        self.number = number
        self.awaited = set(hosts)
        self.reported: set[str] = set()
        self.late_reports: set[tuple[str, int]] = set()
        self.missing: dict[ChannelKey, int] = {}
        """Per channel: sent inside the cut, and neither accepted inside it nor recorded in flight yet."""
        self.unheard: set[str] = set()
        """Hosts that are named inside the cut, and that were not asked."""
        self.closed = {} if closed is None else closed
        """By actor that has sent to hosts: how many lives of it are over. What those have sent is not counted."""

    def expect(self, host: str) -> None:
        """A host that was born meanwhile belongs to the system too."""
        if host not in self.reported:
            self.awaited.add(host)
        self.unheard.discard(host)

    def take(self, report: AnyReport) -> Answer:
        """A report of any kind."""
        match report:
            case HostReport():
                return self.report(report)
            case LateReport():
                return self.late(report)

    def report(self, report: HostReport) -> Answer:
        """A host's report."""
        if report.host in self.reported:
            return Answer.DUPLICATE
        self._count(report.sent, +1)
        self._count(report.accepted, -1)
        self._count(report.in_flight, -1)
        self._count({(report.host, target, "creation"): count for target, count in report.created.items()}, +1)
        self._count({(source, report.host, "creation"): count for source, count in report.arrived.items()}, -1)
        self.reported.add(report.host)
        self.awaited.discard(report.host)
        self.unheard.discard(report.host)
        self.unheard.update(one for one in report.created if one not in self.reported and one not in self.awaited)
        return Answer.SUCCESS

    def forget_closed(self) -> None:
        """More lives are over: what has not come of them never will, and a report that they have made may come yet."""
        for key in [key for key in self.missing if self._is_closed(key[0])]:
            del self.missing[key]

    def _is_closed(self, source: str) -> bool:
        actor, life = life_of(source)
        return life < self.closed.get(actor, 0)

    def late(self, report: LateReport) -> Answer:
        """White messages that arrived after their host's report (whichever of the two comes here first)."""
        if report.sequence is not None:
            if (report.host, report.sequence) in self.late_reports:
                return Answer.DUPLICATE
            self.late_reports.add((report.host, report.sequence))
        self._count(report.in_flight, -1)
        self._count({(source, report.host, "creation"): count for source, count in report.arrived.items()}, -1)
        return Answer.SUCCESS

    def _count(self, counts: Mapping[ChannelKey, int], sign: int) -> None:
        missing = self.missing
        for key, count in counts.items():
            if self.closed and self._is_closed(key[0]):
                continue
            left = missing.get(key, 0) + sign * count
            if left:
                missing[key] = left
            else:
                missing.pop(key, None)

    @property
    def is_complete(self) -> bool:
        """Every host has reported and no channel lacks a message (one with too many is for `verify` to name)."""
        return not self.awaited and not self.unheard and not any(left > 0 for left in self.missing.values())

    def waits_for(self) -> str:
        """What is missing, for a person."""
        if self.awaited or self.unheard:
            return f"the report of {', '.join(sorted(self.awaited | self.unheard)[:5])}"
        lacking = [key for key, left in self.missing.items() if left > 0]
        if not lacking:
            return "nothing"
        source, target, kind = lacking[0]
        return f"{self.missing[lacking[0]]} messages in flight from {source} to {target} ({kind})"
