"""How actors end: by themselves, by the loss of their last handle, by a kill; and what waits for them then."""

import atexit
import sys
import threading
from pathlib import Path

import ray


@ray.remote(num_cpus=0.1)
class Leaver:
    def __init__(self, folder):
        self.folder = Path(folder)
        atexit.register(self.folder.joinpath("atexit").touch)

    def leave(self):
        ray.actor.exit_actor()

    def work(self):
        return "works"


@ray.remote(num_cpus=0.1)
class AsyncLeaver:
    async def leave(self):
        ray.actor.exit_actor()

    def __ray_shutdown__(self):
        pass


@ray.remote(num_cpus=0.1)
class Stuck:
    def wait(self):
        threading.Event().wait()


def outcome(ref):
    try:
        return ray.get(ref, timeout=60)
    except Exception as error:
        return type(error).__name__


def main(folder):
    Path(folder).mkdir()
    leaver = Leaver.remote(folder)
    print("app:", outcome(leaver.work.remote()), outcome(leaver.leave.remote()), outcome(leaver.work.remote()))
    print("app:", outcome(AsyncLeaver.remote().leave.remote()))
    stuck = Stuck.remote()
    waiting = [stuck.wait.remote() for _ in range(2)]
    print("app:", len(ray.wait(waiting, timeout=0.3)[1]))
    ray.kill(stuck)
    print("app:", [outcome(one) for one in waiting])
    named = Stuck.options(name="named").remote()
    ray.get(named.__ray_ready__.remote())
    print("app:", outcome(named.__ray_call__.remote(lambda self: type(self).__name__)))
    print("app:", outcome(named.__ray_terminate__.remote()))
    actor = Leaver.remote(folder)
    ref = actor.work.remote()
    del actor
    print("app:", outcome(ref), sorted(path.name for path in Path(folder).iterdir()))


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main(sys.argv[1])
    ray.shutdown()
    print("app:", ray.is_initialized())
    print("app:", "the end")
