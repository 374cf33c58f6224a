"""The machines of `before`: its checkpoints name this module, and its trace is replayed with it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ray

import ray_snapshot as rs


class Account(rs.SnapshotMixin):
    """Passes money on whenever it gets some, by handles that it keeps in its state; chance is part of it, too."""

    def __init__(self, balance: int, others: list[Any], transfers: int, seed: int) -> None:
        self.balance, self.others, self.transfers_left, self.luck = balance, others, transfers, seed
        self.has_token = seed == 0
        self.clock = self.round = 0

    def open(self) -> None:
        for _ in range(3):
            self._pay()

    def deposit(self, amount: int) -> None:
        self.balance += amount
        self._pay()

    def total(self) -> int:
        """What it and all others have."""
        return self.balance + sum(ray.get([other.own.remote() for other in self.others]))

    def own(self) -> int:
        return self.balance

    def _pay(self) -> None:
        if self.transfers_left and self.balance:
            self.transfers_left -= 1
            self.clock += 1
            self.round += 1
            amount = 1 + self._draw(min(9, self.balance))
            self.balance -= amount
            self.others[self._draw(len(self.others))].deposit.send(amount)

    def _draw(self, limit: int) -> int:
        self.luck = (self.luck * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) % 2**64
        return (self.luck >> 33) % limit


class Notary(rs.SnapshotMixin):
    """Has joins, timers and children."""

    def __init__(self) -> None:
        self.signed: list[Any] = []

    @rs.join("buyer", "seller")
    def sign(self, buyer: int, seller: int) -> None:
        self.signed.append((buyer, seller))

    def hire(self, name: str) -> None:
        self.signed.append(self.spawn(Notary, name=name))

    def remind(self, seconds: float) -> None:
        self.handle.hear.send_after(seconds, "time")

    def hear(self, text: str) -> None:
        self.signed.append(text)

    def hear_all(self) -> list[Any]:
        return self.signed


class Drain(rs.SnapshotMixin):
    """Takes what a source sends."""

    def __init__(self) -> None:
        self.rows: list[int] = []

    def take(self, rows: list[int]) -> None:
        self.rows += rows

    def taken(self) -> list[int]:
        return self.rows


def squares(count: int) -> Iterator[int]:
    """What the source reads."""
    return (number * number for number in range(count))


@rs.detector(alarm_when=False, name="solvent")
def solvent(snapshot: rs.Snapshot) -> bool:
    """A user's own detector."""
    return all((machine.state or {}).get("balance", 0) >= 0 for machine in snapshot.machines.values())


def is_rich(machines: Any) -> bool:
    """For the Spark job `possibly`: has somebody more than 110?"""
    return any(getattr(machine, "balance", 0) > 110 for machine in machines.values())


@rs.detector(stable=False, alarm_when=False)
def modest(snapshot: rs.Snapshot) -> bool:
    """For `blame`: nobody has more than 110."""
    return all((machine.state or {}).get("balance", 0) <= 110 for machine in snapshot.machines.values())
