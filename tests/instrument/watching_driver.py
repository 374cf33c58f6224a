"""A program that watches itself with `rs.watch`: what it saw, as JSON, for `test_watching_from_the_program`."""

from __future__ import annotations

import json
import sys
from typing import Any

import ray

import ray_snapshot as rs
from ray_snapshot import detectors
from ray_snapshot.instrument import shape


@rs.wrap
class Account:
    """An account that knows nothing of snapshots."""

    def __init__(self, balance: int) -> None:
        self.balance = balance

    def deposit(self, amount: int) -> int:
        self.balance += amount
        return self.balance

    def transfer(self, to: Any, amount: int) -> int:
        """Take the amount out, and see it arrive."""
        self.balance -= amount
        return int(ray.get(to.deposit.remote(amount)))


class Watcher:
    """An actor of a name that one of ours has, too; nobody wrapped it."""

    def ready(self) -> bool:
        return True


def main(history: str) -> dict[str, Any]:
    kind, stranger = ray.remote(Account), ray.remote(Watcher)
    with rs.watch("bank", history=history, detectors=[detectors.Termination(), detectors.Deadlock()]) as system:
        a, b = kind.remote(100), kind.remote(0)
        moved = ray.get(a.transfer.remote(b, 30))
        snapshot = system.snapshot(timeout=30)
        snapshot.verify()
        verdict = system.wait_for("termination", timeout=30)
        actors = sorted(shape.actors_of_job()[0].values())
        namesake = stranger.remote()
        ray.get(namesake.ready.remote())
        return {
            "actors": actors,
            "uncovered": system.wait_for(unwatched, timeout=30).evidence["actors"],
            "moved": moved,
            "states": {name: machine.state for name, machine in snapshot.machines.items() if name != "driver"},
            "in_flight": snapshot.in_flight_count,
            "terminated": verdict.holds,
            "late": refusal(rs.install),
            "twice": refusal(lambda: rs.watch("again")),
            "can": [
                name
                for name in ("spawn", "spawn_many", "machine", "connect", "stop", "commit")
                if hasattr(system, name)
            ],
        }


@rs.detector
def unwatched(snapshot: rs.Snapshot) -> Any:
    found = [line for line in snapshot.coverage["uncovered"] if line.startswith("actor ")]
    return bool(found), {"actors": found}


def refusal(work: Any) -> str:
    try:
        work()
    except rs.RaySnapshotError as error:
        return str(error)
    return "nothing was refused"


if __name__ == "__main__":
    ray.init()
    print(json.dumps(main(sys.argv[1])))
