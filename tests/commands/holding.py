"""A Ray program as any: FOLDER; starts a Ray of its own, has an actor, and stays until its stdin ends."""

import os
import sys

import ray


@ray.remote
class Desk:
    def greet(self) -> str:
        return f"hello from {os.getpid()}"


if __name__ == "__main__":
    ray.init(num_cpus=1, include_dashboard=False, _temp_dir=sys.argv[1])
    desk = Desk.remote()
    print(ray.get(desk.greet.remote()), flush=True)
    sys.stdin.read()
