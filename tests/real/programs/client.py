"""A program that connects with Ray Client: another process makes its calls."""

import ray


@ray.remote(num_cpus=0)
class Before:
    def __init__(self, n):
        self.n = n

    def add(self, m):
        return self.n + m

    def bases(self):
        return [kind.__name__ for kind in type(self).__mro__]


@ray.remote(num_cpus=0)
def task(n):
    return n + 1


def main():
    actor = Before.options(num_cpus=0).remote(1)
    print(
        "app:",
        ray.get(actor.add.remote(2)),
        ray.get(actor.bases.remote()),
        ray.get(task.remote(3)),
        ray.get(ray.put(4)),
    )
    print("app:", ray.wait([actor.add.remote(1)], timeout=60)[0] != [], type(actor).__name__, ray.is_initialized())
    try:
        ray.get(actor.add.remote("text"))
    except TypeError as error:
        print("app:", type(error).__name__, "ray_snapshot" in str(error))


if __name__ == "__main__":
    ray.init()  # ray://...: RAY_ADDRESS says so
    main()
    print("app:", "the end")
