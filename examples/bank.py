"""A bank: accounts on two hosts pay each other while snapshots are taken, and no money is ever lost or made.

What to look at: the column "balances" is what adding up the accounts gives. It is wrong nearly every time,
although each balance is right, because the money that is on its way is in no account. A snapshot
records it too, as the messages of the channels, and the sum of both columns is the same to the coin in every
snapshot, however long the bank goes on while it is taken. At the end nothing is in flight any more: that the
bank has closed is proven, not guessed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import ray_snapshot as rs
from ray_snapshot import detectors
from ray_snapshot.examples.program import run

OPENING_PAYMENTS = 3


class Account(rs.SnapshotMixin):
    """Passes money on whenever it gets some, until it has made all of its transfers."""

    def __init__(self, balance: int, others: list[Any], transfers: int, seed: int) -> None:
        self.balance = balance
        self.others = others
        self.transfers_left = transfers
        self.luck = seed

    def open(self) -> None:
        for _ in range(OPENING_PAYMENTS):
            self._pay_someone()

    def deposit(self, amount: int) -> None:
        self.balance += amount
        self._pay_someone()

    def _pay_someone(self) -> None:
        if not self.transfers_left or not self.balance:
            return
        amount = 1 + self._draw(self.balance)
        self.transfers_left -= 1
        self.balance -= amount
        self.others[self._draw(len(self.others))].deposit.send(amount)

    def _draw(self, limit: int) -> int:
        """A number from 0 to limit - 1; chance is part of the state, so snapshots record it too."""
        self.luck = (self.luck * 6_364_136_223_846_793_005 + 1_442_695_040_888_963_407) % 2**64
        return (self.luck >> 33) % limit


def books(snapshot: rs.Snapshot) -> dict[str, int]:
    """What the accounts hold, and what is on its way between them."""
    accounts = [machine for machine in snapshot.machines.values() if machine.class_name == "Account"]
    deposits = [message.args[0] for message in snapshot.messages if message.method == "deposit"]
    return {
        "balances": sum(account.state["balance"] for account in accounts),
        "in_flight": sum(deposits),
        "payments": len(deposits),
    }


def play(
    *,
    history: str | None = None,
    every: float = 0.2,
    on_verdict: Callable[[rs.Verdict], None] | None = None,
    accounts: int = 20,
    balance: int = 100,
    transfers: int = 3_000,
) -> dict[str, Any]:
    """Run the bank until it is proven to have closed; returns the books of some snapshots on the way."""
    total = accounts * balance
    conservation = detectors.TokenConservation(total=total, state="$.balance", messages={"deposit": "$[0]"})
    watch = [conservation, detectors.Termination()]
    with rs.System("bank", history=history, every=every, detectors=watch) as system:
        if on_verdict:
            system.subscribe(on_verdict, repeat=True)
        names = [f"account-{number}" for number in range(accounts)]
        people = [system.machine(name) for name in names]
        arguments = [(balance, people[:n] + people[n + 1 :], transfers, n) for n in range(accounts)]
        system.spawn_many(Account, args=arguments, names=names, per_host=(accounts + 1) // 2)
        system.start()
        for person in people:
            person.open.send()
        snapshots = [system.snapshot(timeout=30) for _ in range(5)]
        closed = system.wait_for("termination", timeout=120)
        snapshots.append(system.snapshot(timeout=30))
    return {
        "total": total,
        "books": [books(snapshot) for snapshot in snapshots],
        "conserved": [conservation.evaluate(snapshot).holds for snapshot in snapshots],
        "terminated": closed.holds,
    }


def tell(facts: dict[str, Any]) -> None:
    print(f"{'balances':>10}{'in flight':>11}{'sum':>8}")
    for row in facts["books"]:
        print(f"{row['balances']:>10}{row['in_flight']:>11}{row['balances'] + row['in_flight']:>8}")
    print(f"The bank has closed: {facts['terminated']}; it owns {facts['total']} coins, as at the beginning.")


def main(argv: list[str] | None = None) -> int:
    return run(__doc__, play, tell, argv)


if __name__ == "__main__":
    sys.exit(main())
