"""Spawned machines and ordinary actors that call each other: each scenario is a program of its own, named on the command line.

A line of JSON says what came of it.
"""

import asyncio
import json
import sys
import threading
import time

import ray
from together import Holder

import ray_snapshot as rs


@ray.remote
class Vault(Holder):
    def lend(self, count):
        self.tokens -= count
        return count

    def confirm(self, desk):
        return ray.get(desk.sign.remote())

    def read(self, box):
        return ray.get(box[0])

    def pay(self, machine, count):
        self.tokens -= count
        machine.put.send(count, 0)

    def tell(self, machine):
        try:
            machine.put.send(1, 0)
        except rs.MachineStoppedError as error:
            return str(error)
        return None

    def hold(self, seconds):
        time.sleep(seconds)

    def give_and_fail(self, other, machine):
        self.tokens -= 5
        try:
            ray.get([other.put.remote(5, 0), machine.fail.remote()])
        except ValueError:
            return True
        return False


@ray.remote
class Loop:
    async def sum_of(self, machines):
        found = await asyncio.gather(*(machine.sign.remote() for machine in machines))
        for machine in machines:
            machine.put.send(1, 0)
        return sum(found)


class Purse(Holder, rs.SnapshotMixin):
    def put(self, count, hops):
        self.tokens += count
        if not hops or self.tokens < 2 or not self.others:
            return
        other = self.draw.choice(self.others)
        if isinstance(other, rs.MachineHandle):
            self.tokens -= 2
            other.put.send(2, hops - 1)
        elif self.draw.random() < 0.5:
            self.tokens -= 2
            other.put.remote(2, hops - 1)
        else:
            self.tokens += ray.get(other.lend.remote(2))

    def sign(self):
        return 1

    def ask(self, vault):
        self.tokens += ray.get(vault.confirm.remote(self.machine("desk")))

    def fail(self):
        raise ValueError("no")

    def look(self, vault):
        """Ask for a moment, and go on; the call stays where it is."""
        self.tokens -= 1
        ray.wait([vault.put.remote(1, 0)], timeout=0.05)

    def start(self, vault):
        threading.Thread(target=lambda: ray.get(vault.lend.remote(1)), daemon=True).start()

    def make(self):
        self.made = Vault.remote(5)
        self.tokens += ray.get(self.made.lend.remote(3))

    def fetch(self, vault):
        self.tokens += sum(ray.get([vault.lend.remote(1), vault.lend.remote(1)]))


def total(snapshot):
    """All tokens: held, in messages and calls in flight, or in a reply of `lend` that is not read: two for each."""
    held = sum(m.state["tokens"] for m in snapshot.machines.values() if m.state and "tokens" in m.state)
    unread = sum(row["satisfied"] for row in snapshot.tables["waits"].to_pylist())
    return held + sum(m.args[0] for m in snapshot.messages if m.method == "put") + 2 * unread


def storm(protocol):
    with rs.System("storm", protocol=protocol) as system:
        vaults = [Vault.remote(50, seed) for seed in range(2)]
        purses = system.spawn_many(Purse, [(50, seed) for seed in range(4)], per_host=2)
        system.start()
        everyone = [*vaults, *purses]
        ray.get([vault.know.remote(everyone) for vault in vaults])
        for purse in purses:
            purse.know.send(everyone)
            purse.put.send(0, 40)
        for vault in vaults:
            vault.put.remote(0, 40)
        totals, problems, busy = [], [], 0
        for _ in range(12):
            for purse in purses:
                purse.put.send(0, 20)
            found = system.snapshot()
            totals.append(total(found))
            problems += found.problems()
            busy += bool(found.messages)
        end = system.wait_for("termination", timeout=60)
        last = system.snapshot()
        return {
            "totals": sorted(set(totals)),
            "problems": problems,
            "busy": busy,
            "end": end.sentence,
            "last": total(last),
            "uncovered": last.coverage["uncovered"],
        }


def both_wait():
    with rs.System("office") as system:
        vault = Vault.options(name="clerk").remote()
        desk = system.spawn(Purse, name="desk")
        system.start()
        desk.ask.send(vault)
        verdict = system.wait_for("deadlock", timeout=60)
        return {"cores": verdict.evidence["cores"], "sentence": verdict.sentence}


def others():
    """An async actor that awaits machines, a machine that makes an actor, a ref that is passed on, a list of calls."""
    with rs.System("others") as system:
        first, second = system.spawn_many(Purse, count=2, names=["first", "second"], per_host=1)
        system.start()
        loop, vault = Loop.remote(), Vault.remote(10)
        summed = ray.get(loop.sum_of.remote([first, second]))
        passed = ray.get(vault.read.remote([first.sign.remote()]))
        first.make.send()
        second.fetch.send(vault)
        end = system.wait_for("termination", timeout=60)
        found = system.snapshot()
        tokens = {name: m.state["tokens"] for name, m in found.machines.items() if m.state and "tokens" in m.state}
        return {"summed": summed, "passed": passed, "tokens": tokens, "end": end.sentence, "problems": found.problems()}


def gone():
    """A machine stops, and an actor is killed that has sent mail; another system takes the place of the first."""
    vault = Vault.remote(10)
    with rs.System("first") as system:
        stays, stops = system.spawn_many(Purse, count=2, names=["stays", "stops"])
        system.start()
        ray.get([vault.pay.remote(stays, 1), vault.pay.remote(stops, 2)])
        killed = Vault.remote(7)
        ray.get(killed.pay.remote(stays, 4))
        system.wait_for("termination", timeout=60)
        system.stop(stops)
        until = time.monotonic() + 30
        while (refused := ray.get(vault.tell.remote(stops))) is None and time.monotonic() < until:
            time.sleep(0.05)
        ray.kill(killed)
        stays.put.send(1, 0)
        found = system.snapshot()
        while found.coverage["uncovered"] and time.monotonic() < until:
            found = system.snapshot()
        first = {
            "tokens": {name: m.state["tokens"] for name, m in found.machines.items() if m.state},
            "problems": found.problems(),
            "uncovered": found.coverage["uncovered"],
            "refused": refused,
        }
    with rs.System("second") as system:
        stays = system.spawn(Purse, name="stays")
        system.start()
        ray.get(vault.pay.remote(stays, 1))
        stays.fetch.send(vault)
        end = system.wait_for("termination", timeout=60)
        found = system.snapshot()
        return {
            **first,
            "again": {name: m.state["tokens"] for name, m in found.machines.items() if m.state},
            "end": end.sentence,
            "again_problems": found.problems(),
        }


def lists():
    """A list that fails, and a wait that runs out of time: a call that is queued behind a long one stays in flight."""
    with rs.System("lists") as system:
        machine = system.spawn(Purse, 20, name="machine")
        system.start()
        giver, busy = Vault.options(name="giver").remote(20), Vault.options(name="busy").remote(20)
        system.wait_for("termination", timeout=60)
        busy.hold.remote(1.5)
        failed = ray.get(giver.give_and_fail.remote(busy, machine))
        machine.look.send(busy)
        found = [system.snapshot() for _ in range(6)]
        seen = [
            sum(found.machines[name].state["tokens"] for name in ("machine", "giver", "busy"))
            + sum(m.args[0] for m in found.messages if m.method == "put")
            for found in found
        ]
        system.wait_for("termination", timeout=60)
        return {
            "failed": failed,
            "seen": sorted(set(seen)),
            "problems": [text for one in found for text in one.problems()],
        }


def threads():
    """A thread of the program that calls actors only, and one that a machine has started."""
    vault, stop = Vault.options(name="called").remote(100), threading.Event()

    def call():
        while not stop.is_set():
            ray.get(vault.lend.remote(1))
            time.sleep(0.2)

    with rs.System("threads") as system:
        machine = system.spawn(Purse, name="threaded")
        system.start()
        system.wait_for("termination", timeout=60)
        caller = threading.Thread(target=call, name="caller")
        caller.start()
        try:
            early = system.wait_for("termination", timeout=1.5).sentence
        except rs.SnapshotTimeoutError:
            early = None
        stop.set()
        caller.join()
        end = system.wait_for("termination", timeout=60).sentence
        machine.start.send(vault)
        until = time.monotonic() + 30
        while not (told := system.snapshot().coverage["uncovered"]) and time.monotonic() < until:
            time.sleep(0.05)
        return {"early": early, "end": end, "told": told}


def watched(history):
    """The program itself watches, waits for verdicts at the watch, and closes that first."""
    watch = rs.watch("watched", history=history)
    system = rs.System("machines")
    vault = rs.remote(Plain).remote()
    machine = system.spawn(Purse, name="machine")
    system.start()
    vault.pay.remote(machine, 4)
    end = watch.wait_for("termination", timeout=60).sentence
    watch.close()
    system.close()
    return {"end": end, "open": [name for name in ("machine",) if sends(machine)]}


class Plain:
    def pay(self, machine, count):
        machine.put.send(count, 0)


def sends(machine):
    try:
        machine.put.send(1, 0)
    except rs.NotAMachineError:
        return False
    return True


def apart(history):
    with rs.System("apart", history=history) as system:
        machine = system.spawn(Purse, 3, name="machine")
        system.start()
        machine.put.send(1, 0)
        system.wait_for("termination", timeout=60)
    return {"systems": sorted({found.system for found in rs.History(history).snapshots()})}


if __name__ == "__main__":
    ray.init(logging_level="ERROR")
    for name, *arguments in (one.split(":") for one in sys.argv[1:]):
        print(json.dumps({"scenario": name, **globals()[name](*arguments)}), flush=True)
