"""PPO in the manner of verl: one controller, roles fused into one worker, methods bound on a group, a named rendezvous.

python rl_controller.py [HANG]

slots       after verl-project/verl#7990: requests hold every slot of the rollout server, and `resume` is behind them
rendezvous  after verl-project/verl#1144: a rank looks for a named actor that is never made under this name
"""

import asyncio
import functools
import sys
import time

import numpy as np
import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

RANKS, STEPS, SLOTS = 2, 3, 8


def register(dispatch):
    """Says how the group's bound method deals out its argument: "split" or "all"."""

    def mark(method):
        method.dispatch = dispatch
        return method

    return mark


class Policy:
    def __init__(self, config):
        self.weights = np.full(config["width"], 0.5)

    @register("split")
    def log_probs(self, tokens):
        return tokens @ self.weights

    @register("split")
    def update(self, tokens, advantages):
        self.weights += 0.1 * (advantages[:, None] * tokens).mean(axis=0)
        return float(np.abs(self.weights).sum())

    @register("all")
    def export(self):
        return self.weights


class Critic:
    def __init__(self, config):
        self.scale = config["scale"]

    @register("split")
    def values(self, tokens):
        return self.scale * tokens.sum(axis=1)


@ray.remote(num_cpus=0)
class RegisterCenter:
    """Where the ranks of a group find each other."""

    def __init__(self, size):
        self.size, self.members = size, {}

    def enter(self, rank, address):
        self.members[rank] = address
        return len(self.members)


class WorkerDict:
    """A rank: every role of `ROLES` in one process."""

    def __init__(self, config, rank, center):
        self.rank = rank
        self.roles = {name: role(config) for name, role in ROLES.items()}
        if rank == 0:
            self.center = RegisterCenter.options(name=center).remote(RANKS)
        else:
            self.center = self.find(center)
        ray.get(self.center.enter.remote(rank, f"rank-{rank}"))

    def find(self, center):
        while True:
            try:
                return ray.get_actor(center)
            except ValueError:
                time.sleep(0.2)  # HANG rendezvous


def fused():
    """`WorkerDict` with the roles' methods as its own: `policy_update`, `critic_values`."""
    for name, role in ROLES.items():
        for method in vars(role).values():
            if hasattr(method, "dispatch"):
                setattr(WorkerDict, f"{name}_{method.__name__}", _delegating(name, method))
    return ray.remote(WorkerDict)


def _delegating(name, method):
    @functools.wraps(method)
    def call(self, *args):
        return method(self.roles[name], *args)

    return call


ROLES = {"policy": Policy, "critic": Critic}
Worker = fused()


class WorkerGroup:
    """The controller's side: `group.policy_update(batch)` deals out, calls every rank, and collects."""

    def __init__(self, config, prefix):
        bundles = placement_group([{"CPU": 0.5}] * RANKS, strategy="PACK", name=f"{prefix}_pool")
        ray.get(bundles.ready())
        self.workers = []
        for rank in range(RANKS):
            center = f"{prefix}_register_center"
            if config["hang"] == "rendezvous" and rank:
                center = f"{prefix}_again_register_center"
            place = PlacementGroupSchedulingStrategy(bundles, placement_group_bundle_index=rank)
            options = {"num_cpus": 0.5, "name": f"{prefix}WorkerDict_0:{rank}", "scheduling_strategy": place}
            self.workers.append(Worker.options(**options).remote(config, rank, center))
        for name, role in ROLES.items():
            for method in vars(role).values():
                if hasattr(method, "dispatch"):
                    bound = functools.partial(self._call, f"{name}_{method.__name__}", method.dispatch)
                    setattr(self, f"{name}_{method.__name__}", bound)

    def _call(self, method, dispatch, *args):
        if dispatch == "all":
            return ray.get([getattr(worker, method).remote(*args) for worker in self.workers])
        parts = zip(*(np.array_split(arg, RANKS) for arg in args), strict=True)
        refs = [getattr(worker, method).remote(*part) for worker, part in zip(self.workers, parts, strict=True)]
        return ray.get(refs)


@ray.remote(num_cpus=0.1, max_concurrency=SLOTS)
class RolloutServer:
    def __init__(self, config):
        self.width, self.version = config["width"], 0
        self.running = asyncio.Event()
        self.running.set()

    async def generate(self, prompt):
        await self.running.wait()  # HANG slots
        await asyncio.sleep(0.01)
        return (np.arange(self.width) + prompt) % 7 / 7

    async def pause(self):
        self.running.clear()

    async def resume(self, weights):
        self.version += 1
        self.bias = float(weights.mean())
        self.running.set()
        return self.version


@ray.remote(num_cpus=0.1)
class AgentLoop:
    """Asks the server for every prompt of its share at once."""

    def __init__(self, server):
        self.server = server

    async def rollouts(self, prompts):
        return np.array(await asyncio.gather(*[self.server.generate.remote(prompt) for prompt in prompts]))


def fit(config):
    group = WorkerGroup(config, "verl")
    server = RolloutServer.options(name="rollout_server").remote(config)
    loops = [AgentLoop.remote(server) for _ in range(2)]
    count = 2 * SLOTS if config["hang"] == "slots" else SLOTS - 2
    ahead = [loop.rollouts.remote(part) for loop, part in zip(loops, np.array_split(np.arange(count), 2), strict=True)]
    for step in range(STEPS):
        tokens = np.concatenate(ray.get(ahead))
        old = np.concatenate(group.policy_log_probs(tokens))
        advantages = tokens.mean(axis=1) - np.concatenate(group.critic_values(tokens))
        ray.get(server.pause.remote())
        prompts = np.arange(count) + 10 * (step + 1)
        ahead = [loop.rollouts.remote(part) for loop, part in zip(loops, np.array_split(prompts, 2), strict=True)]
        norms = group.policy_update(tokens, advantages)
        time.sleep(0.2)  # the rest of a step
        version = ray.get(server.resume.remote(group.policy_export()[0]))
        print("app:", step, version, old.round(3)[:3], [round(norm, 3) for norm in norms], flush=True)
    ray.get(ahead)


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    fit({"hang": sys.argv[1] if len(sys.argv) > 1 else "", "width": 8, "scale": 0.1})
    print("app:", "the end")
