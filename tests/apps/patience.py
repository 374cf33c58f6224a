"""Waits that an actor ends later, by a way that its handles do not show: `python patience.py NAME`."""

import asyncio
import gc
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import ray

LATER_S = 6.5
"""Longer than a snapshot waits for an actor that computes, so that some are taken meanwhile."""


@ray.remote
class Hub:
    def __init__(self):
        self.come = asyncio.Event()

    async def wait(self):
        await self.come.wait()
        return "woken"

    async def wake(self):
        self.come.set()

    async def ready(self):
        return "ready"


@ray.remote
class Waker:
    def ready(self):
        return "ready"

    def pause(self):
        time.sleep(2.5)

    def by_name(self, name):
        time.sleep(LATER_S)
        ray.get(ray.get_actor(name).wake.remote())

    def from_store(self, box):
        time.sleep(LATER_S)
        ray.get(ray.get(box[0]).wake.remote())


@ray.remote
class Asker:
    def end(self):
        return "ended"

    def ask(self, me, other, failing):
        try:
            return ray.get([other.back.remote(me), failing.fail.remote()])
        except ValueError:
            return "freed by an error"


@ray.remote
class Answerer:
    def back(self, asker):
        return ray.get(asker.end.remote())


@ray.remote
class Failing:
    async def fail(self):
        await asyncio.sleep(2.5)
        raise ValueError("late")


@ray.remote
class Stepper:
    def __init__(self):
        self.pool = ThreadPoolExecutor(2)

    def at(self):
        return 1

    def ask(self, me):
        return ray.get(me.at.remote())

    def leave(self, other, me):
        """A thread that has this call's context waits for what waits for the call's end."""
        self.asked = self.pool.submit(copy_context().run, lambda: ray.get(other.ask.remote(me)))
        time.sleep(LATER_S)
        return "left"

    def step(self, other):
        self.asked = self.pool.submit(lambda: ray.get(other.at.remote()))
        self.pool.submit(time.sleep, LATER_S).result()
        return "stepped"


def threads():
    one, other = Stepper.remote(), Stepper.remote()
    ray.get([one.at.remote(), other.at.remote()])
    return ray.get([one.step.remote(other), other.step.remote(one)])


def inherited():
    one, other = Stepper.remote(), Stepper.remote()
    return ray.get(one.leave.remote(other, one))


def failing():
    asker = Asker.remote()
    return ray.get(asker.ask.remote(asker, Answerer.remote(), Failing.remote()))


def named():
    hub, waker = Hub.options(name="the hub").remote(), Waker.remote()
    ray.get([hub.ready.remote(), waker.ready.remote()])
    woken = waker.by_name.remote("the hub")
    return ray.get(hub.wait.remote()), ray.get(woken)


def stored():
    hub, waker = Hub.remote(), Waker.remote()
    ray.get([hub.ready.remote(), waker.ready.remote()])
    woken = waker.from_store.remote([ray.put(hub)])
    return ray.get(hub.wait.remote()), ray.get(woken)


def called_back():
    """When the answer comes, a thread of Ray's wakes the hub; nobody reads the answer."""
    hub, waker = Hub.remote(), Waker.remote()
    ray.get([hub.ready.remote(), waker.ready.remote()])
    waker.pause.remote().future().add_done_callback(lambda answer: hub.wake.remote())
    return ray.get(hub.wait.remote())


BOUND_ON_LOOPS = (
    {"_generator_backpressure_num_objects": 2} if hasattr(ray.ObjectRefGenerator, "_get_next_ref_n") else {}
)
"""Ray 2.50 has no bound for asynchronous generators."""


@ray.remote(num_cpus=0.1, _generator_backpressure_num_objects=1)
def numbers(count, pause_s=0.0):
    for number in range(count):
        yield number
        time.sleep(pause_s)


@ray.remote(num_cpus=0.1)
class Lines:
    def pause(self, seconds):
        time.sleep(seconds)
        return "paused"

    @ray.method(_generator_backpressure_num_objects=2)
    def lines(self, count):
        for number in range(count):
            yield f"line {number}"


@ray.remote(num_cpus=0.1)
class AsyncLines:
    @ray.method(num_returns="streaming", **BOUND_ON_LOOPS)
    async def lines(self, count):
        for number in range(count):
            yield f"line {number}"

    async def relay(self, one, pause_s):
        held = one.lines.remote(9)
        await asyncio.sleep(pause_s)
        return [await ref async for ref in held][-1]


def generators():
    """They stand at a `yield` for long, and then their items are taken, or they are dropped."""
    one, both, loop = Lines.remote(), Lines.options(max_concurrency=2).remote(), AsyncLines.remote()
    held = [numbers.remote(4), one.lines.remote(4), both.lines.remote(4), loop.lines.remote(4)]
    print(ray.get(both.pause.remote(2.5)), ray.get(loop.relay.remote(Lines.remote(), 2.5)))
    print([ray.get(list(items)[-1]) for items in held], [ray.get(ref) for ref in numbers.remote(4, 0.8)])
    dropped = one.lines.remote(9)
    ray.get(next(dropped))
    time.sleep(0.5)
    del dropped
    gc.disable()  # Python would not collect by itself while the program waits
    garbage = [one.lines.remote(9)]
    garbage.append(garbage)
    del garbage
    return ray.get(one.pause.remote(0))


@ray.remote(num_cpus=0.1)
class Reader:
    async def items(self, count, pause_s):
        for number in range(count):
            await asyncio.sleep(pause_s)
            yield number

    async def read(self, sources, count, pause_s):
        async def one(source):
            return [await ref async for ref in source.items.options(num_returns="streaming").remote(count, pause_s)]

        return await asyncio.gather(*[one(source) for source in sources])


def gathered():
    sources = [Reader.remote() for _ in range(2)]
    return ray.get(Reader.remote().read.remote(sources, 3, 0.7))


if __name__ == "__main__":
    ray.init()
    print(globals()[sys.argv[1]]())
