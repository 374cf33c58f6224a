"""Lamport's mutual exclusion: one at a time, by requests that all have in the same order.

Source: L. Lamport, "Time, clocks, and the ordering of events in a distributed system", CACM 21(7), 1978; as a model:
`LamportMutex.tla`, in github.com/tlaplus/Examples, specifications/lamport_mutex. Who wants to enter sends its clock to
all, and enters when all have acknowledged and its own request is the first that it knows of; equal clocks are told
apart by the names. Who leaves tells all.
Assumed of the network: FIFO between any two; nothing is lost or doubled; no process fails.

The machines follow the model action by action, so that both have the same states: `Request`, `Enter` and `Exit`, of
which one at most is enabled at a time, are the action `act`; each receipt is an action. The message that calls for
`act` is always there. The model's processes enter again and again, and its constraint bounds their clocks
(`published`).

`broken`: a process does not wait for the acknowledgements.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray_snapshot as rs


class Process(rs.SnapshotMixin):
    """Enters `times` times; None: again and again."""

    def __init__(self, names: list[str], times: int | None = None) -> None:
        self.names = names
        self.times = times
        self.clock = 1
        self.requests = dict.fromkeys(names, 0)
        """The clock of each process's request; 0: none."""
        self.acks: list[str] = []
        self.inside = False
        self.handle.act.send()

    def act(self) -> None:
        """`Request`, `Enter` or `Exit`, whichever is enabled."""
        if self.inside:
            self._exit()
        elif self.requests[self.machine_name] == 0 and self.times != 0:
            self._request()
        elif self.is_acknowledged() and self.is_first():
            self.inside = True
        if self.inside or self.requests[self.machine_name] or self.times != 0:
            self.handle.act.send()

    def is_acknowledged(self) -> bool:
        """Whether all know of this process's request."""
        return self.acks == self.names

    def is_first(self) -> bool:
        """`beats`: whether this process's request comes before all that it knows of."""
        own = (self.requests[self.machine_name], self.machine_name)
        return all(not time or own <= (time, name) for name, time in self.requests.items())

    def _request(self) -> None:
        self.requests[self.machine_name] = self.clock
        self.acks = [self.machine_name]
        self.times = None if self.times is None else self.times - 1
        self._tell_all("request", self.clock)

    def _exit(self) -> None:
        self.inside = False
        self.requests[self.machine_name] = 0
        self.acks = []
        self._tell_all("release")

    def _tell_all(self, method: str, *more: int) -> None:
        for name in self.names:
            if name != self.machine_name:
                getattr(self.machine(name), method).send(self.machine_name, *more)

    def request(self, name: str, clock: int) -> None:
        """`ReceiveRequest`."""
        self.requests[name] = clock
        self.clock = max(self.clock, clock) + 1
        self.machine(name).ack.send(self.machine_name)

    def ack(self, name: str) -> None:
        """`ReceiveAck`."""
        self.acks = sorted({*self.acks, name})

    def release(self, name: str) -> None:
        """`ReceiveRelease`."""
        self.requests[name] = 0


class RashProcess(Process):
    """Does not wait."""

    def is_acknowledged(self) -> bool:
        return bool(self.acks)


def build(system: Any, kind: type[Process] = Process) -> None:
    """Three processes, of which each wants to enter once."""
    names = ["p", "q", "r"]
    for name in names:
        system.spawn(kind, names, 1, name=name)


def broken(system: Any) -> None:
    """The same, of rash processes."""
    build(system, RashProcess)


def published(system: Any) -> None:
    """Three processes that enter again and again, as in `MCLamportMutex.cfg`: infinitely many states."""
    names = ["1", "2", "3"]
    for name in names:
        system.spawn(Process, names, name=name)


def one_at_a_time(states: Mapping[str, Process]) -> bool:
    """At most one process is inside (`Mutex` of the model)."""
    return sum(process.inside for process in states.values()) <= 1


def all_have_entered(states: Mapping[str, Process]) -> bool:
    """Each process has been inside as often as it wanted to, and is out."""
    return not any(process.times or process.inside or process.acks for process in states.values())
