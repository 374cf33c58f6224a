"""A child process computes; then two ranks read from sockets that stay empty."""

import socket
import subprocess
import sys

import ray

WORK = "import time\nuntil = time.time() + 8\nwhile time.time() < until: pass"


@ray.remote
class Rank:
    def __init__(self):
        self.here, self.there = socket.socketpair()

    def prepare(self):
        subprocess.run([sys.executable, "-c", WORK], check=True, env={})

    def step(self):
        self.here.recv(1)


if __name__ == "__main__":
    ray.init()
    ranks = [Rank.remote() for _ in range(2)]
    ray.get(ranks[0].prepare.remote())
    ray.get([rank.step.remote() for rank in ranks])
