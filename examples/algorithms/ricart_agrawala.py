"""Ricart and Agrawala: one at a time, by asking all others.

Source: G. Ricart, A. K. Agrawala, "An optimal algorithm for mutual exclusion in computer networks", CACM 24(1), 1981.
Who wants to enter asks all others, with the time of its logical clock. Each replies at once, unless it is inside, or
wants to enter and asked before: then it replies when it leaves. Equal times are told apart by the names.
Assumed of the network: nothing is lost or doubled; any order, any delay; no member fails.

`broken`: equal times are not told apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray_snapshot as rs


class Member(rs.SnapshotMixin):
    """Enters as often as it is told to."""

    def __init__(self, others: list[str]) -> None:
        self.others = others
        self.clock = 0
        self.asked_at: int | None = None
        """The time of its request, while it wants to enter or is inside."""
        self.missing = 0
        self.deferred: list[str] = []
        self.inside = False
        self.entered = 0

    def want(self) -> None:
        """Ask all others."""
        self.clock += 1
        self.asked_at = self.clock
        self.missing = len(self.others)
        for other in self.others:
            self.machine(other).request.send(self.clock, self.machine_name)

    def request(self, time: int, name: str) -> None:
        """Another member wants to enter."""
        self.clock = max(self.clock, time)
        if self.asked_at is not None and self.is_before(time, name):
            self.deferred.append(name)
        else:
            self.machine(name).reply.send()

    def is_before(self, time: int, name: str) -> bool:
        """Whether this member's request comes before that of another."""
        assert self.asked_at is not None
        return (self.asked_at, self.machine_name) < (time, name)

    def reply(self) -> None:
        """Another member lets this one enter."""
        self.missing -= 1
        if self.missing == 0:
            self.inside = True
            self.entered += 1
            self.handle.leave.send()

    def leave(self) -> None:
        """Come out, and let in those that asked later."""
        self.inside, self.asked_at = False, None
        for name in self.deferred:
            self.machine(name).reply.send()
        self.deferred = []


class RashMember(Member):
    """Lets others in that asked at the same time."""

    def is_before(self, time: int, name: str) -> bool:  # noqa: ARG002 - that is the mistake
        assert self.asked_at is not None
        return self.asked_at < time


def build(system: Any, kind: type[Member] = Member) -> None:
    """Three members, of which each wants to enter once."""
    names = ["a", "b", "c"]
    members = [system.spawn(kind, [other for other in names if other != name], name=name) for name in names]
    for member in members:
        member.want.send()


def broken(system: Any) -> None:
    """The same, of rash members."""
    build(system, RashMember)


def one_at_a_time(states: Mapping[str, Member]) -> bool:
    """At most one member is inside."""
    return sum(member.inside for member in states.values()) <= 1


def all_have_entered(states: Mapping[str, Member]) -> bool:
    """Each member has been inside."""
    return all(member.entered for member in states.values())
