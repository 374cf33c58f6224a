"""A collector of some hosts: it takes their reports, and passes them on to the central point as one.

The central point decides by sums: on a link, what was sent inside the cut, less what was accepted inside it, less what was
found in flight, is what is missing of it (`collector`). Sums can be added up on the way: of a link between two hosts of one
collector nothing is left in most cases, and no message of its own is needed for each host.

What is passed on names the reports that it is made of. A merged report cannot be taken apart again, so the central point counts
it as a whole or, if it knows any of them already, not at all. That happens where a collector dies and its hosts report
again, elsewhere: then the snapshot is given up, as when a host dies, and nothing is counted twice in the meantime.

A collector decides nothing. When it passes on is the world's business: when all of its hosts have reported, or a while after
the first of them has, for a host that never reports must not keep back the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ray_snapshot.protocol.collector import Answer, HostReport, LateReport, MergedReport, PendingCounts

MOST_REMEMBERED = 100
"""Of so many of the latest snapshots a collector knows which reports it has had."""


@dataclass(slots=True)
class _Gathered:
    """What has come of one snapshot."""

    counts: PendingCounts
    """Its `missing` is what has not been passed on."""
    hosts: set[str] = field(default_factory=set)
    late: set[tuple[str, int]] = field(default_factory=set)
    named: set[str] = field(default_factory=set)
    has_more: bool = False


class Gathering:
    """What one collector has taken, by snapshot, and not passed on."""

    def __init__(self) -> None:
        self.snapshots: dict[int, _Gathered] = {}

    def report(self, number: int, report: HostReport | LateReport) -> Answer:
        """A host's report: SUCCESS, or DUPLICATE."""
        found = self.snapshots.get(number)
        if found is None:
            found = self.snapshots[number] = _Gathered(PendingCounts(number, ()))
            if len(self.snapshots) > MOST_REMEMBERED:
                del self.snapshots[min(self.snapshots)]
        answer = found.counts.take(report)
        if answer is not Answer.SUCCESS:
            return answer
        found.has_more = True
        if isinstance(report, HostReport):
            found.hosts.add(report.host)
            found.named.update(report.created)
        elif report.sequence is not None:
            found.late.add((report.host, report.sequence))
        return answer

    def has_all(self, number: int, hosts: frozenset[str]) -> bool:
        """Whether all of these have reported."""
        found = self.snapshots.get(number)
        return found is not None and hosts <= found.counts.reported

    def waiting(self) -> list[int]:
        """The snapshots of which there is something to pass on."""
        return [number for number, found in self.snapshots.items() if found.has_more]

    def take(self, number: int) -> MergedReport | None:
        """What has come since this was last asked, as one report; None if nothing has."""
        found = self.snapshots.get(number)
        if found is None or not found.has_more:
            return None
        merged = MergedReport(
            frozenset(found.hosts), frozenset(found.late), found.counts.missing, frozenset(found.named)
        )
        found.counts.missing, found.hosts, found.late, found.named, found.has_more = {}, set(), set(), set(), False
        return merged
