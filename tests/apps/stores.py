"""A node whose object store gets short of room, in a cluster of its own: `python stores.py FOLDER`.

Nothing is short until a line comes on stdin.
"""

import sys

import numpy as np
import ray

MIB = 2**20


def array(mib):
    return np.zeros(mib * MIB, np.uint8)


@ray.remote
def count(data):
    return len(data) // MIB


@ray.remote
def add(data, mib):
    return len(data) // MIB + ray.get(count.remote(ray.put(array(mib))))


def hang(kept):
    """Ray keeps the arguments of a plain task that runs in the store until it ends, and begins no other with whose arguments
    they would take more than 0.7 of it: 40 and 20 of 80 MiB. So this task waits for one that never begins, with a CPU free."""
    return ray.get(add.remote(kept, 20))


if __name__ == "__main__":
    ray.init(
        "local",
        num_cpus=2,
        object_store_memory=80 * MIB,
        include_dashboard=False,
        _temp_dir=sys.argv[1],
        _system_config={"debug_dump_period_milliseconds": 500},
    )
    kept = ray.put(array(40))
    print(ray.get_runtime_context().gcs_address, flush=True)
    input()
    hang(kept)
