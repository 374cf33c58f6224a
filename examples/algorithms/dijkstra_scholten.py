"""Dijkstra and Scholten: the root of a diffusing computation hears when all of it is over.

Source: E. W. Dijkstra, C. S. Scholten, "Termination detection for diffusing computations", Information Processing
Letters 11(1), 1980 (EWD687a). Work spreads from a root. Each piece of work is answered with one signal: at once by a
node that has work already, and otherwise, to the sender that woke it, once the node has nothing to do and all its own
work is answered.
Assumed of the network: nothing is lost or doubled; any order, any delay.

`broken`: a node signals at once whenever work comes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray_snapshot as rs

NAMES = ["root", "left", "right"]


class Node(rs.SnapshotMixin):
    """Does work, gives some of it on, and keeps the books of the detection."""

    def __init__(self, others: list[Any], job: int = 0) -> None:
        self.others = others
        self.jobs = [job] if job else []
        self.woken_by: Any = None
        self.unanswered = 0
        self.is_root = job > 0
        self.announced = False
        if self.is_root:
            self.handle.run.send()

    def work(self, sender: Any, size: int) -> None:
        """A piece of work comes; `size` says how far it may spread."""
        if self.woken_by is not None or self.is_root:
            sender.signal.send()
        else:
            self.keep_waker(sender)
        self.jobs.append(size)
        self.handle.run.send()

    def keep_waker(self, sender: Any) -> None:
        """The one that woke this node hears when it is done."""
        self.woken_by = sender

    def run(self) -> None:
        """Do one piece of work; what is larger than 1 is given on to all others."""
        size = self.jobs.pop(0)
        for other in self.others if size > 1 else []:
            other.work.send(self.handle, size - 1)
            self.unanswered += 1
        self._end_if_done()

    def signal(self) -> None:
        """A piece of work that this node gave on is over, with all that came of it."""
        self.unanswered -= 1
        self._end_if_done()

    def is_done(self) -> bool:
        """Whether nothing is to be waited for."""
        return not self.jobs and self.unanswered == 0

    def _end_if_done(self) -> None:
        if not self.is_done():
            return
        if self.is_root:
            self.announced = True
        elif self.woken_by is not None:
            self.woken_by.signal.send()
            self.woken_by = None


class HastyNode(Node):
    """Says thank you, and means: done."""

    def keep_waker(self, sender: Any) -> None:
        sender.signal.send()


def build(system: Any, kind: type[Node] = Node) -> None:
    """A root that wakes two nodes, which wake each other and the root."""
    for name in NAMES:
        others = [system.machine(other) for other in NAMES if other != name]
        system.spawn(kind, others, 3 if name == "root" else 0, name=name)


def broken(system: Any) -> None:
    """The same, of hasty nodes."""
    build(system, HastyNode)


@rs.detector
def no_early_announcement(snapshot: rs.Snapshot) -> bool:
    """Where the root has announced the end, no node has work, and none is on its way."""
    states = [snapshot.machines[name].state for name in NAMES]
    if not states[0]["announced"]:
        return True
    return not any(state["jobs"] for state in states) and all(one.method != "work" for one in snapshot.messages)


def announced(states: Mapping[str, Node]) -> bool:
    """The root has announced the end."""
    return states["root"].announced
