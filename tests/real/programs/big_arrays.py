"""Large arrays: put once, read by many without a copy, kept by actors, passed from task to task."""

import numpy as np
import ray


@ray.remote(num_cpus=0.5)
def part(array, first, last):
    return float(array[first:last].sum()), array.flags.writeable


@ray.remote(num_cpus=0.5)
def doubled(array):
    return array * 2


@ray.remote(num_cpus=0.5)
class Keeper:
    def __init__(self, array):
        self.array = array
        self.refs = []

    def dot(self, other):
        return float(self.array @ other)

    def keep(self, refs):
        self.refs += refs
        return len(self.refs)

    def total(self):
        return float(sum(array.sum() for array in ray.get(self.refs)))


def main():
    array = np.arange(4_000_000, dtype=np.float64)
    ref = ray.put(array)
    parts = ray.get([part.remote(ref, n * 500_000, (n + 1) * 500_000) for n in range(8)])
    print("app:", sum(one for one, _ in parts) == array.sum(), {writeable for _, writeable in parts})
    again = ray.get(ref)
    print("app:", again.flags.writeable, np.shares_memory(again, ray.get(ref)), again.dtype, again.shape)
    try:
        again[0] = 1.0
    except ValueError as error:
        print("app:", error)
    keeper = Keeper.remote(ref)
    chain = doubled.remote(doubled.remote(ref))
    print("app:", np.isclose(ray.get(keeper.dot.remote(chain)), float(array @ (array * 4))))
    print("app:", ray.get(keeper.keep.remote([ref, chain])), ray.get(keeper.total.remote()) == 5 * array.sum())
    refs = [ray.put(np.full(100_000, n)) for n in range(20)]
    print("app:", sum(int(one[0]) for one in ray.get(refs)))


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False, object_store_memory=500 * 1024**2)
    main()
    print("app:", "the end")
