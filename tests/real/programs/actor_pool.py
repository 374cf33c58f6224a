"""ray.util.ActorPool: maps in order and as they come, submits one by one, grows and shrinks, and meets an error."""

import ray
from ray.util import ActorPool


@ray.remote(num_cpus=0.1)
class Doubler:
    def double(self, n):
        if n == 13:
            raise ValueError("not thirteen")
        return 2 * sum(1 for _ in range(n * 20_000)) // 20_000


def main():
    pool = ActorPool([Doubler.remote() for _ in range(3)])
    call = lambda actor, n: actor.double.remote(n)  # noqa: E731
    print("app:", list(pool.map(call, range(10))))
    print("app:", sorted(pool.map_unordered(call, range(10, 13))), pool.has_free(), pool.has_next())
    for n in range(5):
        pool.submit(call, n)
    print("app:", pool.has_free(), pool.get_next(), sorted(pool.get_next_unordered() for _ in range(4)))
    try:
        pool.get_next()
    except StopIteration as error:
        print("app:", type(error).__name__, error)
    pool.push(Doubler.remote())
    idle = [pool.pop_idle() for _ in range(5)]
    print("app:", [one is not None for one in idle], pool.pop_idle())
    for one in filter(None, idle):
        pool.push(one)
    found = []
    try:
        for one in pool.map(call, [1, 13, 2]):
            found.append(one)
    except ValueError as error:
        print("app:", found, type(error).__name__)
    print("app:", pool.get_next(timeout=60))


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main()
    print("app:", "the end")
