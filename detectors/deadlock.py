"""Which machines and calls can never move again, whatever happens: deadlock for waits of all, any, and k of n, in
any mixture.

The least set of those that can move is computed first (`reduction.movable`); what is blocked outside of
it is deadlocked for good, so the predicate is stable. These can move:

- an active machine; a blocked one as soon as an alternative of its wait has enough rows whose message is in
  flight, or whose machine can move; one whose wait has a time-out or for which a timer is pending;
- a passive machine with a message in flight to it, and every passive machine as soon as anything at all can
  move: it waits for any one message, and any machine or call may send it;
- a passive machine with rows of `waits` (its inputs are declared) only by these; it is not stuck by itself, for it has
  begun nothing, but if a stuck machine or call waits for it, it counts as stuck, too;
- never a stopped machine;
- of a machine that runs several calls, each call by itself: one that waits for nothing, or for calls enough of which
  can move, or with a time-out; a call that has not begun, as soon as a slot is free or one of those that hold the
  slots can move (`call_graph`).

A passive machine may hold a part of a join while no senders of the rest are declared (`undeclared` in the coverage). It
moves as soon as anything at all can; where nothing can, it is not known whether it waits for anything: None.

What the snapshot did not observe may act too: it may wake any passive machine, but it cannot answer a wait that names
exact machines. So everything is decided a second time with its help; where the two differ the answer is None. So it
is in place of False while a wait has lasted for long of which it cannot be told what ends it (`unexplained`), calls
wait for one that occupies their event loop (`busy_loops`), a call does not begin (`pending`), an actor is started
again and again (`happened`), or nothing goes on but that some ask and get equal answers (`polls`), and where others
hold the room that something needs on a node (`outside_room`). A machine held at a full mailbox is blocked on the
receiver: the same graph.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ray_snapshot.detectors.breakers import breakers
from ray_snapshot.detectors.busy_loops import busy_loops
from ray_snapshot.detectors.common import (
    Booleans,
    Integers,
    NamedDetector,
    answer,
    distinct,
    one_array,
    plural,
    positions,
    texts,
    unobserved,
    unsound,
)
from ray_snapshot.detectors.explain import About, callers_of, cycle_text, records, subject_text
from ray_snapshot.detectors.happened import happened, polls, restart_loops
from ray_snapshot.detectors.outside_room import advice as how_to_free
from ray_snapshot.detectors.outside_room import missing_room, with_outside_room_taken
from ray_snapshot.detectors.pending import unbegun
from ray_snapshot.detectors.polls import OnlyAsking, with_polls_as_waits
from ray_snapshot.detectors.reduction import Graph, knots, load_for, movable, shortest_cycle
from ray_snapshot.detectors.remedies import advice, lost_callers, with_holders
from ray_snapshot.detectors.room_words import Lack
from ray_snapshot.detectors.rooms import ALONE, Help, State
from ray_snapshot.detectors.unexplained import Undecided, remedies, unexplained
from ray_snapshot.detectors.wait_graph import WaitGraph, wait_graph
from ray_snapshot.limits import LIMITS
from ray_snapshot.names import CALLS, DRIVER, listed
from ray_snapshot.snapshot import Snapshot
from ray_snapshot.verdicts import SUSPECTED, Verdict

_REMEDY = "declare who sends to each port by system.connect(source, target, port=...)"


class Deadlock(NamedDetector):
    """True iff some blocked machine or waiting call can never move again.

    Evidence: `members` (the core: all in a knot, a set out of which no wait leads; `is_cause` of those that keep all others),
    `callers` (why nobody can end the waits of the cause, a sentence for each actor), `stuck_behind` (those that only wait
    for members), `cores` (the names of each independent core), `cycle` (a shortest one, in waiting order; empty if the core
    waits for stopped machines, or for passive ones that no machine is left to wake), `advice` (what a person can change, a
    sentence each), `happened` (deaths, restarts and errors that nobody has read, before it, a sentence each; if there are
    any), `member_count`, `cause_count`, `stuck_behind_count`, `core_count`; lists stop at 1,000 records and 100 cores. Where
    machines run calls there is a record for each call. If None: the same for what would be stuck if nothing unobserved acts,
    and `depends_on`. Callers that only ask may be `suspected` (the verdict's `grade`), `unless` something is so that no
    snapshot shows.

    Cost: O(V + E) of machines, calls, rows of waits and messages, and a sort of the rows. Source: reduction after
    Bracha and Toueg 1987, knots after Holt 1972, on a consistent cut (Chandy and Lamport 1985).
    """

    type = "deadlock"
    stable = True

    def warm_up_for(self, machines: int) -> None:
        """Load what only a deadlock among so many machines needs before there is one."""
        load_for(machines)

    def warm_up(self) -> None:
        """Load what any deadlock needs before there is one, by deciding a made-up one of two machines."""
        rows = [{"machine": name, "status": "blocked", "waits_for": [on]} for name, on in ("ab", "ba")]
        self.evaluate(Snapshot.from_rows(machines=[{**row, "wait_mode": "all"} for row in rows]))

    def evaluate(self, snapshot: Snapshot) -> Verdict:
        """Decide by reduction of the wait-for graph."""
        verdict = self._decided(snapshot)
        told = happened(snapshot, is_clear=verdict.holds is False)
        return verdict.model_copy(update={"evidence": {**verdict.evidence, "happened": told}}) if told else verdict

    def _decided(self, snapshot: Snapshot) -> Verdict:
        """None in place of False as long as something lasts of which it cannot be told what ends it."""
        verdict = self._without_others(snapshot)
        waits: list[Undecided] = []
        if verdict.holds is False:
            waits += [*unexplained(snapshot), *busy_loops(snapshot), *unbegun(snapshot)]
        if not verdict.holds:
            waits += (loop for loop in restart_loops(snapshot) if loop.is_awaited)
        asking = self._only_asking(snapshot) if verdict.holds is False else None
        waits += asking.told if asking else ()
        if not waits:
            return verdict
        old = verdict.evidence
        depends_on = dict.fromkeys([*old.get("depends_on", ()), *(one.depends_on for one in waits)])
        advised = dict.fromkeys([*old.get("advice", ()), *remedies(waits)])
        evidence = {**old, "depends_on": list(depends_on), "advice": list(advised)}
        if asking and asking.unless and len(asking.told) == len(waits):
            text = f"Deadlock suspected: {listed(waits)}. {asking.nothing_else}, unless {asking.unless}."
            suspicion = answer(self, snapshot, None, evidence, text)
            return suspicion.model_copy(update={"grade": SUSPECTED, "unless": asking.unless})
        more = f" {asking.nothing_else}." if asking else ""
        return answer(self, snapshot, None, evidence, f"Deadlock cannot be told: {listed(waits)}.{more}")

    def _only_asking(self, snapshot: Snapshot) -> OnlyAsking | None:
        """The callers that only ask and get equal answers, if nothing but asking goes on."""
        asking = [one for one in polls(snapshot) if not (one.may_end or one.thread)]
        if not asking or (as_waits := self._reduced(with_polls_as_waits(snapshot, asking))).holds is False:
            return None
        return OnlyAsking(asking, as_waits, snapshot.tables["channels"])

    def _without_others(self, snapshot: Snapshot) -> Verdict:
        """None in place of False if anything would be stuck as long as others keep the room that they hold on nodes."""
        verdict = self._reduced(snapshot)
        if verdict.holds is not False or (as_if_taken := with_outside_room_taken(snapshot)) is None:
            return verdict
        other = self._reduced(as_if_taken)
        if other.holds is False:
            return verdict
        needs = missing_room(other.evidence)
        evidence = {**verdict.evidence, "depends_on": needs, "advice": how_to_free(snapshot, needs)}
        text = f"Deadlock cannot be told: {listed(needs)}: these are not watched, and may give it back or not."
        return answer(self, snapshot, None, evidence, text)

    def _reduced(self, snapshot: Snapshot) -> Verdict:
        reason = unsound(snapshot)
        if reason:
            return answer(self, snapshot, None, {}, f"Deadlock cannot be told: {reason}.")
        rows = snapshot.tables["waits"].num_rows
        told = snapshot.coverage.get("undeclared") or snapshot.coverage.get("resources")
        if not (rows or told or snapshot.statuses.are("blocked").any()):
            return answer(self, snapshot, False, _nothing_blocked(), f"No deadlock: {_nobody_waits(snapshot)}.")
        snapshot = _concerned(snapshot)
        waits = wait_graph(snapshot)
        moves = _can_move(waits, waits.seeds)
        if not _is_anybody_stuck(waits, moves):
            return answer(self, snapshot, False, _Stuck.nobody().evidence(snapshot, waits), _all_clear(snapshot, waits))
        certain, doubts = moves, _doubts(waits, moves)
        if waits.unseen or waits.undeclared.any() or doubts:
            help = Help(is_unseen=bool(waits.unseen or waits.undeclared.any()), is_doubted=True)
            certain = _can_move(waits, waits.seeds | waits.outside, help)
            waits = replace(waits, unseen=waits.unseen + doubts)
        if not _is_anybody_stuck(waits, certain):
            waits = _with_rooms(waits, moves)
            stuck = _stuck(waits, moves)
            depends_on = waits.unseen + _half_begun(snapshot, waits)
            evidence = {**stuck.evidence(snapshot, waits), "callers": [], "depends_on": depends_on}
            return answer(self, snapshot, None, evidence, _unknown(snapshot, waits, stuck))
        waits = _with_rooms(waits, certain)
        stuck = _stuck(waits, certain)
        evidence = stuck.evidence(snapshot, waits)
        evidence |= breakers(snapshot, waits, certain, (*evidence["members"], *evidence["stuck_behind"]))
        return answer(self, snapshot, True, evidence, f"Deadlock: {_story(snapshot, evidence, waits, stuck)}.")


def _concerned(snapshot: Snapshot) -> Snapshot:
    """The snapshot with rows of those at rest only that somebody waits for, or sends to: of no others is anything asked.

    But for those that the coverage names: machines whose inputs nobody has declared, and whoever holds resources.
    """
    here, absent = snapshot.parted
    if absent is None or snapshot.coverage.get("resources"):
        return snapshot
    named = [snapshot.tables[table][column] for table, columns in _NAMING.items() for column in columns]
    named += [pc.list_flatten(here["waits_for"]), pa.array(snapshot.coverage.get("undeclared") or (), pa.string())]
    names = pa.chunked_array([texts(column) for column in named], pa.string()).unique().drop_null()
    machines = snapshot.rows_of(names.to_pylist())
    others = here.filter(pa.array(positions(texts(here["machine"]), texts(machines["machine"])) < 0))
    machines = pa.concat_tables([others, machines]).sort_by("machine")
    return snapshot.with_machines(machines)


_NAMING = {"waits": ("machine", "on_machine"), "calls": ("machine", "caller"), "messages": ("source", "target")}


def _can_move(waits: WaitGraph, seeds: Booleans, help: Help = ALONE) -> Booleans:
    """All nodes that can move if `seeds` do; `help`: what else may act.

    As soon as anything can move at all, it may send to any passive machine: so these can move, too. And what can move frees
    what it holds of a node, which may be room enough for more.
    """
    while True:
        anything = help.is_unseen or waits.acts(seeds)
        moves = movable(waits.graph, seeds | waits.passive if anything else seeds)
        opened = waits.rooms.opened(moves, help)
        if moves[opened].all():
            return moves
        seeds = seeds.copy()
        seeds[opened] = True


def _is_anybody_stuck(waits: WaitGraph, moves: Booleans) -> bool:
    """Whether more is stuck than calls that wait for room on a node, directly or by their arguments.

    Such a call alone is no deadlock, though it may wait for ever: who has made it still acts, and may give it up.
    """
    stuck = waits.blocked & ~moves
    queued = slice(waits.first_call + waits.calls.running_count, waits.first_call + waits.calls.call_count)
    begun = stuck.copy()
    begun[queued] = False
    if begun.any() or not stuck.any():
        return bool(stuck.any())
    seeds = moves.copy()
    seeds[waits.rooms.nodes] = True
    return bool((waits.blocked & ~movable(waits.graph, seeds)).any())


def _doubts(waits: WaitGraph, moves: Booleans) -> list[str]:
    """Why what waits for room may get it all the same."""
    if moves[waits.rooms.nodes].all():
        return []
    return [*waits.rooms.told.unsure, *waits.rooms.doubtful(moves)]


def _with_rooms(waits: WaitGraph, moves: Booleans) -> WaitGraph:
    """`waits` with an edge from each room that there will never be to those who keep it, or else to those who need it."""
    closed = waits.rooms.nodes[~moves[waits.rooms.nodes]]
    if not len(closed):
        return waits
    needed = np.flatnonzero(waits.calls.also >= waits.calls.first_room) + waits.first_call
    needed = needed[~moves[needed]]
    state = State(waits.rooms, moves)
    lacks = {
        room: Lack(state, state.told.demands[room - waits.first_room])
        for room in closed[: LIMITS.told_members].tolist()
    }
    owner, target = list[Integers](), list[Integers]()
    for room in closed.tolist():
        on = lacks[room].keepers() if room in lacks else np.zeros(0, np.int64)
        if not (waits.blocked | waits.inner)[on].any():
            mine = needed[waits.calls.also[needed - waits.first_call] == room - waits.first_call]
            on = np.concatenate([on, mine])
        owner.append(np.full(len(on), room))
        target.append(on)
    graph, more = waits.graph, np.concatenate(target)
    rooms, size = np.unique(np.concatenate(owner), return_counts=True)
    return replace(
        waits,
        lacks=lacks,
        graph=replace(
            graph,
            owner=np.concatenate([graph.owner, rooms]),
            k=np.concatenate([graph.k, size]),
            alternative=np.concatenate([graph.alternative, np.repeat(len(graph.owner) + np.arange(len(rooms)), size)]),
            target=np.concatenate([graph.target, more]),
            satisfied=np.concatenate([graph.satisfied, np.zeros(len(more), np.bool_)]),
        ),
    )


@dataclass(frozen=True, slots=True)
class _Stuck:
    """The blocked machines and calls that cannot move, as nodes in the order of the snapshot."""

    members: Integers
    behind: Integers
    cores: list[Integers]
    core_count: int
    cycle: list[int]
    """Nodes in waiting order, also those that only pass on what others do (`WaitGraph.inner`)."""
    stuck: Integers
    """All nodes that cannot move: members, those behind them, and those of `WaitGraph.inner`."""
    cause: Integers
    """Of the members those that keep all others of their cores."""

    @classmethod
    def nobody(cls) -> _Stuck:
        none = np.zeros(0, np.int64)
        return cls(none, none, [], 0, [], none, none)

    def evidence(self, snapshot: Snapshot, waits: WaitGraph) -> dict[str, Any]:
        names, members = waits.names, _listed(waits.names, self.members)
        cause = members
        if len(self.cause) < len(self.members):
            cause = _listed(names, self.cause)
            members = np.union1d(members, cause)
            cause = with_holders(snapshot, waits, cause, members)
        return {
            "members": records(snapshot, waits, members, cause if len(cause) < len(members) else ()),
            "stuck_behind": records(snapshot, waits, _listed(names, self.behind)),
            "cores": [_distinct_names(names, _listed(names, core)) for core in self.cores],
            "cycle": _round(names.take(self._round(waits)[: LIMITS.told_members]).to_pylist()),
            "callers": lost_callers(snapshot, waits, cause),
            "advice": advice(snapshot, waits, _listed(names, self.members), self.stuck, cause),
            "member_count": len(self.members),
            "cause_count": max(len(self.cause), len(cause)),
            "stuck_behind_count": len(self.behind),
            "core_count": self.core_count,
            "blocked_count": int(waits.blocked.sum()),
        }

    def _round(self, waits: WaitGraph) -> Integers:
        """The machines and calls that wait, along the cycle."""
        cycle = np.array(self.cycle, np.int64)
        return cycle[(waits.blocked | waits.resting)[cycle]]


def _listed(names: Any, nodes: Integers) -> Integers:
    """The first of them, but one of each machine before a second one: of a thousand calls of one the last says nothing new."""
    if len(nodes) <= LIMITS.told_members:
        return nodes
    machine = one_array(names.take(nodes)).dictionary_encode().indices.to_numpy()
    is_first = np.zeros(len(nodes), np.bool_)
    is_first[np.unique(machine, return_index=True)[1]] = True
    kept = np.concatenate([np.flatnonzero(is_first), np.flatnonzero(~is_first)])[: LIMITS.told_members]
    found: Integers = nodes[np.sort(kept)]
    return found


def _distinct_names(names: Any, nodes: Integers) -> list[str]:
    return list(dict.fromkeys(names.take(nodes).to_pylist()))


def _round(names: list[str]) -> list[str]:
    """`names` without those that follow themselves: one call of a machine that waits for another one."""
    return [name for name, after in zip(names, names[1:] + names[:1], strict=True) if name != after] or names[:1]


def _stuck(waits: WaitGraph, moves: Booleans) -> _Stuck:
    """Split the blocked machines and calls that cannot move into the cores and those that only wait for them."""
    blocked = waits.blocked | _resting_between(waits, moves)
    nodes = np.flatnonzero((blocked | waits.inner) & ~moves)
    local = np.full(len(waits.names), -1, np.int64)
    local[nodes] = np.arange(len(nodes))
    source, target = local[waits.graph.owner][waits.graph.alternative], local[waits.graph.target]
    waiting = (source >= 0) & ~waits.graph.satisfied
    idle = _asleep(waits, moves, waiting)
    from_idle = source[idle]
    among = waiting & (target >= 0)
    if not among.all():
        source, target = source[among], target[among]
    found = knots(len(nodes), source, target)
    asleep = distinct(found.label[from_idle])
    label = _joined(found.label, asleep[found.core[asleep]])
    members = np.flatnonzero(found.in_core & blocked[nodes])
    groups = _split(members, label[members])
    is_own = _is_own_machine(waits, nodes[source], nodes[target])
    cause = _root_cause(waits, moves, nodes, members, (source, target, is_own)) if is_own.any() else members
    inside = found.in_core[source]  # and so is the target: no edge leads out of a core
    source, target, is_own = source[inside], target[inside], is_own[inside]
    starts = _split(cause, label[cause])
    cycle = _cycle(starts, found.in_core, source[~is_own], target[~is_own])
    if not len(cycle):
        cycle = _cycle(starts, found.in_core, source, target)
    return _Stuck(
        members=nodes[members],
        behind=nodes[np.flatnonzero(~found.in_core & blocked[nodes])],
        cores=[nodes[group] for group in groups[: LIMITS.told_cores]],
        core_count=len(groups),
        cycle=nodes[cycle].tolist(),
        stuck=nodes,
        cause=nodes[cause],
    )


def _root_cause(
    waits: WaitGraph, moves: Booleans, nodes: Integers, members: Integers, edges: tuple[Integers, Integers, Booleans]
) -> Integers:
    """Of `members` calls that wait inside their own actors, those first for which most others wait, until all others could move
    if these did; and those that could not move even then. Who might make such a call is only stuck behind it.

    `edges`: source, target and whether it leads from a call to its own actor.
    """
    source, target, is_own = edges
    is_call = nodes[target] >= waits.first_call
    is_waiting = is_call & (waits.blocked[nodes[source]] | (nodes[source] >= waits.first_call))
    waiting = np.bincount(target[is_waiting], minlength=len(nodes))
    in_core = is_own & np.isin(source, members)
    parked, machine = source[in_core], target[in_core]
    by_machine = np.bincount(machine, waiting[parked], minlength=len(nodes))[machine]
    by_machine[np.isin(parked, source[is_call])] = -1  # replies may end these, too
    graph, most = waits.graph, np.zeros(waits.graph.node_count, np.int64)
    np.maximum.at(most, graph.owner, graph.k)
    k = np.where(graph.k < most[graph.owner], len(graph.target) + 1, graph.k)  # no error ends a wait
    whole = replace(graph, k=k)
    chosen, freed = np.zeros(len(nodes), np.bool_), moves.copy()
    for count in np.unique(by_machine)[::-1][: LIMITS.listed]:
        first = parked[(by_machine == count) & ~freed[nodes[parked]]]
        chosen[first] = freed[nodes[first]] = True
        freed = movable(whole, freed)
    return members[chosen[members] | ~freed[nodes[members]]]


def _asleep(waits: WaitGraph, moves: Booleans, waiting: Booleans) -> Integers:
    """Of the edges of `waiting` those to passive machines that cannot move."""
    asleep = waits.passive & ~moves
    return np.flatnonzero(waiting & asleep[waits.graph.target]) if asleep.any() else np.zeros(0, np.int64)


def _resting_between(waits: WaitGraph, moves: Booleans) -> Booleans:
    """Machines at rest that a stuck machine or call waits for, directly or through other machines at rest."""
    if not (waits.resting & ~moves).any():
        return waits.resting & ~moves
    source, target = waits.graph.owner[waits.graph.alternative], waits.graph.target
    edges = np.flatnonzero(~waits.graph.satisfied & ~moves[source] & ~moves[target])
    count = np.arange(len(edges))
    back = Graph(
        waits.graph.node_count,
        owner=target[edges],
        k=np.ones_like(count),
        alternative=count,
        target=source[edges],
        satisfied=np.zeros(len(edges), np.bool_),
    )
    reached: Booleans = waits.resting & movable(back, waits.blocked & ~moves)
    return reached


def _is_own_machine(waits: WaitGraph, source: Integers, target: Integers) -> Booleans:
    """True for edges from a call to its own machine (it waits for any later call there): a cycle over such an edge tells
    a person nothing."""
    machine = np.full(len(waits.names), -1, np.int64)
    machine[waits.first_call :] = waits.calls.machine
    found: Booleans = machine[source] == target
    return found


def _joined(label: Integers, same: Integers) -> Integers:
    """Make one core of those cores that wait for passive machines: if one is freed, it might wake what the others wait
    for."""
    return np.where(np.isin(label, same), same[0], label) if len(same) else label


def _split(members: Integers, label: Integers) -> list[Integers]:
    """The members of each core, cores in the order of their first member."""
    _, first, core = np.unique(label, return_index=True, return_inverse=True)
    rank = np.argsort(np.argsort(first))[core]
    order = np.argsort(rank, kind="stable")
    return list(np.split(members[order], np.cumsum(np.bincount(rank))[:-1]))


def _cycle(groups: list[Integers], in_core: Booleans, source: Integers, target: Integers) -> Integers:
    """A shortest cycle in the first core that has one, through its first member on one; else empty. All edges are in cores."""
    core = np.flatnonzero(in_core)
    source, target = np.searchsorted(core, source), np.searchsorted(core, target)
    has_edge = np.zeros(len(core), np.bool_)
    has_edge[source] = True
    for group in groups:
        places = np.searchsorted(core, group)
        starts = places[has_edge[places]]
        if len(starts):
            return core[np.array(shortest_cycle(len(core), source, target, int(starts[0])), np.int64)]
    return np.zeros(0, np.int64)


def _nothing_blocked() -> dict[str, Any]:
    counts = ("member_count", "cause_count", "stuck_behind_count", "core_count", "blocked_count")
    lists = ("members", "stuck_behind", "cores", "cycle", "callers", "advice")
    return {**{name: [] for name in lists}, **dict.fromkeys(counts, 0)}


def _all_clear(snapshot: Snapshot, waits: WaitGraph) -> str:
    blocked = np.flatnonzero(waits.blocked & ~waits.undeclared)
    what = (
        f"{_counted(waits, blocked)} blocked, and what {'it' if len(blocked) == 1 else 'each'} waits for can still come"
    )
    still = what if len(blocked) else _nobody_waits(snapshot)
    return f"No deadlock: {still}{_may_still_come(waits)}."


def _nobody_waits(snapshot: Snapshot) -> str:
    return "no running call waits" if snapshot.protocol == CALLS else "no machine is blocked"


def _may_still_come(waits: WaitGraph) -> str:
    """The part of the sentence about half a join, while a machine that can act may still send the rest."""
    half = np.flatnonzero(waits.undeclared)
    if not len(half):
        return ""
    acting = np.flatnonzero(waits.seeds)
    who = listed(_distinct_names(waits.names, acting[: LIMITS.told_members])) or "a machine"
    return f"; {_holders(waits, half)}, and {who} can act and may still send it ({_REMEDY})"


def _holders(waits: WaitGraph, half: Integers) -> str:
    """ "a, b hold a part of a join and lack the rest"."""
    words = ("holds", "lacks") if len(half) == 1 else ("hold", "lack")
    who = listed(waits.names.take(half[: LIMITS.named_members]).to_pylist(), len(half), most=LIMITS.named_members)
    return f"{who} {words[0]} a part of a join and {words[1]} the rest"


def _half_begun(snapshot: Snapshot, waits: WaitGraph) -> list[str]:
    names = waits.names.take(np.flatnonzero(waits.undeclared)[: LIMITS.listed]).to_pylist()
    return [f"who sends to {name}, which has begun {snapshot.coverage['undeclared'][name]}" for name in names]


def _counted(waits: WaitGraph, nodes: Integers) -> str:
    """ "2 machines", "3 calls", "the program and 3 calls"."""
    calls = int((nodes >= waits.first_call).sum())
    machines = len(nodes) - calls
    is_program = machines == 1 and waits.calls.call_count and waits.names[int(nodes.min())].as_py() == DRIVER
    parts = ["the program" if is_program else plural(machines, "machine")] * bool(machines or not calls)
    parts += [plural(calls, "call")] * bool(calls)
    return " and ".join(parts)


def _unknown(snapshot: Snapshot, waits: WaitGraph, stuck: _Stuck) -> str:
    nodes = np.concatenate([stuck.members, stuck.behind])
    half, others = nodes[waits.undeclared[nodes]], nodes[~waits.undeclared[nodes]]
    parts = []
    if len(half):
        what = snapshot.coverage["undeclared"][waits.names[half[0]].as_py()]
        parts.append(f"{_holders(waits, half)} (the first has begun {what}), and it is not known from whom: {_REMEDY}")
    if len(others):
        every = unobserved([*waits.unseen, *(["what these will do"] if len(half) else [])])
        by = [text for text in every if " waits for" not in text] or every
        who = _parked(snapshot, waits, stuck) or listed(waits.names.take(others[:3]).to_pylist(), len(others))
        parts.append(f"{who} can move only by what was not observed: {listed(by)}")
    return f"Deadlock cannot be told: {'; '.join(parts)}."


def _parked(snapshot: Snapshot, waits: WaitGraph, stuck: _Stuck) -> str:
    """Where the calls wait that keep all others, and how many are behind them; "" if not all of them wait to be woken."""
    about = About(snapshot, waits, _listed(waits.names, stuck.cause))
    parked = [node for node in about.alternatives if callers_of(about, node)]
    if not parked or len(parked) < len(stuck.cause):
        return ""
    places = Counter(subject_text(about.nodes[node]) for node in parked)
    where = [
        f"{place} waits to be woken" + f" ({count:,} calls)" * (count > 1) for place, count in places.most_common()
    ]
    behind = len(stuck.members) + len(stuck.behind) - places.total()
    return listed(where) + f"; {behind:,} more wait behind that" * (behind > 0) + "; they"


def _story(snapshot: Snapshot, evidence: dict[str, Any], waits: WaitGraph, stuck: _Stuck) -> str:
    """The cycle, or what the first member waits for; then how many are stuck."""
    parts = [cycle_text(snapshot, waits, stuck.cycle, stuck.members[:1])]
    behind = len(stuck.behind)
    cores = f", in {stuck.core_count:,} independent cores" if stuck.core_count > 1 else ""
    parts.append(f"{_counted(waits, stuck.members)} can never move again{cores}{_who_else(evidence, waits, stuck)}")
    if behind:
        names = [record["machine"] for record in evidence["stuck_behind"]]
        verb = "is" if behind == 1 else "are"
        core = "it" if len(stuck.members) == 1 else "them"
        parts.append(f"{behind:,} more {verb} stuck behind {core} ({listed(names, behind)})")
    if waits.lacks:
        parts.append("this holds as long as no node joins, and nobody outside gives anything back")
    return "; ".join(parts)


def _who_else(evidence: dict[str, Any], waits: WaitGraph, stuck: _Stuck) -> str:
    """The members by name, if the cycle does not name them all."""
    told = set(evidence["cycle"][: LIMITS.cycle_hops] or [evidence["members"][0]["machine"]])
    names = _distinct_names(waits.names, _listed(waits.names, stuck.members))
    return "" if told.issuperset(names) else f" ({listed(names, most=LIMITS.named_members)})"
