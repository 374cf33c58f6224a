"""The bully: the highest member that is alive becomes the leader, though any may die.

Source: H. Garcia-Molina, "Elections in a distributed computing system", IEEE Transactions on Computers C-31(1), 1982. A
member that holds an election asks all higher ones. If none of them is alive, it is the leader and tells the lower ones.
If one is, that one holds an election, and this member waits for the result; if none comes in time, it begins anew.
Assumed of the network: nothing is lost or doubled; who calls a dead member is told that it is dead (on Ray:
`HostDiedError`), and is never told so of one that lives. That a leader dies later is noticed by others; that is left
out here. Explore it with `crashes=1`.

`broken`: a member waits for the result for ever.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray

import ray_snapshot as rs

PATIENCE_S = 5.0


class Member(rs.SnapshotMixin):
    """A member with a rank; `higher` and `lower` are the others."""

    def __init__(self, rank: int, higher: list[Any], lower: list[Any]) -> None:
        self.rank = rank
        self.higher = higher
        self.lower = lower
        self.leader: int | None = None
        self.is_called = False
        """Whether an election of this member is about to begin."""
        self.is_waiting = False

    def hold_election(self) -> None:
        """An election of this member begins."""
        self.is_called = False
        self._elect()

    def _elect(self) -> None:
        """Ask the higher ones; lead if none is there."""
        if self.leader == self.rank:
            return
        answers = [_answer(other.challenge.remote()) for other in self.higher]
        if "leader" in answers:
            self.leader = max(other for other, answer in zip(self._ranks(), answers, strict=True) if answer == "leader")
        elif "here" in answers:
            self.wait_for_result()
        else:
            self.leader = self.rank
            for other in self.lower:
                other.follow.send(self.rank)

    def _ranks(self) -> range:
        return range(self.rank + 1, self.rank + 1 + len(self.higher))

    def challenge(self) -> str:
        """A lower member holds an election: hold one, too, unless this one leads already."""
        if self.leader == self.rank:
            return "leader"
        if not self.is_called:
            self.is_called = True
            self.handle.hold_election.send()
        return "here"

    def wait_for_result(self) -> None:
        """Look again later: who has answered may have died since."""
        if not self.is_waiting:
            self.is_waiting = True
            self.handle.look_again.send_after(PATIENCE_S)

    def look_again(self) -> None:
        """Hold another election if no leader is known by now."""
        self.is_waiting = False
        if self.leader is None:
            self._elect()

    def follow(self, rank: int) -> None:
        """Another member leads. Old news do not count: this one leads only if the others were dead."""
        if self.leader != self.rank:
            self.leader = rank


def _answer(call: Any) -> str:
    """What a member says; "dead" if it cannot say anything any more."""
    try:
        return str(ray.get(call))
    except rs.HostDiedError:
        return "dead"


class PatientMember(Member):
    """Waits for ever."""

    def wait_for_result(self) -> None:
        pass


def build(system: Any, kind: type[Member] = Member) -> None:
    """Three members, of which two hold an election."""
    members = [system.machine(f"member-{rank}") for rank in range(3)]
    for rank in range(3):
        system.spawn(kind, rank, members[rank + 1 :], members[:rank], name=f"member-{rank}")
    for member in members[:2]:
        member.hold_election.send()


def broken(system: Any) -> None:
    """The same, of patient members."""
    build(system, PatientMember)


def only_the_highest_leads(states: Mapping[str, Member]) -> bool:
    """Where a member leads, no higher one is alive; `states` has no dead ones."""
    highest = max(member.rank for member in states.values())
    return all(member.rank == highest for member in states.values() if member.leader == member.rank)


def all_know_a_leader(states: Mapping[str, Member]) -> bool:
    """Each member that is alive knows a leader."""
    return all(member.leader is not None for member in states.values())
