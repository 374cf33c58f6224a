"""Dask graphs on Ray's scheduler: delayed functions, a bag, and what fails in one."""

import dask
import dask.bag
import ray
from ray.util.dask import disable_dask_on_ray, enable_dask_on_ray, ray_dask_get


@dask.delayed
def add(a, b):
    return a + b


@dask.delayed
def fails():
    raise ValueError("as told")


def main():
    total = add(0, 0)
    for n in range(30):
        total = add(total, add(n, n))
    print("app:", total.compute(scheduler=ray_dask_get))
    enable_dask_on_ray()
    bag = dask.bag.from_sequence(range(1_000), npartitions=6)
    print("app:", bag.map(lambda n: n * n).filter(lambda n: n % 2).sum().compute())
    print("app:", dask.compute(add(1, 2), add(3, 4)))
    try:
        fails().compute()
    except ValueError as error:
        print("app:", type(error).__name__)
    disable_dask_on_ray()


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main()
    print("app:", "the end")
