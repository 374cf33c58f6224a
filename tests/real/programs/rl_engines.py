"""RLHF in the manner of OpenRLHF: models and engines that share a bundle by fractions, a lock actor, a stream, a queue.

python rl_engines.py [HANG]

lock  after OpenRLHF/OpenRLHF#1262: `pause` of an engine fails behind `acquire`, and nobody releases the lock
died  after OpenRLHF/OpenRLHF#331: an engine dies in its constructor, and the policy waits for it in the rendezvous
"""

import asyncio
import sys

import numpy as np
import ray
from ray.util.placement_group import placement_group
from ray.util.queue import Queue
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

ENGINES, STEPS = 2, 5


@ray.remote(num_cpus=0)
class Lock:
    """Held by whoever generates, or writes weights."""

    def __init__(self):
        self.lock = asyncio.Lock()

    async def acquire(self):
        await self.lock.acquire()

    async def release(self):
        self.lock.release()


@ray.remote(num_cpus=0)
class Group:
    """The process group of the weights: rank 0 is the policy, the others are engines."""

    def __init__(self, size):
        self.size, self.inside, self.rounds = size, 0, {}
        self.complete = asyncio.Event()

    async def join(self, rank):
        self.inside += 1
        if self.inside == self.size:
            self.complete.set()
        await self.complete.wait()
        return self.size

    async def broadcast(self, number, rank, value=None):
        there, full = self.rounds.setdefault(number, ({}, asyncio.Event()))
        there[rank] = value
        if len(there) == self.size:
            full.set()
        await full.wait()
        return there[0]


@ray.remote(num_cpus=0.2)
class Engine:
    """An asynchronous engine: requests come while others run."""

    def __init__(self, number, hang):
        if hang == "died" and number == 1:
            raise ValueError("this engine cannot load the model")  # HANG died
        self.number, self.hang, self.version = number, hang, 0
        self.running = asyncio.Event()
        self.running.set()

    async def init_process_group(self, group):
        self.group = group
        return await group.join.remote(self.number + 1)

    async def generate(self, prompt):
        await self.running.wait()
        await asyncio.sleep(0.02)
        return (np.arange(4) + prompt) % 5

    async def pause(self):
        if self.hang == "lock" and self.number == 1 and self.version == 1:
            raise RuntimeError("the scheduler does not answer")
        self.running.clear()

    async def resume(self):
        self.running.set()

    async def update_weights(self, number):
        weights = await self.group.broadcast.remote(number, self.number + 1)
        self.version = number
        return float(weights.sum())


@ray.remote(num_cpus=0.3)
class Policy:
    def __init__(self, engines):
        self.engines, self.weights, self.number = engines, np.ones(4), 0

    def connect(self):
        self.group = Group.remote(ENGINES + 1)
        refs = [engine.init_process_group.remote(self.group) for engine in self.engines]
        size = ray.get(self.group.join.remote(0))  # HANG died
        ray.get(refs)
        return size

    def train(self, tokens):
        self.weights += tokens.mean(axis=0) / 10
        return float(self.weights.sum())

    def broadcast(self):
        self.number += 1
        refs = [engine.update_weights.remote(self.number) for engine in self.engines]
        ray.get(self.group.broadcast.remote(self.number, 0, self.weights))
        return ray.get(refs)


@ray.remote(num_cpus=0.1)
class SampleMaker:
    """Streams samples from the engines into the queue, a batch a step."""

    def __init__(self, engines, queue, lock):
        self.engines, self.queue, self.lock = engines, queue, lock

    def samples(self, step):
        for number, engine in enumerate(self.engines * 2):
            yield ray.get(engine.generate.remote(10 * step + number))

    def fit(self, maker):
        for step in range(STEPS):
            ray.get(self.lock.acquire.remote())  # HANG lock
            stream = maker.samples.options(num_returns="streaming").remote(step)
            batch = [ray.get(ref) for ref in stream]
            ray.get(self.lock.release.remote())
            self.queue.put((step, np.array(batch)))


@ray.remote(num_cpus=0.1)
class Trainer:
    def __init__(self, policy, engines, queue, lock):
        self.policy, self.engines, self.queue, self.lock = policy, engines, queue, lock

    def fit(self):
        losses = []
        for _ in range(STEPS):
            step, batch = self.queue.get()
            losses.append((step, batch.shape, round(ray.get(self.policy.train.remote(batch)), 3)))
            try:
                self.sync()
            except RuntimeError as error:
                print(f"weights stay as they were: {error}")
        return losses

    def sync(self):
        ray.get(self.lock.acquire.remote())  # HANG lock
        ray.get([engine.pause.remote() for engine in self.engines])
        try:
            ray.get(self.policy.broadcast.remote())
        finally:
            ray.get([engine.resume.remote() for engine in self.engines])
            ray.get(self.lock.release.remote())


def main(hang):
    bundles = placement_group([{"CPU": 0.5}] * ENGINES, strategy="PACK")
    ray.get(bundles.ready())
    shared = [PlacementGroupSchedulingStrategy(bundles, placement_group_bundle_index=n) for n in range(ENGINES)]
    engines = [Engine.options(scheduling_strategy=shared[n]).remote(n, hang) for n in range(ENGINES)]
    policy = Policy.options(scheduling_strategy=shared[0]).remote(engines)
    print("app: in the group:", ray.get(policy.connect.remote()), flush=True)
    queue, lock = Queue(maxsize=1, actor_options={"num_cpus": 0}), Lock.remote()
    maker, streams = SampleMaker.remote(engines, queue, lock), SampleMaker.remote(engines, queue, lock)
    trainer = Trainer.remote(policy, engines, queue, lock)
    _, losses = ray.get([maker.fit.remote(streams), trainer.fit.remote()])
    print("app:", losses)


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main(sys.argv[1] if len(sys.argv) > 1 else "")
    print("app:", "the end")
