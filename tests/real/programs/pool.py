"""ray.util.multiprocessing.Pool in place of Python's: maps, async results, initializers, chunks, errors, and its end."""

import os

import ray
from ray.util.multiprocessing import Pool


def square(n):
    return n * n


def add(a, b):
    return a + b


def fails(n):
    if n == 3:
        raise ValueError(f"not {n}")
    return n


def prepare(value):
    os.environ["PREPARED"] = value


def prepared(_):
    return os.environ["PREPARED"]


def main():
    with Pool(processes=3) as pool:
        print("app:", sum(pool.map(square, range(2_000))), pool.starmap(add, [(1, 2), (3, 4)]))
        print("app:", list(pool.imap(square, range(5), chunksize=2)), sorted(pool.imap_unordered(square, range(5))))
        result = pool.apply_async(add, (20, 3))
        print("app:", result.get(timeout=60), result.ready(), result.successful(), pool.apply(square, (9,)))
        several = pool.map_async(square, range(10), chunksize=3)
        several.wait(60)
        print("app:", several.get())
        for call in (lambda: pool.map(fails, range(5)), lambda: pool.apply(fails, (3,))):
            try:
                call()
            except ValueError as error:
                print("app:", type(error).__name__, "not 3" in str(error))
        told = []
        pool.apply_async(square, (4,), callback=told.append).wait(60)
        pool.close()
        pool.join()
    try:
        pool.map(square, [1])
    except ValueError as error:
        print("app:", error)
    with Pool(2, initializer=prepare, initargs=("yes",)) as pool:
        print("app:", set(pool.map(prepared, range(10))))


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main()
    print("app:", "the end")
