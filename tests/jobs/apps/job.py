"""A job: `end CODE` calls an actor and ends with that code; `hang` stands still, in a deadlock of two."""

from __future__ import annotations

import os
import sys
import threading
from typing import Any

import ray


@ray.remote
class Account:
    def seen(self) -> tuple[str | None, str | None]:
        return os.environ.get("SAID"), os.environ.get("HOOKED")

    def deposit(self, amount: int) -> int:
        return amount

    def transfer(self, gate: Any, to: Any, amount: int) -> Any:
        ray.get(gate.pass_both.remote())
        return ray.get(to.deposit.remote(amount))


@ray.remote(max_concurrency=2)
class Gate:
    """Lets two callers through at once: then each of them holds its own account."""

    def __init__(self) -> None:
        self.both = threading.Barrier(2)

    def pass_both(self) -> None:
        self.both.wait(120)


def hook() -> None:
    os.environ["HOOKED"] = "by the job"


if __name__ == "__main__":
    ray.init()
    a, b = Account.remote(), Account.remote()
    print("app:", *ray.get(a.seen.remote()), flush=True)
    if sys.argv[1] == "end":
        sys.exit(int(sys.argv[2]))
    gate = Gate.remote()
    ray.get([a.transfer.remote(gate, b, 1), b.transfer.remote(gate, a, 1)])
