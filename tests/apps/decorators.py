"""Functions and methods with Ray's `__ray_invocation_decorator__`, which sees the arguments of each call before it is sent."""

import functools
import time

import ray

SEEN = []


@ray.remote(num_cpus=0)
class Counting:
    def __init__(self):
        self.count = 0

    def add(self, n):
        self.count += n
        return self.count


class Decorated:
    def double(self, n, *, unit="m"):
        return 2 * n, unit

    def items(self, n):
        yield n


def two(a, d=None):
    return a, d


def items(n):
    yield n
    yield 2 * n


def nothing(a):
    return None


def again(n, d=0):
    return n if n == 0 else ray.get(STARTED.remote(n - 1, d=d + 1)) + d


def changing(invoke):
    @functools.wraps(invoke)
    def call(args, kwargs):
        SEEN.append((list(args), dict(kwargs)))
        ray.get(COUNTING[0].add.remote(1))  # another call in the middle of this one
        given = {name: value * 2 for name, value in kwargs.items()}
        return invoke([arg + 1 for arg in args], given)

    return call


def twice(invoke):
    return lambda args, kwargs: [invoke(args=args, kwargs=kwargs), invoke([], {"a": "second", **kwargs})]


def by_name(invoke):
    return lambda args, kwargs: invoke(args, {"unit": "km", **kwargs})


def refusing(invoke):
    def call(args, kwargs):
        raise LookupError(f"the app's own: {args} {kwargs}")

    return call


def dropping(invoke):
    return lambda args, kwargs: "nothing was started"


def with_decorator(function, decorator, **options):
    made = type(function)(function.__code__, globals(), function.__name__)
    made.__defaults__, made.__ray_invocation_decorator__ = function.__defaults__, decorator
    return ray.remote(num_cpus=0, **options)(made)


def outcome(work):
    try:
        return work()
    except Exception as error:
        return type(error).__name__, str(error).splitlines()[0]


def main():
    COUNTING.append(Counting.remote())
    pair = with_decorator(two, changing)
    print(ray.get(pair.options(num_returns=2).remote(1, d=4)))
    started = time.monotonic()
    found = set()
    while time.monotonic() - started < 2:  # some of these fall into a snapshot
        found.add(ray.get(pair.remote(1, d=4)))
    print(found, {str(one) for one in SEEN}, ray.get(COUNTING[0].add.remote(0)) == len(SEEN))
    print(ray.get(with_decorator(two, twice).remote(5, d=6)))
    print([ray.get(ref) for ref in with_decorator(items, changing).remote(3)])
    print(with_decorator(nothing, changing, num_returns=0).remote(1))
    print(outcome(lambda: with_decorator(two, refusing).remote(1, d=2)), with_decorator(two, dropping).remote(1))
    print(outcome(lambda: with_decorator(two, twice).remote()))
    print(ray.get(STARTED.remote(3)), len(SEEN) > 3)
    for method in (Decorated.double, Decorated.items):
        method.__ray_invocation_decorator__ = by_name if method is Decorated.double else changing
    actor = ray.remote(num_cpus=0)(Decorated).remote()
    print(ray.get([actor.double.remote(2), actor.double.remote(2, unit="cm")]))
    print(ray.get(handed.remote(actor)), [ray.get(ref) for ref in actor.items.remote(2)], SEEN[-1])


@ray.remote(num_cpus=0)
def handed(actor):
    return ray.get(actor.double.remote(3))


COUNTING = []
STARTED = with_decorator(again, lambda invoke: invoke)


if __name__ == "__main__":
    ray.init(log_to_driver=False)
    main()
