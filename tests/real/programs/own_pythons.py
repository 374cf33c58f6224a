"""Tasks and actors with a Python of their own, in which what is installed here need not be; and subprocesses of workers."""

import os
import sys
from pathlib import Path

import ray


def a_python(folder, name):
    """Another Python: the same one, in which one package of this environment cannot be imported."""
    hidden = Path(folder, f"{name}-hides", "ray_snapshot")
    hidden.mkdir(parents=True)
    (hidden / "__init__.py").write_text("raise ImportError('it is not installed here')\n")
    found = Path(folder, name)
    found.write_text(f'#!/bin/sh\nexport PYTHONPATH={hidden.parent}\nexec {sys.executable} "$@"\n')
    found.chmod(0o755)
    return str(found)


@ray.remote(num_cpus=0.1)
def asks(actor, number):
    return ray.get(actor.double.remote(number))


@ray.remote(num_cpus=0.1)
class Counter:
    def double(self, number):
        return 2 * number

    def asked(self, other):
        return ray.get(other.double.remote(4))


@ray.remote(num_cpus=0.1)
def starts_a_process():
    """What it starts has the environment of a worker, and is none."""
    with os.popen("env | grep -c SETUP_HOOK") as said:
        return said.read().strip()


def main():
    folder = sys.argv[1]
    plain = Counter.remote()
    there = Counter.options(runtime_env={"py_executable": a_python(folder, "python-of-an-actor")}).remote()
    print("app:", ray.get(plain.asked.remote(there)), ray.get(there.asked.remote(plain)))
    task = asks.options(runtime_env={"py_executable": a_python(folder, "python-of-a-task")})
    print("app:", ray.get([task.remote(plain, 1), task.remote(there, 2), asks.remote(there, 3)]))
    print("app:", ray.get(starts_a_process.remote()), [name for name in os.environ if "SETUP_HOOK" in name])


if __name__ == "__main__":
    ray.init(num_cpus=2, log_to_driver=False)
    main()
    print("app:", "the end")
