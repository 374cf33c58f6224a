"""A watched program that goes back by itself while its processes are killed: `recovering_driver.py KILLS SEED`.

Couriers carry coins between accounts, by calls that nobody waits for, and calls that an async actor awaits; the program gives
coins, asks, and waits, with `ray.get` and `ray.wait`, as if nothing could die. What it prints at the end is exact, or wrong.
"""

import json
import os
import random
import signal
import sys
from pathlib import Path
from typing import Any

import ray

import ray_snapshot as rs
from ray_snapshot.instrument.here import process_here

sys.path.append(str(Path(__file__).parent.parent))

from until import until

ROUNDS = 30
KILLS, SEED = int(sys.argv[1]), int(sys.argv[2])
SYSTEMS: list[Any] = []
rs.install(  # all of them may die within a minute
    f"recovering-{os.getpid()}", SYSTEMS.append, recover="rollback", every=0.5, most_failures=2 * KILLS
)


@ray.remote(max_restarts=-1)
class Account:
    """Has coins, and remembers each gift once more than it came, if it does."""

    def __init__(self, coins: int) -> None:
        self.coins = coins
        self.gifts: list[int] = []

    def give(self, gift: int) -> int:
        self.coins += 1
        self.gifts.append(gift)
        return gift

    def take(self, coins: int) -> None:
        self.coins += coins

    def pay(self, other: Any, coins: int) -> None:
        self.coins -= coins
        other.take.remote(coins)

    def read(self) -> tuple[int, list[int]]:
        return self.coins, self.gifts

    def pid(self) -> int:
        return os.getpid()


@ray.remote(max_restarts=-1)
class Teller:
    async def serve(self, account: Any, gift: int) -> int:
        return int(await account.give.remote(gift))

    async def pid(self) -> int:
        return os.getpid()


def has_base() -> bool:
    """Whether there is a snapshot to go back to: then what the program has called before is in no journal any more."""
    process = process_here()
    return process is not None and process.journal is not None and not process.journal.entries


def work() -> None:
    draw = random.Random(SEED)
    accounts = [Account.options(name=f"account-{place}").remote(100) for place in range(3)]
    teller = Teller.options(name="teller").remote()
    ray.get(accounts[0].read.remote())
    until(has_base)
    at = set(draw.sample(range(2, ROUNDS), KILLS))
    given = 0
    for number in range(ROUNDS):
        refs = [draw.choice(accounts).give.remote(given + one) for one in (1, 2, 3)]
        refs.append(teller.serve.remote(draw.choice(accounts), given + 4))
        given += 4
        source, target = draw.sample(accounts, 2)
        source.pay.remote(target, 5)
        if number in at:
            os.kill(ray.get(draw.choice([*accounts, teller]).pid.remote()), signal.SIGKILL)
        waiting = list(refs)
        while waiting:
            done, waiting = ray.wait(waiting, timeout=60)
            assert done, "nothing comes any more"
            assert set(done) <= set(refs), "a ref that the program does not have"
        assert ray.get(refs) == list(range(given - 3, given + 1)), "an answer of another call"

    def read() -> list[tuple[int, list[int]]]:
        found: list[tuple[int, list[int]]] = ray.get([one.read.remote() for one in accounts])
        return found

    found = until(read, good=lambda found: sum(coins for coins, _ in found) == 300 + given)
    gifts = sorted(gift for _, own in found for gift in own)
    print(f"{sum(coins for coins, _ in found)} coins; every gift once: {gifts == list(range(1, given + 1))}")


def end() -> None:
    (system,) = SYSTEMS
    spare = Account.options(name="spare").remote(7)
    before = ray.get(spare.pid.remote())
    ray.get(spare.take.remote(1))
    ray.kill(spare, no_restart=False)
    until(lambda: ray.get(spare.pid.remote()), good=lambda pid: pid != before, again=(ray.exceptions.RayActorError,))
    coins, _ = ray.get(spare.read.remote())
    mortal = Account.options(name="mortal", max_restarts=0).remote(1)
    ray.get(mortal.read.remote())
    snapshot = system.snapshot()
    print(json.dumps({"spare": coins, "restored_from": snapshot.restored_from, "obstacles": snapshot.obstacles}))


if __name__ == "__main__":
    ray.init()
    work()
    end()
