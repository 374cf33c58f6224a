"""How long actors live: the last handle, handles that others have; objects in the store."""

import os
import threading
import time

import ray
from ray import get
from ray.exceptions import RayActorError


def alive(pid):
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def ends(pid, seconds=30):
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pid)


@ray.remote
class Actor:
    def __init__(self, child=None):
        self.child = child

    def pid(self):
        return os.getpid()

    def make(self):
        self.child = Actor.remote()
        return get(self.child.pid.remote())

    def make_and_forget(self):
        return get(Actor.remote().pid.remote())

    def child_pid(self):
        return get(self.child.pid.remote())

    def slow(self, seconds):
        time.sleep(seconds)
        return "done"

    def me(self):
        return ray.get_runtime_context().current_actor

    def drop(self):
        self.child = None

    def block(self, n):
        return bytes(n)


def main():
    actor = Actor.remote()
    pid = get(actor.pid.remote())
    print("alive while it has a handle", alive(pid))
    del actor
    print("gone after the last handle", ends(pid))

    print("gone at once", ends(get(Actor.remote().pid.remote())))
    last = Actor.remote().slow.remote(0.3)
    print("a call that outlives the handle", get(last))

    inner = Actor.remote()
    outer = Actor.remote(inner)
    pid = get(inner.pid.remote())
    del inner
    print("kept by another actor", get(outer.child_pid.remote()) == pid)
    get(outer.drop.remote())
    print("gone when that has dropped it", ends(pid))
    made = get(outer.make.remote())
    print("made by an actor", alive(made), get(outer.child_pid.remote()) == made)
    print("made and forgotten by an actor", ends(get(outer.make_and_forget.remote())))
    own = get(outer.pid.remote())
    del outer
    print("gone with its maker", ends(own), ends(made))

    selfish = Actor.remote()
    pid = get(selfish.pid.remote())
    again = get(selfish.me.remote())
    del selfish
    print("a handle that it gave out itself does not keep it", ends(pid), refused(lambda: get(again.pid.remote())))

    worker = Actor.remote()
    blocks = [worker.block.remote(1_000_000) for _ in range(5)]
    ray.wait(blocks, num_returns=5)
    print("in the store", [len(block) for block in get(blocks)])
    threads = [thread.name for thread in threading.enumerate() if not thread.name.startswith("ray")]
    print("threads", threads)


def refused(work):
    try:
        work()
    except RayActorError as error:
        return isinstance(error, RayActorError)
    return False


if __name__ == "__main__":
    ray.init()
    main()
