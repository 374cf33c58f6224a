"""A watched program that goes back: what it saw, as JSON lines, for `test_going_back`."""

import asyncio
import json
import os
import sqlite3
import sys
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import ray

import ray_snapshot as rs
from ray_snapshot import detectors

BOUND_S = 60.0
CALLS = 400


@rs.remote(max_restarts=-1)
class Node:
    def __init__(self) -> None:
        self.count = 0
        self.peer: Any = None

    def know(self, peer: Any) -> None:
        self.peer = peer

    def add(self, amount: int) -> None:
        self.count += amount
        if self.peer is not None:
            self.peer.add.remote(amount)

    def meet(self, path: str) -> Any:
        """Say that this has begun, and wait for the peer, which does the same."""
        self.count += 1_000
        with open(path, "wb", buffering=0) as gate:
            gate.write(b"x")
        return ray.get(self.peer.meet.remote(path))

    def compute(self, come: str, go: str) -> str:
        """Take long, for one who waits for nothing that could be ended."""
        with open(come, "wb", buffering=0) as gate:
            gate.write(b"x")
        with open(go, "rb", buffering=0) as gate:
            gate.read(1)
        return "computed"

    def read(self) -> int:
        return self.count


@rs.remote
class Ledger:
    """Has what belongs to its thread, and an actor that nobody else holds."""

    def __init__(self) -> None:
        self.node = Node.remote()
        self.entries: list[int] = []
        self.connect()

    def connect(self) -> None:
        """Write what there is into a table of its own."""
        self.table = sqlite3.connect(":memory:")
        self.table.execute("create table entries (amount)")
        self.table.executemany("insert into entries values (?)", [(entry,) for entry in self.entries])

    def enter(self, amount: int) -> None:
        self.entries.append(amount)
        self.table.execute("insert into entries values (?)", (amount,))
        ray.get(self.node.add.remote(amount))

    def read(self) -> list[int]:
        return [self.table.execute("select sum(amount) from entries").fetchone()[0], ray.get(self.node.read.remote())]

    def __getstate__(self) -> dict[str, Any]:
        return {"node": self.node, "entries": self.entries}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.connect()


@rs.remote
class Parked:
    def __init__(self) -> None:
        self.count = 0

    async def park(self) -> None:
        self.count += 1
        await asyncio.Event().wait()

    async def items(self, count: int, *, and_wait: bool = False) -> AsyncIterator[int]:
        """So many; Ray starts a thread for them, which never ends."""
        for number in range(count):
            yield number
        if and_wait:
            await asyncio.Event().wait()

    async def ask(self, other: Any, path: str) -> Any:
        self.count += 1
        return await other.meet.remote(path)

    async def read(self) -> int:
        return self.count


def say(what: str, **about: Any) -> None:
    print(json.dumps({"what": what, **about}), flush=True)


def error_of(work: Any) -> dict[str, str]:
    try:
        work()
    except rs.RaySnapshotError as error:
        return {"kind": type(error).__name__.partition("(")[2].rstrip(")") or type(error).__name__, "text": str(error)}
    except ray.exceptions.RayError as error:
        return {"kind": type(error).__name__, "text": str(error)}
    return {"kind": "", "text": ""}


def stream(parked: Any, count: int, **options: Any) -> Any:
    return parked.items.options(num_returns="streaming").remote(count, **options)


def counts(*nodes: Any) -> list[int]:
    found: list[int] = ray.get([node.read.remote() for node in nodes], timeout=BOUND_S)
    return found


def await_count(system: rs.System, node: Any) -> None:
    """All calls have come, once they have all been made."""
    system.wait_for("termination", timeout=BOUND_S)
    say("count", count=counts(node)[0])


def fifo(folder: str, name: str) -> str:
    path = str(Path(folder) / name)
    os.mkfifo(path)
    return path


def main(history: str) -> None:
    """Go back out of a flood of calls, a deadlock, and an action that takes long; then take a last snapshot."""
    kinds = [detectors.Termination(), detectors.Deadlock()]
    with rs.watch("nodes", history=history, checkpoint=True, detectors=kinds) as system:
        a, b, p = Node.options(name="a").remote(), Node.options(name="b").remote(), Parked.remote()
        ledger = Ledger.remote()
        if system.restored:
            new = Node.options(name="new").remote()
            ray.get([new.read.remote(), ledger.read.remote()])
            system.start()
            await_count(system, b)
            say("went on", counts=counts(a, b, new), restored_from=system.snapshot().restored_from)
            say("ledger", read=ray.get(ledger.read.remote(), timeout=BOUND_S))
            return
        ray.get([a.know.remote(b), p.read.remote(), ledger.enter.remote(3)])
        say("items", items=[ray.get(item) for item in stream(p, 3)])
        flood(system, a, b)
        say("ledger", read=ray.get(ledger.read.remote(), timeout=BOUND_S))
        with tempfile.TemporaryDirectory() as folder:
            deadlock(system, a, b, p, fifo(folder, "meet"))
            long_action(system, a, b, fifo(folder, "come"), fifo(folder, "go"))


def flood(system: rs.System, a: Any, b: Any) -> None:
    """A snapshot in the midst of many calls, and back to it when all have come."""
    for _ in range(CALLS):
        a.add.remote(1)
    snapshot = system.snapshot(timeout=BOUND_S)
    moving = {f"{source}->{target}": found.in_flight_count for (source, target, _), found in snapshot.channels.items()}
    say(
        "snapshot", id=snapshot.snapshot_id, restorable=snapshot.restorable, obstacles=snapshot.obstacles, moving=moving
    )
    await_count(system, b)
    later = Node.remote()
    ray.get([a.add.remote(5), later.read.remote()])
    old = a.read.remote()
    system.restore(snapshot)
    say("later", **error_of(lambda: ray.get(later.read.remote(), timeout=BOUND_S)))
    say("old", **error_of(lambda: ray.get(old, timeout=BOUND_S)))
    await_count(system, b)
    again = system.snapshot(timeout=BOUND_S)
    again.verify()
    say("again", counts=counts(a, b), restored_from=again.restored_from, obstacles=again.obstacles)


def deadlock(system: rs.System, a: Any, b: Any, p: Any, path: str) -> None:
    """Two that wait for each other, and others behind them: all are as they were."""
    ray.get(b.know.remote(a))
    good = system.snapshot(timeout=BOUND_S)
    items = stream(p, 1, and_wait=True)
    ray.get(next(items))
    with open(path, "r+b", buffering=0) as gate:
        refs = [a.meet.remote(path), b.meet.remote(path), p.park.remote(), p.ask.remote(a, path)]
        gate.read(1)
        gate.read(1)
        verdict = system.wait_for("deadlock", timeout=BOUND_S)
    hung = system.snapshot(timeout=BOUND_S)
    say("hung", members=sorted(one["machine"] for one in verdict.evidence["members"]), obstacles=hung.obstacles)
    say("refused", **error_of(lambda: system.restore(hung)))
    system.restore(good)
    ended = [error_of(lambda ref=ref: ray.get(ref, timeout=BOUND_S))["kind"] for ref in refs]
    ended.append(error_of(lambda: ray.get(next(items)))["kind"])
    say("out", counts=counts(a, b, p), ended=ended)


def long_action(system: rs.System, a: Any, b: Any, come: str, go: str) -> None:
    """One who does not stop is named, and all go on as they were; afterwards they can go back."""
    good = system.snapshot(timeout=BOUND_S)
    with open(come, "r+b", buffering=0) as arrival, open(go, "r+b", buffering=0) as departure:
        ref = a.compute.remote(come, go)
        arrival.read(1)
        say("given up", **error_of(lambda: system.restore(good, timeout=1.0)))
        say("meanwhile", counts=counts(b))
        departure.write(b"x")
        say("computed", answer=ray.get(ref, timeout=BOUND_S))
    quiet = system.snapshot(timeout=BOUND_S)
    quiet.verify()
    system.restore(quiet)
    say("end", counts=counts(a, b), obstacles=quiet.obstacles)


def bereaved(history: str, *again: str) -> None:
    """Actors are killed before the program goes back; it makes others of their names where it is told to."""
    with rs.watch("bereaved", history=history, checkpoint=True) as system:
        nodes = [Node.options(name="a").remote(), Node.remote()]
        ray.get([node.add.remote(3) for node in nodes])
        snapshot = None if system.restored else system.snapshot(timeout=BOUND_S)
        for node in nodes:
            ray.kill(node)
        if snapshot is not None:
            say("refused", id=snapshot.snapshot_id, **error_of(lambda: system.restore(snapshot)))
        if again:
            nodes = [Node.options(name=name).remote() for name in ("a", "Node-0")]
        if snapshot is None:
            system.start()
        else:
            system.restore(snapshot)
        say("back", counts=counts(*nodes))


if __name__ == "__main__":
    ray.init(logging_level="ERROR")
    if sys.argv[1] == "--bereaved":
        bereaved(*sys.argv[2:])
    else:
        main(sys.argv[1])
