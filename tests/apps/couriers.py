"""Two couriers that hang at full queues, beside something that could still act, or could have: `python queue_apps.py NAME`.

What can act no more leaves a deadlock; what may still act ends it by itself after a while.
"""

import os
import queue
import sys
import tempfile
import threading
import time

import ray
from ray import cloudpickle
from ray.util.queue import Queue

LATER_S = 4.0


@ray.remote
class Courier:
    def __init__(self, inbox, outbox):
        self.inbox, self.outbox = inbox, outbox

    def deliver(self):
        self.outbox.put("first")
        self.outbox.put("second")
        return self.inbox.get(), self.inbox.get()

    def ready(self):
        return "ready"


@ray.remote
class Box:
    """Gets what is in a file, later."""

    def read(self, path):
        time.sleep(LATER_S)
        with open(path, "rb") as file:
            cloudpickle.load(file).get()


def hang(left, right):
    couriers = [Courier.remote(left, right), Courier.remote(right, left)]
    ray.get([courier.ready.remote() for courier in couriers])
    return [courier.deliver.remote() for courier in couriers]


def empty(outbox):
    time.sleep(LATER_S)
    outbox.get()


# ---- what can act no more ------------------------------------------------------------------------------------------


def running_task(left, right):
    ray.remote(lambda: time.sleep(60)).remote()
    return hang(left, right)


def all_of_these(left, right):
    print(ray.get(ray.remote(lambda x: x + 1).remote(1)), flush=True)
    ray.put({"plain": list(range(1_000)), "others": os})
    threading.Thread(target=queue.Queue().get, daemon=True).start()
    return hang(left, right)


def named_queue(left, right):
    return hang(Queue(1, {"name": "left"}), Queue(1, {"name": "right"}))


# ---- what may still act ------------------------------------------------------------------------------------------------


def task_with_a_handle(left, right):
    refs = hang(left, right)
    ray.remote(empty).remote(left)
    return refs


def handle_in_a_file(left, right):
    refs = hang(left, right)
    with tempfile.NamedTemporaryFile(delete=False) as file:
        cloudpickle.dump(left, file)
    box = Box.remote()
    box.read.remote(file.name)
    return [*refs, box]


def woken_thread(left, right):
    """A reply wakes it, though it waits in Python."""
    refs = hang(left, right)
    done = ray.remote(lambda: time.sleep(LATER_S)).remote().future()
    threading.Thread(target=lambda: (done.result(), left.get()), daemon=True).start()
    return refs


if __name__ == "__main__":
    ray.init()
    refs = globals()[sys.argv[1]](Queue(1), Queue(1))
    print(ray.get(refs[1]), flush=True)
