"""ray.util.collective on a CPU, without a deep learning library: a backend of the program's own, over an actor."""

import numpy as np
import ray
from ray.util import collective
from ray.util.collective.backend_registry import register_collective_backend
from ray.util.collective.collective_group.base_collective_group import BaseGroup


@ray.remote(num_cpus=0)
class Meeting:
    """Where the members of a group bring their parts, round by round."""

    def __init__(self, size):
        self.size, self.rounds = size, {}

    async def bring(self, number, part):
        import asyncio

        parts, full = self.rounds.setdefault(number, ([], asyncio.Event()))
        parts.append(part)
        if len(parts) == self.size:
            full.set()
        await full.wait()
        return sum(parts)


class OverAnActor(BaseGroup):
    def __init__(self, world_size, rank, group_name):
        super().__init__(world_size, rank, group_name)
        self.meeting = Meeting.options(name=f"meeting-{group_name}", get_if_exists=True).remote(world_size)
        self.number = 0

    @classmethod
    def backend(cls):
        return "OVER_AN_ACTOR"

    @classmethod
    def check_backend_availability(cls):
        return True

    def allreduce(self, tensor, allreduce_options=None):
        self.number += 1
        tensor[0][:] = ray.get(self.meeting.bring.remote(self.number, tensor[0].copy()))

    def barrier(self, barrier_options=None):
        self.allreduce([np.zeros(1)])

    reduce = allgather = broadcast = reducescatter = send = recv = None


@ray.remote(num_cpus=0.1)
class Worker:
    def __init__(self):
        register_collective_backend("OVER_AN_ACTOR", OverAnActor)

    def reduce(self, rank, rounds):
        array = np.full(1_000, float(rank + 1))
        for _ in range(rounds):
            collective.allreduce(array)
            array /= 3
        collective.barrier()
        return float(array.sum()), collective.get_rank(), collective.get_collective_group_size()


def main():
    register_collective_backend("OVER_AN_ACTOR", OverAnActor)
    workers = [Worker.remote() for _ in range(3)]
    collective.create_collective_group(workers, 3, [0, 1, 2], backend="OVER_AN_ACTOR")
    print("app:", ray.get([worker.reduce.remote(rank, 50) for rank, worker in enumerate(workers)]))


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main()
    print("app:", "the end")
