"""Suzuki and Kasami: one at a time, by a token that is asked for.

Source: I. Suzuki, T. Kasami, "A distributed mutual exclusion algorithm", ACM TOCS 3(4), 1985. Who wants to enter and
has not the token asks all others for it, with the number of its request. The token carries the number of each member's
last request that was served, and a queue. Who leaves puts into the queue those whose latest request is not served, and
gives the token to the first.
Assumed of the network: nothing is lost or doubled; any order, any delay; no member fails.

`broken`: who leaves does not look for requests that came while it was inside; it only answers those that come later.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray_snapshot as rs


class Member(rs.SnapshotMixin):
    """Enters as often as it is told to."""

    def __init__(self, names: list[str], *, holds: bool) -> None:
        self.names = names
        self.requests = dict.fromkeys(names, 0)
        """The number of each member's latest request, as far as it is known here."""
        self.served: dict[str, int] | None = dict.fromkeys(names, 0) if holds else None
        """The token, while it is here: the number of each member's last request that was served."""
        self.queue: list[str] = []
        self.inside = False
        self.entered = 0

    def want(self) -> None:
        """Ask for the token, or enter with it."""
        self.requests[self.machine_name] += 1
        if self.served is not None:
            self._enter()
            return
        for name in self.names:
            if name != self.machine_name:
                self.machine(name).request.send(self.machine_name, self.requests[self.machine_name])

    def request(self, name: str, number: int) -> None:
        """Another member asks for the token."""
        self.requests[name] = max(self.requests[name], number)
        if self.served is not None and not self.inside and self.requests[name] == self.served[name] + 1:
            self._give(name)

    def token(self, served: dict[str, int], queue: list[str]) -> None:
        """The token comes."""
        self.served, self.queue = served, queue
        self._enter()

    def _enter(self) -> None:
        self.inside = True
        self.entered += 1
        self.handle.leave.send()

    def leave(self) -> None:
        """Come out, and give the token to the next that waits for it."""
        assert self.served is not None
        self.inside = False
        self.served[self.machine_name] = self.requests[self.machine_name]
        self.queue_up()
        if self.queue:
            self._give(self.queue.pop(0))

    def queue_up(self) -> None:
        """Put into the queue those that wait and are not in it."""
        assert self.served is not None
        for name in self.names:
            if name not in self.queue and self.requests[name] == self.served[name] + 1:
                self.queue.append(name)

    def _give(self, name: str) -> None:
        self.machine(name).token.send(self.served, self.queue)
        self.served, self.queue = None, []


class DeafMember(Member):
    """Has not heard what was asked while it was inside."""

    def queue_up(self) -> None:
        pass


def build(system: Any, kind: type[Member] = Member) -> None:
    """Three members, of which each wants to enter once; a has the token."""
    names = ["a", "b", "c"]
    members = [system.spawn(kind, names, holds=name == "a", name=name) for name in names]
    for member in members:
        member.want.send()


def broken(system: Any) -> None:
    """The same, of deaf members."""
    build(system, DeafMember)


def one_at_a_time(states: Mapping[str, Member]) -> bool:
    """At most one member is inside, and it has the token."""
    inside = [member for member in states.values() if member.inside]
    return len(inside) <= 1 and all(member.served is not None for member in inside)


def all_have_entered(states: Mapping[str, Member]) -> bool:
    """Each member has been inside."""
    return all(member.entered for member in states.values())
