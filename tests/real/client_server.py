"""The other end of Ray Client: makes the calls of the programs that connect. Says when it listens, and ends with its input."""

import sys

import ray
from ray.util.client.server.server import serve

ray.init(num_cpus=4, log_to_driver=False)
server = serve("127.0.0.1", int(sys.argv[1]))
print("listening", flush=True)
sys.stdin.read()
server.stop(0)
