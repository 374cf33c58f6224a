"""Tasks that are tried again, actors that are restarted, and calls that are sent again: counted in files, as they count."""

import os
import sys
from pathlib import Path

import ray


def attempt(folder, name):
    """How many times this was called with this name, this time included."""
    path = Path(folder, name)
    with path.open("a") as file:
        file.write("x")
    return path.stat().st_size


@ray.remote(num_cpus=0.1, max_retries=3)
def crashes_twice(folder, name):
    if (count := attempt(folder, name)) < 3:
        os._exit(1)
    return count


@ray.remote(num_cpus=0.1, max_retries=2, retry_exceptions=[ConnectionError])
def fails_once(folder, name, error):
    if (count := attempt(folder, name)) < 2:
        raise error("once")
    return count


@ray.remote(num_cpus=0.1, max_restarts=2, max_task_retries=2)
class Restarted:
    def __init__(self, folder):
        self.lives, self.value = attempt(folder, "lives"), 0

    def add(self, n):
        self.value += n
        return self.lives, self.value

    def die(self, folder, name):
        if (count := attempt(folder, name)) < 2:
            os._exit(1)
        return self.lives, count

    @ray.method(max_task_retries=1, retry_exceptions=True)
    def fails(self, folder, name):
        if (count := attempt(folder, name)) < 2:
            raise OSError("once")
        return count


def main(folder):
    Path(folder).mkdir()
    print("app:", ray.get(crashes_twice.remote(folder, "task")))
    print("app:", ray.get(fails_once.remote(folder, "connection", ConnectionError)))
    try:
        ray.get(fails_once.remote(folder, "value", ValueError))
    except ValueError as error:
        print("app:", type(error).__name__, Path(folder, "value").stat().st_size)
    actor = Restarted.remote(folder)
    print("app:", ray.get([actor.add.remote(1) for _ in range(3)]))
    print("app:", ray.get(actor.die.remote(folder, "die")), ray.get(actor.add.remote(1)))
    print("app:", ray.get(actor.fails.remote(folder, "method")))
    ray.kill(actor, no_restart=False)
    while (told := ray.get(actor.add.remote(0)))[0] < 3:  # the kill travels another way than the calls
        pass
    print("app:", told)
    ray.kill(actor)
    try:
        while True:
            ray.get(actor.add.remote(1))
    except ray.exceptions.RayActorError as error:
        print("app:", type(error).__name__)


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main(sys.argv[1])
    print("app:", "the end")
