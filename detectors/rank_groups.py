"""Groups of ranks (torch.distributed) of which some have stood in a collective for long, as the coverage lists them.

`collectives`: `group`, `size` and `members` of each: `rank`, `machine`, `state` ("died", "left" the group, "unseen"; "":
there), `number` (operations begun; -1: not known), and of one in a collective `operation`, `call` (None: another thread's),
`call_site`, `since`, `until` (None: no time-out is known), `among` (the ranks it needs; empty: all), `is_quiet` (its process
computes nothing), `begun` (operations begun, where it waits for one of them that is not the last; else -1).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from ray_snapshot.detectors.common import lasted, plural
from ray_snapshot.detectors.happened import rows, sentence
from ray_snapshot.detectors.places import place_of
from ray_snapshot.detectors.unexplained import seconds_since, unexplained
from ray_snapshot.names import LONG_S, name_ranges
from ray_snapshot.snapshot import Snapshot

_PAIRS = {"send": "recv", "recv": "send"}
_STATES = {"died": "died", "left": "left the group", "unseen": "was not observed"}
_PLURALS = {"is": "are", "runs": "run", "was": "were"}


class Member(NamedTuple):
    """A rank of a group."""

    rank: int
    machine: str
    state: str
    number: int
    operation: str = ""
    """The collective that it is in; "": none."""
    seconds: float = 0.0
    call: str | None = None
    call_site: str = ""
    until: datetime | None = None
    among: tuple[int, ...] = ()
    is_quiet: bool = False
    begun: int = -1
    """How many operations it has begun, where it stands behind one of them; -1: it stands in the last."""

    @property
    def waits(self) -> bool:
        """Whether it has stood there for long."""
        return bool(self.operation) and self.seconds >= LONG_S

    @property
    def is_gone(self) -> bool:
        """Whether it will never do anything in this group again."""
        return self.state in ("died", "left")

    def is_with(self, other: Member) -> bool:
        """Whether both are in one collective, or in the two halves of one."""
        if self.operation in _PAIRS:
            return other.operation == _PAIRS[self.operation] and (not other.among or self.rank in other.among)
        return other.operation == self.operation

    def is_met_by(self, other: Member) -> bool:
        """Whether a rank that waits here has what it needs of another, as torch counts: no proof while that one goes on."""
        done = max(other.number - bool(other.operation), other.begun)
        return self.is_with(other) or (self.operation not in _PAIRS and done >= self.number >= 0)


class Wait(NamedTuple):
    """A rank that has stood in a collective for long."""

    group: str
    member: Member
    strange: int
    """How many ranks of its group are not known, or twice."""
    missing: list[Member]
    """Those of which it may need something yet, as torch counts;"""
    awaited: list[Member]
    """and all that could do anything for it: they are there, and do not stand quietly beside it."""

    @property
    def name(self) -> str:
        """What it waits for, as one of those that take part in the graph of waits."""
        peer = f" of rank {self.member.rank}" if self.member.operation in _PAIRS else ""
        return f"{self.member.operation}{peer} number {self.member.number} of group {self.group}"

    @property
    def is_known(self) -> bool:
        """Whether it can be proven that it never ends: where torch counts nothing it may be one after the other."""
        return self.member.is_quiet and self.member.number >= 0 and bool(self.missing) and not self.strange

    @property
    def is_lost(self) -> bool:
        """Whether all that a rank waits for has died or left, whatever its process does beside."""
        return self.is_known and not self.awaited and all(one.is_gone for one in self.missing)


class Group(NamedTuple):
    """A group, with those of its ranks that are known."""

    name: str
    size: int
    members: tuple[Member, ...]

    def waits(self) -> Iterator[Wait]:
        """Of its ranks. What many wait for is looked for once."""
        known = [one.rank for one in self.members if one.state != "unseen"]
        strange = self.size - len({*known}) + (len(known) - len({*known}))
        needs: dict[Any, tuple[list[Member], list[Member]]] = {}
        for one in self.members:
            key = one.operation, one.number, one.among, one.operation in _PAIRS and one.rank
            if one.waits and key not in needs:
                needed = [it for it in self.members if it is not one and (not one.among or it.rank in one.among)]
                beside = (it for it in needed if not (it.is_gone or (one.is_with(it) and it.waits and it.is_quiet)))
                needs[key] = [it for it in needed if not one.is_met_by(it)], [*beside]
            if one.waits:
                yield Wait(self.name, one, strange, *needs[key])

    def line(self, snapshot: Snapshot) -> str:
        """ "group world: 2 of 3 are in all_reduce number 412 (train.py:99) for 37 s; rank 2 (Rank-2) is in Rank.load
        (data.py:12); rank 3 (Rank-3) died; its time-out ends this at 12:31"."""
        parts = [*self._standing(), *self._elsewhere(snapshot)]
        if missing := self.size - len({one.rank for one in self.members}):
            parts.append(f"{plural(missing, 'rank')} {'was' if missing == 1 else 'were'} not observed")
        until = min((one.until for one in self.members if one.until is not None), default=None)
        if until is not None:
            parts.append(f"ends at the latest by its time-out, at {until.astimezone():%H:%M}")
        return f"group {self.name}: {'; '.join(parts)}"

    def _standing(self) -> Iterator[str]:
        """The largest crowd first."""
        crowds: dict[tuple[str, str], list[Member]] = {}
        for one in self.members:
            if one.operation:
                number = f" number {one.number:,}" if one.number >= 0 else ""
                peer = f" with rank {one.among[0]}" if one.operation in _PAIRS and one.among else ""
                crowds.setdefault((f"{one.operation}{peer}{number}", one.call_site), []).append(one)
        for (what, site), crowd in sorted(crowds.items(), key=lambda one: -len(one[1])):
            who = _named(crowd) if len(crowd) == 1 else f"{len(crowd):,} of {self.size:,}"
            place = f" ({site})" if site else ""
            yield f"{who} {'is' if len(crowd) == 1 else 'are'} in {what}{place} for {lasted(max(one.seconds for one in crowd))}"

    def _elsewhere(self, snapshot: Snapshot) -> Iterator[str]:
        """The smallest crowd first."""
        names = [snapshot.tables["machines"][name].to_pylist() for name in ("machine", "class_name")]
        kinds, primitives = dict(zip(*names, strict=True)), snapshot.coverage.get("primitives") or {}
        places: dict[str, str] = {}
        for row in snapshot.calls:
            places.setdefault(row["machine"], place_of(row, str(kinds.get(row["machine"]) or ""), primitives))
        for wait in unexplained(snapshot):
            places.setdefault(wait.machine, f"{wait.what.removeprefix('in ')} ({wait.call_site})")
        for text in snapshot.coverage.get("uncovered") or ():
            if thread := re.fullmatch(r"thread .* (\(/.*\)) of (\S+)", str(text)):
                places.setdefault(thread[2], f"a thread {thread[1]}")
        errors = {
            one["machine"]: sentence(one, snapshot.started_at) for one in rows(snapshot) if one["kind"] == "raised"
        }
        crowds: dict[str, list[Member]] = {}
        for one in self.members:
            if not one.operation:
                where = places.get(one.machine)
                idle = f"runs no call{f' ({errors[one.machine]})' if one.machine in errors else ''}"
                crowds.setdefault(_STATES.get(one.state) or (f"is in {where}" if where else idle), []).append(one)
        for where, crowd in sorted(crowds.items(), key=lambda one: len(one[1])):
            verb, space, rest = where.partition(" ")
            yield f"{_named(crowd)} {_PLURALS.get(verb, verb) if len(crowd) > 1 else verb}{space}{rest}"


def _named(crowd: Iterable[Member]) -> str:
    """ "rank 2 (Rank-2)"."""
    return f"{name_ranges(f'rank {one.rank}' for one in crowd)} ({name_ranges(one.machine for one in crowd)})"


def groups(snapshot: Snapshot) -> list[Group]:
    """Those of the coverage. What is of another form is left out."""
    rows_of_groups = snapshot.coverage.get("collectives")
    read = []
    for one in rows_of_groups if isinstance(rows_of_groups, list) else []:
        match one:
            case {"group": str(name), "size": int(size), "members": list(members)}:
                ranks = (_member(row, snapshot.started_at) for row in members)
                read.append(Group(name, size, tuple(rank for rank in ranks if rank is not None)))
    return [one for one in read if any(member.waits for member in one.members)]


def _member(row: Any, now: datetime) -> Member | None:
    match row:
        case {"rank": int(rank), "machine": str(machine), "state": str(state), "number": int(number)}:
            pass
        case _:
            return None
    match row:
        case {"operation": str(operation), "since": str(since), "call_site": str(site), "among": list(among)}:
            left_s, call = seconds_since(row.get("until"), now), row.get("call")
            until = None if left_s is None else now - timedelta(seconds=left_s)
            standing = (operation, seconds_since(since, now) or 0.0, call, site, until, tuple(among))
            return Member(
                rank, machine, state, number, *standing, row.get("is_quiet") is True, begun=int(row.get("begun", -1))
            )
    return Member(rank, machine, state, number)
