"""A signal and a semaphore as async actors: tasks and actors wait for them, in an order that they decide."""

import asyncio

import ray


@ray.remote(num_cpus=0)
class Signal:
    def __init__(self):
        self.event, self.waiters = asyncio.Event(), 0

    async def send(self, clear=False):
        self.event.set()
        if clear:
            self.event.clear()

    async def wait(self):
        self.waiters += 1
        await self.event.wait()
        self.waiters -= 1

    async def waiting(self):
        return self.waiters


@ray.remote(num_cpus=0)
class Semaphore:
    def __init__(self, value):
        self.semaphore = asyncio.Semaphore(value)

    async def acquire(self):
        await self.semaphore.acquire()

    async def release(self):
        self.semaphore.release()

    async def locked(self):
        return self.semaphore.locked()


@ray.remote(num_cpus=0.1)
def wait_and_go(signal, n):
    ray.get(signal.wait.remote())
    return n


@ray.remote(num_cpus=0.1)
class Guarded:
    def __init__(self, semaphore):
        self.semaphore = semaphore

    def run(self, n):
        ray.get(self.semaphore.acquire.remote())
        total = sum(range(n))
        ray.get(self.semaphore.release.remote())
        return total


def main():
    signal = Signal.remote()
    waiting = [wait_and_go.remote(signal, n) for n in range(3)]
    while ray.get(signal.waiting.remote()) < 3:
        pass
    print("app:", len(ray.wait(waiting, timeout=0.2)[1]))
    ray.get(signal.send.remote())
    print("app:", ray.get(waiting), ray.get(signal.waiting.remote()))
    semaphore = Semaphore.remote(2)
    guarded = [Guarded.remote(semaphore) for _ in range(4)]
    print("app:", ray.get([one.run.remote(200_000 + n) for n, one in enumerate(guarded)]))
    print("app:", ray.get(semaphore.locked.remote()))


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main()
    print("app:", "the end")
