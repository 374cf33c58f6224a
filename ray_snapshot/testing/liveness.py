"""Does it happen on every run? Ends without it, and cycles without it on which every machine gets its turn.

A run is *fair* (weakly) if no task that is enabled from some moment on for ever is left undone for ever: the head of a channel
that could be accepted, a timer, a reply, a construction. A set of states strongly connected without the goal is a
counterexample if each task is undone in some state of it, or done on some edge of it (a component is fair as a whole or no
part of it is). The counterexample is a lasso: a way into the component, and a way around in it that does so. Chance may
come out badly again and again. Never imports Ray.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components


class Edges:
    """The edges of a space, in the order of the states that they lead out of."""

    def __init__(self) -> None:
        self.begins = array("q", [0])
        """By state: the first of its edges; the next state's is their end."""
        self.targets = array("q")
        self.tasks = array("l")
        self.steps = array("l")
        self.ends = bytearray()
        self._task_ids: dict[Any, int] = {None: 0}
        self._step_ids: dict[Any, int] = {}
        self.known: list[Any] = []
        """(step, births) by number."""

    def add(self, target: int, task: Any, move: Any) -> None:
        """An edge out of the state that is being expanded; a task of None needs no fairness."""
        key = move.step, tuple(step for step, _ in move.births)
        number = self._step_ids.get(key)
        if number is None:
            number = self._step_ids[key] = len(self.known)
            self.known.append(key)
        self.targets.append(target)
        self.tasks.append(self._task_ids.setdefault(task, len(self._task_ids)))
        self.steps.append(number)

    def end_state(self, *, is_end: bool) -> None:
        """All edges of that state are there."""
        self.begins.append(len(self.targets))
        self.ends.append(is_end)

    @property
    def count(self) -> int:
        """How many states have been expanded."""
        return len(self.ends)

    def of(self, state: int) -> range:
        """The edges that lead out of a state."""
        return range(self.begins[state], self.begins[state + 1])

    def tasks_of(self, state: int) -> set[int]:
        """The tasks that are enabled in a state."""
        return {self.tasks[edge] for edge in self.of(state)} - {0}


@dataclass(slots=True)
class Lasso:
    """A run without the goal."""

    root: int
    steps: list[Any]
    """(step, births) of each edge behind the root."""
    loop_from: int | None
    last: int
    """The state at its end, or in its loop."""


def lasso_of(edges: Edges, goal: bytearray, roots: Iterable[int]) -> Lasso | None:
    """A fair run on which the goal never holds, with a shortest way to its end or into its loop; None if there is none.

    O(states + edges).
    """
    ways = _reached(edges, goal, roots)
    ranks = {state: rank for rank, state in enumerate(ways)}
    end = next((state for state in ways if state < edges.count and edges.ends[state]), None)
    loop = _first_fair(edges, ranks)
    if end is not None and (loop is None or ranks[end] <= ranks[loop[0]]):
        root, steps = _way(edges, ways, end)
        return Lasso(root, steps, None, end)
    if loop is None:
        return None
    entry, members = loop
    root, steps = _way(edges, ways, entry)
    around = _around(edges, entry, members)
    return Lasso(root, [*steps, *around], len(steps), entry)


def _reached(edges: Edges, goal: bytearray, roots: Iterable[int]) -> dict[int, tuple[int, int] | None]:
    """States that are reached without the goal, breadth first, each with (state before, edge)."""
    found: dict[int, tuple[int, int] | None] = {root: None for root in roots if not goal[root]}
    waiting = deque(found)
    while waiting:
        state = waiting.popleft()
        if state >= edges.count:
            continue
        for edge in edges.of(state):
            target = edges.targets[edge]
            if not goal[target] and target not in found:
                found[target] = state, edge
                waiting.append(target)
    return found


def _way(edges: Edges, ways: dict[int, tuple[int, int] | None], state: int) -> tuple[int, list[Any]]:
    steps = []
    while (way := ways[state]) is not None:
        state, edge = way
        steps.append(edges.known[edges.steps[edge]])
    return state, steps[::-1]


def _first_fair(edges: Edges, ranks: dict[int, int]) -> tuple[int, set[int]] | None:
    """(the state that is reached first, all states) of the fair component that is reached first."""
    sources, targets = array("q"), array("q")
    loops = set()
    for state, rank in ranks.items():
        if state >= edges.count:
            continue
        for edge in edges.of(state):
            target = edges.targets[edge]
            if target in ranks:
                sources.append(rank)
                targets.append(ranks[target])
                if target == state:
                    loops.add(state)
    if not sources:
        return None
    size = len(ranks)
    ones = np.ones(len(sources), np.int8)
    graph = coo_array((ones, (np.frombuffer(sources, np.int64), np.frombuffer(targets, np.int64))), (size, size))
    _, labels = connected_components(graph.tocsr(), directed=True, connection="strong")
    members: dict[int, list[int]] = {}
    for state, label in zip(ranks, labels.tolist(), strict=True):
        members.setdefault(label, []).append(state)
    for component in members.values():  # in the order in which they are reached
        if len(component) == 1 and component[0] not in loops:
            continue
        if any(state >= edges.count for state in component):
            continue
        if _is_fair(edges, set(component)):
            return component[0], set(component)
    return None


def _is_fair(edges: Edges, members: set[int]) -> bool:
    always: set[int] | None = None
    done: set[int] = set()
    for state in members:
        tasks = edges.tasks_of(state)
        always = tasks if always is None else always & tasks
        done.update(edges.tasks[edge] for edge in edges.of(state) if edges.targets[edge] in members)
    return not ((always or set()) - done)


def _around(edges: Edges, entry: int, members: set[int]) -> list[Any]:
    """A way from a state around a component and back, on which each task is done, or undone in some state."""
    walked: list[int] = []
    place = entry
    open_tasks = edges.tasks_of(entry)
    for task in sorted(open_tasks):
        if any(edges.tasks[edge] == task for edge in walked):
            continue
        if any(task not in edges.tasks_of(edges.targets[edge]) for edge in walked):
            continue
        way = _nearest(edges, place, members, lambda edge, task=task: edges.tasks[edge] == task  # type: ignore[misc]
                       or task not in edges.tasks_of(edges.targets[edge]))  # fmt: skip
        walked += way
        place = edges.targets[walked[-1]]
    if place != entry or not walked:
        walked += _nearest(edges, place, members, lambda edge: edges.targets[edge] == entry)
    return [edges.known[edges.steps[edge]] for edge in walked]


def _nearest(edges: Edges, place: int, members: set[int], is_wanted: Callable[[int], bool]) -> list[int]:
    """The edges of a shortest way inside a component whose last edge is wanted."""
    ways: dict[int, list[int]] = {place: []}
    waiting = deque([place])
    while waiting:
        state = waiting.popleft()
        for edge in edges.of(state):
            target = edges.targets[edge]
            if target not in members:
                continue
            if is_wanted(edge):
                return [*ways[state], edge]
            if target not in ways:
                ways[target] = [*ways[state], edge]
                waiting.append(target)
    raise AssertionError("a fair component has no such way")
