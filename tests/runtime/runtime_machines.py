"""Machines that several tests of the runtime use, the gate at which a test can stop one, and the house they live in."""

import itertools
from typing import Any

import ray
from gates import Gate, pass_gate
from until import until

import ray_snapshot as rs

__all__ = ["Gate", "pass_gate"]

BOUND_S = 60.0
"""Nothing in these tests may take longer, however busy the computer is."""


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
    def __init__(self, balance: int) -> None:
        self.balance = balance

    def deposit(self, amount: int) -> None:
        self.balance += amount

    def transfer(self, to: Any, amount: int) -> None:
        self.balance -= amount
        to.deposit.send(amount)


class Press(rs.SnapshotMixin):
    def __init__(self) -> None:
        self.made = 0

    @rs.join("left", "right")
    def close(self, left: int, right: int) -> None:
        self.made += 1


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
        self.system.wait_for("termination", timeout=BOUND_S)

    def state(self, handle: Any) -> Any:
        self.settle()
        return self.system.snapshot().machines[name_of(handle)].state


def name_of(handle: Any) -> str:
    return str(type(handle).__machine_name__(handle))
