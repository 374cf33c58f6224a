"""A program that ends by an exception of an actor's: its traceback and exit code are what the user sees."""

import ray


@ray.remote(num_cpus=0.1)
class Ledger:
    def __init__(self):
        self.entries = {"a": 1}

    def read(self, key):
        return self.entries[key]


@ray.remote(num_cpus=0.1)
class Clerk:
    def __init__(self, ledger):
        self.ledger = ledger

    def read(self, key):
        return ray.get(self.ledger.read.remote(key))


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    clerk = Clerk.remote(Ledger.remote())
    print("app:", ray.get(clerk.read.remote("a")))
    print("app:", ray.get(clerk.read.remote("b")))
