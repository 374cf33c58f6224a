"""Deadlocks of what waits for room: in a placement group, for the group itself, and against the truth about small systems.

The truth is found by trying every order of events (`Played`), which shares no code with the detector.
"""

from dataclasses import dataclass
from typing import Any

import pytest
from calls_by_hand import App
from hypothesis import given, settings
from hypothesis import strategies as st
from rooms_by_hand import Room, last_cpu, two_groups, wait_row

import ray_snapshot as rs

pytestmark = pytest.mark.contract

ONE = {"CPU": 1}
MANY = {
    "STRICT_SPREAD": (
        [ONE, ONE],
        "CPU 2, on 2 nodes for its bundles (STRICT_SPREAD), and there is 1;",
        "Add nodes: placement group wanted needs 2 nodes for its bundles (STRICT_SPREAD), and there is 1; or make it with"
        " SPREAD or PACK.",
    ),
    "STRICT_PACK": (
        [ONE] * 5,
        "CPU 5, and no node has more than CPU 4;",
        "Ask for less than CPU 5, or give the cluster a node that has it.",
    ),
    "SPREAD": ([ONE] * 5, "CPU 5, and all nodes together have CPU 4;", "Give a node CPU 1 more."),
    "PACK": (
        [{"CPU": 1, "Custom": 1}],
        "CPU 1, Custom 1, and no node has more than Custom 0;",
        "Ask for less than Custom 1, or give the cluster a node that has it.",
    ),
}


@pytest.mark.parametrize("strategy", MANY)
def test_why_a_group_can_never_be_made_is_told_with_what_would_help(strategy: str) -> None:
    bundles, why, advice = MANY[strategy]
    app = App().actor("driver")
    app.waits_for("driver", app.queues("ready()", "driver", "ready", number=1))
    room = Room(app).node("n1", CPU=4).group("wanted", *bundles, strategy=strategy, owners=["driver"])
    room.demands("driver", "ready()", [[1, 1]], group="wanted")
    verdict = app.verdict()
    assert verdict.holds is True
    assert f"waits for placement group wanted of driver, which needs {why}" in verdict.sentence
    assert verdict.evidence["advice"] == [advice]


def test_two_owners_of_groups_that_wait_for_another_each_are_stuck() -> None:
    app, _ = two_groups()
    verdict = app.verdict()
    assert verdict.holds is True
    assert {one["machine"] for one in verdict.evidence["members"]} == {"Owner-0", "Owner-1", "ready()"}
    assert "waits for placement group wanted-O of Owner-0, which needs CPU 1, and" in verdict.sentence
    assert "Owner-0 holds CPU 1 of 2 by placement group made-Own" in verdict.sentence
    assert verdict.evidence["advice"] == [
        "Reserve all that is needed at once, in one placement group (Owner-0, Owner-1 each have one and wait for another),"
        " remove the first one before the second is asked for, or give a node CPU 2 more."
    ]


def test_what_no_node_can_give_a_group_is_told_as_such() -> None:
    app, room = two_groups()
    room.told["groups"][1].update(bundles=[{"CPU": 1}, {"CPU": 3}], nodes=["", ""])
    verdict = app.verdict()
    assert "which needs CPU 4, and no node has more than CPU 2" in verdict.sentence
    assert "Ask for less than CPU 3, or give the cluster a node that has it." in verdict.evidence["advice"]


def test_groups_may_be_removed_by_whatever_moves() -> None:
    app, _ = two_groups()
    app.actor("Clock-0", status="active")
    app.runs("Clock-0", "driver", "tick")
    assert app.verdict().holds is False


def test_a_pending_group_holds_nothing() -> None:
    app, room = two_groups()
    room.told["groups"] = [one for one in room.told["groups"] if one["group"] != "made-Owner-1"]
    assert app.verdict().holds is False


def test_a_group_in_which_somebody_is_stuck_is_not_removed() -> None:
    app, room = last_cpu(**{"CPU_group_g": 1, "bundle_group_g": 0.001})
    app.actor("Clock-0", status="active")
    app.runs("Clock-0", "driver", "tick")
    room.node("n1", CPU=1).group("g", {"CPU": 1}, on="n1", owners=["driver"])
    verdict = app.verdict()
    assert verdict.holds is True
    assert "Trainer-0 holds CPU 1 of 1 by placement group g" in verdict.sentence


def test_within_a_group_its_bundles_are_all_there_is() -> None:
    app, room = last_cpu(**{"CPU_group_g": 1, "CPU_group_0_g": 1})
    room.node("n1", CPU=8, CPU_group_g=1, CPU_group_0_g=1).group("g", {"CPU": 1}, on="n1")
    room.told["demands"][0]["group"] = "g"
    assert app.verdict().holds is True
    room.node("n1", CPU=8, CPU_group_g=2, CPU_group_0_g=2)
    assert app.verdict().holds is False


@pytest.mark.parametrize(
    ("bundle", "advice"),
    [
        (
            4,
            "run it in that group (scheduling_strategy=PlacementGroupSchedulingStrategy(...)), or remove the group first",
        ),
        (0.5, "remove that group first"),
    ],
)
def test_room_in_a_group_that_nothing_uses_may_be_meant_for_what_waits(bundle: float, advice: str) -> None:
    app = App().actor("driver")
    app.waits_for("driver", app.queues("prepare()", "driver", "prepare", number=1))
    room = Room(app).node("n1", CPU=4).demands("driver", "prepare()", [[1, 1]], needs={"CPU": 1})
    room.group("spare", *[{"CPU": bundle}] * int(4 / bundle), on="n1", owners=["driver"])
    (told,) = app.verdict().evidence["advice"]
    assert told == f"Placement group spare of driver holds what is needed: {advice}, or give a node CPU 1 more."


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
