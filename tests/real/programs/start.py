"""The least that a Ray program does: it starts a cluster and runs one task."""

import ray


@ray.remote
def square(n):
    return n * n


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    print("app:", ray.get(square.remote(7)))
    print("app:", "the end")
