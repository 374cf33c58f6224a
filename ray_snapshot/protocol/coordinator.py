"""Who may start a snapshot, under which number, and when one is given up.

Numbers rise by one, come from here only, and are never used twice: not after an abort, and not after a restart (begin
then behind the highest number that any host has recorded). At most `most_open` snapshots are pending at once; past that
a start is refused (the clock skips its beat). Time is an input: seconds, of the caller's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ray_snapshot.errors import ProtocolError
from ray_snapshot.protocol.collector import (
    AbortedSnapshot,
    Answer,
    CompletedSnapshot,
    HostReport,
    LateReport,
    PendingSnapshot,
)


class Coordinator:
    """The numbers of one system and its pending snapshots."""

    def __init__(self, *, most_open: int = 8, last: int = 0) -> None:
        self.most_open = most_open
        self.last = last
        self.hosts: list[str] = []
        self.pending: dict[int, PendingSnapshot] = {}
        self.deadlines: dict[int, float] = {}

    def register(self, host: str) -> tuple[int, ...]:
        """A host has joined; returns the pending numbers that it must be asked for."""
        if host not in self.hosts:
            self.hosts.append(host)
        for pending in self.pending.values():
            pending.expect(host)
        return tuple(self.pending)

    def leave(self, host: str) -> list[AbortedSnapshot]:
        """A host is gone; pending snapshots that still need it are given up."""
        if host in self.hosts:
            self.hosts.remove(host)
        needed = [number for number, pending in self.pending.items() if host in pending.awaited]
        return [self.abort(number, f"host {host} is gone") for number in needed]

    def start(self, now: float, timeout: float) -> int | None:
        """A new number, pending on every host; None if too many are open."""
        if len(self.pending) >= self.most_open:
            return None
        self.last += 1
        self.pending[self.last] = PendingSnapshot(self.last, self.hosts)
        self.deadlines[self.last] = now + timeout
        return self.last

    def report(self, number: int, report: HostReport | LateReport) -> Answer:
        """Give a report to the snapshot it belongs to."""
        pending = self.pending.get(number)
        if pending is None:
            return Answer.DISCARDED if number <= self.last else Answer.UNKNOWN
        return pending.report(report) if isinstance(report, HostReport) else pending.late(report)

    def completed(self, number: int) -> CompletedSnapshot | None:
        """The snapshot, once nothing of it is missing; it is pending no more."""
        pending = self.pending.get(number)
        if pending is None or not pending.is_complete:
            return None
        self._forget(number)
        return CompletedSnapshot(number, frozenset(pending.reported), dict(pending.missing))

    def abort(self, number: int, reason: str) -> AbortedSnapshot:
        """Give up a pending snapshot; raises `ProtocolError` if it is not pending."""
        pending = self.pending.get(number)
        if pending is None:
            raise ProtocolError(f"snapshot {number} is not pending and cannot be given up", number=number)
        self._forget(number)
        return AbortedSnapshot(number, reason, tuple(sorted(pending.awaited)))

    def expire(self, now: float) -> list[AbortedSnapshot]:
        """Give up what is past its deadline, saying what it waited for; what only waits to be taken is not given up."""
        late = [n for n, deadline in self.deadlines.items() if deadline <= now and not self.pending[n].is_complete]
        return [self.abort(number, f"timed out waiting for {self.pending[number].waits_for()}") for number in late]

    def next_deadline(self) -> float | None:
        """When `expire` will have something to do."""
        return min(self.deadlines.values(), default=None)

    def copy(self) -> Coordinator:
        """An independent copy, for a world that tries every order."""
        found = Coordinator(most_open=self.most_open, last=self.last)
        found.hosts = [*self.hosts]
        found.pending = {number: pending.copy() for number, pending in self.pending.items()}
        found.deadlines = {**self.deadlines}
        return found

    def _forget(self, number: int) -> None:
        del self.pending[number]
        del self.deadlines[number]


def reachable(edges: Iterable[tuple[str, str]], initiators: Iterable[str]) -> set[str]:
    """What markers from `initiators` reach over the directed `edges`; O(V + E)."""
    targets: dict[str, list[str]] = {}
    for source, target in edges:
        targets.setdefault(source, []).append(target)
    return reached(targets, initiators)


def reached(targets: Mapping[str, Iterable[str]], start: Iterable[str]) -> set[str]:
    """What can be reached from `start`, itself included, over edges given as targets by source; O(what is reached)."""
    found = set(start)
    stack = list(found)
    while stack:
        for target in targets.get(stack.pop(), ()):
            if target not in found:
                found.add(target)
                stack.append(target)
    return found
