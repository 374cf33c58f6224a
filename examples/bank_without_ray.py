"""A bank whose every order is tried in a second, without Ray: what can go wrong, is shown, step by step.

What to look at: money is never lost, in whatever order the transfers and deposits happen. But Carol may go into the red: she
pays before she is paid. The counterexample is the shortest run in which she does, and it replays.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ray_snapshot as rs
from ray_snapshot import detectors, testing


class Account(rs.SnapshotMixin):
    """Holds money, and sends it on when it is told to."""

    def __init__(self, balance: int) -> None:
        self.balance = balance

    def deposit(self, amount: int) -> None:
        self.balance += amount

    def transfer(self, to: rs.MachineHandle, amount: int) -> None:
        self.balance -= amount
        to.deposit.send(amount)


def bank(system: Any) -> None:
    """Alice pays Bob and Carol; Carol pays Bob."""
    alice = system.spawn(Account, 100, name="alice")
    bob = system.spawn(Account, 50, name="bob")
    carol = system.spawn(Account, 5, name="carol")
    alice.transfer.send(bob, 10)
    alice.transfer.send(carol, 20)
    carol.transfer.send(bob, 15)


money = detectors.TokenConservation(total=155, state="$.balance", messages={"deposit": "$[0]"})


def no_overdraft(states: Mapping[str, Account]) -> bool:
    """No account is in the red."""
    return all(account.balance >= 0 for account in states.values())


def main() -> None:
    """Try every order, once for the money and once for overdrafts."""
    print(testing.explore(bank, always=[money], never=[detectors.Deadlock()], eventually=[detectors.Termination()]))
    found = testing.explore(bank, always=[no_overdraft])
    print(found)
    if found.counterexample is not None:
        again = testing.replay(bank, found.counterexample.schedule)
        print(f"replayed: carol has {again.machines['carol'].balance}")


if __name__ == "__main__":
    main()
