"""A watched program that goes back by itself, and what it saw: `recovering_driver.py KILLS SEED` (`test_killed_processes`)."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import ray

import ray_snapshot as rs
from ray_snapshot.instrument.here import process_here

TESTS = Path(__file__).parent.parent
sys.path += [str(TESTS), str(TESTS / "apps")]


def main() -> None:
    """Work while processes are killed, then kill as an app does that means it."""
    systems: list[Any] = []
    most = 2 * int(sys.argv[1])  # all of them may die within a minute
    rs.install(f"recovering-{os.getpid()}", systems.append, recover="rollback", every=0.5, most_failures=most)
    ray.init()
    import recovering
    from until import until

    def has_base() -> bool:
        """Whether there is a snapshot to go back to: then what the program has called before is in no journal any more."""
        process = process_here()
        return process is not None and process.journal is not None and not process.journal.entries

    def ready(account: Any) -> None:
        ray.get(account.read.remote())
        until(has_base)

    recovering.main(int(sys.argv[1]), int(sys.argv[2]), ready)
    (system,) = systems
    spare = recovering.Account.options(name="spare").remote(7)
    before = ray.get(spare.pid.remote())
    ray.get(spare.take.remote(1))
    ray.kill(spare, no_restart=False)
    until(lambda: ray.get(spare.pid.remote()), good=lambda pid: pid != before, again=(ray.exceptions.RayActorError,))
    coins, _ = ray.get(spare.read.remote())
    mortal = recovering.Account.options(name="mortal", max_restarts=0).remote(1)
    ray.get(mortal.read.remote())
    snapshot = system.snapshot()
    print(json.dumps({"spare": coins, "restored_from": snapshot.restored_from, "obstacles": snapshot.obstacles}))


if __name__ == "__main__":
    main()
