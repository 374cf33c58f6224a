"""Deadlocks of calls that wait for room, against the truth about small systems: found by trying every order of events
(`Played`), which shares no code with the detector."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from calls_by_hand import App
from hypothesis import given, settings
from hypothesis import strategies as st
from rooms_by_hand import Room, wait_row

import ray_snapshot as rs

pytestmark = pytest.mark.contract

NODES = ("n1", "n2")


@dataclass(frozen=True)
class Small:
    """A system: actors of which each runs a call that waits for tasks, actors at rest, tasks that have not begun."""

    cpus: tuple[int, ...]
    """Of each node."""
    callers: tuple[tuple[int, int, tuple[int, ...]], ...]
    """(node, CPUs held, tasks that its call waits for; none: it acts)."""
    idle: tuple[tuple[int, int, tuple[int, ...]], ...]
    """(node, CPUs held, callers that have its handle)."""
    tasks: tuple[tuple[int, int | None, tuple[int, ...]], ...]
    """(CPUs needed, the only node, tasks whose results are arguments)."""


@st.composite
def smalls(draw: st.DrawFn) -> Small:
    nodes = draw(st.integers(1, 2))
    free = [draw(st.integers(1, 3)) for _ in range(nodes)]
    cpus = tuple(free)
    count = draw(st.integers(1, 4))

    def held() -> tuple[int, int]:
        node = draw(st.integers(0, nodes - 1))
        amount = draw(st.integers(0, free[node]))
        free[node] -= amount
        return node, amount

    def some(most: int) -> tuple[int, ...]:
        return tuple(sorted(draw(st.sets(st.integers(0, most - 1), max_size=2)))) if most else ()

    callers = tuple((*held(), some(count)) for _ in range(draw(st.integers(1, 3))))
    idle = tuple((*held(), some(len(callers))) for _ in range(draw(st.integers(0, 2))))
    tasks = tuple(
        (draw(st.integers(0, 3)), draw(st.none() | st.integers(0, nodes - 1)), some(index)) for index in range(count)
    )
    return Small(cpus, callers, idle, tasks)


class Played:
    """All that may become of a system: tasks begin where there is room, and end; calls whose tasks have ended return."""

    def __init__(self, system: Small) -> None:
        self.system = system
        self.returned = {index for index, (_, _, on) in enumerate(system.callers) if not on}
        self.seen: set[Any] = set()
        self.ever: set[tuple[str, int]] = set()
        self._go(frozenset(self.returned), frozenset(), ())

    def _go(self, returned: frozenset[int], ended: frozenset[int], running: tuple[tuple[int, int], ...]) -> None:
        stack = [(returned, ended, running)]
        while stack:
            state = stack.pop()
            if state in self.seen:
                continue
            self.seen.add(state)
            returned, ended, running = state
            self.ever |= {("caller", one) for one in returned} | {("task", one) for one, _ in running}
            for index, (_, _, on) in enumerate(self.system.callers):
                if index not in returned and ended.issuperset(on):
                    stack.append((returned | {index}, ended, running))
            for task, _ in running:
                stack.append((returned, ended | {task}, tuple(one for one in running if one[0] != task)))
            for index, (cpus, only, needs) in enumerate(self.system.tasks):
                if index in ended or index in {one for one, _ in running} or not ended.issuperset(needs):
                    continue
                for node in range(len(self.system.cpus)):
                    if only in (None, node) and self._free(node, returned, running) >= cpus:
                        stack.append((returned, ended, tuple(sorted((*running, (index, node))))))

    def _free(self, node: int, returned: frozenset[int], running: tuple[tuple[int, int], ...]) -> int:
        free = self.system.cpus[node] - sum(self.system.tasks[task][0] for task, at in running if at == node)
        free -= sum(
            held for index, (at, held, _) in enumerate(self.system.callers) if at == node and index not in returned
        )
        return free - sum(held for at, held, by in self.system.idle if at == node and not returned.intersection(by))


def as_app(system: Small) -> App:
    app = App()
    room = Room(app)
    for node, cpus in enumerate(system.cpus):
        room.node(NODES[node], CPU=cpus)
    ids = [app.queues(f"t{index}()", "driver", f"t{index}", number=1) for index in range(len(system.tasks))]
    for index, (cpus, only, needs) in enumerate(system.tasks):
        nodes = None if only is None else [NODES[only]]
        room.demands("driver", f"t{index}()", [[1, 1]], needs={"CPU": cpus} if cpus else {}, nodes=nodes)
        for on in needs:
            app.waits.append(wait_row(f"t{index}()", ids[index], ids[on], len(needs)))
    for index, (node, cpus, on) in enumerate(system.callers):
        app.actor(f"A-{index}", status="blocked" if on else "active")
        run = app.runs(f"A-{index}", "driver", "go")
        app.waits_for(run, *(ids[task] for task in on))
        room.holds(f"A-{index}", NODES[node], [], CPU=cpus)
    for index, (node, cpus, by) in enumerate(system.idle):
        app.actor(f"I-{index}", status="passive")
        room.holds(f"I-{index}", NODES[node], [f"A-{one}" for one in by], CPU=cpus)
    return app


@settings(max_examples=400)
@given(smalls())
def test_the_verdict_is_that_of_every_order(system: Small) -> None:
    played = Played(system)
    stuck = {f"A-{index}" for index in range(len(system.callers)) if ("caller", index) not in played.ever}
    stuck |= {f"t{index}()" for index in range(len(system.tasks)) if ("task", index) not in played.ever}
    verdict: rs.Verdict = as_app(system).verdict()

    is_anybody = any(name.startswith("A-") for name in stuck)
    assert verdict.holds is is_anybody
    told = {one["machine"] for name in ("members", "stuck_behind") for one in verdict.evidence[name]}
    assert told == (stuck if is_anybody else set())
