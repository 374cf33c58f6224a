"""Machines whose runs are witnessed, and traces written by hand for those that need no Ray."""

import os
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import ray

import ray_snapshot as rs

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


class Account(rs.SnapshotMixin):
    """Passes money on whenever it gets some; chance is part of its state."""

    def __init__(self, balance: int, others: list[Any], transfers: int, seed: int) -> None:
        self.balance = balance
        self.others = others
        self.transfers_left = transfers
        self.luck = seed

    def open(self) -> None:
        for _ in range(3):
            self._pay_someone()

    def deposit(self, amount: int) -> None:
        self.balance += amount
        self._pay_someone()

    def _pay_someone(self) -> None:
        if self.transfers_left and self.balance:
            amount = 1 + self._draw(min(9, self.balance))
            self.transfers_left -= 1
            self.balance -= amount
            self.others[self._draw(len(self.others))].deposit.send(amount)

    def _draw(self, limit: int) -> int:
        self.luck = (self.luck * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) % 2**64
        return (self.luck >> 33) % limit


class Office(rs.SnapshotMixin):
    """Whatever a machine can do but pay: children, timers, calls, joins, keywords, tuples, errors that it answers with."""

    def __init__(self, *, tags: dict[Any, Any]) -> None:
        self.tags = tags
        self.log: list[Any] = []

    def hire(self, name: str | None) -> None:
        clerk = self.spawn(Office, name=name, tags={"boss": self.machine_name})
        clerk.note.send("welcome", pair=(1, (2, 3)))
        self.log.append(clerk)

    def note(self, text: str, *, pair: tuple[int, tuple[int, int]]) -> None:
        self.log.append([text, {pair: 1}[pair]])

    def remind(self, seconds: float) -> None:
        self.handle.note.send_after(seconds, "later", pair=(0, (0, 0)))

    @rs.join("left", "right")
    def both(self, left: int, right: int) -> None:
        self.log.append(left - right)

    def refuse(self) -> None:
        self.log.append("refused")
        raise ValueError("no")

    def delegate(self, to: Any) -> None:
        to.note.remote("by call", pair=(5, (6, 7)))

    def ask(self, other: Any) -> None:
        self.log.append(ray.get(other.size.remote()))

    def size(self) -> int:
        return len(self.log)


class Moody(rs.SnapshotMixin):
    """Does something else in every process."""

    def __init__(self) -> None:
        self.count = 0
        self.process = 0

    def look(self) -> None:
        self.count += 1
        self.process = os.getpid()

    def tell(self, to: Any) -> None:
        to.deposit.send(os.getpid())


class Purse(rs.SnapshotMixin):
    """Gives what it is asked to."""

    def __init__(self, coins: int) -> None:
        self.coins = coins

    def give(self, to: Any, coins: int) -> None:
        self.coins -= coins
        to.take.send(coins)

    def give_less(self, to: Any, coins: int) -> None:
        self.coins -= coins
        to.take.send(coins - 1)

    def take(self, coins: int) -> None:
        self.coins += coins

    def age(self) -> None:
        self.coins += int(self.now())

    def draw(self) -> None:
        self.coins += self.random.randrange(2)


def message(end: Mapping[str, str], number: int, method: str, *args: Any, kind: str = "mail", **more: Any) -> Any:
    """A message as the table `actions` has it; `end` is {"source": ...} or {"target": ...}."""
    return {**end, "kind": kind, "number": number, "method": method, "args": list(args), **more}


class Drowsy(Purse):
    """Whether it may act hangs on the time, if it has seven."""

    def is_active(self) -> bool:
        return self.coins == 7 and self.now() > 0


class Patient(Purse):
    """Waits for the other one from a moment on."""

    def waiting_for(self) -> rs.Wait | None:
        return rs.all_of("a" if self.machine_name == "b" else "b") if self.now() > 0 else None


class Pairing(Purse):
    """Takes two at once."""

    @rs.join("left", "right")
    def pair(self, left: int, right: int) -> None:
        pass


class Trace:
    """Rows of `actions`, written by hand, in the order in which they happened."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self.counts: dict[str, int] = {}

    def act(
        self, machine: str, method: str, accepted: list[Any], sent: list[Any], colour: int = 0, **more: Any
    ) -> None:
        self.counts[machine] = number = self.counts.get(machine, 0) + 1
        common = {"is_over": True, "waited_at": None, "raised": None, "host": "host-0", "run_id": "run"}
        when = NOON + timedelta(milliseconds=len(self.rows))
        self.rows.append(
            {**common, "machine": machine, "number": number, "method": method, "accepted": accepted, "sent": sent,
             "colour": colour, "acted_at": when, **more}
        )  # fmt: skip

    def create(self, name: str, *args: Any, colour: int = 0, class_name: str = "witness_machines:Purse") -> None:
        """The driver creates a machine, and it is constructed."""
        more = {"class": class_name}
        self.act("driver", "send", [], [message({"target": name}, 0, "__init__", *args, **more)], colour)
        self.act(name, "__init__", [message({"source": "driver"}, 0, "__init__", *args, **more)], [], colour)


def handle(name: str) -> dict[str, str]:
    """A machine, as it is recorded."""
    return {"$machine": name}
