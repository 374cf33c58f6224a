"""A market: traders are spawned machines, tens to a process, and banks are ordinary Ray actors; one snapshot cuts both.

What to look at: coins go from traders to banks in calls, from banks to traders in messages, and between traders; in every
snapshot they add up, wherever they are at that moment. Then a trader asks a bank for its word, the bank asks the trader back
inside that call, and both wait: no look at the machines alone, and none at the actors alone, shows why the market stands
still. The snapshot of both names the two lines; and both go back together to the moment before, which gets them out of it.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Callable
from typing import Any

import ray

import ray_snapshot as rs
from ray_snapshot import detectors

BOUND_S = 60.0
START = 100


@rs.remote
class Bank:
    """An ordinary Ray actor: it gives out what is paid in, to somebody else."""

    def __init__(self, balance: int) -> None:
        self.balance = balance
        self.traders: list[Any] = []
        self.draw = random.Random(balance)

    def open(self, traders: list[Any]) -> None:
        """It knows the market now."""
        self.traders = traders

    def pay_in(self, amount: int) -> None:
        """Coins come in by a call, and go out by a message to a machine."""
        self.balance += amount - 1
        self.draw.choice(self.traders).receive.send(1)

    def vouch(self, trader: Any) -> bool:
        """Ask the trader before answering for it: that is its fault."""
        return bool(ray.get(trader.is_solvent.remote()))


class Trader(rs.SnapshotMixin):
    """A machine: it trades as long as it has coins and turns left."""

    def __init__(self, banks: list[Any], seed: int, turns: int) -> None:
        self.balance = START
        self.banks = banks
        self.turns = turns
        self.neighbour: Any = None
        self.draw = random.Random(seed)

    def meet(self, neighbour: Any) -> None:
        """Who stands next to it."""
        self.neighbour = neighbour

    def receive(self, amount: int) -> None:
        """Coins come in, and some go on."""
        self.balance += amount
        if self.turns and self.balance >= 2 and self.neighbour is not None:
            self.turns -= 1
            self.balance -= 2
            if self.draw.random() < 0.5:
                self.neighbour.receive.send(2)
            else:
                self.draw.choice(self.banks).pay_in.remote(2)

    def is_solvent(self) -> bool:
        """Asked by a bank."""
        return self.balance > 0

    def apply(self, bank: Any, me: Any) -> None:
        """Ask a bank for its word, and wait for it."""
        ray.get(bank.vouch.remote(me))


def play(traders: int = 40, turns: int = 30, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Trade under snapshots, then stand still; returns what was seen."""
    total = (traders + 2) * START
    money = detectors.TokenConservation(
        total=total, state="$.balance", messages={"receive": "$[0]", "pay_in": "$[0]"}, name="coins"
    )
    watching = rs.watch("market", checkpoint=True, detectors=[detectors.Termination(), detectors.Deadlock()])
    with watching, rs.System("stalls") as system:
        bank: Any = Bank
        banks = [bank.options(name=name).remote(START) for name in ("north", "south")]
        stalls = system.spawn_many(
            Trader,
            [(banks, seed, turns) for seed in range(traders)],
            names=[f"trader-{n}" for n in range(traders)],
            per_host=20,
        )
        system.start()
        ray.get([one.open.remote(stalls) for one in banks], timeout=BOUND_S)
        for stall, neighbour in zip(stalls, [*stalls[1:], stalls[0]], strict=True):
            stall.meet.send(neighbour)
            stall.receive.send(0)
        seen = []
        for _ in range(5):
            snapshot = system.snapshot(timeout=BOUND_S)
            verdict = money.evaluate(snapshot)
            held = sum(m.state["balance"] for m in snapshot.machines.values() if m.state is not None)
            seen.append({"held": held, "in_flight": len(snapshot.messages), "conserved": verdict.holds})
            say(f"{held} coins are held, {len(snapshot.messages)} messages and calls are in flight: {verdict.sentence}")
        end = system.wait_for("termination", timeout=BOUND_S).sentence
        say(end)
        quiet = system.snapshot(timeout=BOUND_S)
        stalls[0].apply.send(banks[0], stalls[0])
        stuck = system.wait_for("deadlock", timeout=BOUND_S)
        say(stuck.sentence)
        system.restore(quiet)
        again = system.wait_for("termination", timeout=BOUND_S).sentence
        say(f"Back at {quiet.snapshot_id}: {again}")
    told = {"end": end, "core": stuck.evidence["cores"][0], "sentence": stuck.sentence, "again": again}
    return {"seen": seen, "total": total, **told}


def main() -> int:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--traders", type=int, default=40, help="how many machines")
    parser.add_argument("--turns", type=int, default=30, help="how often each trades")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args()
    found = play(options.traders, options.turns, say=(lambda _: None) if options.json else print)
    if options.json:
        print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
