"""Programs in which tasks, actors and placement groups wait for room on a node: `python rooms.py NAME`.

Every node has one seat: a resource that Ray gives to the node with the control store.
"""

import gc
import os
import sys
import threading
import time

import ray
from ray.util.placement_group import placement_group, remove_placement_group

SEAT = {"node:__internal_head__": 1}
HALF = {"node:__internal_head__": 0.5}


@ray.remote
def prepare():
    return 1


@ray.remote
class Trainer:
    def go(self):
        return ray.get(prepare.remote())

    def go_seated(self):
        return ray.get(prepare.options(resources=HALF).remote())

    def make(self):
        helper = Trainer.options(resources=HALF).remote()
        return ray.get(helper.ping.remote())

    def ping(self):
        return 1


@ray.remote(num_cpus=0)
class Owner:
    def __init__(self):
        self.groups = []

    def take(self):
        group = placement_group([HALF])
        ray.get(group.ready())
        self.groups.append(group)

    def leave(self):
        for group in self.groups:
            remove_placement_group(group)


@ray.remote
def outer(seat):
    return ray.get(prepare.options(resources=seat).remote())


@ray.remote
def slow(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:  # it computes
        pass


def cpus():
    return ray.cluster_resources()["CPU"]


# ---- these hang ------------------------------------------------------------------------------------------------------


def last_cpu():
    trainer = Trainer.options(num_cpus=cpus()).remote()
    ray.get(trainer.go.remote())


def own_seat():
    trainer = Trainer.options(resources=SEAT).remote()
    ray.get(trainer.go_seated.remote())


def creation():
    trainer = Trainer.options(resources=SEAT, num_cpus=0).remote()
    ray.get(trainer.make.remote())


def two_groups():
    owners = [Owner.remote() for _ in range(2)]
    ray.get([owner.take.remote() for owner in owners])
    ray.get([owner.take.remote() for owner in owners])


def nested():
    ray.get(outer.options(resources=SEAT).remote(HALF))


def nowhere():
    ray.get(prepare.options(resources={"nowhere": 1}).remote())


def at_rest():
    idle = Trainer.options(resources=SEAT).remote()
    ray.get(idle.ping.remote())
    gc.collect()
    ray.get(prepare.options(resources=HALF).remote())


# ---- these do not ----------------------------------------------------------------------------------------------------


def taken_back():
    @ray.remote
    def deep(depth):
        return 1 if not depth else ray.get(deep.remote(depth - 1))

    print(ray.get([deep.remote(4) for _ in range(3)]))


def freed_by_a_task():
    """A task that computes holds all, and will give it back."""
    running = slow.options(resources=SEAT).remote(5)
    print(ray.get([prepare.options(resources=HALF).remote() for _ in range(4)]), ray.get(running))


def freed_by_a_watchdog():
    """A thread of the program drops the handle of an actor at rest."""
    held = [Trainer.options(resources=SEAT).remote()]
    ray.get(held[0].ping.remote())

    def drop():
        time.sleep(20)
        held.clear()

    threading.Thread(target=drop).start()
    print(ray.get(prepare.options(resources=HALF).remote()))


def freed_by_another():
    """An actor that computes has the handle of one at rest, and kills it."""

    @ray.remote(num_cpus=0)
    class Warden:
        def watch(self, idle):
            ray.get(slow.options(num_cpus=0).remote(15))
            ray.kill(idle)

    idle = Trainer.options(resources=SEAT).remote()
    ray.get(idle.ping.remote())
    Warden.remote().watch.remote(idle)
    print(ray.get(prepare.options(resources=HALF).remote()))


def freed_by_who_is_to_come():
    """An actor that waits for its argument, to begin, is given the handle of one at rest, and kills it."""

    @ray.remote(num_cpus=0)
    class Warden:
        def __init__(self, _, idle):
            ray.kill(idle[0])

    idle = Trainer.options(resources=SEAT).remote()
    ray.get(idle.ping.remote())
    warden = Warden.remote(slow.options(num_cpus=0).remote(15), [idle])
    print(ray.get(prepare.options(resources=HALF).remote()), warden is None)


def freed_by_itself():
    @ray.remote(resources=SEAT)
    class Leaving:
        def __init__(self):
            threading.Timer(15, lambda: os._exit(0)).start()

        def ping(self):
            return 1

    idle = Leaving.remote()
    ray.get(idle.ping.remote())
    print(ray.get(prepare.options(resources=HALF).remote()))


def given_up():
    """A group that is not made in time is removed, and less is asked for."""
    group = placement_group([{"CPU": 10_000}])
    for _ in range(100):
        if ray.wait([group.ready()], timeout=0.1)[0]:
            break
    remove_placement_group(group)
    print(ray.get(prepare.remote()))


def freed_by_collection():
    """The only handle lies in garbage that was made when the rest had been collected."""

    class Cycle:
        def __init__(self, handle):
            self.handle, self.own = handle, self

    idle = Trainer.options(resources=SEAT).remote()
    ray.get(idle.ping.remote())
    ref = prepare.options(resources=HALF).remote()
    time.sleep(0.3)
    gc.collect()
    Cycle(idle)
    del idle
    print(ray.get(ref))


def groups_in_turn():
    """Who waits for a group gets it when another is removed."""
    first, second = Owner.remote(), Owner.remote()
    ray.get([first.take.remote(), second.take.remote()])
    waiting = first.take.remote()
    ray.get(slow.options(num_cpus=0).remote(4))
    ray.get(second.leave.remote())
    print(ray.get(waiting))


if __name__ == "__main__":
    ray.init()
    globals()[sys.argv[1]]()
    print("the end")
