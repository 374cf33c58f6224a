"""Async actors: awaits of other actors, gather, events and locks of their own, timeouts, and how many calls run at once."""

import asyncio

import ray


@ray.remote(num_cpus=0.1)
class Store:
    def __init__(self):
        self.items = {}

    async def set(self, key, value):
        await asyncio.sleep(0)
        self.items[key] = value

    async def get(self, key):
        if key not in self.items:
            raise KeyError(key)
        return self.items[key]


@ray.remote(num_cpus=0.1, max_concurrency=3)
class Worker:
    def __init__(self, store):
        self.store, self.running, self.most = store, 0, 0
        self.lock, self.opened = asyncio.Lock(), asyncio.Event()

    async def compute(self, n):
        self.running += 1
        self.most = max(self.most, self.running)
        await self.store.set.remote(n, n * n)
        async with self.lock:
            await asyncio.sleep(0.001)
        both = await asyncio.gather(self.store.get.remote(n), self.store.get.remote(n))
        self.running -= 1
        return sum(both)

    async def wait(self):
        await self.opened.wait()
        return "opened"

    async def open(self):
        self.opened.set()

    async def impatient(self):
        try:
            await asyncio.wait_for(asyncio.Event().wait(), 0.05)
        except TimeoutError:
            return "in vain"

    async def missing(self):
        results = await asyncio.gather(self.store.get.remote("?"), self.store.get.remote(1), return_exceptions=True)
        return [type(one).__name__ for one in results]

    async def ways(self):
        get = self.store.get.remote
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(awaited(get(n))) for n in range(3)]
        found = sorted([await one for one in asyncio.as_completed([awaited(get(n)) for n in range(3)])])
        ref, loop = get(5), asyncio.get_running_loop()
        threaded = await loop.run_in_executor(None, lambda: ray.get(get(6)))
        return [task.result() for task in tasks], found, await ref, await ref, threaded

    def plain(self):
        return "a plain method"

    async def facts(self):
        loop = type(asyncio.get_running_loop()).__module__.partition(".")[0]
        return self.most, loop, asyncio.current_task() is not None


async def awaited(ref):
    return await ref


def main():
    store = Store.remote()
    workers = [Worker.remote(store) for _ in range(2)]
    print("app:", [sum(ray.get([worker.compute.remote(n) for n in range(200)])) for worker in workers])
    waiting = [worker.wait.remote() for worker in workers]
    print("app:", len(ray.wait(waiting, num_returns=2, timeout=0.5)[1]))
    ray.get([worker.open.remote() for worker in workers])
    print("app:", ray.get(waiting), ray.get(workers[0].impatient.remote()))
    print("app:", ray.get(workers[0].missing.remote()), ray.get(workers[0].facts.remote()))
    print("app:", ray.get(workers[0].ways.remote()), ray.get(workers[0].plain.remote()))


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main()
    print("app:", "the end")
