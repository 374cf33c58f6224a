"""Handles of actors from everywhere that a program can have them from."""

import ray
from ray.util import ActorPool
from ray.util.queue import Empty, Full, Queue


@ray.remote
class Counter:
    def __init__(self, start=0):
        self.value = start

    def add(self, amount=1):
        self.value += amount
        return self.value

    def me(self):
        return ray.get_runtime_context().current_actor


@ray.remote
class User:
    def __init__(self, counter):
        self.counter = counter
        self.made = None

    def use(self):
        return ray.get(self.counter.add.remote())

    def use_given(self, counter):
        return ray.get(counter.add.remote())

    def use_many(self, many):
        return ray.get([counter.add.remote() for counter in many["list"] + list(many["dict"].values())])

    def make(self):
        self.made = Counter.remote(100)
        return self.made

    def use_named(self, name):
        return ray.get(ray.get_actor(name).add.remote())

    def call_function(self, function):
        return function()

    async_made = None


shared = None


def from_global():
    return ray.get(shared.add.remote())


def by_closure(counter):
    def inside():
        return ray.get(counter.add.remote())

    return inside


@ray.remote
def task(counter):
    return ray.get(counter.add.remote())


def main():
    global shared
    counter = Counter.remote()
    user = User.remote(counter)
    print("constructor", ray.get(user.use.remote()))
    print("message", ray.get(user.use_given.remote(counter)))
    print("container", ray.get(user.use_many.remote({"list": [counter, counter], "dict": {"a": counter}})))
    made = ray.get(user.make.remote())
    print("result", ray.get(made.add.remote()), type(made).__name__)
    print("closure", ray.get(user.call_function.remote(by_closure(counter))))
    shared = counter
    print("global", from_global(), ray.get(user.call_function.remote(from_global)))
    named = Counter.options(name="the counter").remote(1_000)
    print("name", ray.get(user.use_named.remote("the counter")), ray.get(ray.get_actor("the counter").add.remote()))
    own = ray.get(counter.me.remote())
    print("own handle", ray.get(own.add.remote()), own == counter, hash(own) == hash(counter), own in {counter: 1})
    print("task", ray.get(task.remote(counter)))
    stored = ray.put([counter])
    print("store", ray.get(ray.get(stored)[0].add.remote()))
    pool = ActorPool([Counter.remote(), Counter.remote()])
    print("pool", sorted(pool.map(lambda actor, value: actor.add.remote(value * 0 + 1), range(4))))
    first = Counter.options(name="one only", get_if_exists=True).remote(5)
    again = Counter.options(name="one only", get_if_exists=True).remote(50)
    print("get_if_exists", ray.get(first.add.remote()), ray.get(again.add.remote()))

    queue = Queue(maxsize=2)
    queue.put("a")
    queue.put_nowait("b")
    print("queue", queue.qsize(), queue.full(), queue.get(), queue.get_nowait(), queue.empty())
    for work, kind in ((queue.get_nowait, Empty), (lambda: queue.put_nowait_batch([1, 2, 3]), Full)):
        try:
            work()
        except kind as error:
            print("queue", type(error).__name__)
    queue.shutdown()
    print("names", sorted(ray.util.list_named_actors()))
    print("kept", ray.get(named.add.remote()))


if __name__ == "__main__":
    ray.init()
    main()
