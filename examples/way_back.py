"""A way back: ordinary Ray actors run into a deadlock, are told so, and go back to the moment before it.

What to look at: two accounts that pay each other at the same time wait for each other's answer, each inside its own call:
neither ever takes the next one. Their program would hang for ever, with money taken out of both and paid into none. It is
watched, so it learns within a second that nothing can move any more, rolls both actors back to a snapshot from before, in
which no coin is missing, and makes the payments one after the other. Nothing in the accounts knows of snapshots.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import ray

import ray_snapshot as rs
from ray_snapshot import detectors

LOOK_S = 0.5
BOUND_S = 60.0


@rs.remote
class Account:
    """Waits, while it pays, for the other to confirm: that is its fault."""

    def __init__(self, balance: int) -> None:
        self.balance = balance

    def deposit(self, amount: int) -> int:
        """Take an amount in."""
        self.balance += amount
        return self.balance

    def pay(self, to: Any, amount: int, takes_s: float) -> int:
        """Take an amount out, work a little, and see it arrive."""
        self.balance -= amount
        time.sleep(takes_s)
        return int(ray.get(to.deposit.remote(amount)))

    def read(self) -> int:
        """The balance."""
        return self.balance


def play(rounds: int = 3, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Two accounts pay each other at once, round by round; returns what became of them."""
    deadlock, backs, last = detectors.Deadlock(), 0, ""
    with rs.watch("way-back", checkpoint=True, detectors=[deadlock]) as system:
        account: Any = Account
        ann, bob = account.options(name="ann").remote(100), account.options(name="bob").remote(100)
        ray.get([ann.read.remote(), bob.read.remote()], timeout=BOUND_S)  # an actor that is being made cannot go back
        for number in range(1, rounds + 1):
            payments = [(ann, bob, 10 * number), (bob, ann, number)]
            before = system.snapshot(timeout=BOUND_S)
            waiting = [source.pay.remote(target, amount, 0.2) for source, target, amount in payments]
            deadline = time.monotonic() + BOUND_S
            while waiting and time.monotonic() < deadline:
                _, waiting = ray.wait(waiting, num_returns=len(waiting), timeout=LOOK_S)
                verdict = deadlock.evaluate(system.snapshot(timeout=BOUND_S)) if waiting else None
                if verdict is not None and verdict.holds:
                    last, backs, waiting = verdict.sentence, backs + 1, []
                    say(f"round {number}: {last}")
                    system.restore(before)
                    say(f"round {number}: went back to {before.snapshot_id}, and pay one after the other")
                    for source, target, amount in payments:
                        ray.get(source.pay.remote(target, amount, 0.0), timeout=BOUND_S)
        balances = ray.get([ann.read.remote(), bob.read.remote()], timeout=BOUND_S)
    say(f"ann has {balances[0]}, bob has {balances[1]}: {sum(balances)} in all")
    return {"balances": balances, "backs": backs, "sentence": last}


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="how often the two pay each other")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    found = play(options.rounds, say=(lambda _: None) if options.json else print)
    if options.json:
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
