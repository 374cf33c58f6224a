"""Machines that several tests of the runtime use, the gate at which a test can stop one, and the house they live in."""

from __future__ import annotations

import itertools
import os
import select
from pathlib import Path
from typing import Any, ClassVar

import ray
from until import until

import ray_snapshot as rs

BOUND_S = 60.0
"""Nothing in these tests may take longer, however busy the computer is."""


class Gate:
    """Two named pipes: a machine says that it has come, and stays until the test lets it go, or has ended."""

    all: ClassVar[list[Gate]] = []
    """Those of the current test."""

    def __init__(self, folder: Path, name: str = "gate") -> None:
        Gate.all.append(self)
        self.path = str(folder / name)
        self._ends = {}
        for end in ("come", "go"):
            os.mkfifo(f"{self.path}.{end}")
            self._ends[end] = os.open(f"{self.path}.{end}", os.O_RDWR)

    def await_arrival(self, timeout: float = BOUND_S) -> None:
        poll = select.poll()
        poll.register(self._ends["come"], select.POLLIN)
        assert poll.poll(timeout * 1e3), f"no machine came to the gate within {timeout} s"
        os.read(self._ends["come"], 1)

    def open(self, times: int = 1) -> None:
        os.write(self._ends["go"], b"x" * times)


def pass_gate(path: str) -> None:
    """What a machine does at a gate."""
    with open(f"{path}.come", "wb", buffering=0) as come:
        come.write(b"x")
    with open(f"{path}.go", "rb", buffering=0) as go:
        go.read(1)


def await_failure(system: rs.System) -> rs.RaySnapshotError:
    """What stops the system; nobody sends, waits or takes a snapshot meanwhile."""
    error = until(lambda: system.failure)
    assert error is not None
    return error


class Nursery(rs.SnapshotMixin):
    """Creates machines on its own host, so that a test needs no host of its own."""

    def make(self, kind: type, name: str, args: tuple[Any, ...]) -> Any:
        return self.spawn(kind, *args, name=name)


class Log(rs.SnapshotMixin):
    """Notes what it is sent."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def note(self, *items: Any, **named: Any) -> None:
        self.seen.append([*items, named] if named else list(items) if len(items) > 1 else items[0])

    def note_at_gate(self, item: Any, gate: str) -> None:
        pass_gate(gate)
        self.seen.append(item)

    def read(self) -> list[Any]:
        return self.seen


class Sender(rs.SnapshotMixin):
    """Sends and calls on behalf of a test."""

    def __init__(self) -> None:
        self.heard: list[Any] = []

    def send_all(self, to: Any, method: str, items: list[Any]) -> None:
        for item in items:
            getattr(to, method).send(item)

    def ask(self, whom: Any, method: str, *args: Any) -> None:
        self.heard.append(ray.get(getattr(whom, method).remote(*args)))

    def ask_for(self, whom: Any, method: str, *args: Any) -> Any:
        return ray.get(getattr(whom, method).remote(*args))

    def hear(self) -> list[Any]:
        return self.heard


class Account(rs.SnapshotMixin):
    """The account of the design's example."""

    def __init__(self, balance: int) -> None:
        self.balance = balance

    def deposit(self, amount: int) -> None:
        self.balance += amount

    def transfer(self, to: Any, amount: int) -> None:
        self.balance -= amount
        to.deposit.send(amount)


class House:
    """The system, and one machine on each host that creates others there."""

    def __init__(self, system: rs.System) -> None:
        self.system = system
        north, south = system.spawn_many(Nursery, names=["north", "south"], per_host=1)
        self.nurseries = {"north": north, "south": south}
        self._count = itertools.count(1)
        system.start()

    def make(self, kind: type, *args: Any, at: str = "north", name: str | None = None) -> Any:
        """A machine on one of the hosts; `at`: "north" or "south"."""
        name = name or f"{kind.__name__.lower()}-{next(self._count)}"
        return ray.get(self.nurseries[at].make.remote(kind, name, args), timeout=BOUND_S)

    def settle(self) -> None:
        """Wait until nothing happens any more."""
        self.system.wait_for("termination", timeout=BOUND_S)

    def state(self, handle: Any) -> Any:
        """What a snapshot holds of a machine, when nothing happens any more."""
        self.settle()
        return self.system.snapshot().machines[name_of(handle)].state


def name_of(handle: Any) -> str:
    return str(type(handle).__machine_name__(handle))
