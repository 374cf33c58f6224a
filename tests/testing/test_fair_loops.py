"""Fair loops in small graphs drawn by chance, against every set of states that a run can stay in."""

from itertools import combinations
from random import Random
from types import SimpleNamespace

from ray_snapshot.testing.liveness import Edges, Lasso, lasso_of

STATES = 5
TASKS = (0, 1, ("weak", 0), ("weak", 1), None)
"""The heads of two channels, two tasks that need fairness only while they stay enabled, and a fault."""

Graph = list[list[tuple[int, object]]]


def some_graph(chance: Random) -> Graph:
    """By state: (target, task) of each edge."""
    return [
        [(chance.randrange(STATES), chance.choice(TASKS)) for _ in range(chance.randint(1, 3))] for _ in range(STATES)
    ]


def edges_of(graph: Graph) -> Edges:
    edges = Edges()
    for state, out in enumerate(graph):
        for place, (target, task) in enumerate(out):
            edges.add(target, task, SimpleNamespace(step=(state, place), births=()))
        edges.end_state(is_end=False)
    return edges


def is_fair(graph: Graph, stay: set[int], done: set[object]) -> bool:
    enabled = [{task for _, task in graph[state]} - {None} for state in stay]
    strong = {task for task in set.union(*enabled) if isinstance(task, int)}
    return set.intersection(*enabled) | strong <= done


def can_stay(graph: Graph, stay: set[int]) -> bool:
    """Whether a run can go round in some states for ever, meet them all, and be fair."""
    inner = {state: [target for target, _ in graph[state] if target in stay] for state in stay}
    for start in stay:
        met, waiting = set[int](), [start]
        while waiting:
            for target in inner[waiting.pop()]:
                if target not in met:
                    met.add(target)
                    waiting.append(target)
        if met != stay:
            return False
    return is_fair(graph, stay, {task for state in stay for target, task in graph[state] if target in stay})


def reached(graph: Graph, goal: bytearray) -> set[int]:
    met, waiting = {0}, [0]
    while waiting:
        for target, _ in graph[waiting.pop()]:
            if target not in met and not goal[target]:
                met.add(target)
                waiting.append(target)
    return met


def check_lasso(graph: Graph, found: Lasso, goal: bytearray) -> None:
    """The lasso is a way in the graph, without the goal, and its loop is fair."""
    state, states, tasks = found.root, [found.root], []
    for (at, place), _ in found.steps:
        assert at == state
        state, task = graph[at][place]
        states.append(state)
        tasks.append(task)
    assert not any(goal[one] for one in states)
    assert found.loop_from is not None
    assert states[found.loop_from] == states[-1]
    assert is_fair(graph, set(states[found.loop_from :]), set(tasks[found.loop_from :]))


def test_a_fair_loop_is_found_if_and_only_if_there_is_one() -> None:
    chance, answers = Random(3), []
    for _ in range(1_500):
        graph = some_graph(chance)
        goal = bytearray([0, *(chance.random() < 0.15 for _ in range(STATES - 1))])
        free = reached(graph, goal)
        there = any(
            can_stay(graph, set(stay)) for size in range(1, STATES + 1) for stay in combinations(sorted(free), size)
        )
        found = lasso_of(edges_of(graph), goal, [0])
        assert (found is not None) == there, (graph, goal)
        answers.append(there)
        if found is not None:
            check_lasso(graph, found, goal)
    assert 200 < sum(answers) < 1_300, "both happen"
