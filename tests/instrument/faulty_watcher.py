"""An app whose watcher has a fault, in the function that the program names: `python faulty_watcher.py MODULE:NAME`."""

import importlib
import sys
from typing import Any

import ray


def break_it() -> None:
    """Called in each worker, before anything else: so where the watcher lives, too."""
    module, _, path = TARGET.partition(":")
    owner, _, name = path.partition(".")

    def fail(*_: Any, **__: Any) -> None:
        raise ValueError("as the test wants it")

    setattr(getattr(importlib.import_module(f"ray_snapshot.{module}"), owner), name, fail)


@ray.remote(num_cpus=0)
class Adder:
    def add(self, one: int, other: int) -> int:
        return one + other


if __name__ == "__main__":
    TARGET = sys.argv[1]
    ray.init(runtime_env={"worker_process_setup_hook": break_it})
    adder, total = Adder.remote(), 0
    for step in range(400):
        total = ray.get(adder.add.remote(total, step))
    print(total)
    sys.exit(7)
