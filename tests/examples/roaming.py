"""Machines that hand handles and time stamps about, and remember what they did."""

from typing import Any

import ray_snapshot as rs


class Node(rs.SnapshotMixin):
    """Knows others; introduces them to each other, forgets them, makes more; grows tired."""

    def __init__(self, energy: int = 0) -> None:
        self.known: list[Any] = []
        self.spoken_of: list[str] = []
        self.energy = energy
        self.acted = 0

    def meet(self, other: Any, energy: int) -> None:
        self.acted += 1
        self.known.append(other)
        self.energy = max(self.energy, energy)
        self._act()

    def hear_of(self, name: str) -> None:
        self.acted += 1
        self.spoken_of.append(name)
        self._act()

    def _act(self) -> None:
        for _ in range(2):
            if not self.energy or not self.known:
                return
            self.energy -= 1
            one, other = (self.known[self.random.randrange(len(self.known))] for _ in range(2))
            match self.random.randrange(6):
                case 0:
                    one.meet.send(other, self.energy)
                case 1:
                    one.meet.send_after(1.0, self.handle, self.energy)
                case 2:
                    self.known.append(self.spawn(Node, self.energy))
                case 3 if self.spoken_of:
                    self.machine(self.spoken_of.pop()).meet.send(one, self.energy)
                case 4:
                    one.hear_of.send(name_of(other))
                case _:
                    self.known.remove(one)


def name_of(handle: Any) -> str:
    return str(type(handle).__machine_name__(handle))


def roaming(system: Any) -> None:
    nodes = [system.spawn(Node, 6, name=f"n{at}") for at in range(4)]
    for at, node in enumerate(nodes):
        node.meet.send(nodes[(at + 1) % 4], 6)


class Timed(rs.SnapshotMixin):
    """Has a time while it works; whatever it sends is later."""

    def __init__(self) -> None:
        self.clock: int | None = None
        self.seen: list[int] = []
        self.todo: list[int] = []
        self.peers: list[Any] = []

    def know(self, *peers: Any) -> None:
        self.peers = [*peers]

    def event(self, stamp: int) -> None:
        self.seen.append(stamp)
        self.todo.append(stamp)
        self.clock = min(self.todo)
        self.handle.step.send()

    def step(self) -> None:
        stamp = min(self.todo)
        self.todo.remove(stamp)
        for _ in range(self.random.randrange(3)):
            if stamp < 8:
                self.peers[self.random.randrange(len(self.peers))].event.send(stamp + self.random.randrange(1, 4))
        self.clock = min(self.todo, default=None)


def timed(system: Any) -> None:
    machines = [system.spawn(Timed, name=f"t{at}") for at in range(3)]
    for one in machines:
        one.know.send(*machines)
    for at, one in enumerate(machines):
        one.event.send(at)
