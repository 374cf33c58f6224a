"""Refs of `ray.put` as arguments, in lists, and from other processes: `python puts.py SCENARIO`."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

import ray


@ray.remote
def slow(*_: Any) -> int:
    time.sleep(0.7)
    return 1


@ray.remote
class Keeper:
    def __init__(self) -> None:
        self.ref = ray.put("the keeper's")

    def give(self) -> list[Any]:
        return [self.ref]

    def add(self, *_: Any) -> int:
        time.sleep(0.7)
        return 1

    def read(self, refs: list[Any]) -> int:
        return len(ray.get([*refs, slow.remote(*refs)]))


@ray.remote
class Reader:
    async def read(self, refs: list[Any]) -> int:
        return len(await asyncio.gather(*refs, slow.remote(*refs)))


@ray.remote
class Trainer:
    """Waits for a task that waits for it; each has what was put among what it waits for."""

    def go(self, me: Any, refs: list[Any]) -> Any:
        return ray.get([*refs, ray.put("mine"), prepare.remote(me, *refs)])

    def finish(self, *_: Any) -> int:
        return 1


@ray.remote
def prepare(trainer: Any, *refs: Any) -> Any:
    ready, _ = ray.wait([ray.put(1), trainer.finish.remote(ray.put(2), *refs)], num_returns=2)
    return ready


def healthy() -> None:
    mine, keeper, reader = ray.put("mine"), Keeper.remote(), Reader.remote()
    (other,) = ray.get(keeper.give.remote())
    refs = [mine, other]
    print(ray.get([slow.remote(ref) for ref in refs]), ray.get(keeper.add.remote(*refs)))
    print(ray.get([*refs, slow.remote(*refs)]), len(ray.wait([slow.remote(), *refs], num_returns=3)[0]))
    print(ray.get([keeper.read.remote(refs), reader.read.remote(refs)]))


def deadlock() -> None:
    trainer = Trainer.remote()
    ray.get(trainer.go.remote(trainer, []))


def deadlock_behind_another() -> None:
    """The task's argument was put by another process."""
    keeper, trainer = Keeper.remote(), Trainer.remote()
    (other,) = ray.get(keeper.give.remote())
    first = trainer.go.remote(trainer, [])
    ray.get(slow.remote(other, first))


if __name__ == "__main__":
    ray.init()
    globals()[sys.argv[1]]()
