"""Echo: a wave goes out from one node to all others, and a spanning tree is left behind.

Source: E. J. H. Chang, "Echo algorithms: depth parallel operations on general graphs", IEEE TSE SE-8(4), 1982; as a
model: `Echo.tla` by S. Merz and M. Kuppe, in github.com/tlaplus/Examples, specifications/echo. The initiator sends to
all neighbours. Each node takes who wakes it as its parent, sends to all other neighbours, and, when it has heard from
every neighbour, answers its parent.
Assumed of the network: nothing is lost or doubled; any order, any delay.

The machines follow the model step by step, so that both have the same states: 75 for three nodes that are all
neighbours (`MCEcho.cfg`). The label `n0` of the initiator is the action `begin`; that of another node is its birth,
before which it accepts nothing. Each message taken at `n1` is an action, the last turn of that loop is `turn`, and `n2`
is `end`. A channel carries one message at most, so it makes no difference that the model's inboxes are sets.

`broken`: a node answers its parent once it has heard from one other neighbour.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray_snapshot as rs


class Node(rs.SnapshotMixin):
    """A node that knows its neighbours by name."""

    def __init__(self, neighbours: list[str], to_create: list[str] | None = None) -> None:
        self.neighbours = neighbours
        self.is_initiator = to_create is not None
        self.parent: str | None = None
        self.children: list[str] = []
        self.heard = 0
        self.label = "n1"
        if to_create is not None:
            self.label = "n0"
            names = [self.machine_name, *to_create]
            for name in to_create:
                self.spawn(type(self), [other for other in names if other != name], name=name)
            self.handle.begin.send()

    def begin(self) -> None:
        """`n0` of the initiator: the wave begins."""
        self.label = "n1"
        for name in self.neighbours:
            self.machine(name).hear.send(self.machine_name, False)

    def hear(self, name: str, is_child: bool) -> None:
        """One turn of the loop at `n1`: a message of a neighbour, which may be this node's child now."""
        self.heard += 1
        if not self.is_initiator and self.heard == 1:
            self.parent = name
            for other in self.neighbours:
                if other != name:
                    self.machine(other).hear.send(self.machine_name, False)
        if is_child:
            self.children = sorted([*self.children, name])
        if self.has_heard_all():
            self.handle.turn.send()

    def has_heard_all(self) -> bool:
        """Whether the loop is over."""
        return self.heard == len(self.neighbours)

    def turn(self) -> None:
        """`n1`: the loop is over."""
        self.label = "n2"
        self.handle.end.send()

    def end(self) -> None:
        """`n2`: answer the parent."""
        self.label = "Done"
        if self.parent is not None:
            self.machine(self.parent).hear.send(self.machine_name, True)


class HastyNode(Node):
    """Waits for one neighbour less."""

    def has_heard_all(self) -> bool:
        return self.heard == max(1, len(self.neighbours) - 1)


def build(system: Any, kind: type[Node] = Node) -> None:
    """Three nodes that are all neighbours; the first one creates the others."""
    system.spawn(kind, ["b", "c"], ["b", "c"], name="a")


def broken(system: Any) -> None:
    """The same, of hasty nodes."""
    build(system, HastyNode)


def parents_and_children_agree(states: Mapping[str, Node]) -> bool:
    """A child's parent is whose child it is; of a node that is done, each child is known (`ParentChild` of the model)."""
    return all(
        (name not in parent.children or node.parent == at)
        and (node.parent != at or parent.label != "Done" or name in parent.children)
        for at, parent in states.items()
        for name, node in states.items()
    )


def all_are_done(states: Mapping[str, Node]) -> bool:
    """Each node is at its end."""
    return len(states) == 3 and all(node.label == "Done" for node in states.values())
