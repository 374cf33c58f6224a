"""The program that made `before`, and that is run again to restore one of its snapshots: HISTORY PART.

`make.sh` runs it once for each part. Classes in this file are pickled by value, those of `machines_of_before` by reference.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import machines_of_before as before
import ray

import ray_snapshot as rs
from ray_snapshot import detectors, pipelines

BALANCE, NAMES = 100, ["account-0", "account-1", "account-2"]
MACHINES = [
    detectors.Deadlock(),
    detectors.Termination(),
    detectors.Termination(machines=["account-*"], name="accounts at rest"),
    detectors.TokenConservation(total=BALANCE * len(NAMES), state="$.balance", messages={"deposit": "$[0]"}),
    detectors.UniqueToken(),
    detectors.Reached("$.round", 3, machines=["account-*"]),
    detectors.from_spec({"type": "garbage", "unless": "notary*"}),
    detectors.OrphanedWait(),
    detectors.Infeasible(),
    detectors.from_spec({"type": "virtual-time"}),
    "machines_of_before:solvent",
]


class Teller(rs.SnapshotMixin):
    """Its class is in the checkpoint."""

    def __init__(self, drain: Any) -> None:
        self.drain, self.lines = drain, ["opened"]

    def count(self) -> int:
        self.lines.append("counted")
        return len(ray.get(self.drain.taken.remote()))


def begun(system: rs.System) -> list[Any]:
    """Accounts with handles of each other, and a notary with a half of a join and a timer."""
    accounts = [system.machine(name) for name in NAMES]
    arguments = [(BALANCE, accounts[:n] + accounts[n + 1 :], 20, n) for n in range(len(NAMES))]
    system.spawn_many(before.Account, args=arguments, names=NAMES, per_host=2)
    notary = system.spawn(before.Notary, name="notary")
    if not system.restored:
        for account in accounts:
            account.open.send()
        notary.hire.send("notary-clerk")
        notary.remind.send(1.0)
        notary.buyer.send(1)  # what is sent behind it waits for the seller's part
    return [*accounts, notary]


def traced(history: str) -> None:
    """A run with a trace and every detector: snapshots while money moves, and at the end."""
    with rs.System("bank", history=history, trace=True, detectors=MACHINES) as system:
        *_, notary = begun(system)
        system.start()
        system.snapshot()
        notary.seller.send(2)
        system.wait_for("termination", timeout=60)
        system.snapshot()


def saved(history: str) -> None:
    """A run with checkpoints that is rolled back, with a class of this file and a source."""
    address = os.environ.get("RAY_ADDRESS")
    with rs.System("bank", history=history, address=address, checkpoint=True, detectors=["termination"]) as system:
        account, *_, notary = begun(system)
        drain = system.spawn(before.Drain, name="drain")
        teller = system.spawn(Teller, drain, name="teller")
        reader = pipelines.Generated(before.squares, (40,))
        source = system.spawn(pipelines.Source, reader, [drain], batch=2, pause_s=0.02, name="source", role="source")
        source.begin.send()
        system.start()
        if not system.restored:
            first = system.snapshot()
            system.restore(first)
            system.snapshot()
        notary.seller.send(2)
        system.wait_for("termination", timeout=60)
        answers = {
            "total": account.total.remote(),
            "signed": notary.hear_all.remote(),
            "counted": teller.count.remote(),
            "rows": drain.taken.remote(),
        }
        told = {name: ray.get(answer) for name, answer in answers.items()}
        print(json.dumps({"restored_from": system.snapshot().restored_from, **told}, default=repr), flush=True)


@rs.remote
class Desk:
    """An actor of an app; two of them wait for each other."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def login(self, user: str, password: str) -> None:
        self.seen.append({"user": user, "password": password})

    def ask(self, other: Any) -> Any:
        return ray.get(other.answer.remote(self.seen[:0]))

    def answer(self, question: Any) -> Any:
        return question


def watched(history: str) -> None:
    """An app of actors, with a password, a deadlock, and an actor for which there is no room."""
    rs.redact("password")
    watch = ["deadlock", "infeasible", "termination", detectors.OrphanedWait()]
    with rs.watch("desks", history=history, detectors=watch) as system:
        one, other = Desk.remote(), Desk.remote()
        ray.get([desk.login.remote("ann", password="opensesame") for desk in (one, other)])
        system.snapshot()
        nowhere = Desk.options(resources={"nowhere": 1}).remote()
        asked = [one.ask.remote(other), other.ask.remote(one), nowhere.ask.remote(one)]
        system.wait_for("deadlock", timeout=60)
        time.sleep(10)  # so long a call must have waited for room that no node has
        system.wait_for("infeasible", timeout=60)
        del asked


if __name__ == "__main__":
    {"traced": traced, "saved": saved, "watched": watched}[sys.argv[2]](sys.argv[1])
