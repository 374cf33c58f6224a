"""RL in the manner of slime: engines behind a router, rollouts one step ahead, weights that go over in groups of ranks.

python rl_router.py [HANG]

groups  after THUDM/slime#2331: two ranks open their groups over the same engines in opposite order
gather  after THUDM/slime#1487: a rank without samples leaves out the collective that the others are in
"""

import asyncio
import sys
import time

import numpy as np
import ray

RANKS, ENGINES, STEPS, STALE = 3, 2, 3, 1


@ray.remote(num_cpus=0)
class Collective:
    """A group of so many members; a round of it ends when each has brought its part."""

    def __init__(self, size):
        self.size, self.rounds = size, {}

    async def meet(self, number, member, part=None):
        parts, full = self.rounds.setdefault(number, ({}, asyncio.Event()))
        parts[member] = part
        if len(parts) == self.size:
            full.set()
        await full.wait()
        return [parts[key] for key in sorted(parts)]


@ray.remote(num_cpus=0.1)
class Engine:
    """Takes one request after the other, like the HTTP server it stands for."""

    def __init__(self, number):
        self.number, self.groups, self.version = number, {}, 0

    def generate(self, prompt):
        time.sleep(0.02)
        return [prompt % 5, (prompt + 1) % 5]

    def open_group(self, name, collective):
        ray.get(collective.meet.remote("open", f"engine-{self.number}"))  # HANG groups
        self.groups[name] = collective

    def update_weights(self, name, number):
        parts = ray.get(self.groups[name].meet.remote(number, f"engine-{self.number}"))
        self.version = number
        return sum(part for part in parts if part is not None)


@ray.remote(num_cpus=0.1)
class Router:
    """Gives a request to the engine that has the fewest."""

    def __init__(self, engines):
        self.engines, self.load = engines, [0] * len(engines)

    async def generate(self, prompt):
        chosen = self.load.index(min(self.load))
        self.load[chosen] += 1
        try:
            return await self.engines[chosen].generate.remote(prompt)
        finally:
            self.load[chosen] -= 1


@ray.remote(num_cpus=0.1)
class RolloutManager:
    def __init__(self, router):
        self.router = router

    async def generate(self, step):
        prompts = range(6 * step, 6 * step + 6)
        samples = await asyncio.gather(*[self.router.generate.remote(prompt) for prompt in prompts])
        return sorted(samples)


@ray.remote(num_cpus=0.1)
class TrainRank:
    def __init__(self, rank, engines, world, hang):
        self.rank, self.engines, self.world, self.hang = rank, engines, world, hang
        self.weight, self.number = 1.0, 0

    def connect(self):
        self.name, self.group = f"slime-pp_{self.rank}", Collective.remote(ENGINES + 1)
        for turn in range(RANKS):  # one rank after the other opens its group
            if turn == self.rank or (self.hang == "groups" and turn == 0):
                self._open()
            self.meet(f"turn {turn}")

    def _open(self):
        first, *others = self.engines if self.rank % 2 == 0 else self.engines[::-1]
        refs = [first.open_group.remote(self.name, self.group)]
        if self.hang == "groups":
            self.meet("all have begun")
        refs += [engine.open_group.remote(self.name, self.group) for engine in others]
        ray.get(self.group.meet.remote("open", "rank"))  # HANG groups
        ray.get(refs)

    def meet(self, number, part=None):
        return ray.get(self.world.meet.remote(number, self.rank, part))  # HANG gather

    def train(self, step, samples):
        share = samples[self.rank :: RANKS]
        if self.hang == "gather" and step == 1 and self.rank == 2:
            share = []
        if not share and self.hang == "gather":
            return 0.0
        gradient = np.mean(self.meet(f"gradient {step}", float(np.sum(share))))
        self.weight += float(gradient) / 100
        return self.weight

    def update_weights(self):
        self.number += 1
        refs = [engine.update_weights.remote(self.name, self.number) for engine in self.engines]
        ray.get(self.group.meet.remote(self.number, "rank", self.weight))
        return ray.get(refs)


def main(hang):
    engines = [Engine.remote(number) for number in range(ENGINES)]
    rollouts = RolloutManager.remote(Router.remote(engines))
    world = Collective.remote(RANKS)
    ranks = [TrainRank.remote(rank, engines, world, hang) for rank in range(RANKS)]
    ray.get([rank.connect.remote() for rank in ranks])
    ahead = {0: rollouts.generate.remote(0)}
    for step in range(STEPS):
        samples = ray.get(ahead.pop(step))
        for later in range(step + 1, min(step + STALE, STEPS - 1) + 1):
            ahead[later] = rollouts.generate.remote(later)
        losses = ray.get([rank.train.remote(step, samples) for rank in ranks])
        for rank in ranks:
            ray.get(rank.update_weights.remote())
        print("app:", step, len(samples), [round(loss, 4) for loss in losses], flush=True)


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main(sys.argv[1] if len(sys.argv) > 1 else "")
    print("app:", "the end")
