"""Shortest paths without a master: 7,520 Debian packages, each a machine that knows only its neighbours.

Chandy and Misra's diffusing computation ("Distributed computation on graphs: shortest path algorithms",
1982): a vertex that hears of a shorter way to itself remembers it and tells its neighbours; everything starts
with one message to the source. In the paper acknowledgements tell the source when the wave has died down.
Here no machine counts anything.

What to look at: no vertex can know that its distance is final, for a shorter way may still be on its way to
it, and a moment in which every vertex is idle proves nothing. The program reads the distances when a snapshot
has proven termination: every machine passive *and* every channel empty on one consistent cut. They equal
those of SciPy.

The graph (`data/README.md`): the packages that `bash` leads to in Debian's index and those that each of them
names. A step to a package costs its installed size in MiB, rounded up: the distance is what the cheapest
chain from `bash` to it takes up.
"""

from __future__ import annotations

import gzip
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray_snapshot as rs
from ray_snapshot import detectors
from ray_snapshot.examples.program import run

SOURCE = "bash"
DATA = Path(__file__).parent / "data" / "debian-depends.tsv.gz"

Graph = dict[str, dict[str, int]]
"""The neighbours of each vertex, with the weight of the edge to each."""


class Vertex(rs.SnapshotMixin):
    """Keeps the shortest way it has heard of, and passes each improvement on."""

    def __init__(self, neighbours: list[tuple[Any, int]]) -> None:
        self.neighbours = neighbours
        self.distance: int | None = None
        self.previous: str | None = None

    def hear(self, distance: int, previous: str | None) -> None:
        if self.distance is not None and self.distance <= distance:
            return
        self.distance, self.previous = distance, previous
        for neighbour, weight in self.neighbours:
            neighbour.hear.send(distance + weight, self.machine_name)

    def snapshot_state(self) -> dict[str, Any]:
        """What changes: the neighbours stay what they are, and need not be recorded again and again."""
        return {"distance": self.distance, "previous": self.previous}

    def restore_state(self, state: dict[str, Any]) -> None:
        self.distance, self.previous = state["distance"], state["previous"]


def load_graph(path: Path = DATA) -> Graph:
    """Read the graph; a `+`, which machines may not have in their names, becomes a `_`."""
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        rows = [line.rstrip("\n").split("\t") for line in lines if not line.startswith("#")]
    weights = {name: max(1, -(-int(kib) // 1024)) for name, kib, _ in rows}
    return {_machine(name): {_machine(other): weights[other] for other in named.split()} for name, _, named in rows}


def _machine(package: str) -> str:
    return package.replace("+", "_")


def reference_distances(graph: Graph, source: str) -> dict[str, int]:
    """The distances by SciPy's Dijkstra, which shares no code and no idea with the machines above."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    index = {name: place for place, name in enumerate(graph)}
    edges = [(index[name], index[other], weight) for name, others in graph.items() for other, weight in others.items()]
    rows, columns, weights = zip(*edges, strict=True)
    matrix = csr_array((weights, (rows, columns)), shape=(len(graph), len(graph)), dtype=float)
    found = dijkstra(matrix, indices=index[source])
    return {name: int(found[place]) for name, place in index.items() if found[place] != float("inf")}


def play(
    *,
    history: str | None = None,
    every: float = 1.0,
    on_verdict: Callable[[rs.Verdict], None] | None = None,
    graph: Graph | None = None,
    source: str = SOURCE,
) -> dict[str, Any]:
    """Run the diffusing computation until a snapshot proves it done; returns distances and predecessors."""
    graph = graph or load_graph()
    with rs.System("shortest_paths", history=history, every=every, detectors=[detectors.Termination()]) as system:
        if on_verdict:
            system.subscribe(on_verdict, repeat=True)
        machines = {name: system.machine(name) for name in graph}
        arguments = [([(machines[other], weight) for other, weight in others.items()],) for others in graph.values()]
        system.spawn_many(Vertex, args=arguments, names=list(graph), per_host=(len(graph) + 1) // 2)
        system.start()
        machines[source].hear.send(0, None)
        done = system.wait_for("termination", timeout=120)
        end = system.snapshot(timeout=60)
    table = end.tables["machines"]
    rows = zip(table["machine"].to_pylist(), table["state"].to_pylist(), strict=True)
    states = {name: json.loads(state) for name, state in rows if name in graph}
    distances = {name: state["distance"] for name, state in states.items() if state["distance"] is not None}
    return {
        "vertices": len(graph),
        "edges": sum(map(len, graph.values())),
        "terminated": done.holds,
        "messages": sum(table["accepted_count"].to_pylist()),
        "distances": distances,
        "equal_to_scipy": distances == reference_distances(graph, source),
        "previous": {name: state["previous"] for name, state in states.items() if state["previous"] is not None},
    }


def path_to(target: str, previous: dict[str, str]) -> list[str]:
    """The vertices on the shortest way to `target`, the source first."""
    path = [target]
    while path[-1] in previous:
        path.append(previous[path[-1]])
    return path[::-1]


def tell(facts: dict[str, Any]) -> None:
    farthest = max(facts["distances"], key=facts["distances"].__getitem__)
    path = path_to(farthest, facts["previous"])
    print(f"{facts['vertices']} machines, {facts['edges']} edges, {facts['messages']} messages accepted.")
    print(f"Termination proven: {facts['terminated']}.")
    print(f"Farthest: {farthest}, {facts['distances'][farthest]} MiB away in {len(path) - 1} steps.")
    print(f"Its way begins {' > '.join(path[:6])}.")
    print(f"All {len(facts['distances'])} distances equal SciPy's: {facts['equal_to_scipy']}.")


def main(argv: list[str] | None = None) -> int:
    return run(__doc__, play, tell, argv, every=1.0)


if __name__ == "__main__":
    sys.exit(main())
