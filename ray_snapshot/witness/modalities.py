"""Could it have been, and must it have been? Two questions about all moments at which a run could have been looked at.

A run orders what happens on each machine, and a message's acceptance behind its sending; the rest happened side by side, and
clocks say nothing about it. So a run has many consistent cuts, of which it passed one after the other along some path.
`possibly`: on some cut the predicate holds. `definitely`: whatever path the run took, it passed a cut on which it holds
(Cooper and Marzullo 1991). A predicate that asks each machine by itself is decided in polynomial time, without going through
the cuts (Garg and Waldecker 1994, 1996); any other one by going through them, within a bound.

Pure: over numbers of actions and who knows of which. Read `cuts_of` for how a trace becomes these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

Cut = tuple[int, ...]
"""By machine, in their order: how many of its actions have happened."""


@dataclass(frozen=True, slots=True)
class Causes:
    """What happened before what."""

    machines: tuple[str, ...]
    known: tuple[tuple[Cut, ...], ...]
    """By machine, by how many of its actions have happened: how many of each machine's must have happened then, its own too."""

    @property
    def last(self) -> Cut:
        """All of the run."""
        return tuple(len(one) - 1 for one in self.known)

    def is_consistent(self, cut: Cut) -> bool:
        """Whether all that anybody in the cut has accepted was sent in it."""
        return all(
            needed <= there
            for at, count in enumerate(cut)
            for needed, there in zip(self.known[at][count], cut, strict=True)
        )

    def after(self, cut: Cut) -> Iterable[Cut]:
        """The consistent cuts that are one action further."""
        for at, count in enumerate(cut):
            if count < len(self.known[at]) - 1:
                further = (*cut[:at], count + 1, *cut[at + 1 :])
                if all(needed <= there for needed, there in zip(self.known[at][count + 1], further, strict=True)):
                    yield further

    def least(self, wanted: Mapping[int, int]) -> Cut:
        """The least cut in which these machines, by their place, have done so many actions; they must fit together."""
        found = [0] * len(self.machines)
        for at, count in wanted.items():
            found = [max(one, other) for one, other in zip(found, self.known[at][count], strict=True)]
        return tuple(found)


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found out."""

    holds: bool | None
    """None: not within the bound."""
    cut: Cut | None = None
    """Of `possibly`: the first cut on which it holds. Of `definitely`: one that must be passed, where each machine was asked by
    itself."""
    path: tuple[Cut, ...] = ()
    """Where `definitely` does not hold, and cuts were gone through: a path of the run on which it never holds."""
    cuts: int = 0
    """How many cuts were looked at."""


def cuts_of(actions: Iterable[tuple[str, Sequence[tuple[str, int]]]]) -> Causes:
    """Causes of a run: each action as (machine, the actions whose messages it accepts, as (machine, number)), in an order in
    which they could have happened; numbers count from 1 in their machine."""
    listed = [(machine, tuple(behind)) for machine, behind in actions]
    machines = tuple(dict.fromkeys(machine for machine, _ in listed))
    place = {name: at for at, name in enumerate(machines)}
    known: list[list[Cut]] = [[(0,) * len(machines)] for _ in machines]
    for machine, behind in listed:
        at = place[machine]
        now = list(known[at][-1])
        for other, number in behind:
            now = [max(one, more) for one, more in zip(now, known[place[other]][number], strict=True)]
        now[at] = len(known[at])
        known[at].append(tuple(now))
    return Causes(machines, tuple(tuple(one) for one in known))


# ---- each machine by itself ------------------------------------------------------------------------------------------


def possibly_each(causes: Causes, true: Mapping[str, Sequence[bool]]) -> Answer:
    """Whether on some cut all of these machines are at a moment that is true; `true`: by machine, by how many of its actions
    have happened. O(n^2 m) for n machines of m actions."""
    place = {name: causes.machines.index(name) for name in true}
    now = {at: _next(true[name], 0) for name, at in place.items()}
    names = {at: name for name, at in place.items()}
    waiting = set(now)
    while waiting:
        at = waiting.pop()
        if (count := now[at]) is None:
            return Answer(False)
        needed = causes.known[at][count]
        for other, there in now.items():
            if there is None:
                return Answer(False)
            behind = causes.known[other][there][at] > count
            if behind:  # the other knows of more than this machine has done here: this moment is over
                now[at] = _next(true[names[at]], count + 1)
                waiting.add(at)
                break
            if needed[other] > there:
                now[other] = _next(true[names[other]], there + 1)
                waiting.update((at, other))
                break
    wanted = {at: count for at, count in now.items() if count is not None}
    return Answer(True, causes.least(wanted))


def _next(true: Sequence[bool], first: int) -> int | None:
    return next((count for count in range(first, len(true)) if true[count]), None)


def definitely_each(causes: Causes, true: Mapping[str, Sequence[bool]]) -> Answer:
    """Whether the run must have passed a cut on which all of these machines are at a moment that is true.

    It must if there is an interval of true moments for each machine such that each begins before any of the others ends.
    """
    place = {name: causes.machines.index(name) for name in true}
    intervals = {at: _intervals(true[name]) for name, at in place.items()}
    first = dict.fromkeys(intervals, 0)
    waiting = set(intervals)
    while waiting:
        at = waiting.pop()
        if first[at] >= len(intervals[at]):
            return Answer(False)
        for other, of_other in intervals.items():
            if first[other] >= len(of_other):
                return Answer(False)
            mine, its = intervals[at][first[at]], of_other[first[other]]
            if not _begins_before(causes, at, mine[0], other, its[1]):
                first[other] += 1
                waiting.update((at, other))
                break
            if not _begins_before(causes, other, its[0], at, mine[1]):
                first[at] += 1
                waiting.update((at, other))
                break
    return Answer(True, causes.least({at: intervals[at][first[at]][0] for at in intervals}))


def _intervals(true: Sequence[bool]) -> list[tuple[int, int]]:
    """(first, last) of each run of true moments."""
    found: list[tuple[int, int]] = []
    for count, is_true in enumerate(true):
        if not is_true:
            continue
        if found and found[-1][1] == count - 1:
            found[-1] = found[-1][0], count
        else:
            found.append((count, count))
    return found


def _begins_before(causes: Causes, at: int, first: int, other: int, last: int) -> bool:
    """Whether on every path a machine has come to moment `first` before another leaves its moment `last`."""
    if first == 0 or last == len(causes.known[other]) - 1 or (at == other and first <= last):
        return True
    return causes.known[other][last + 1][at] >= first


# ---- any predicate -----------------------------------------------------------------------------------------------------


def possibly(causes: Causes, holds: Callable[[Cut], bool], most_cuts: int) -> Answer:
    """Whether a predicate holds on some cut; looks at each once, those of few actions first."""
    level, looked = [(0,) * len(causes.machines)], 0
    while level:
        for cut in level:
            looked += 1
            if looked > most_cuts:
                return Answer(None, cuts=looked - 1)
            if holds(cut):
                return Answer(True, cut, cuts=looked)
        level = [*dict.fromkeys(further for cut in level for further in causes.after(cut))]
    return Answer(False, cuts=looked)


def definitely(causes: Causes, holds: Callable[[Cut], bool], most_cuts: int) -> Answer:
    """Whether every path passes a cut on which a predicate holds: whether none leads to the end beside all of these."""
    start, looked = (0,) * len(causes.machines), 0
    before: dict[Cut, Cut | None] = {start: None}
    level = [start]
    while level:
        further: dict[Cut, Cut] = {}
        for cut in level:
            looked += 1
            if looked > most_cuts:
                return Answer(None, cuts=looked - 1)
            if holds(cut):
                continue
            if cut == causes.last:
                return Answer(False, path=_path(before, cut), cuts=looked)
            for one in causes.after(cut):
                further.setdefault(one, cut)
        before.update(further)
        level = [*further]
    return Answer(True, cuts=looked)


def _path(before: Mapping[Cut, Cut | None], cut: Cut) -> tuple[Cut, ...]:
    found: list[Cut] = []
    here: Cut | None = cut
    while here is not None:
        found.append(here)
        here = before[here]
    return tuple(reversed(found))
