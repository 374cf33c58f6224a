"""An app whose processes are killed again and again: `recovering.py KILLS [SEED]`.

Couriers carry coins between accounts, by calls that nobody waits for, and calls that an async actor awaits; the program gives
coins, asks, and waits, with `ray.get` and `ray.wait`, as if nothing could die. What it prints at the end is exact, or wrong.
"""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import ray

ROUNDS = 30


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
        """(coins, gifts)."""
        return self.coins, self.gifts

    def pid(self) -> int:
        return os.getpid()


@ray.remote(max_restarts=-1)
class Teller:
    def __init__(self) -> None:
        self.served = 0

    async def serve(self, account: Any, gift: int) -> int:
        answer: int = await account.give.remote(gift)
        self.served += 1
        return answer

    async def pid(self) -> int:
        return os.getpid()


def main(kills: int, seed: int, ready: Callable[[Any], None] = lambda account: None) -> None:
    """Work while processes are killed; before that, `ready` gets an account."""
    draw = random.Random(seed)
    accounts = [Account.options(name=f"account-{place}").remote(100) for place in range(3)]
    teller = Teller.options(name="teller").remote()
    ready(accounts[0])
    at = set(draw.sample(range(2, ROUNDS), kills))
    given = 0
    for number in range(ROUNDS):
        refs = []
        for _ in range(3):
            given += 1
            refs.append(draw.choice(accounts).give.remote(given))
        given += 1
        refs.append(teller.serve.remote(draw.choice(accounts), given))
        source, target = draw.sample(accounts, 2)
        source.pay.remote(target, 5)
        if number in at:
            victim = ray.get(draw.choice([*accounts, teller]).pid.remote())
            os.kill(victim, signal.SIGKILL)
        waiting = list(refs)
        while waiting:
            done, waiting = ray.wait(waiting, timeout=60)
            assert done, "nothing comes any more"
            assert set(done) <= set(refs), "a ref that the program does not have"
        assert ray.get(refs) == list(range(given - 3, given + 1)), "an answer of another call"
        time.sleep(0.05)
    deadline = time.monotonic() + 60
    while sum(coins for coins, _ in ray.get([one.read.remote() for one in accounts])) != 300 + given:
        assert time.monotonic() < deadline, ray.get([one.read.remote() for one in accounts])
        time.sleep(0.1)
    found = ray.get([one.read.remote() for one in accounts])
    gifts = sorted(gift for _, own in found for gift in own)
    print(f"{sum(coins for coins, _ in found)} coins; every gift once: {gifts == list(range(1, given + 1))}")


if __name__ == "__main__":
    ray.init()
    main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)
