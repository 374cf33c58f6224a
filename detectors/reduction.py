"""Which nodes can ever move again: reduction of a wait-for graph over integer nodes, and the knots of what is left.

A node has alternatives, any one of which lets it move; an alternative needs k of its edges. So AND, OR and
k-of-n waits mix freely (the "(k, n) model" of Bracha and Toueg 1987, here on a recorded graph instead of a
running one). Nothing in this file knows what a node stands for, a machine or a call. Read `wait_graph`
for how the tables become nodes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ray_snapshot.detectors.common import Booleans, Integers, distinct, in_order

_FEW = 1_000
"""Below so many nodes a level costs numpy more than the plain loop."""

_MANY = 10_000
"""From so many nodes on it is worth while to look for knots among few of them."""

_MUCH_FEWER = 8
"""Few are at most one in so many."""

_PLAIN = 10_000
"""Below so many nodes and edges plain loops take 10 ms at most; to import scipy takes half a second and 20 MB."""

_SHRINKS = 8
"""Steps go on while each leaves out one node in so many."""

_MOST_LEVELS = 100
"""From the nodes that are left after these steps, knots are looked for so many edges away."""


@dataclass(frozen=True, slots=True)
class Graph:
    """Waits: alternative j is one of node `owner[j]` and needs `k[j]` edges e with `alternative[e] == j`."""

    node_count: int
    owner: Integers
    k: Integers
    alternative: Integers
    target: Integers
    satisfied: Booleans
    """Edges whose message or reply is on its way."""


def movable(graph: Graph, seeds: Booleans) -> Booleans:
    """The least set that holds `seeds` and every node with an alternative of whose edges k can be had.

    An edge can be had if it is satisfied or its target is in the set. Each edge is looked at once: O(V + E).
    While many nodes are found at a time, numpy takes a level of them at once; then a plain loop takes one by
    one, so that a chain of a million machines is not a million levels.
    """
    missing, moves = _missing(graph), seeds | free(graph)
    found = np.flatnonzero(moves)
    if not len(found):
        return moves
    starts, waiting = _incoming(graph)
    while len(found) >= _FEW:
        found = _level(graph.owner, missing, moves, _reached(starts, waiting, found))
    return _one_by_one(graph.owner, missing, moves, (starts, waiting), found) if len(found) else moves


def free(graph: Graph) -> Booleans:
    """Nodes with an alternative that is met already."""
    found = np.zeros(graph.node_count, np.bool_)
    found[graph.owner[_missing(graph) <= 0]] = True
    return found


def _missing(graph: Graph) -> Integers:
    """How many edges each alternative still needs."""
    return graph.k - np.bincount(graph.alternative[graph.satisfied], minlength=len(graph.k))


def _incoming(graph: Graph) -> tuple[Integers, Integers]:
    """The unsatisfied alternatives that wait for each node: `waiting[starts[node]:starts[node + 1]]`."""
    target, alternative = graph.target, graph.alternative
    if graph.satisfied.any():
        target, alternative = target[~graph.satisfied], alternative[~graph.satisfied]
    starts = np.concatenate([[0], np.cumsum(np.bincount(target, minlength=graph.node_count))])
    return starts, alternative[in_order(target)]


def _reached(starts: Integers, waiting: Integers, nodes: Integers) -> Integers:
    """The alternatives that wait for any of `nodes`, once for each edge."""
    found: Integers = waiting[_ranges(starts[nodes], starts[nodes + 1] - starts[nodes])]
    return found


def _ranges(begins: Integers, count: Integers) -> Integers:
    """So many numbers from each of `begins` on, one range behind the other."""
    before = np.cumsum(count) - count
    found: Integers = np.repeat(begins - before, count) + np.arange(count.sum())
    return found


def _level(owner: Integers, missing: Integers, moves: Booleans, reached: Integers) -> Integers:
    """Take the reached edges off what is missing; return, and mark in `moves`, the nodes that can move only now."""
    np.subtract.at(missing, reached, 1)
    freed = owner[reached[missing[reached] <= 0]]
    found = distinct(freed[~moves[freed]])
    moves[found] = True
    return found


def _one_by_one(
    owner: Integers, missing: Integers, moves: Booleans, incoming: tuple[Integers, Integers], found: Integers
) -> Booleans:
    """Do what `_level` does until nothing is left, a node at a time (plain lists are faster to index)."""
    todo, left, moving = found.tolist(), missing.tolist(), moves.tolist()
    owners, (begins, alternatives) = owner.tolist(), (part.tolist() for part in incoming)
    while todo:
        node = todo.pop()
        for alternative in alternatives[begins[node] : begins[node + 1]]:
            left[alternative] -= 1
            freed = owners[alternative]
            if left[alternative] <= 0 and not moving[freed]:
                moving[freed] = True
                todo.append(freed)
    return np.array(moving, np.bool_)


@dataclass(frozen=True, slots=True)
class Knots:
    """Strongly connected components: `label` of each node; `core` tells which labels no edge leaves."""

    label: Integers
    core: Booleans

    @property
    def in_core(self) -> Booleans:
        return self.core[self.label]


def knots(node_count: int, source: Integers, target: Integers) -> Knots:
    """The components out of which no edge leads (Holt 1972: such a knot is what a deadlock of OR waits is).
    O(V + E).

    A node without edges is a knot by itself. Of a large graph all nodes outside of knots may have one label.
    """
    near = _near_knots(node_count, source, target) if node_count >= _MANY else None
    if near is None:
        return components(node_count, source, target)
    place = np.full(node_count, -1, np.int64)
    place[near] = np.arange(len(near))
    edges = np.flatnonzero(place[source] >= 0)  # no edge leads from these to others
    found = components(len(near), place[source[edges]], place[target[edges]])
    label = np.full(node_count, len(found.core), np.int64)
    label[near] = found.label
    return Knots(label, np.append(found.core, False))


def components(node_count: int, source: Integers, target: Integers) -> Knots:
    """The strongly connected components, and out of which no edge leads. O(V + E)."""
    if node_count + len(source) < _PLAIN:
        count, label = _strong_by_loops(*_outgoing(node_count, source, target))
    else:
        from scipy.sparse.csgraph import connected_components

        count, label = connected_components(_matrix(node_count, source, target), directed=True, connection="strong")
    core = np.ones(count, np.bool_)
    core[label[source[label[source] != label[target]]]] = False
    return Knots(label.astype(np.int64), core)


def _outgoing(node_count: int, source: Integers, target: Integers) -> tuple[Integers, Integers]:
    """The nodes that each node's edges lead to: `following[starts[node]:starts[node + 1]]`."""
    starts = np.concatenate([[0], np.cumsum(np.bincount(source, minlength=node_count))])
    return starts, target[in_order(source)]


def _strong_by_loops(starts: Integers, following: Integers) -> tuple[int, Integers]:
    """How many strongly connected components there are, and which of them each node is in (Tarjan 1972, without recursion)."""
    begins, others = starts.tolist(), following.tolist()
    count = len(begins) - 1
    looked_at = begins[:-1]
    seen, low, label = [0] * count, [0] * count, [-1] * count
    """When a node was met first, from 1 on; the earliest of its component that it is known to lead to; its component."""
    components, clock, open_ones = 0, 0, []
    for root in range(count):
        path = [] if seen[root] else [root]
        while path:
            node = path[-1]
            if not seen[node]:
                clock += 1
                seen[node] = low[node] = clock
                open_ones.append(node)
            for edge in range(looked_at[node], begins[node + 1]):
                other = others[edge]
                if not seen[other]:
                    looked_at[node] = edge  # and once more when that one is through
                    path.append(other)
                    break
                if label[other] < 0 and low[other] < low[node]:
                    low[node] = low[other]
            else:
                path.pop()
                if low[node] == seen[node]:
                    while label[node] < 0:
                        label[open_ones.pop()] = components
                    components += 1
    return components, np.array(label, np.int64)


def _near_knots(node_count: int, source: Integers, target: Integers) -> Integers | None:
    """Nodes, ascending, that no edge leaves and among which all knots are; None if these are many, or far from each other.

    From every node a step along one of its edges, again and again, leaves ever fewer nodes, and some of each knot. All of it
    can be reached from these.
    """
    onward = np.arange(node_count)
    onward[source] = target
    nodes, before = distinct(onward), node_count
    while _SHRINKS * len(nodes) < (_SHRINKS - 1) * before:
        nodes, before = distinct(onward[nodes]), len(nodes)
    starts, following = _outgoing(node_count, source, target)
    found = np.zeros(node_count, np.bool_)
    count = 0
    for _ in range(_MOST_LEVELS):
        found[nodes] = True
        count += len(nodes)
        if count > node_count // _MUCH_FEWER:
            return None
        reached = _reached(starts, following, nodes)
        nodes = distinct(reached[~found[reached]])
        if not len(nodes):
            return np.flatnonzero(found)
    return None


def shortest_cycle(node_count: int, source: Integers, target: Integers, start: int) -> list[int]:
    """The nodes of a shortest cycle through `start`, along the edges; empty if there is none. O(V + E)."""
    if node_count + len(source) < _PLAIN:
        order, before = _breadth_first_by_loops(*_outgoing(node_count, source, target), start)
    else:
        from scipy.sparse.csgraph import breadth_first_order

        order, before = breadth_first_order(_matrix(node_count, source, target), start, directed=True)
    closes = np.zeros(node_count, np.bool_)
    closes[source[target == start]] = True
    last = order[closes[order]]
    if not len(last):
        return []
    cycle = [int(last[0])]
    while cycle[-1] != start:
        cycle.append(int(before[cycle[-1]]))
    return cycle[::-1]


def _breadth_first_by_loops(starts: Integers, following: Integers, start: int) -> tuple[Integers, Integers]:
    """The nodes that `start` leads to, itself first, in the order in which they are met, and who met each."""
    begins, others = starts.tolist(), following.tolist()
    before = [-1] * (len(begins) - 1)
    before[start], order = start, [start]
    for node in order:
        for other in others[begins[node] : begins[node + 1]]:
            if before[other] < 0:
                before[other] = node
                order.append(other)
    return np.array(order, np.int64), np.array(before, np.int64)


def load_for(machines: int) -> None:
    """Load what a graph of some thousands of machines needs (scipy: hundreds of modules); of fewer, nothing."""
    if machines >= _PLAIN // 5:  # with calls and waits that is a graph for scipy
        import scipy.sparse.csgraph  # noqa: F401


def _matrix(node_count: int, source: Integers, target: Integers):  # type: ignore[no-untyped-def]  # scipy's matrix types are private
    from scipy.sparse import csr_matrix

    starts, following = _outgoing(node_count, source, target)
    return csr_matrix((np.ones(len(source), np.bool_), following, starts), shape=(node_count, node_count))
