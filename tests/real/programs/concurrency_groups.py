"""Concurrency groups of an async and of a threaded actor: which thread runs what, and what one full group leaves free."""

import asyncio
import threading

import ray


@ray.remote(num_cpus=0.1, concurrency_groups={"io": 2, "compute": 1})
class Grouped:
    def __init__(self):
        self.events = {}
        self.thread = threading.get_ident()

    @ray.method(concurrency_group="io")
    async def wait(self, name):
        await self.events.setdefault(name, asyncio.Event()).wait()
        return name

    @ray.method(concurrency_group="io")
    async def where(self):
        return threading.current_thread().name

    @ray.method(concurrency_group="compute")
    async def compute(self, n):
        return sum(range(n))

    async def waiting(self):
        return sorted(self.events)

    async def default(self):
        return threading.get_ident() == self.thread


@ray.remote(num_cpus=0.1, concurrency_groups={"io": 2})
class Threaded:
    def __init__(self):
        self.gate = threading.Barrier(2, timeout=60)
        self.main = threading.get_ident()

    @ray.method(concurrency_group="io")
    def meet(self):
        return self.gate.wait() in (0, 1) and threading.get_ident() != self.main

    def default(self):
        return threading.get_ident() == self.main, threading.current_thread() is threading.main_thread()


def main():
    actor = Grouped.remote()
    waiting = [actor.wait.remote(name) for name in "ab"]
    while len(ray.get(actor.waiting.remote())) < 2:
        pass
    print("app:", ray.get([actor.compute.remote(n) for n in (10, 100_000)]), len(ray.wait(waiting, timeout=0.2)[1]))
    elsewhere = actor.waiting.options(concurrency_group="compute").remote()
    print("app:", ray.get(elsewhere), type(ray.get(actor.default.remote())).__name__)
    threaded = Threaded.remote()
    print("app:", ray.get([threaded.meet.remote() for _ in range(4)]), ray.get(threaded.default.remote()))
    print("app:", ray.get(threaded.default.options(concurrency_group="io").remote())[1])
    ray.kill(actor)
    for ref in waiting:
        try:
            ray.get(ref)
        except ray.exceptions.RayActorError as error:
            print("app:", type(error).__name__)


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main()
    print("app:", "the end")
