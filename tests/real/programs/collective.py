"""ray.util.collective on gloo: workers that add up their numbers, round by round: `collective.py [HANG]`.

unequal  after ray-project/ray#25130: a rank raises before a round, and the others stay in the reduction.
"""

import sys

import ray
import torch
from ray.util import collective


@ray.remote(num_cpus=0.1)
class Worker:
    def reduce(self, rank, rounds, hangs):
        numbers = torch.full((1_000,), float(rank + 1))
        for number in range(rounds):
            if hangs and rank == 2 and number == 20:
                raise ValueError("no such batch")  # HANG unequal
            collective.allreduce(numbers)  # HANG unequal
            numbers /= 3
        collective.barrier()
        return float(numbers.sum()), collective.get_rank(), collective.get_collective_group_size()


def main(hangs):
    workers = [Worker.remote() for _ in range(3)]
    collective.create_collective_group(workers, 3, [0, 1, 2], backend="gloo")
    sums = [worker.reduce.remote(rank, 50, hangs) for rank, worker in enumerate(workers)]
    print("app:", [ray.get(one) for one in sums])


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main(sys.argv[1:])
    print("app:", "the end")
