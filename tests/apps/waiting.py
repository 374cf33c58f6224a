"""Every way to wait for a reply."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

import ray
from ray import get, wait


@ray.remote
class Worker:
    def work(self, x, seconds=0.0):
        time.sleep(seconds)
        return x

    def ask(self, other, xs):
        return get([other.work.remote(x) for x in xs])

    def some(self, others, k):
        ready, rest = wait([other.work.remote(i) for i, other in enumerate(others)], num_returns=k)
        return len(ready), len(rest), len(get(ready))

    def in_threads(self, other):
        with ThreadPoolExecutor(2) as pool:
            return list(pool.map(lambda x: get(other.work.remote(x)), range(4)))


@ray.remote
class Async:
    async def work(self, x):
        await asyncio.sleep(0.01)
        return x

    async def one(self, other):
        return await other.work.remote(1)

    async def all(self, other):
        return await asyncio.gather(*(other.work.remote(x) for x in range(3)))

    async def first(self, other, slow):
        tasks = {asyncio.ensure_future(self.of(ref)): name for name, ref in slow.items()}
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return len(done) >= 1, len(done) + len(pending)

    async def of(self, ref):
        return await ref

    async def as_completed(self, other):
        return sorted([await item for item in asyncio.as_completed([self.of(other.work.remote(x)) for x in range(3)])])

    async def with_timeout(self, box):
        try:
            await asyncio.wait_for(self.of(box[0]), 0.05)
        except TimeoutError:
            return "timed out"

    async def own(self, n):
        me = ray.get_runtime_context().current_actor
        return n if n == 0 else 1 + await me.own.remote(n - 1)

    async def task_group(self, other):
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self.of(other.work.remote(x))) for x in range(3)]
        return [task.result() for task in tasks]

    async def twice(self, other):
        ref = other.work.remote(5)
        return await ref, await ref

    async def executor(self, other):
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(None, lambda: get(other.work.remote(6)))

    async def never(self):
        await asyncio.Event().wait()


def main():
    a, b, c = (Worker.remote() for _ in range(3))
    print("get", get(a.work.remote(1)), get([a.work.remote(2), b.work.remote(3)]), get([]))
    print("in an actor", get(a.ask.remote(b, [1, 2, 3])), get(a.some.remote([b, c], 1)), get(a.some.remote([b, c], 2)))
    print("threads of an actor", get(a.in_threads.remote(b)))
    refs = [a.work.remote(x) for x in range(6)]
    seen = []
    while refs:
        ready, refs = wait(refs, num_returns=1)
        seen += get(ready)
    print("wait in a loop", sorted(seen))
    x, y = Async.remote(), Async.remote()
    never = x.never.remote()
    print("wait with a timeout", wait([never, a.work.remote(1)], num_returns=2, timeout=0.3)[1] == [never])
    print("wait for none", [len(side) for side in wait([never], timeout=0)])
    print("async", get(x.one.remote(y)), get(x.all.remote(y)), get(x.as_completed.remote(y)), get(x.twice.remote(y)))
    print("async", get(x.first.remote(y, {"never": y.never.remote(), "soon": y.work.remote(1)})))
    print("async", get(x.with_timeout.remote([never])))
    print("async", get(x.own.remote(5)), get(x.task_group.remote(y)), get(x.executor.remote(a)))
    print("driver's loop", asyncio.run(driver(a, b)))
    with ThreadPoolExecutor(3) as pool:
        print("driver's threads", sorted(pool.map(lambda value: get(a.work.remote(value)), range(9))))
    try:
        get(never, timeout=0.1)
    except ray.exceptions.GetTimeoutError as error:
        print("timeout", type(error).__name__)
    try:
        get("nothing")
    except ValueError as error:
        print("wrong", type(error).__name__)
    try:
        wait([never], num_returns=2)
    except ValueError as error:
        print("wrong", error)


async def driver(a, b):
    first = await a.work.remote(1)
    done, _ = await asyncio.wait([asyncio.ensure_future(told(b.work.remote(2)))])
    return first, [task.result() for task in done]


async def told(ref):
    return await ref


if __name__ == "__main__":
    ray.init()
    main()
