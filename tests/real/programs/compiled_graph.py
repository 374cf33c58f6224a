"""Graphs of calls: bound and executed lazily, and compiled, so that their calls go through shared memory."""

import ray
from ray.dag import InputNode, MultiOutputNode


@ray.remote(num_cpus=0.1)
def plus(a, b):
    return a + b


@ray.remote(num_cpus=0.1)
class Stage:
    def __init__(self, factor):
        self.factor, self.calls = factor, 0

    def times(self, n):
        self.calls += 1
        if n == 13:
            raise ValueError("not thirteen")
        return n * self.factor

    def count(self):
        return self.calls


def main():
    with InputNode() as given:
        lazy = plus.bind(plus.bind(given, 1), plus.bind(given, 2))
    print("app:", ray.get(lazy.execute(10)))
    first, second, third = (Stage.remote(factor) for factor in (2, 3, 5))
    with InputNode() as given:
        graph = second.times.bind(first.times.bind(given))
    compiled = graph.experimental_compile()
    print("app:", [ray.get(compiled.execute(n)) for n in range(20, 300)][-3:])
    try:
        ray.get(compiled.execute(13))
    except ValueError as error:
        print("app:", type(error).__name__)
    print("app:", ray.get(compiled.execute(7)))
    compiled.teardown()
    print("app:", ray.get([stage.count.remote() for stage in (first, second, third)]))
    with InputNode() as given:
        once = first.times.bind(given)
        both = MultiOutputNode([second.times.bind(once), third.times.bind(once)])
    compiled = both.experimental_compile()
    print("app:", ray.get(compiled.execute(4)))
    compiled.teardown()


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main()
    print("app:", "the end")
