"""Who has entered which group of ranks, over the snapshots of one watched app, and where its ranks stand in collectives.

A group is told (coverage, `collectives`) while a rank has stood in one of its collectives for `LONG_S`. A rank has *left* a
group if its process goes on without it, and has *died* with its process; one that a snapshot has no report of is not observed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ray_snapshot.instrument.deaths import Life
from ray_snapshot.instrument.process.collectives import JOINING, Membership
from ray_snapshot.instrument.process.reports import ProcessReport
from ray_snapshot.names import LONG_S


class Rank(NamedTuple):
    """One process as a rank of a group, as it was last seen there."""

    machine: str
    incarnation: int
    about: Membership
    state: str = ""
    """ "died", "left", "unseen"; "": it is there."""


class RankGroups:
    """Of one watched app."""

    def __init__(self) -> None:
        self.ranks: dict[str, dict[tuple[int, str], Rank]] = {}
        """By group, rank and machine; forgotten with the last that is there."""

    def rows(
        self, reports: Mapping[str, ProcessReport], lives: Mapping[str, Life], keys: Mapping[str, str], now: float
    ) -> tuple[dict[str, Any], ...]:
        """The groups with a rank that has stood in a collective for long. `keys`: machines by their keys in Ray."""
        for machine, one in reports.items():
            for about in one.groups or ():
                of_group = self.ranks.setdefault(about.key, {})
                of_group[about.rank, machine] = Rank(machine, one.report.incarnation, about)
        dead = {machine for key, machine in keys.items() if key in lives and lives[key].is_dead}
        for key, of_group in [*self.ranks.items()]:
            ranks = {at: rank._replace(state=_state(rank, reports, dead)) for at, rank in of_group.items()}
            here = {rank.about.rank for rank in ranks.values() if not rank.state}
            gone = {at for at, rank in ranks.items() if rank.state and (key.startswith(JOINING) or at[0] in here)}
            self.ranks[key] = {at: rank for at, rank in ranks.items() if at not in gone}
            if not here:
                del self.ranks[key]
        return tuple(self._rows(now))

    def _rows(self, now: float) -> Iterator[dict[str, Any]]:
        for ranks in self.ranks.values():
            stands = [rank.about.stand for rank in ranks.values() if not rank.state]
            if all(stand is None or now - stand.since < LONG_S for stand in stands):
                continue
            first = next(iter(ranks.values())).about
            members = [
                {
                    "rank": rank.about.rank,
                    "machine": rank.machine,
                    "state": rank.state,
                    "number": rank.about.number,
                    **({} if rank.state or rank.about.stand is None else rank.about.stand._asdict()),
                }
                for rank in sorted(ranks.values(), key=lambda one: one.about.rank)
            ]
            yield {"group": first.name, "size": first.size, "members": members}


def _state(rank: Rank, reports: Mapping[str, ProcessReport], dead: set[str]) -> str:
    one = reports.get(rank.machine)
    if one is None:
        return "died" if rank.machine in dead else "unseen"
    if one.report.incarnation != rank.incarnation:
        return "died"
    if one.groups is None:
        return "unseen"
    return "" if any(about.key == rank.about.key and about.rank == rank.about.rank for about in one.groups) else "left"
