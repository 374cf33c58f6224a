"""Asynchronous RL in the manner of SkyRL: a trainer on an event loop inside a task, generation that runs ahead within a bound.

python rl_staleness.py [HANG]

lost     after NovaSky-AI/SkyRL#1173: a sandbox never answers, so its group never comes into the buffer
crashed  after NovaSky-AI/SkyRL#1691: an engine dies, the coroutine that called it ends, and the trainer is not told
"""

import asyncio
import os
import signal
import sys

import numpy as np
import ray

STEPS, BATCH, STALE = 4, 4, 1


class StalenessManager:
    """Lets so many groups be generated that none is older than `STALE` steps when it is trained on."""

    def __init__(self):
        self.version, self.submitted = 0, 0
        self.changed = asyncio.Condition()

    async def acquire(self):
        """The number of the next group; None if the epoch has no more."""
        async with self.changed:
            await self.changed.wait_for(lambda: self.submitted < (self.version + STALE + 1) * BATCH)
            if self.submitted == STEPS * BATCH:
                return None
            self.submitted += 1
            return self.submitted - 1

    async def next_version(self):
        async with self.changed:
            self.version += 1
            self.changed.notify_all()


@ray.remote(num_cpus=0.1)
class InferenceEngine:
    def __init__(self, number, hang):
        self.number, self.hang, self.version = number, hang, 0
        self.running = asyncio.Event()
        self.running.set()

    async def generate(self, prompt):
        await self.running.wait()
        if self.hang == "crashed" and self.number == 1 and prompt == STEPS * BATCH - 1:
            await self.die_late()
        await asyncio.sleep(0.02)
        return [prompt, prompt + 1, prompt + 2]

    async def die_late(self):
        while self.version < STEPS - 1:
            await asyncio.sleep(0.1)
        await asyncio.sleep(1)
        os.kill(os.getpid(), signal.SIGKILL)

    async def pause_generation(self):
        self.running.clear()

    async def resume_generation(self, version):
        self.version = version
        self.running.set()


@ray.remote(num_cpus=0.1)
class Sandbox:
    """Where the actions of a trajectory are carried out; its container boots in the background."""

    def __init__(self, number, hang):
        self.number, self.hang = number, hang
        self.booted = {}

    async def boot(self, group):
        self.booted[group] = asyncio.Event()
        self.task = asyncio.create_task(self._pull(group))

    async def _pull(self, group):
        await asyncio.sleep(0.01)
        if self.hang == "lost" and group == 6:
            raise ConnectionError("the registry does not answer")
        self.booted[group].set()

    async def step(self, group, action):
        await self.booted[group].wait()  # HANG lost
        return action % 3


class Trainer:
    def __init__(self, engines, sandboxes):
        self.engines, self.sandboxes = engines, sandboxes
        self.buffer = asyncio.Queue()
        self.staleness = StalenessManager()
        self.weight = 0.0

    async def train(self):
        workers = [asyncio.create_task(self.generate(), name=f"generate-{n}") for n in range(BATCH)]
        history = []
        for step in range(STEPS):
            batch = sorted([await self.buffer.get() for _ in range(BATCH)])  # HANG lost crashed
            self.weight += float(np.mean([reward for _, reward in batch]))
            history.append((step, len(batch), round(self.weight, 3)))
            await self.sync_weights(step + 1)
        await asyncio.gather(*workers)
        return history

    async def generate(self):
        while (group := await self.staleness.acquire()) is not None:
            rewards = await asyncio.gather(*[self.trajectory(group, turn) for turn in range(2)])
            await self.buffer.put((group, sum(rewards)))

    async def trajectory(self, group, turn):
        engine = self.engines[(group + turn) % len(self.engines)]
        sandbox = self.sandboxes[turn]
        await sandbox.boot.remote(group)
        actions = await engine.generate.remote(group)  # HANG crashed
        return sum([await sandbox.step.remote(group, action) for action in actions])

    async def sync_weights(self, version):
        await asyncio.gather(*[engine.pause_generation.remote() for engine in self.engines])
        await asyncio.sleep(0.05)  # the weights go over
        await asyncio.gather(*[engine.resume_generation.remote(version) for engine in self.engines])
        await self.staleness.next_version()


@ray.remote(num_cpus=0.1)
def entrypoint(hang):
    engines = [InferenceEngine.remote(number, hang) for number in range(2)]
    sandboxes = [Sandbox.remote(number, hang) for number in range(2)]

    async def run():
        return await Trainer(engines, sandboxes).train()

    return asyncio.run(run())


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    print("app:", ray.get(entrypoint.remote(sys.argv[1] if len(sys.argv) > 1 else "")))
    print("app:", "the end")
