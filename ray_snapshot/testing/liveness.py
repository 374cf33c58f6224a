"""Does it happen on every run? Ends without it, and cycles without it on which every machine gets its turn.

A run is *fair* if no task is left undone for ever that is enabled from some moment on for ever (weakly: a reply, a timeout, a
timer out of its turn, a join, a construction), and none that is enabled again and again (strongly: to accept the head of a
channel, for hosts go round the mailboxes). A set of states strongly connected without the goal is a counterexample if each
task that must be done is done on some edge of it. One that is enabled in all its states and done on no edge rules it out; one
that is enabled in some, and must be done, rules those states out, and the rest falls into smaller components (Emerson and Lei
1987). The counterexample is a lasso: a way into the component, and a way around in it that does so. Chance may come out
badly again and again. Never imports Ray.
"""

from __future__ import annotations

from array import array
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ray_snapshot.detectors.reduction import components


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

    @property
    def strong(self) -> set[int]:
        """The tasks that must be done if they are enabled again and again: the heads of channels."""
        return {number for task, number in self._task_ids.items() if type(task) is int}

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
    strong = edges.strong
    waiting = _components(edges, [*ranks])[::-1]
    while waiting:  # in the order in which they are reached
        component = waiting.pop()
        members = set(component)
        always, ever, done = _tasks(edges, members)
        if always - done:
            continue
        starved = (ever & strong) - done
        if not starved:
            return component[0], members
        left = [state for state in component if starved.isdisjoint(edges.tasks_of(state))]
        waiting += _components(edges, left)[::-1]
    return None


def _components(edges: Edges, states: list[int]) -> list[list[int]]:
    """The strongly connected parts of some states in which a run can stay, in the order of their first states."""
    places = {state: place for place, state in enumerate(states)}
    sources, targets = array("q"), array("q")
    loops = set()
    for state, place in places.items():
        if state >= edges.count:
            continue
        for edge in edges.of(state):
            target = places.get(edges.targets[edge])
            if target is not None:
                sources.append(place)
                targets.append(target)
                if target == place:
                    loops.add(state)
    if not sources:
        return []
    found = components(len(states), np.frombuffer(sources, np.int64), np.frombuffer(targets, np.int64))
    members: dict[int, list[int]] = {}
    for state, label in zip(states, found.label.tolist(), strict=True):
        members.setdefault(label, []).append(state)
    return [
        component
        for component in members.values()
        if (len(component) > 1 or component[0] in loops) and all(state < edges.count for state in component)
    ]


def _tasks(edges: Edges, members: set[int]) -> tuple[set[int], set[int], set[int]]:
    """The tasks that are enabled in all of some states, in any of them, and done on an edge between them."""
    always: set[int] | None = None
    ever: set[int] = set()
    done: set[int] = set()
    for state in members:
        tasks = edges.tasks_of(state)
        always = tasks if always is None else always & tasks
        ever |= tasks
        done.update(edges.tasks[edge] for edge in edges.of(state) if edges.targets[edge] in members)
    return always or set(), ever, done


def _around(edges: Edges, entry: int, members: set[int]) -> list[Any]:
    """A way from a state around a component and back, on which each task is done that must be."""
    walked: list[int] = []
    place, strong = entry, edges.strong
    while True:
        seen = [edges.tasks_of(state) for state in (entry, *(edges.targets[edge] for edge in walked))]
        must = set.intersection(*seen) | (set.union(*seen) & strong)
        undone = must - {edges.tasks[edge] for edge in walked}
        if undone:
            task = min(undone)
            way = _nearest(edges, place, members, lambda edge, task=task: edges.tasks[edge] == task  # type: ignore[misc]
                           or (task not in strong and task not in edges.tasks_of(edges.targets[edge])))  # fmt: skip
        elif walked and place == entry:
            return [edges.known[edges.steps[edge]] for edge in walked]
        else:
            way = _nearest(edges, place, members, lambda edge: edges.targets[edge] == entry)
        walked += way
        place = edges.targets[walked[-1]]


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
