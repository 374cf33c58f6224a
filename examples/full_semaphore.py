"""A semaphore as an actor, as one finds it in the wild: it works until a thousand wait for it.

An async actor runs 1,000 calls at once (Ray's default). Each `acquire` that waits is one of them, so with a thousand of them
the `release` that would let one go stays in Ray's queue, and nothing ever moves again. Nothing in here knows of us. Try:

    python examples/full_semaphore.py 999                                  prints how many have had their turn
    python examples/full_semaphore.py 1000                                 prints nothing, for ever
    ray-snapshot run --exit-on deadlock examples/full_semaphore.py 1000    says why

What to look at in the report: a thousand calls at one place, and what they wait for: a later call, for which there is no slot.
"""

from __future__ import annotations

import asyncio
import sys

import ray


@ray.remote
class Semaphore:
    """Lets so many in at once."""

    def __init__(self, permits: int) -> None:
        self.free = asyncio.Semaphore(permits)

    async def acquire(self) -> None:
        """Return when there is a place."""
        await self.free.acquire()

    async def release(self) -> None:
        """Give a place back."""
        self.free.release()


@ray.remote  # type: ignore[untyped-decorator]
def take_turn(semaphore: ray.actor.ActorHandle) -> int:
    """Enter, and leave again, as soon as there is a place."""
    ray.get(semaphore.release.remote())
    return 1


def main(visitors: int) -> None:
    semaphore = Semaphore.remote(1)  # type: ignore[attr-defined]
    ray.get(semaphore.acquire.remote())  # the program is inside
    waiting = [semaphore.acquire.remote() for _ in range(visitors)]
    turns = [take_turn.remote(semaphore)]  # and leaves, in a task
    while waiting:  # whoever gets in next: Ray promises no order among the calls of an async actor
        entered, waiting = ray.wait(waiting)
        turns += [take_turn.remote(semaphore) for _ in entered]
    print(f"{sum(ray.get(turns)) - 1} visitors have had their turn")


if __name__ == "__main__":
    ray.init()
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000)
