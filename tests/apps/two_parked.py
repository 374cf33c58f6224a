"""Two callers wait in two methods of one async actor, and nothing will ever change there."""

import asyncio

import ray


@ray.remote(num_cpus=0)
class Buffer:
    def __init__(self):
        self.changed = asyncio.Condition()
        self.items = [1, 2]

    async def add(self, item):
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.items) < 2)

    async def sample(self, count):
        async with self.changed:
            await self.changed.wait_for(lambda: len(self.items) >= count)


@ray.remote(num_cpus=0)
class Producer:
    def play(self, buffer):
        return ray.get(buffer.add.remote(3))


@ray.remote(num_cpus=0)
class Consumer:
    def learn(self, buffer):
        return ray.get(buffer.sample.remote(5))


if __name__ == "__main__":
    ray.init()
    buffer = Buffer.remote()
    ray.get([Consumer.remote().learn.remote(buffer), Producer.remote().play.remote(buffer)])
