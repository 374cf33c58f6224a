"""Spawned machines and ordinary actors go back together, to one moment: each scenario is a program of its own.

A line of JSON says what came of it.
"""

import json
import os
import random
import sys

import ray

import ray_snapshot as rs
from ray_snapshot import detectors

KINDS = [detectors.Termination(), detectors.Deadlock()]
BOUND_S = 60.0

MADE = []
"""The actors of this scenario: they know each other, so Ray would keep them for the next."""


class Holder:
    def __init__(self, tokens=0, seed=0):
        self.tokens = tokens
        self.others = []
        self.draw = random.Random(seed)

    def know(self, others):
        self.others = others

    def put(self, count, hops):
        self.tokens += count
        if hops and self.tokens >= 2 and self.others:
            self.tokens -= 2
            give(self.draw.choice(self.others), hops - 1)


class Vault(Holder):
    def confirm(self, desk):
        return ray.get(desk.sign.remote())

    def compute(self, come, go):
        with open(come, "wb", buffering=0) as arrival, open(go, "rb", buffering=0) as departure:
            arrival.write(b"x")
            departure.read(1)
        return "computed"

    def read(self):
        return self.tokens


class Purse(Holder, rs.SnapshotMixin):
    def sign(self):
        return 1

    def restore_state(self, state):
        if os.path.exists(state.get("stumbles_over", "")):
            raise ValueError("it stumbles")
        self.__dict__.update(state)

    def stumble(self, path):
        self.stumbles_over = path

    def ask(self, vault):
        self.tokens += ray.get(vault.confirm.remote(self.machine("purse-0")))


def give(other, hops):
    if isinstance(other, rs.MachineHandle):
        other.put.send(2, hops)
    else:
        other.put.remote(2, hops)


def held(snapshot):
    return {name: m.state["tokens"] for name, m in snapshot.machines.items() if m.state and "tokens" in m.state}


def total(snapshot):
    """All tokens: held, or in messages and calls in flight."""
    return sum(held(snapshot).values()) + sum(m.args[0] for m in snapshot.messages if m.method == "put")


def kinds(snapshot):
    """How many messages and calls are in flight, by who sends to whom."""
    found = {}
    for m in snapshot.messages:
        ends = f"{kind_of(m.source)} to {kind_of(m.target)}"
        found[ends] = found.get(ends, 0) + 1
    return found


def kind_of(name):
    return {"purse": "machine", "Vault": "actor"}.get(name.partition("-")[0], name)


def market(system):
    vault = rs.remote(Vault)
    vaults = [vault.remote(50, n) for n in range(2)]
    MADE.extend(vaults)
    purses = system.spawn_many(Purse, [(50, n) for n in range(4)], names=[f"purse-{n}" for n in range(4)], per_host=2)
    return vaults, purses


def begin(vaults, purses, hops):
    everyone = [*vaults, *purses]
    ray.get([vault.know.remote(everyone) for vault in vaults])
    for purse in purses:
        purse.know.send(everyone)
        for _ in range(4):
            purse.put.send(0, hops)
    for vault in vaults:
        vault.put.remote(0, hops)


def restorable(system, tries=40):
    """The first snapshot that can be restored, with calls and messages in flight across both; and why others could not be."""
    refused = []
    for _ in range(tries):
        found = system.snapshot(timeout=BOUND_S)
        if found.restorable and {"machine to actor", "actor to machine"} <= kinds(found).keys():
            return found, refused
        refused += found.obstacles
    raise AssertionError(refused[-5:])


def storm(protocol, history=None):
    """Tokens cross both ways all the time; the whole goes back three times, and is the same again each time."""
    watching = rs.watch("storm", checkpoint=True, detectors=KINDS, history=history)
    with watching as watch, rs.System("purses", protocol=protocol) as system:
        vaults, purses = market(system)
        system.start()
        if watch.restored:
            watch.start()
            return went_on(system, vaults)
        begin(vaults, purses, 60)
        found, refused = restorable(system)
        totals, problems = [total(found)], found.problems()
        again = []
        for number in range(3):
            (watch if number % 2 else system).restore(found)
            for _ in range(3):
                later = system.snapshot(timeout=BOUND_S)
                totals.append(total(later))
                problems += later.problems()
            again.append(later.restored_from == found.snapshot_id)
            for purse in purses:
                purse.put.send(0, 20)
        end = system.wait_for("termination", timeout=BOUND_S)
        last = system.snapshot()
        return {
            "id": found.snapshot_id,
            "totals": sorted(set(totals)),
            "kinds": kinds(found),
            "problems": problems,
            "refused": sorted(set(refused)),
            "again": again,
            "end": end.sentence,
            "last": total(last),
            "uncovered": last.coverage["uncovered"],
            "read": sum(ray.get([vault.read.remote() for vault in vaults])),
        }


def went_on(system, vaults):
    """In another run of the program: nothing is begun here."""
    first = system.snapshot(timeout=BOUND_S)
    end = system.wait_for("termination", timeout=BOUND_S)
    last = system.snapshot()
    return {
        "first": total(first),
        "restored": system.restored,
        "restored_from": last.restored_from,
        "end": end.sentence,
        "last": total(last),
        "read": sum(ray.get([vault.read.remote() for vault in vaults])),
    }


def stuck(protocol="chandy-lamport"):
    """Out of a deadlock of a machine and an actor, to the moment before."""
    with rs.watch("stuck", checkpoint=True, detectors=KINDS), rs.System("purses", protocol=protocol) as system:
        vaults, purses = market(system)
        system.start()
        good = system.snapshot(timeout=BOUND_S)
        purses[0].ask.send(vaults[0])
        verdict = system.wait_for("deadlock", timeout=BOUND_S)
        hung = system.snapshot(timeout=BOUND_S)
        system.restore(good)
        purses[0].put.send(1, 0)
        ray.get(vaults[0].put.remote(3, 0))
        end = system.wait_for("termination", timeout=BOUND_S)
        return {
            "cores": verdict.evidence["cores"],
            "obstacles": hung.obstacles,
            "end": end.sentence,
            "held": held(system.snapshot()),
        }


def error_of(work):
    try:
        work()
    except rs.RaySnapshotError as error:
        return {"kind": type(error).__name__, "text": str(error)}
    return {"kind": "", "text": ""}


def slow(folder):
    """One who does not stop is named, and all go on as they were; afterwards they can go back."""
    come, go = os.path.join(folder, "come"), os.path.join(folder, "go")
    os.mkfifo(come)
    os.mkfifo(go)
    with rs.watch("slow", checkpoint=True, detectors=KINDS) as watch, rs.System("purses") as system:
        vaults, purses = market(system)
        system.start()
        good = system.snapshot(timeout=BOUND_S)
        with open(come, "r+b", buffering=0) as arrival, open(go, "r+b", buffering=0) as departure:
            answer = vaults[0].compute.remote(come, go)
            arrival.read(1)
            given_up = error_of(lambda: watch.restore(good, timeout=1.0))
            purses[0].put.send(5, 0)
            purses[1].put.send(0, 1)
            departure.write(b"x")
            computed = ray.get(answer, timeout=BOUND_S)
        system.wait_for("termination", timeout=BOUND_S)
        meanwhile = held(system.snapshot())
        watch.restore(good)
        system.wait_for("termination", timeout=BOUND_S)
        return {"given_up": given_up, "computed": computed, "meanwhile": meanwhile, "held": held(system.snapshot())}


def stumbles(folder):
    """A machine that does not take its state back: the app stands still until another restore succeeds."""
    path = os.path.join(folder, "stone")
    with rs.watch("stumbles", checkpoint=True, detectors=KINDS) as watch, rs.System("purses") as system:
        vaults, purses = market(system)
        system.start()
        purses[2].stumble.send(path)
        vaults[1].put.remote(7, 0)
        system.wait_for("termination", timeout=BOUND_S)
        good = system.snapshot(timeout=BOUND_S)
        with open(path, "w"):
            failed = error_of(lambda: system.restore(good))
        no_snapshot = error_of(lambda: watch.snapshot(timeout=5.0))
        os.unlink(path)
        system.restore(good)
        purses[2].put.send(1, 0)
        system.wait_for("termination", timeout=BOUND_S)
        return {"failed": failed, "no_snapshot": no_snapshot, "held": held(system.snapshot())}


if __name__ == "__main__":
    ray.init(logging_level="ERROR")
    for name, *arguments in (one.split(":") for one in sys.argv[1:]):
        print(json.dumps({"scenario": name, **globals()[name](*arguments)}), flush=True)
        while MADE:
            ray.kill(MADE.pop())
