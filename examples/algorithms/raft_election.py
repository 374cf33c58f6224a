"""Raft's elections: in each term at most one leader.

Source: D. Ongaro, J. Ousterhout, "In search of an understandable consensus algorithm", USENIX ATC 2014, section 5.2. A
member that hears nothing for some time stands for election in a new term. In each term a member votes once, for the
first that asks. Who has the votes of a majority leads. Whoever sees a newer term follows. Logs, and heartbeats, are
left out.
Assumed of the network: any order, any delay; a message that is lost is one that is never accepted.

`broken`: a candidate counts votes without looking at their term.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray_snapshot as rs


class Member(rs.SnapshotMixin):
    """A member that stands for election at most `stands` times."""

    def __init__(self, others: list[Any], stands: int) -> None:
        self.others = others
        self.stands = stands
        self.term = 0
        self.voted_for: str | None = None
        self.votes: list[str] = []
        self.role = "follower"
        if stands:
            self.handle.time_out.send_after(1.0)

    def time_out(self) -> None:
        """Nothing was heard of a leader: stand for election."""
        if self.role == "leader" or not self.stands:
            return
        self.stands -= 1
        self.term += 1
        self.role, self.voted_for, self.votes = "candidate", self.machine_name, [self.machine_name]
        for other in self.others:
            other.request_vote.send(self.term, self.machine_name)
        if self.stands:
            self.handle.time_out.send_after(1.0)

    def request_vote(self, term: int, candidate: str) -> None:
        """A candidate asks for this member's vote."""
        self._see(term)
        if term == self.term and self.voted_for in (None, candidate):
            self.voted_for = candidate
            self.machine(candidate).vote.send(term, self.machine_name)

    def vote(self, term: int, voter: str) -> None:
        """A vote for this member comes."""
        self._see(term)
        if self.role == "candidate" and self.counts(term) and voter not in self.votes:
            self.votes = sorted([*self.votes, voter])
            if 2 * len(self.votes) > len(self.others) + 1:
                self.role = "leader"

    def counts(self, term: int) -> bool:
        """Whether a vote counts: it was given in this term."""
        return term == self.term

    def _see(self, term: int) -> None:
        if term > self.term:
            self.term, self.role, self.voted_for, self.votes = term, "follower", None, []


class EagerMember(Member):
    """Takes every vote that it gets."""

    def counts(self, term: int) -> bool:  # noqa: ARG002 - that is the mistake
        return True


def build(system: Any, kind: type[Member] = Member) -> None:
    """Three members, of which one stands for election up to twice, one once."""
    names = ["a", "b", "c"]
    for name, stands in zip(names, (2, 1, 0), strict=True):
        system.spawn(kind, [system.machine(other) for other in names if other != name], stands, name=name)


def broken(system: Any) -> None:
    """The same, of eager members."""
    build(system, EagerMember)


def one_leader_a_term(states: Mapping[str, Member]) -> bool:
    """No two members lead in the same term."""
    terms = [member.term for member in states.values() if member.role == "leader"]
    return len(terms) == len(set(terms))
