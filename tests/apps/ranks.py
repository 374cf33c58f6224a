"""Three ranks sum up with gloo. What rank 2 does before it: `raises`, `works`, or `keeps` what rank 0 waits for.

It raises, too, where the others wait for what they have begun (`begins`), or in a backward (`learns`).
"""

import socket
import sys
import time

import ray
import torch
import torch.distributed as dist

LONG_S = 20.0


@ray.remote(num_cpus=0)
class Rank:
    def __init__(self, rank, does):
        self.rank, self.does = rank, does

    def free_port(self):
        with socket.create_server(("127.0.0.1", 0)) as server:
            return server.getsockname()[1]

    def enter(self, port):
        dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=self.rank, world_size=3)

    def step(self):
        numbers = torch.ones(2)
        dist.all_reduce(numbers)
        if self.does == "keeps":
            return [dist.recv(numbers, 2) for _ in range(self.rank == 0)]
        net = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 1)) if self.does == "learns" else None
        if self.rank == 2 and self.does in ("raises", "begins", "learns"):
            raise ValueError
        if net is not None:
            net(numbers).sum().backward()
        if self.does == "begins":
            work = dist.all_reduce(numbers, async_op=True)
            work.wait()
        if self.rank == 2:
            until = time.time() + LONG_S
            while time.time() < until:
                pass
        dist.all_reduce(numbers)
        return float(numbers[0])


if __name__ == "__main__":
    ray.init()
    ranks = [Rank.remote(rank, sys.argv[1]) for rank in range(3)]
    port = ray.get(ranks[0].free_port.remote())
    ray.get([rank.enter.remote(port) for rank in ranks])
    print([ray.get(done) for done in [rank.step.remote() for rank in ranks]])
