"""Actors and workers that are born and end in every way, for so many seconds; prints how many of each as JSON."""

import json
import sys
import time
from collections import Counter

import ray


class Works:
    def work(self, number: int) -> int:
        return number

    def leave(self) -> None:
        ray.actor.exit_actor()


@ray.remote(num_cpus=0)
class Plain(Works):
    pass


@ray.remote(num_cpus=0)
class OnLoop(Works):
    async def also_work(self, number: int) -> int:
        return number


@ray.remote(num_cpus=0, max_calls=1)
def last_task(number: int) -> int:
    return number


@ray.remote(num_cpus=0)
class Maker:
    def make(self, number: int) -> int:
        """Have actors of its own, which are dropped with the answer."""
        inner = [OnLoop.remote() for _ in range(2)]
        return sum(ray.get([one.also_work.remote(number) for one in inner for _ in range(4)]))


def storm(seconds: float) -> Counter[str]:
    """Round after round; returns how many ended in which way."""
    ended: Counter[str] = Counter()
    until, number = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        number += 1
        kinds = {
            "dropped on a loop": OnLoop.remote(),
            "dropped": Plain.remote(),
            "dropped with threads": Plain.options(max_concurrency=3).remote(),
            "left": Plain.remote(),
            "killed": OnLoop.remote(),
        }
        maker = Maker.remote()
        asked = [one.work.remote(number) for one in kinds.values() for _ in range(3)]
        asked += [last_task.remote(number), maker.make.remote(number)]
        ray.get(asked)
        time.sleep(0.15 * (number % 4))
        kinds["left"].leave.remote()
        ray.kill(kinds["killed"])
        ended.update([*kinds, "max_calls", "dropped"])
        ended["dropped on a loop"] += 2
        del kinds, maker
    return ended


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False, object_store_memory=150 * 1024 * 1024)
    print(json.dumps(storm(float(sys.argv[1]))))
    time.sleep(2.0)
