"""Chang and Roberts: a ring elects the member with the highest number.

Source: E. Chang, R. Roberts, "An improved algorithm for decentralized extrema-finding in circular configurations of
processes", CACM 22(5), 1979. A member that starts sends its number to its neighbour. A higher number than one's own is
handed on, a lower one is swallowed, and the member whose own number comes back is the leader; it tells the others by
one more round.
Assumed of the network: nothing is lost or doubled; any delay; numbers are unique; no member fails.

`broken`: a member hands on its own number, too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray_snapshot as rs


class Member(rs.SnapshotMixin):
    """A member of the ring."""

    def __init__(self, number: int, neighbour: Any) -> None:
        self.number = number
        self.neighbour = neighbour
        self.has_started = False
        self.leader: int | None = None

    def start(self) -> None:
        """Stand for election, if no higher number has been seen."""
        if not self.has_started:
            self.has_started = True
            self.neighbour.candidate.send(self.number)

    def candidate(self, number: int) -> None:
        """A number comes along."""
        if number > self.number:
            self.has_started = True  # it is known that this one cannot win
            self.neighbour.candidate.send(number)
        elif number == self.number:
            self.leader = number
            self.neighbour.elected.send(number)
        else:
            self.start()

    def elected(self, number: int) -> None:
        """The news of the leader goes round once."""
        if number != self.number:
            self.leader = number
            self.neighbour.elected.send(number)


class TirelessMember(Member):
    """Does not know its own number when it sees it."""

    def candidate(self, number: int) -> None:
        if number >= self.number:
            self.has_started = True
            self.neighbour.candidate.send(number)
        else:
            self.start()


def build(system: Any, kind: type[Member] = Member) -> None:
    """Four members, of which three start."""
    numbers = [2, 4, 1, 3]
    members = [system.machine(f"member-{number}") for number in numbers]
    for place, number in enumerate(numbers):
        system.spawn(kind, number, members[(place + 1) % len(members)], name=f"member-{number}")
    for number in (1, 2, 3):
        system.machine(f"member-{number}").start.send()


def broken(system: Any) -> None:
    """The same, of tireless members."""
    build(system, TirelessMember)


def only_the_highest_leads(states: Mapping[str, Member]) -> bool:
    """Whoever knows a leader knows the one with the highest number."""
    highest = max(member.number for member in states.values())
    return all(member.leader in (None, highest) for member in states.values())


def all_know_the_leader(states: Mapping[str, Member]) -> bool:
    """Each member knows the leader."""
    return all(member.leader is not None for member in states.values())
