"""More in the store than it holds: what is spilled to the disk comes back; what nobody holds any more is freed."""

import numpy as np
import ray


@ray.remote(num_cpus=0.1)
def made(n):
    return np.full(2_000_000, n, dtype=np.int64)


@ray.remote(num_cpus=0.1)
class Holder:
    def __init__(self):
        self.refs = []

    def hold(self, refs):
        self.refs += refs
        return len(self.refs)

    def totals(self):
        return [int(ray.get(ref).sum()) for ref in self.refs]


def main():
    refs = [made.remote(n) for n in range(8)] + [ray.put(np.full(2_000_000, n)) for n in range(8, 12)]
    print("app:", [int(ray.get(ref)[0]) for ref in refs])
    holder = Holder.remote()
    print("app:", ray.get(holder.hold.remote(refs)))
    del refs
    for n in range(12):
        ray.get(made.remote(n))
    print("app:", ray.get(holder.totals.remote()))


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False, object_store_memory=100 * 1024**2)
    main()
    print("app:", "the end")
