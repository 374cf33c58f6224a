"""A program that tests start, and start again from one of its snapshots: HISTORY ADDRESS PER_HOST."""

import json
import sys
from collections import Counter
from typing import Any

import ray_snapshot as rs
from ray_snapshot import detectors

NAMES = tuple(f"v{number}" for number in range(8))
history, address, per_host = sys.argv[1], sys.argv[2], int(sys.argv[3])


class Purse(rs.SnapshotMixin):
    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.peers = [self.machine(name) for name in NAMES]
        self.turn = 0
        self.is_made_anew = True

    def snapshot_state(self) -> Any:
        return {name: value for name, value in self.__dict__.items() if name != "is_made_anew"}

    def take(self, amount: int, hops: int, _sender: Any) -> None:
        self.tokens += amount
        if hops:
            self.pass_on(amount, hops - 1)

    def pass_on(self, amount: int, hops: int) -> None:
        self.turn += 1
        self.tokens -= amount
        self.peers[self.turn % len(NAMES)].take.send(amount, hops, [self.handle])

    def later(self, seconds: float, amount: int) -> None:
        self.tokens -= amount
        self.handle.take.send_after(seconds, amount, 0, None)

    def hire(self, amount: int) -> None:
        self.tokens -= amount
        self.spawn(Purse, amount, name="hired")


def told(snapshot: rs.Snapshot) -> None:
    purses = {name: machine for name, machine in snapshot.machines.items() if machine.class_name == "Purse"}
    moving = [message.args[0] for message in snapshot.messages if message.method in ("take", "__init__")]
    line = {
        "id": snapshot.snapshot_id,
        "restored_from": snapshot.restored_from,
        "restorable": snapshot.restorable,
        "tokens": sum(machine.state["tokens"] for machine in purses.values()) + sum(moving),
        "moving": len(moving),
        "hosts": sorted(Counter(machine.host for machine in purses.values()).values()),
        "machines": sorted(purses),
        "sequence": snapshot.sequence,
    }
    print(json.dumps(line), flush=True)


with rs.System("purses", history=history, address=address, checkpoint=True, detectors=[]) as system:
    purses = system.spawn_many(Purse, args=[(100,) for _ in NAMES], names=list(NAMES), per_host=per_host)
    for purse in purses:
        purse.pass_on.send(1, 200)
    system.start()
    if not system.restored:
        for purse in purses:
            for _ in range(5):
                purse.pass_on.send(1, 400)
        purses[1].later.send(0.5, 3)
        purses[0].hire.send(5)
    told(system.snapshot())
    extra = system.spawn(Purse, 0, name="extra")
    system.wait_for(detectors.Termination(), timeout=60)
    told(system.snapshot())
