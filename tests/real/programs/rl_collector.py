"""GRPO in the manner of NeMo-RL: a collector with threads of its own fills a replay buffer, which the trainer polls.

python rl_collector.py [HANG]

exhausted  after NVIDIA-NeMo/RL#2899: the collector's thread ends with its one pass over the data
raised     after NVIDIA-NeMo/RL#3488: a batch thread of the collector ends by an exception, and the trainer is not told
"""

import itertools
import sys
import threading
import time

import numpy as np
import ray

STEPS, PROMPTS, AGE = 4, 3, 1


@ray.remote(num_cpus=0.1)
class ReplayBuffer:
    """Groups of trajectories, each meant for one step of the trainer."""

    def __init__(self):
        self.groups, self.targets = [], []

    def add(self, group, target):
        self.groups.append(group)
        self.targets.append(target)

    def size(self):
        return len(self.groups)

    def sample(self, target, count):
        chosen = [number for number, one in enumerate(self.targets) if one == target]
        if len(chosen) < count:
            return None
        batch = [self.groups[number] for number in chosen]
        self.groups = [one for number, one in enumerate(self.groups) if number not in chosen]
        self.targets = [one for number, one in enumerate(self.targets) if number not in chosen]
        return sorted(batch)


@ray.remote(num_cpus=0.1)
class GenerationWorker:
    def __init__(self, hang):
        self.hang, self.weights = hang, 0.0

    async def generate(self, prompt):
        if self.hang == "raised" and self.weights:
            raise RuntimeError("the engine is dead")
        return [float(prompt + turn) for turn in range(3)]

    async def update_weights(self, weights):
        self.weights = weights


@ray.remote(num_cpus=0.1)
class Environment:
    def reward(self, trajectory):
        return sum(trajectory) / len(trajectory)


@ray.remote(num_cpus=0.1, max_concurrency=4)
class TrajectoryCollector:
    """Collects in a thread of its own, with a thread a group, at most `AGE` steps ahead of the trainer."""

    def __init__(self, buffer, workers, environment, hang):
        self.buffer, self.workers, self.environment, self.hang = buffer, workers, environment, hang
        self.version = 0
        self.moved = threading.Condition()
        self.may_go = threading.Event()
        self.may_go.set()
        self.batches = []

    def start_collection(self, prompts):
        self.loop = threading.Thread(target=self._collect, args=(prompts,), name="collection", daemon=True)
        self.loop.start()

    def _collect(self, prompts):
        passes = [prompts] if self.hang == "exhausted" else itertools.repeat(prompts)
        stream = itertools.chain.from_iterable(passes)
        for target in range(STEPS):
            with self.moved:
                self.moved.wait_for(lambda: target <= self.version + AGE)  # noqa: B023
            self.may_go.wait()
            groups = list(itertools.islice(stream, PROMPTS))
            if not groups:
                return  # HANG exhausted
            name = f"batch-{target}"
            batch = threading.Thread(target=self._run_batch, args=(groups, target), name=name, daemon=True)
            self.batches.append(batch)
            batch.start()

    def _run_batch(self, prompts, target):
        refs = [worker.generate.remote(prompt) for worker, prompt in zip(itertools.cycle(self.workers), prompts)]
        for trajectory in ray.get(refs):  # HANG raised
            reward = ray.get(self.environment.reward.remote(trajectory))
            ray.get(self.buffer.add.remote((reward, trajectory), target))

    def set_weight_version(self, version):
        with self.moved:
            self.version = version
            self.moved.notify_all()

    def pause(self):
        self.may_go.clear()

    def resume(self):
        self.may_go.set()


@ray.remote(num_cpus=0.1)
class PolicyWorker:
    def __init__(self, rank):
        self.rank, self.weight = rank, 0.0

    def train(self, rewards):
        self.weight += float(np.mean(rewards)) / 10
        return self.weight


def train(hang):
    buffer = ReplayBuffer.remote()
    workers = [GenerationWorker.remote(hang) for _ in range(2)]
    policy = [PolicyWorker.remote(rank) for rank in range(2)]
    collector = TrajectoryCollector.remote(buffer, workers, Environment.remote(), hang)
    ray.get(collector.start_collection.remote(list(range(2 * PROMPTS))))
    for step in range(STEPS):
        while True:
            batch = ray.get(buffer.sample.remote(step, PROMPTS))  # HANG exhausted raised
            if batch is not None:
                break
            time.sleep(0.1)
        rewards = np.array([reward for reward, _ in batch])
        weights = ray.get([worker.train.remote(rewards) for worker in policy])
        print("app:", step, rewards.tolist(), [round(weight, 3) for weight in weights], flush=True)
        ray.get(collector.pause.remote())
        ray.get([worker.update_weights.remote(weights[0]) for worker in workers])
        ray.get(collector.set_weight_version.remote(step + 1))
        ray.get(collector.resume.remote())
    print("app: left in the buffer:", ray.get(buffer.size.remote()))


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    train(sys.argv[1] if len(sys.argv) > 1 else "")
    print("app:", "the end")
