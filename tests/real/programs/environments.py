"""Runtime environments: a working folder, a module, variables, and a hook of the user's own that runs in each worker."""

import os
import sys
from pathlib import Path

import ray

HOOK = """
import os
import sys

def prepare():
    os.environ["PREPARED"] = "by the hook"
    sys.modules["prepared_by_the_hook"] = sys
"""


def prepared():
    return os.environ.get("PREPARED"), "prepared_by_the_hook" in sys.modules, os.environ.get("LEVEL")


@ray.remote(num_cpus=0.1)
def told():
    import helper

    return prepared(), Path("data.txt").read_text(), helper.NAME, Path.cwd().name != ""


@ray.remote(num_cpus=0.1)
class Actor:
    def __init__(self):
        self.at_birth = prepared()

    def told(self):
        import helper

        return self.at_birth, Path("data.txt").read_text(), helper.double(4)

    async def now(self):
        return prepared()


@ray.remote(num_cpus=0.1, runtime_env={"env_vars": {"LEVEL": "task"}})
def with_variables():
    return prepared()


def folders(folder):
    for name in ("work", "modules/helper", "hooks"):
        Path(folder, name).mkdir(parents=True)
    Path(folder, "work", "data.txt").write_text("the data")
    Path(folder, "work", "hooks.py").write_text(HOOK)
    Path(folder, "modules/helper/__init__.py").write_text("NAME = 'helper'\n\ndef double(n):\n    return 2 * n\n")
    return {"working_dir": f"{folder}/work", "py_modules": [f"{folder}/modules/helper"]}


def main():
    print("app:", ray.get(told.remote()))
    actor = Actor.remote()
    print("app:", ray.get(actor.told.remote()), ray.get(actor.now.remote()))
    print("app:", ray.get(with_variables.remote()))
    own = Actor.options(runtime_env={"env_vars": {"LEVEL": "actor"}}).remote()
    print("app:", ray.get(own.now.remote()))


if __name__ == "__main__":
    environment = folders(sys.argv[1])
    environment |= {"worker_process_setup_hook": "hooks.prepare", "env_vars": {"LEVEL": "job"}}
    ray.init(num_cpus=4, log_to_driver=False, runtime_env=environment)
    main()
    print("app:", "the end")
    ray.shutdown()
    function = {"worker_process_setup_hook": lambda: os.environ.update(PREPARED="by a function")}
    ray.init(num_cpus=4, log_to_driver=False, runtime_env=function)
    print("app:", ray.get(ray.remote(prepared).remote()))
    print("app:", "the end")
