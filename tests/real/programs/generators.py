"""Streaming generators of tasks, actors and async actors: read one by one, in async loops, left early, failing half-way."""

import asyncio

import ray


def list_of(count):
    """A generator: Ray sends into what a task yields from, which a range does not understand."""
    return (n for n in range(count))


@ray.remote(num_cpus=0.1)
def squares(count, fails_at=None):
    for n in range(count):
        if n == fails_at:
            raise ValueError(f"at {n}")
        yield n * n


@ray.remote(num_cpus=0.1, _generator_backpressure_num_objects=2)
def slowly_read(count):
    yield from list_of(count)


@ray.remote(num_cpus=0.1, num_returns="dynamic")
def dynamic(count):
    yield from list_of(count)


@ray.remote(num_cpus=0.1)
class Source:
    def lines(self, count):
        for n in range(count):
            yield f"line {n}"

    def plain(self):
        return "between"


@ray.remote(num_cpus=0.1)
class AsyncSource:
    async def lines(self, count):
        for n in range(count):
            await asyncio.sleep(0)
            yield n

    async def relay(self, count):
        async for ref in AsyncSource.options(num_cpus=0).remote().lines.remote(count):
            yield 10 * await ref


async def read(generator):
    return [await ref async for ref in generator]


def main():
    print("app:", [ray.get(ref) for ref in squares.remote(6)], type(squares.remote(1)).__name__)
    found = []
    try:
        for ref in squares.remote(5, fails_at=2):
            found.append(ray.get(ref))
    except ValueError as error:
        print("app:", found, type(error).__name__)
    generator = slowly_read.remote(50)
    print("app:", ray.get(next(generator)), sum(ray.get(ref) for ref in generator))
    print("app:", [ray.get(ref) for ref in ray.get(dynamic.remote(3))])
    source = Source.remote()
    lines = source.lines.remote(4)
    print("app:", ray.get(next(lines)), ray.get(source.plain.remote()), [ray.get(ref) for ref in lines])
    actor = AsyncSource.remote()
    print("app:", asyncio.run(read(actor.lines.remote(30)))[-3:], asyncio.run(read(actor.relay.remote(3))))
    early = actor.lines.remote(1_000)
    print("app:", ray.get(next(early)))
    del early
    ready, _ = ray.wait([squares.remote(3), source.lines.remote(2)], num_returns=2)
    print("app:", len(ready), [ray.get(next(one)) for one in ready])
    try:
        next(squares.remote(0))
    except StopIteration:
        print("app:", "nothing to read")


if __name__ == "__main__":
    ray.init(num_cpus=4, log_to_driver=False)
    main()
    print("app:", "the end")
