"""Who may start a snapshot, under which number, what it waits for, and when it is complete or given up.

A pending snapshot awaits *parties*: hosts, complete by counts (`collector`), and processes in which watched actors run,
complete by their logs (`call_collector`). It is complete when both are. A process may be both at once.

Numbers rise by one, come from here only, and are never used twice: not after an abort, and not after a restart (begin
then behind the highest number that any host has recorded). At most `most_open` snapshots are pending at once; past that
a start is refused (the clock skips its beat). Time is an input: seconds, of the caller's clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ray_snapshot.errors import ProtocolError
from ray_snapshot.names import DRIVER
from ray_snapshot.protocol.call_collector import CallParties, CompletedCallSnapshot, PendingCallSnapshot
from ray_snapshot.protocol.call_messages import MachineReport
from ray_snapshot.protocol.collector import Answer, AnyReport, ChannelKey, PendingCounts

DRIVER_S = 30.0
"""Extra seconds that a snapshot waits for the driver, which answers only once its program leaves a call into C."""


@dataclass(slots=True, eq=False)
class PendingSnapshot:
    """A snapshot of which parts are missing."""

    counts: PendingCounts
    calls: PendingCallSnapshot
    deadline: float

    @property
    def lasts_until(self) -> float:
        """When it is given up."""
        return self.deadline + (DRIVER_S if DRIVER in self.counts.awaited else 0)

    @property
    def reported(self) -> int:
        """How many parties have reported."""
        return len(self.counts.reported) + len(self.calls.reports)

    @property
    def is_complete(self) -> bool:
        """Whether nothing is missing."""
        return self.counts.is_complete and self.calls.is_complete

    def waits_for(self) -> str:
        """What is missing, for a person."""
        return self.calls.waits_for() if self.counts.is_complete else self.counts.waits_for()

    def lacking(self) -> set[str]:
        """Parties that have not reported, also those that are only named by others so far."""
        return self.counts.awaited | self.counts.unheard | self.calls.awaited | self.calls.unheard()


@dataclass(frozen=True, slots=True)
class CompletedSnapshot:
    """A snapshot of which nothing is missing."""

    number: int
    hosts: frozenset[str]
    surplus: Mapping[ChannelKey, int]
    """Channels on which more was accepted or found than was sent: none, if the cut is consistent."""
    calls: CompletedCallSnapshot


@dataclass(frozen=True, slots=True)
class AbortedSnapshot:
    """A snapshot that was given up."""

    number: int
    reason: str
    awaited: tuple[str, ...]
    """Parties that had not reported."""


class Coordinator:
    """The numbers of one system, its parties, and its pending snapshots."""

    def __init__(self, *, most_open: int = 8, last: int = 0) -> None:
        self.most_open = most_open
        self.last = last
        self.settled = 0
        """The highest number of a snapshot that was completed: every party has recorded it, and all below it."""
        self.hosts: list[str] = []
        self.calls = CallParties()
        self.pending: dict[int, PendingSnapshot] = {}
        self.closed: dict[str, int] = {}
        """By actor that has sent to hosts: how many lives of it are over."""

    def register(self, host: str) -> tuple[int, ...]:
        """A host has joined; returns the pending numbers that it must be asked for."""
        if host not in self.hosts:
            self.hosts.append(host)
        for pending in self.pending.values():
            pending.counts.expect(host)
        return tuple(self.pending)

    def leave(self, host: str) -> list[AbortedSnapshot]:
        """A host is gone; pending snapshots that still need it are given up."""
        if host in self.hosts:
            self.hosts.remove(host)
        needed = [number for number, pending in self.pending.items() if host in pending.counts.awaited]
        return [self.abort(number, f"host {host} is gone") for number in needed]

    def close_links(self, actor: str, lives: int) -> None:
        """The first so many lives of an actor that sends to hosts are over."""
        self.closed[actor] = max(lives, self.closed.get(actor, 0))
        for pending in self.pending.values():
            pending.counts.forget_closed()

    def join(self, machine: str, incarnation: int = 0, colour: int = 0) -> int:
        """A watched machine is about to accept its constructor, sent in this colour; returns the colour to be born with."""
        return self.calls.register(machine, incarnation, max(colour, self.settled), self.last)

    def start(self, now: float, timeout: float) -> int | None:
        """A new number, pending on every party; None if too many are open."""
        if len(self.pending) >= self.most_open:
            return None
        self.last = number = self.last + 1
        counts = PendingCounts(number, self.hosts, self.closed)
        self.pending[number] = PendingSnapshot(counts, self.calls.open(number), now + timeout)
        return number

    def report(self, number: int, report: AnyReport, calls: Iterable[MachineReport] = ()) -> Answer:
        """Give a host's report to the snapshot it belongs to, and what the ledgers of its machines recorded.

        In one step: the counts say nothing of ledgers, and the snapshot must not be complete without them.
        """
        pending = self.pending.get(number)
        if pending is None:
            return self._too_late(number)
        answer = pending.counts.take(report)
        for one in calls if answer is Answer.SUCCESS else ():
            pending.calls.report(one)
        return answer

    def report_calls(self, report: MachineReport) -> Answer:
        """Give the report of a process with a watched actor to the snapshot it belongs to."""
        pending = self.pending.get(report.number)
        return self._too_late(report.number) if pending is None else pending.calls.report(report)

    def _too_late(self, number: int) -> Answer:
        return Answer.DISCARDED if number <= self.last else Answer.UNKNOWN

    def completed(self, number: int) -> CompletedSnapshot | None:
        """The snapshot, once nothing of it is missing; it is pending no more."""
        pending = self.pending.get(number)
        if pending is None or not pending.is_complete:
            return None
        self._forget(number)
        self.settled = max(self.settled, number)
        counts, calls = pending.counts, pending.calls.completed()
        self.calls.fold(calls)
        return CompletedSnapshot(number, frozenset(counts.reported), dict(counts.missing), calls)

    def abort(self, number: int, reason: str) -> AbortedSnapshot:
        """Give up a pending snapshot; raises `ProtocolError` if it is not pending."""
        pending = self.pending.get(number)
        if pending is None:
            raise ProtocolError(f"snapshot {number} is not pending and cannot be given up", number=number)
        self._forget(number)
        return AbortedSnapshot(number, reason, tuple(sorted(pending.lacking())))

    def expire(self, now: float) -> list[AbortedSnapshot]:
        """Give up what is past its deadline, saying what it waited for; what only waits to be taken is not given up."""
        late = [n for n, pending in self.pending.items() if pending.lasts_until <= now and not pending.is_complete]
        return [self.abort(number, f"timed out waiting for {self.pending[number].waits_for()}") for number in late]

    def next_deadline(self) -> float | None:
        """When `expire` will have something to do."""
        return min((pending.lasts_until for pending in self.pending.values()), default=None)

    def _forget(self, number: int) -> None:
        del self.pending[number]
        self.calls.close(number)


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
