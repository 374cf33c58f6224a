"""A second job on the cluster of the program: it has a named actor that the program calls. Ends with its input."""

import sys

import ray


@ray.remote(num_cpus=0.1)
class Shared:
    def __init__(self):
        self.visitors = []

    def visit(self, name):
        self.visitors.append(name)
        return len(self.visitors)

    def call(self, handle, n):
        return ray.get(handle.double.remote(n))


@ray.remote(num_cpus=0.1)
class Busy:
    def work(self, n):
        return sum(range(n))


ray.init(namespace="other", log_to_driver=False)
shared = Shared.options(name="shared").remote()
busy = Busy.remote()
ray.get([shared.__ray_ready__.remote(), busy.work.remote(1_000)])
print("ready", flush=True)
sys.stdin.read()
