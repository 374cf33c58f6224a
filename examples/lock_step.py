"""Two workers in lock-step, as one finds them in the wild: each asks the other through a pool of threads of its own.

Both have a thread of a `ThreadPoolExecutor` call the other, and wait for its future. With one call at a time in each, the
question of each waits in Ray's queue behind the step that asks the other. Nothing in here knows of us. Try:

    python examples/lock_step.py 1                                 one worker steps: prints what it has heard
    python examples/lock_step.py 2                                 both step at once: prints nothing, for ever
    ray-snapshot run --exit-on deadlock examples/lock_step.py 2    says why

What to look at in the report: the line in which the thread asks, as the place where the method of each worker waits.
"""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import ray


@ray.remote
class Worker:
    """Takes a step when it has heard how far its neighbour is."""

    def __init__(self) -> None:
        self.steps = 0
        self.pool = ThreadPoolExecutor(4)

    def at(self) -> int:
        """How far it is."""
        return self.steps

    def step(self, neighbour: Any) -> int:
        """Compute, and ask the neighbour meanwhile."""
        heard = self.pool.submit(_ask, neighbour)
        time.sleep(0.5)  # the computation
        self.steps = heard.result() + 1
        return self.steps


def _ask(neighbour: Any) -> int:
    time.sleep(0.5)  # so that the neighbour has begun its step, too
    return ray.get(neighbour.at.remote())  # type: ignore[no-any-return]


def main(stepping: int) -> None:
    one, other = Worker.remote(), Worker.remote()  # type: ignore[attr-defined]
    ray.get([one.at.remote(), other.at.remote()])  # both are there
    steps = [worker.step.remote(neighbour) for worker, neighbour in [(one, other), (other, one)][:stepping]]
    print("the workers are at", ray.get(steps))


if __name__ == "__main__":
    ray.init()
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 2)
