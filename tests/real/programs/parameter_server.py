"""Ray's parameter server, on numpy: a regression trained in rounds, then by workers that go on whenever they are ready."""

import numpy as np
import ray

SIZE, ROWS = 200, 20_000


@ray.remote(num_cpus=0.1)
class Server:
    def __init__(self):
        self.weights = np.zeros(SIZE)

    def apply(self, *gradients):
        self.weights -= 0.5 * np.mean(gradients, axis=0)
        return self.weights

    def get(self):
        return self.weights


@ray.remote(num_cpus=0.1)
class Worker:
    def __init__(self, seed, truth):
        random = np.random.default_rng(seed)
        self.inputs = random.standard_normal((ROWS, SIZE))
        self.outputs = self.inputs @ truth

    def gradient(self, weights):
        return self.inputs.T @ (self.inputs @ weights - self.outputs) / ROWS


def main():
    truth = np.linspace(-1, 1, SIZE)
    server, workers = Server.remote(), [Worker.remote(seed, truth) for seed in range(3)]
    weights = server.get.remote()
    for _ in range(60):
        weights = server.apply.remote(*[worker.gradient.remote(weights) for worker in workers])
    print("app:", round(float(np.abs(ray.get(weights) - truth).max()), 6))
    server = Server.remote()
    running = {worker.gradient.remote(server.get.remote()): worker for worker in workers}
    for _ in range(300):
        [ready], _ = ray.wait(list(running))
        worker = running.pop(ready)
        running[worker.gradient.remote(server.apply.remote(ready))] = worker
    print("app:", bool(np.abs(ray.get(server.get.remote()) - truth).max() < 1e-3))


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main()
    print("app:", "the end")
