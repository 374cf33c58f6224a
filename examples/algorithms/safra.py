"""Safra: a token goes round a ring and finds out whether all work is over.

Source: E. W. Dijkstra, "Shmuel Safra's version of termination detection" (EWD998, 1987). A node counts what it has sent
minus what it has accepted, and turns black when it accepts work. The token goes from node 0 to the last one and down
again; a passive node adds its count and its colour to it, and turns white. It is all over when the token comes back
white, node 0 is white and passive, and the sum is 0; otherwise node 0 sends it round again.
Assumed of the network: nothing is lost or doubled; any order, any delay.

`broken`: a node does not turn black when it accepts work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray_snapshot as rs


class Node(rs.SnapshotMixin):
    """A node of the ring. Work goes along a route, and keeps a node busy until it has finished."""

    def __init__(self, number: int, before: Any, route: list[Any] | None = None) -> None:
        self.number = number
        self.before = before
        """The neighbour that the token goes to."""
        self.count = 0
        self.black = False
        self.busy = 0
        self.token: tuple[int, bool] | None = (0, True) if number == 0 else None
        """(sum, whether it is black) while it is here."""
        self.announced = False
        if route is not None:
            self.busy = 1
            self.handle.begin.send(route)
        if number == 0:
            self.handle.look.send()

    def begin(self, route: list[Any]) -> None:
        """The work that is here from the start."""
        self._give_on(route)
        self.handle.finish.send()

    def work(self, route: list[Any]) -> None:
        """Work comes from another node."""
        self.count -= 1
        self.note_accepted()
        self.busy += 1
        self._give_on(route)
        self.handle.finish.send()

    def note_accepted(self) -> None:
        """The token may have been here before this message, and not yet at its sender."""
        self.black = True

    def _give_on(self, route: list[Any]) -> None:
        if route:
            self.count += 1
            route[0].work.send(route[1:])

    def finish(self) -> None:
        """One piece of work is done."""
        self.busy -= 1
        self.look()

    def take_token(self, total: int, black: bool) -> None:
        """The token comes from the neighbour."""
        self.token = (total, black)
        self.look()

    def look(self) -> None:
        """Hand the token on, or read it, if it is here and nothing is to be done."""
        if self.token is None or self.busy:
            return
        total, black = self.token
        if self.number != 0:
            self._hand_on(total + self.count, black or self.black)
        elif black or self.black or total + self.count != 0:
            self._hand_on(0, False)
        else:
            self.announced = True

    def _hand_on(self, total: int, black: bool) -> None:
        self.token, self.black = None, False
        self.before.take_token.send(total, black)


class PaleNode(Node):
    """Stays white."""

    def note_accepted(self) -> None:
        pass


def build(system: Any, kind: type[Node] = Node) -> None:
    """Three nodes; the work begins at node 1, goes on to node 2, and from there to node 0."""
    nodes = [system.machine(f"node-{number}") for number in range(3)]
    for number in range(3):
        route = [nodes[2], nodes[0]] if number == 1 else None
        system.spawn(kind, number, nodes[number - 1], route, name=f"node-{number}")


def broken(system: Any) -> None:
    """The same, of nodes that stay white."""
    build(system, PaleNode)


def no_early_announcement(states: Mapping[str, Node]) -> bool:
    """Where the end is announced, all nodes are passive, and no work is on its way: what was sent was accepted."""
    if not states["node-0"].announced:
        return True
    return not any(node.busy for node in states.values()) and sum(node.count for node in states.values()) == 0


def announced(states: Mapping[str, Node]) -> bool:
    """Node 0 has announced the end."""
    return states["node-0"].announced
