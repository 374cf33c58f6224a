"""How a program is started and how it ends; a setup hook and variables of its own. `python -m program` works as well."""

import os
import sys
import threading

import ray


def hook():
    os.environ["FROM_THE_HOOK"] = "set before the actor"


def inner(value):
    raise ValueError(f"no {value}")


@ray.remote
class Env:
    def of(self, *names):
        return [os.environ.get(name) for name in names]


@ray.remote
def of_a_task(name):
    return os.environ.get(name)


@ray.remote(runtime_env={"env_vars": {"OF_THE_ACTOR": "own"}})
class Own(Env.__ray_metadata__.modified_class):
    pass


def with_ray():
    ray.init(runtime_env={"env_vars": {"OF_THE_JOB": "yes"}, "worker_process_setup_hook": hook})
    env = Env.remote()
    print(ray.get(env.of.remote("OF_THE_JOB", "FROM_THE_HOOK")), ray.get(of_a_task.remote("FROM_THE_HOOK")))
    print(ray.get(Own.remote().of.remote("OF_THE_ACTOR", "OF_THE_JOB", "FROM_THE_HOOK")))
    print(ray.is_initialized(), sys.argv[1:], __name__, os.path.basename(__file__), os.path.basename(sys.argv[0]))


def main(how):
    print(sys.argv[1:], __name__, threading.current_thread() is threading.main_thread(), sys.path[0] != "")
    if how.startswith("ray"):
        with_ray()
    if how.endswith("raise"):
        inner("way")
    if how == "exit":
        sys.exit(7)
    if how == "message":
        sys.exit("a last word")
    print("the end")


if __name__ == "__main__":
    main(sys.argv[1])
